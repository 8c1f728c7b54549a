"""``DiagnosisStopper`` where its metric is not reported, and what it says about a curve."""

from __future__ import annotations

import contextlib
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("ray.tune")

from akeso.errors import BadInput
from akeso.search import tune
from akeso.search.results import WORST
from akeso.search.stopper import DiagnosisStopper
from akeso.search.tune import ray_report, ray_watch
from tests.search.trials import build, train_epoch


def test_a_mistyped_metric_is_said_once_and_fails_no_trial(caplog: pytest.LogCaptureFixture) -> None:
    stopper = DiagnosisStopper("los", "min", epochs=10)
    with caplog.at_level(logging.WARNING, "akeso.search"):
        for name in ("a", "b"):
            for i in range(1, 4):
                result = {
                    "loss": 1.0,
                    "accuracy": 0.5,
                    "training_iteration": i,
                    "time_total_s": 1.0,
                    "done": False,
                }
                assert not stopper(name, {**result, "akeso_action": "continue"})
    (record,) = caplog.records
    assert "'los', but trial a reported loss, accuracy without a number of that name" in record.getMessage()
    assert not stopper.reasons


def test_a_metric_that_only_some_results_have_is_not_complained_of(caplog: pytest.LogCaptureFixture) -> None:
    stopper = DiagnosisStopper("loss", "min", epochs=10)
    with caplog.at_level(logging.WARNING, "akeso.search"):
        assert not stopper("a", {"loss": 1.0, "training_iteration": 1})
        assert not stopper("a", {"speed": 1.0, "training_iteration": 2})
        assert not stopper("b", {"training_iteration": 1})
    assert not caplog.records


@pytest.mark.filterwarnings("ignore:.*executed by a Tuner")  # reports go nowhere here
def test_a_profile_that_judges_by_epochs_ends_a_watched_trial_at_a_report() -> None:
    model, optimizer = build(0.1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    reports = 0
    with ray_watch(model, optimizer, metric="loss", mode="min", profile="bttackler") as health:
        for _ in range(12):
            loss = train_epoch(model, optimizer)
            reports += 1
            health.report({"loss": loss})
    assert reports < 12


def test_reports_without_a_with_block_are_refused() -> None:
    with pytest.raises(BadInput, match="without a with block"):
        ray_watch(None, metric="loss", mode="min").report({"loss": 1.0})
    with ray_watch(None, metric="loss", mode="min") as health:
        pass
    with pytest.raises(BadInput, match="used already"), health:
        pass


class Reported:
    """Stands in for Ray in a worker: keeps what was reported."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.results: list[dict[str, Any]] = []
        monkeypatch.setattr(tune, "_tune", lambda purpose: self)

    def report(self, metrics: dict[str, Any]) -> None:
        self.results.append(metrics)


def test_nested_metrics_are_named_by_their_path(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Reported(monkeypatch)
    with ray_watch(None, metric="val/loss", mode="min") as health:
        health.report({"val": {"loss": 0.5, "accuracy": 0.9}, "lr": 0.1})
        health.report({"val": {"loss": math.nan, "accuracy": 0.1}, "lr": 0.1})
        health.report({"val/loss": 0.25})
        with pytest.raises(BadInput, match="named by its path"):
            health.report({"val": {"accuracy": 0.5}})
    assert [result.get("val") for result in ray.results[:2]] == [
        {"loss": 0.5, "accuracy": 0.9},
        {"loss": WORST, "accuracy": 0.1},
    ]
    stopper = DiagnosisStopper("val/loss", "min", epochs=5)
    answers = [stopper("a", {"training_iteration": i, **result}) for i, result in enumerate(ray.results, 1)]
    assert answers[:2] == [False, True]
    assert stopper.reasons["a"].problem == "non-finite"


@pytest.mark.parametrize("odd", [None, "0.5", [0.5, 0.6], {"a": 1}, torch.ones(2)])
def test_a_metric_that_is_no_number_ends_no_search(odd: Any, caplog: pytest.LogCaptureFixture) -> None:
    stopper = DiagnosisStopper("loss", "min", epochs=10)
    with caplog.at_level(logging.WARNING, "akeso.search"):
        assert not stopper("a", {"loss": odd, "training_iteration": 1})
    assert ["without a number of that name" in message for message in caplog.messages] == [True]
    assert not stopper("b", {"loss": 1.0, "training_iteration": 1})


def test_large_metrics_are_finite() -> None:
    stopper = DiagnosisStopper("loss", "min", epochs=10)
    for i in range(1, 4):
        assert not stopper("a", {"loss": 1e13 / i, "training_iteration": i})
    assert stopper("b", {"loss": math.inf, "training_iteration": 1})


def test_a_signal_that_is_caught_still_ends_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Reported(monkeypatch)
    model, optimizer = build(9e4)
    with ray_watch(model, optimizer, metric="loss", mode="min") as health:
        with contextlib.suppress(BaseException):  # a trainer that goes on whatever happens
            train_epoch(model, optimizer)
        health.report({"loss": 0.5})
    assert [(result["loss"], result["akeso_action"]) for result in ray.results] == [(WORST, "stop")]


def test_a_log_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    stopper = DiagnosisStopper("loss", "min", epochs=10, log=tmp_path / "new" / "reasons.jsonl")
    assert stopper("a", {"loss": math.nan, "training_iteration": 1})
    assert "non-finite" in (tmp_path / "new" / "reasons.jsonl").read_text()
    with pytest.raises(BadInput, match="is a file to write to, but"):
        DiagnosisStopper("loss", "min", epochs=10, log=tmp_path)


def test_wrong_metrics_of_a_report_are_clear_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    Reported(monkeypatch)
    with pytest.raises(BadInput, match=r"the metric 'loss' takes a number, but got '0\.5'"):
        ray_report({"loss": "0.5"}, metric="loss", mode="min")
    with (
        ray_watch(None, metric="loss", mode="min") as health,
        pytest.raises(BadInput, match=r"takes its metrics by name, such as \{'loss': 0.5\}, but got 0.25"),
    ):
        health.report(0.25)  # type: ignore[arg-type]


def test_wrong_arguments_are_refused_when_the_stopper_is_made() -> None:
    with pytest.raises(BadInput, match="value is 'last' or 'best', but value='mean'"):
        DiagnosisStopper("loss", "min", epochs=10, value="mean")  # type: ignore[arg-type]


@pytest.mark.parametrize("odd", [{"training_iteration": None}, {"akeso_action": "stop", "akeso_step": "x"}])
def test_a_result_that_cannot_be_read_ends_no_search(odd: dict[str, Any]) -> None:
    assert not DiagnosisStopper("loss", "min", epochs=10)("a", {"loss": 1.0, "training_iteration": 1, **odd})


def test_a_trial_that_was_restored_is_not_compared_from_its_beginning() -> None:
    """A new driver sees it from the middle on: its first report there is not what others began with."""
    stopper = DiagnosisStopper("loss", "min", epochs=10)
    for number in range(12):  # they get worse as they go on, as a model that overfits
        for i in range(1, 11):
            stopper(f"{number}", {"loss": 0.1 * i + 0.01 * number, "training_iteration": i})
    answers = [stopper("restored", {"loss": 0.1 * i, "training_iteration": i}) for i in range(6, 11)]
    assert answers == [False] * 5
    assert stopper("broken", {"loss": math.nan, "training_iteration": 6})
    assert stopper.reasons["broken"].sentence.startswith("The value reported after epoch 6 is not finite")


def test_beside_a_scheduler_the_best_quarter_is_that_of_the_search_not_of_those_it_let_through() -> None:
    stopper = DiagnosisStopper("loss", "min", epochs=12)

    def run(name: str, level: float, epochs: int) -> bool:
        reports = ({"loss": level + 1 / i, "training_iteration": i} for i in range(1, epochs + 1))
        return any(stopper(name, result) for result in reports)

    levels = np.random.default_rng(0).permutation(np.linspace(0, 1, 60))
    for number, level in enumerate(levels):
        # The scheduler ends three of four after two epochs, and tells nobody.
        run(f"{number}", float(level), 12 if level < 0.25 else 2)
    assert not run("of the best quarter", 0.24, 12)
    assert run("of the worst", 0.9, 12)
