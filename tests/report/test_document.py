"""The JSON document: complete, and JSON whatever the run was like."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from akeso.diagnosis import Diagnosis
from akeso.examination import Examination, examine
from akeso.history import Event, History
from akeso.report import RunReport, run_document, to_json

ROOT = Diagnosis(
    "abnormal-data", "error", 0.934, "", 3, {"scale": np.float32(1e6), "bad": math.nan, "list": (1, math.inf)},
    (), ("Scale the inputs.",), "The inputs are out of scale.",
)  # fmt: skip
EFFECT = Diagnosis(
    "dying-relu",
    "warning",
    0.8,
    "net.1",
    40,
    {"dead": 0.95},
    ("abnormal-data",),
    (),
    "95 % of the units are dead.",
)
REMARK = Diagnosis("no-more-gain", "info", 0.7, "", 90, {}, (), (), "Nothing has been gained since step 90.")


def history() -> History:
    run = History()
    for step in range(100):
        run.add(step, "loss", "", 1.0 if step < 90 else 0.5)
        if step < 10:
            run.add(step, "accuracy", "", 0.1)
    run.add(99, "val_accuracy", "", 0.75)
    run.facts["task"] = "binary"
    run.facts["printed_metrics"] = {"test_loss": [[10, 0.7], [99, 0.6]], "val_accuracy": [[99, 0.1]]}
    return run


def test_the_document_has_everything_that_is_promised() -> None:
    document = run_document(history(), Examination((ROOT, EFFECT), ("no input seen",)), 0.00712, run="here")
    assert set(document) == {
        "schema", "status", "diagnoses", "task", "steps", "metrics", "overhead", "not_checked", "run",
    }  # fmt: skip
    assert document["schema"] == 1
    assert document["status"] == "findings"
    assert document["task"] == "binary"
    assert document["steps"] == 100
    assert document["overhead"] == 0.00712
    assert document["not_checked"] == ["no input seen"]
    assert set(document["diagnoses"][0]) == {
        "problem", "severity", "confidence", "layer", "step", "evidence", "because_of", "remedies", "sentence",
    }  # fmt: skip
    assert document["diagnoses"][1]["because_of"] == ["abnormal-data"]


def test_metrics_are_those_of_the_end_and_printed_ones_fill_gaps() -> None:
    metrics = run_document(history(), Examination((), ()), 0.0)["metrics"]
    assert metrics == {"train_loss": 0.5, "val_loss": 0.6, "val_accuracy": 0.75}


def test_the_text_is_json_whatever_the_evidence() -> None:
    text = to_json(run_document(history(), Examination((ROOT,), ()), 0.0))
    evidence = json.loads(text, parse_constant=lambda name: 1 / 0)["diagnoses"][0]["evidence"]
    assert evidence == {"scale": 1e6, "bad": "nan", "list": [1, "inf"]}


def test_a_loss_that_is_not_finite_is_null() -> None:
    run = History()
    run.add(0, "loss", "", math.nan)
    assert run_document(run, examine(run), 0.0)["metrics"] == {"train_loss": None}


def test_remarks_alone_are_healthy() -> None:
    assert run_document(history(), Examination((REMARK,), ()), 0.0)["status"] == "healthy"


def test_a_watch_shows_itself_in_notebooks() -> None:
    import torch

    import akeso

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).pow(2).mean().backward()
            optimizer.step()
    html = watch._repr_html_()
    assert html.startswith('<div class="akeso">')
    assert "3 steps" in html


def test_a_report_shows_itself_in_notebooks_and_as_text() -> None:
    report = RunReport(run_document(history(), Examination((ROOT, EFFECT, REMARK), ("<b>",)), 0.01))
    html = report._repr_html_()
    assert "The inputs are out of scale." in html
    assert "&lt;b&gt;" in html
    assert "<b>" not in html.replace("<b style", "")
    text = str(report)
    assert text.index("out of scale") < text.index("95 %") < text.index("Nothing has been gained")


def test_training_and_validation_loss_are_given_on_one_scale() -> None:
    run = history()
    run.add(99, "val_loss", "", 0.25)
    run.facts["val_scale"] = 4.0  # the training adds up what validation averages
    metrics = run_document(run, examine(run), 0.0)["metrics"]
    assert (metrics["train_loss"], metrics["val_loss"]) == (0.125, 0.25)


@pytest.mark.parametrize(("batches", "shown"), [(4, 2.0), (3, 0.5)])
def test_a_loss_that_is_divided_among_the_batches_of_a_step_is_given_whole(
    batches: int, shown: float
) -> None:
    run = history()
    run.facts["micro_batches"] = batches
    run.add(99, "loss_over_call", "", 0.25)
    assert run_document(run, examine(run), 0.0)["metrics"]["train_loss"] == shown


def test_an_accuracy_of_a_few_single_samples_is_no_figure() -> None:
    run = History()
    run.facts["target_shape"] = [1]
    for step in range(100):
        run.add(step, "loss", "", 1.0)
        if step % 10 == 9:
            run.add(step, "accuracy", "", 0.0)
    assert "train_accuracy" not in run_document(run, Examination((), ()), 0.0)["metrics"]
    for step in range(100, 1000):
        run.add(step, "loss", "", 1.0)
        run.add(step, "accuracy", "", float(step % 2))
    assert run_document(run, Examination((), ()), 0.0)["metrics"]["train_accuracy"] == 0.5


def test_a_run_without_a_loss_is_not_called_healthy() -> None:
    run = History()
    run.steps = 40
    document = run_document(run, examine(run), 0.0)
    assert "nothing could be judged" in str(RunReport(document))


def test_a_run_in_which_the_watch_failed_is_not_called_healthy() -> None:
    run = history()
    run.events.append(Event(0, "probe-off", "before_step", {"error": "TypeError: no"}))
    text = str(RunReport(run_document(run, examine(run), 0.0)))
    assert "nothing found by what was left of the watch" in text
    assert "healthy" not in text
