"""What a training aims at: losses, outputs and labels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import akeso
from akeso.detectors.standing import standing
from akeso.detectors.testing import Sketch, falling, flat
from akeso.examination import examine
from tests.detectors.sketches import REGRESSION, first


def test_one_output_unit_and_rare_positives_collapse_into_imbalance():
    facts = {
        "loss": "binary_cross_entropy_with_logits", "classes": 1, "task": "binary", "target_kind": "binary",
    }  # fmt: skip
    run = {
        "target_top_share": math.nan, "target_mean": 0.05, "target_std": 0.22, "target_min": 0.0, "target_max": 1.0,
        "prediction_top_share": 1.0,
    }  # fmt: skip
    sketch = Sketch(loss=flat(0.2), baseline=0.2, accuracy=flat(0.95), facts=facts, run=run)
    assert first(sketch) == "class-imbalance"


@pytest.mark.parametrize(("accuracy", "drowned"), [(0.95, True), (0.05, False)])
def test_a_class_drowns_the_others_only_where_the_model_answers_with_it(
    accuracy: float, drowned: bool
) -> None:
    run = {"target_top_share": 0.95, "prediction_top_share": 1.0}
    facts = {"classes": 2, "task": "binary"}
    sketch = Sketch(loss=flat(0.2), baseline=0.2, accuracy=flat(accuracy), facts=facts, run=run)
    found = {d.problem for d in examine(sketch.history()).diagnoses}
    assert ("class-imbalance" in found) == drowned


@pytest.mark.parametrize(
    ("printed", "named"),
    [({"f1": 0.0}, True), ({"val_recall": 0.0}, True), ({"f1": 0.3}, False), ({"val_accuracy": 0.95}, False)],
)
def test_a_rare_class_that_is_never_answered_is_named_where_the_script_asks_for_it(
    printed: dict[str, float], named: bool
) -> None:
    told = {name: [[step, value] for step in range(24, 300, 25)] for name, value in printed.items()}
    facts = {
        "loss": "binary_cross_entropy_with_logits", "classes": 1, "task": "binary", "target_kind": "binary",
        "printed_metrics": told,
    }  # fmt: skip
    run = {
        "target_top_share": math.nan, "target_mean": 0.05, "target_std": 0.22, "target_min": 0.0, "target_max": 1.0,
        "prediction_top_share": 1.0,
    }  # fmt: skip
    falls = Sketch(loss=falling(0.3, 0.16), baseline=0.2, accuracy=flat(0.95), facts=facts, run=run)
    found = [one for one in examine(falls.history()).diagnoses if one.problem == "class-imbalance"]
    assert bool(found) is named
    assert all("the script's own" in one.sentence for one in found)


def test_a_penalty_added_to_the_loss_does_not_raise_the_constant_prediction():
    sketch = Sketch(run={"baseline_loss": lambda s: 2.3 * (1 + 10 * np.exp(-8 * s))})
    assert standing(sketch.history()).baseline == pytest.approx(2.3, rel=0.05)


def test_a_validation_loss_that_rises_far_is_overfitting_whatever_accuracy_does() -> None:
    sketch = Sketch(
        loss=falling(2.3, 0.01), validation=lambda s: 2.0 + 2.0 * s, validation_accuracy=flat(0.4)
    )
    assert first(sketch) == "overfitting"


def test_a_weak_signal_is_no_missing_one() -> None:
    weak = Sketch(loss=flat(2.2), noise=0.02, accuracy=flat(0.13), update=lambda i: 0.01)
    assert not {"unlearnable-labels", "slow-convergence"} & {
        d.problem for d in examine(weak.history()).diagnoses if d.severity != "info"
    }


def test_the_more_classes_the_surer_that_squared_errors_do_not_teach_them() -> None:
    def confidence(classes: int) -> float:
        facts = {"loss": "mse_loss", "target_kind": "one-hot", "classes": classes}
        run = {"target_min": 0.0, "target_max": 1.0}
        sketch = Sketch(loss=flat(0.09), baseline=0.09, accuracy=flat(1 / classes), facts=facts, run=run)
        found = {d.problem: d.confidence for d in examine(sketch.history()).diagnoses}
        return found["improper-loss"]

    known = [confidence(classes) for classes in (3, 9, 10, 100, 100_000)]
    assert known == sorted(known)
    assert known[2] - known[1] < 0.01
    assert known[0] > 0.5
    assert known[-1] <= 0.7


def test_validation_that_is_a_little_but_surely_better_than_guessing_has_found_a_signal() -> None:
    memorises = Sketch(loss=falling(2.3, 0.05), validation=flat(2.4), update=lambda i: 5e-3)
    sizes = {"val_size": 10_000, "dataset_size": 640}  # gone through many times
    assert first(replace(memorises, facts=sizes, validation_accuracy=flat(0.1))) == "unlearnable-labels"
    assert first(replace(memorises, facts=sizes, validation_accuracy=flat(0.13))) != "unlearnable-labels"


@pytest.mark.parametrize(("low", "kind", "found"), [(0.0, "binary", "improper-loss"), (-1.0, "values", None)])
def test_a_loss_that_multiplies_by_the_target_needs_signs(low: float, kind: str, found: str | None) -> None:
    facts = {"loss": "soft_margin_loss", "classes": 1, "task": "binary", "target_kind": kind}
    run = {"target_min": low, "target_max": 1.0, "target_mean": (1 + low) / 2, "target_top_share": 0.5}
    sketch = Sketch(loss=falling(0.69, 0.34), baseline=math.nan, accuracy=None, facts=facts, run=run)
    assert first(sketch) == found


def test_a_clamp_is_no_sigmoid() -> None:
    def judged(loss: str, last: float) -> str | None:
        facts = {
            "loss": loss,
            "classes": 1,
            "task": "binary",
            "target_kind": "binary",
            "output_activation": "clamp",
        }
        run = {"target_min": 0.0, "target_max": 1.0, "target_mean": 0.5, "output_min": 0.0, "output_max": 1.0}
        return first(Sketch(loss=falling(0.9, last), baseline=0.69, accuracy=flat(0.8), facts=facts, run=run))

    assert judged("binary_cross_entropy", 0.5) == "improper-output-activation"
    assert judged("binary_cross_entropy", 0.05) is None
    assert judged("binary_cross_entropy_with_logits", 0.45) == "improper-output-activation"


def test_a_log_sigmoid_gives_no_probabilities_over_classes() -> None:
    run = {"output_min": -1.0, "output_max": -1e-3}
    facts = {"loss": "nll_loss", "output_activation": "logsigmoid"}
    # The loss vanishes by saying yes to everything, so that its curve shows no harm.
    assert first(Sketch(loss=falling(0.8, 0.002), accuracy=flat(0.3), facts=facts, run=run)) == (
        "improper-output-activation"
    )
    assert first(Sketch(facts={**facts, "output_activation": "log_softmax"}, run=run)) is None


@pytest.mark.parametrize(("smoothing", "found"), [(0.9, "improper-loss"), (0.1, None), (0.3, None)])
def test_smoothing_that_takes_most_of_the_right_class(smoothing: float, found: str | None) -> None:
    facts = {"loss_args": {"reduction": "mean", "label_smoothing": smoothing, "ignore_index": -100}}
    assert first(Sketch(facts=facts)) == found


def test_a_class_left_out_of_the_loss_is_told_from_padding() -> None:
    facts = {
        "loss_args": {"reduction": "mean", "ignore_index": 0},
        "input_shape": [64, 20],
        "output_shape": [64, 10],
        "target_shape": [64],
    }
    assert first(Sketch(facts=facts, run={"target_ignored": 0.1})) == "improper-loss"
    # Nothing is left out; a label for a few samples nobody could judge; tokens; a map of classes.
    assert first(Sketch(facts=facts)) is None
    assert first(Sketch(facts=facts, run={"target_ignored": 0.01})) is None
    tokens = {**facts, "output_shape": [1280, 10], "target_shape": [1280]}
    assert first(Sketch(facts=tokens, run={"target_ignored": 0.4})) is None
    pixels = {**facts, "output_shape": [64, 10, 8, 8], "target_shape": [64, 8, 8]}
    assert first(Sketch(facts=pixels, run={"target_ignored": 0.6})) is None


def test_squared_errors_on_one_hot_rows_that_still_fall_when_the_run_is_over() -> None:
    facts = {"loss": "mse_loss", "target_kind": "one-hot"}
    run = {"target_min": 0.0, "target_max": 1.0, "target_mean": 0.1, "target_std": 0.3}
    slow = Sketch(
        loss=falling(0.11, 0.045, 2.0), baseline=0.09, accuracy=lambda s: 0.1 + 0.45 * s, facts=facts, run=run
    )
    assert first(slow) == "improper-loss"
    assert first(replace(slow, loss=falling(0.11, 0.02, 3.0), accuracy=lambda s: 0.1 + 0.8 * s)) is None


def test_the_median_of_counts_that_are_mostly_zero_is_no_answer() -> None:
    counts = {
        "target_min": 0.0,
        "target_max": 4.0,
        "target_mean": 0.35,
        "target_std": 0.7,
        "output_mean": 0.002,
    }
    answers = {**counts, "output_sample_std": 0.001, "output_std": 0.001}
    facts = {**REGRESSION, "loss": "l1_loss"}
    collapsed = Sketch(loss=flat(0.35), baseline=0.34, accuracy=None, facts=facts, run=answers)
    assert first(collapsed) == "improper-loss"
    # It answers with values of its own; the loss asks for the mean; the targets lie around their middle.
    assert first(replace(collapsed, run={**answers, "output_sample_std": 0.3})) != "improper-loss"
    assert first(replace(collapsed, facts=REGRESSION)) != "improper-loss"
    assert first(replace(collapsed, run={**answers, "target_mean": 2.0})) != "improper-loss"


def test_ratings_of_as_many_questions_as_there_are_marks_are_no_class_numbers() -> None:
    facts = {**REGRESSION, "classes": 5, "target_distinct": 5}
    run = {"target_min": 0.0, "target_max": 4.0, "target_mean": 2.0, "target_std": 1.41}
    assert first(Sketch(loss=falling(6.0, 0.8), baseline=2.0, accuracy=None, facts=facts, run=run)) is None


@pytest.mark.parametrize(("units", "end", "named"), [(62, 0.056, True), (62, 0.01, False), (4, 0.056, False)])
def test_yes_or_no_for_each_of_many_classes_of_which_one_holds(units: int, end: float, named: bool) -> None:
    facts = {"loss": "binary_cross_entropy_with_logits", "target_kind": "one-hot", "classes": units}
    sketch = Sketch(
        loss=falling(0.13, end),
        baseline=0.07,
        noise=0.01,
        accuracy=lambda s: 0.1 + 0.2 * s,
        facts=facts,
        run={"target_min": 0.0, "target_max": 1.0},
    )
    assert (first(sketch) == "improper-loss") == named


@pytest.mark.parametrize(("late", "suffers"), [(19.0, False), (37.0, True)])
def test_a_loss_of_unknown_measure_that_rose_at_first_and_falls_since_does_no_harm(
    late: float, suffers: bool
) -> None:
    sketch = Sketch(
        loss=lambda share: np.where(share < 0.05, 20.6 + 330 * share, 37.1 + (late - 37.1) * share),
        accuracy=None,
        baseline=math.nan,
        facts={"loss": "custom"},
    )
    assert standing(sketch.history()).suffers(0.7) is suffers


@pytest.mark.parametrize(
    ("rise", "again", "severity"),
    [(0.0, False, None), (0.5, False, "warning"), (0.02, False, "info"), (0.0, True, None)],
)
def test_overfitting_is_a_rise_that_matters_and_no_other_model_evaluated_at_the_end(
    rise: float, again: bool, severity: str | None
) -> None:
    sketch = Sketch(
        loss=falling(2.3, 0.01),
        accuracy=flat(0.99),
        validation=lambda share: 0.02 + np.maximum(0.3 - share, 0.0) + rise * np.maximum(share - 0.5, 0.0),
    )
    history = sketch.history()
    if again:  # the best one so far, say, by another measure
        history.add(int(history.series("val_loss").steps[-1]), "val_loss", "", 0.4)
    found = [one.severity for one in examine(history).diagnoses if one.problem == "overfitting"]
    assert found == ([severity] if severity else [])


def _unmoved(best: float = 0.1, **given: Any) -> Sketch:
    """A training that learns while the accuracy in validation stays what guessing gives."""
    made: dict[str, Any] = {
        "loss": falling(2.3, 0.2), "validation_accuracy": flat(best), "facts": {"val_size": 1000}, **given,
    }  # fmt: skip
    return Sketch(**made)


def test_validation_that_never_moves_is_not_of_what_is_trained() -> None:
    assert first(_unmoved()) == "parameters-not-trained"
    # Better than guessing; an average that is young, and gets there in the end; samples learnt by heart.
    assert first(_unmoved(best=0.3)) is None
    assert first(_unmoved(validation_accuracy=lambda share: 0.1 + 0.6 * (share > 0.85))) is None
    assert first(_unmoved(validation_accuracy=lambda share: 0.1 + 0.03 * np.sin(40 * share))) != (
        "parameters-not-trained"
    )
    assert first(_unmoved(validation=lambda share: 2.3 + 3 * share)) != "parameters-not-trained"
    # A run that is not over, and one that has not learnt.
    assert first(_unmoved(loss=falling(2.3, 1.8), accuracy=flat(0.3))) != "parameters-not-trained"
    early = _unmoved().history()
    early.finished, early.planned_steps = False, 1000
    assert "parameters-not-trained" not in {one.problem for one in examine(early).diagnoses}


@pytest.mark.parametrize(
    ("tilt", "answered", "found"),
    [(1.8, 0.0, "class-imbalance"), (1.8, 0.04, None), (1.0, 0.0, None), (0.2, 0.0, None)],
)
def test_weights_that_grow_with_the_frequency_of_a_class(
    tilt: float, answered: float, found: str | None
) -> None:
    run = {"weight_tilt": tilt, "target_top_share": 0.95, "prediction_top_share": 1.0 - answered}
    facts = {"classes": 2, "task": "binary"}
    sketch = Sketch(loss=falling(0.2, 0.1), baseline=0.2, accuracy=flat(0.95), facts=facts, run=run)
    assert first(sketch) == found


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([0.25])), (0.75 + 0.25 * 0.25) / 0.625),
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0])), 0.75),
        (nn.CrossEntropyLoss(weight=torch.tensor([0.6, 0.2])), (0.75 * 0.6 + 0.25 * 0.2) / 0.4),
        (nn.CrossEntropyLoss(weight=torch.tensor([2.0, 2.0])), 1.0),
        (nn.CrossEntropyLoss(weight=torch.tensor([3.0, 1.0]), ignore_index=1), 1.5),
        (nn.CrossEntropyLoss(), None),
    ],
)
def test_the_weight_of_the_targets_is_held_against_that_of_the_classes(
    loss: nn.Module, expected: float | None
) -> None:
    several = isinstance(loss, nn.CrossEntropyLoss)
    model = nn.Linear(4, 2 if several else 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    target = torch.tensor([0, 0, 0, 1] * 8)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(3):
            optimizer.zero_grad()
            loss(model(torch.randn(32, 4)), target if several else target[:, None].float()).backward()
            optimizer.step()
    seen = watch.history.series("weight_tilt").values.tolist()
    assert seen == ([] if expected is None else pytest.approx([expected] * len(seen)))
    assert bool(seen) is (expected is not None)


def test_answers_the_wrong_way_round_in_validation_are_no_labels_without_signal() -> None:
    two = {"task": "binary", "classes": 1, "loss": "binary_cross_entropy_with_logits", "val_size": 400}
    found = Sketch(
        loss=falling(0.7, 0.4),
        baseline=0.693,
        accuracy=lambda share: 0.5 + 0.3 * share,
        run={"target_top_share": 0.51, "prediction_top_share": 0.55},
        facts={**two, "target_kind": "binary"},
        validation_accuracy=lambda share: 0.5 - 0.25 * share,
    )
    assert first(found) == "validation-mismatch"
    assert "yes means no" in examine(found.history()).diagnoses[0].sentence
    # Bad luck with few samples, and answers of many classes.
    few = replace(found, facts={**found.facts, "val_size": 16})
    assert "yes means no" not in str(examine(few.history()).diagnoses)
    many = replace(
        found, facts={**found.facts, "task": "multiclass", "classes": 10}, run={"target_top_share": 0.1}
    )
    assert "yes means no" not in str(examine(many.history()).diagnoses)


def test_validation_at_chance_is_its_own_fault_where_new_samples_are_answered_well() -> None:
    found = Sketch(loss=falling(2.3, 0.1), validation_accuracy=flat(0.12))
    assert first(found) == "validation-mismatch"
    # Learnt by heart, for nothing is known of new samples; learning late; half as good; a figure of something else.
    by_heart = {"facts": {"dataset_size": 640}}
    assert first(replace(found, **by_heart)) != "validation-mismatch"
    late = replace(
        found, loss=lambda s: np.where(s < 0.5, 2.3, 0.3), accuracy=lambda s: np.where(s < 0.5, 0.1, 0.9)
    )
    assert first(late) != "validation-mismatch"
    assert first(replace(found, validation_accuracy=flat(0.3))) is None
    assert first(replace(found, validation_accuracy=flat(0.01))) != "validation-mismatch"
    # What the script prints will do, in percent too.
    for scale in (1.0, 100.0):
        printed = {"printed_metrics": {"val_accuracy": [[step, 0.12 * scale] for step in range(50, 300, 50)]}}
        assert first(replace(found, validation_accuracy=None, facts=printed)) == "validation-mismatch"


@pytest.mark.parametrize(("balanced", "found"), [(0.52, "class-imbalance"), (0.93, None)])
def test_a_printed_accuracy_that_is_balanced_tells_that_the_rare_class_is_lost(
    balanced: float, found: str | None
) -> None:
    printed = {"printed_metrics": {"val_accuracy": [[step, balanced] for step in range(50, 300, 50)]}}
    sketch = Sketch(
        loss=falling(0.3, 0.04), baseline=0.06, accuracy=flat(0.99), facts={"classes": 2, "task": "binary", **printed},
        run={"target_top_share": 0.99, "prediction_top_share": 0.999},
    )  # fmt: skip
    assert first(sketch) == found


def test_answers_that_stay_right_are_no_overfitting_for_being_given_with_too_much_confidence() -> None:
    sketch = Sketch(
        loss=falling(2.3, 0.01),
        validation=lambda s: 1.2 + 0.9 * s,
        validation_accuracy=lambda s: 0.7 + 0.02 * s,
    )
    assert first(sketch) is None
    assert first(replace(sketch, validation_accuracy=None)) == "overfitting"


OWN: dict[str, Any] = {"loss": "custom", "task": "unknown", "classes": None, "target_kind": None}


def _figures(name: str, values: list[float]) -> dict[str, Any]:
    return {**OWN, "printed_metrics": {name: [[20 * (at + 1), value] for at, value in enumerate(values)]}}


@pytest.mark.parametrize(
    ("name", "values", "backwards"),
    [
        ("val_auc", [0.33, 0.31, 0.30, 0.29, 0.30, 0.31], True),
        ("concordance", [0.33, 0.38, 0.41, 0.40, 0.42, 0.41], True),
        ("concordance", [0.42, 0.55, 0.62, 0.64, 0.66, 0.66], False),
        ("auc", [0.47, 0.49, 0.46, 0.51, 0.48, 0.49], False),
        ("auc", [0.30, 0.28, 0.29], False),
    ],
)
def test_a_ranking_that_is_worse_than_chance_every_time_is_the_wrong_way_round(
    name: str, values: list[float], backwards: bool
) -> None:
    sketch = Sketch(loss=falling(3.0, 1.0), baseline=math.nan, accuracy=None, facts=_figures(name, values))
    assert first(sketch) == ("improper-loss" if backwards else None)


@pytest.mark.parametrize(
    ("values", "lost"),
    [
        ([22.0, 18.0, 14.0, 11.0, 9.5, 9.4, 9.3, 9.4], True),
        ([-900.0, -1000.0, -1250.0, -1400.0, -1500.0, -1490.0], True),
        ([20.0, 12.0, 60.0, 150.0, 90.0, 12.0, 11.0, 10.0], False),
        ([20.0, 25.0, 60.0, 150.0, 190.0, 200.0], False),
        ([20.0, 19.0, 22.0, 17.0, 21.0, 20.0], False),
    ],
)
def test_a_reward_that_only_gets_worse_is_told_where_no_loss_tells_anything(
    values: list[float], lost: bool
) -> None:
    sketch = Sketch(
        loss=lambda s: np.sin(40 * s), baseline=math.nan, accuracy=None, facts=_figures("reward", values)
    )
    found = [one for one in examine(sketch.history()).diagnoses if one.problem == "improper-loss"]
    assert bool(found) is lost
    assert not lost or "was never better" in found[0].sentence
    measured = replace(
        sketch, baseline=2.3, loss=falling(2.3, 0.3), facts=_figures("reward", values) | {"loss": "mse_loss"}
    )
    assert first(measured) is None


def test_the_reward_of_the_first_step_is_what_later_ones_are_held_against() -> None:
    values = [[0, 17.5], *([step, 9.4] for step in range(20, 200, 20))]
    facts = {**OWN, "printed_metrics": {"reward": values}}
    sketch = Sketch(loss=lambda s: np.sin(40 * s), baseline=math.nan, accuracy=None, facts=facts)
    assert first(sketch) == "improper-loss"


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (lambda s: 1.0 - 200.0 * s, True),
        (lambda s: -3.0 - 8000.0 * s**3, True),
        (lambda s: -30.0 + 31.0 * np.exp(-6 * s), False),
        (lambda s: 1.0 - 6.0 * s, False),
    ],
)
def test_a_loss_that_falls_without_end_is_told_from_one_that_has_a_least_value(loss, found: bool) -> None:
    sketch = Sketch(loss=loss, baseline=math.nan, accuracy=None, facts=OWN)
    assert (first(sketch) == "improper-loss") is found


@pytest.mark.parametrize(
    ("judge", "maker", "spread", "found"),
    [
        (falling(1.4, 0.001, 20), falling(0.7, 0.001, 20), 0.0, True),
        (falling(1.4, 0.001, 20), lambda s: 0.7 + 9.0 * s, 0.0, False),
        (flat(1.2), flat(0.8), 0.0, False),
        (falling(0.7, 0.001, 20), falling(0.7, 0.001, 20), 0.5, False),
        (lambda s: -1.0 - 1500.0 * s**2, lambda s: -1.0 - 3000.0 * s**2, math.nan, True),
        (lambda s: -1.0 - 1500.0 * s**2, lambda s: 3.0 * np.sin(9.0 * s), math.nan, False),
    ],
)
def test_two_networks_that_both_get_what_they_want_are_no_opponents(
    judge, maker, spread: float, found: bool
) -> None:
    known = "custom" if math.isnan(spread) else "binary_cross_entropy_with_logits"
    facts = {**OWN, "loss": known, "optimizers": [{"name": "Adam"}, {"name": "Adam"}]}
    history = Sketch(
        loss=judge, noise=0.0, baseline=math.nan, accuracy=None, facts=facts, run={"target_std": spread}
    ).history()
    share = np.linspace(0.0, 1.0, history.steps)
    history.add_many("loss", "1", list(enumerate(maker(share).tolist())))
    said = [one.sentence for one in examine(history).diagnoses if one.problem == "improper-loss"]
    assert bool(said) is found
    assert not found or "only one of them can" in said[0]
