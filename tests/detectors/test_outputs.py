"""Outputs that are not what the loss takes them for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from akeso.detectors.testing import Sketch, falling, flat
from akeso.diagnosis import Diagnosis
from akeso.examination import examine


def _found(facts: Mapping[str, Any], run: Mapping[str, float], left: float = 0.4) -> list[Diagnosis]:
    sketch = Sketch(loss=falling(1.0, left), baseline=1.0, accuracy=flat(0.9), facts=facts, run=run)
    return [one for one in examine(sketch.history()).diagnoses if one.severity != "info"]


def _named(facts: Mapping[str, Any], run: Mapping[str, float], left: float = 0.4) -> str:
    found = _found(facts, run, left)
    return found[0].problem if found else ""


LABELS = {
    "loss": "binary_cross_entropy_with_logits",
    "classes": 6,
    "target_kind": "binary",
    "task": "multilabel",
}
PIXELS = {
    "loss": "binary_cross_entropy",
    "classes": 64,
    "target_kind": "same-as-input",
    "task": "autoencoder",
}
RATES = {"loss": "poisson_nll_loss", "classes": 1, "target_kind": "values", "task": "regression"}


@pytest.mark.parametrize("activation", ["log_softmax", "logsigmoid", "softmax"])
def test_logarithms_of_probabilities_are_no_logits_of_labels(activation: str) -> None:
    run = {"output_min": -9.0, "output_max": -0.2, "target_mean": 0.4}
    found = _found({**LABELS, "output_activation": activation}, run)
    assert found[0].problem == "improper-output-activation"
    assert "more likely than not" in found[0].sentence


def test_a_sigmoid_that_gives_nothing_but_zero_gives_no_logarithms() -> None:
    found = _found({**LABELS, "output_activation": "sigmoid"}, {"output_min": 0.0, "output_max": 0.0})
    assert "output of a sigmoid" in found[0].sentence


def test_logits_that_happen_to_be_negative_are_logits() -> None:
    run = {"output_min": -9.0, "output_max": -0.2, "target_mean": 0.1}
    assert not _found({**LABELS, "output_activation": "none"}, run)


@pytest.mark.parametrize(("error", "named"), [(0.6, "improper-output-activation"), (1e-6, "")])
def test_log_probabilities_must_sum_to_one_over_the_classes(error: float, named: str) -> None:
    facts = {"loss": "nll_loss", "output_activation": "log_softmax"}
    assert _named(facts, {"output_max": -0.01, "output_mass_error": error}) == named


def test_weighted_log_probabilities_need_not_sum_to_one() -> None:
    facts = {"loss": "nll_loss", "output_activation": "none"}  # as in a focal loss
    assert not _found(facts, {"output_max": -0.01, "output_mass_error": 2.0})


@pytest.mark.parametrize(
    ("activation", "mean", "named"),
    [
        ("softmax", 0.3, "improper-output-activation"),  # 19 of 64 pixels
        ("softmax", 1 / 64, ""),  # a heat map that sums to one
        ("sigmoid", 0.3, ""),
    ],
)
def test_a_softmax_cannot_reach_what_sums_to_more_than_one(activation: str, mean: float, named: str) -> None:
    run = {"output_min": 0.0, "output_max": 0.9, "target_mean": mean, "target_min": 0.0, "target_max": 1.0}
    assert _named({**PIXELS, "output_shape": [32, 64], "output_activation": activation}, run) == named


@pytest.mark.parametrize(
    ("labels", "kind", "loss", "named"),
    [
        (1.8, "binary", "binary_cross_entropy", "improper-output-activation"),
        (1.1, "binary", "binary_cross_entropy", ""),  # hardly any sample has more than one
        (1.0, "one-hot", "binary_cross_entropy", ""),
        (1.8, "values", "mse_loss", ""),
    ],
)
def test_a_softmax_shares_out_one_among_labels_that_hold_together(
    labels: float, kind: str, loss: str, named: str
) -> None:
    run = {
        "output_min": 0.0,
        "output_max": 0.9,
        "target_mean": labels / 10,
        "target_min": 0.0,
        "target_max": 1.0,
    }
    facts = {
        "loss": loss,
        "target_kind": kind,
        "classes": 10,
        "output_shape": [32, 10],
        "output_activation": "softmax",
    }
    assert _named(facts, run) == named


def test_a_softmax_over_the_pixels_of_each_channel_may_reach_its_targets() -> None:
    run = {"output_min": 0.0, "output_max": 0.9, "target_mean": 1 / 64, "target_min": 0.0, "target_max": 1.0}
    facts = {**PIXELS, "classes": 17, "output_shape": [32, 17, 8, 8], "output_activation": "softmax"}
    assert not _found(facts, run)


@pytest.mark.parametrize(("low", "named"), [(1.0, "improper-output-activation"), (0.02, "")])
def test_one_unit_of_a_softmax_over_two_is_no_softmax_over_one(low: float, named: str) -> None:
    facts = {
        "loss": "binary_cross_entropy",
        "classes": 1,
        "target_kind": "binary",
        "output_activation": "softmax",
    }
    run = {"output_min": low, "output_max": 1.0, "target_min": 0.0, "target_max": 1.0, "target_mean": 0.5}
    assert _named(facts, run) == named


@pytest.mark.parametrize("activation", ["softplus", "exp", "relu"])
@pytest.mark.parametrize(
    ("arguments", "named"), [({"log_input": True}, "improper-loss"), ({"log_input": False}, ""), ({}, "")]
)
def test_rates_are_not_taken_for_their_logarithms(
    activation: str, arguments: dict[str, Any], named: str
) -> None:
    facts = {**RATES, "output_activation": activation, "loss_args": arguments}
    sketch = Sketch(
        loss=falling(1.0, -5.0), baseline=math.nan, accuracy=None, facts=facts,
        run={"output_min": 0.1, "target_min": 0.0, "target_max": 30.0, "target_mean": 8.0, "target_std": 4.0},
    )  # fmt: skip
    found = [one.problem for one in examine(sketch.history()).diagnoses if one.severity != "info"]
    assert (found[0] if found else "") == named


ANSWERS = {"loss": "binary_cross_entropy", "classes": 1, "target_kind": "binary", "task": "binary"}
SURE = {"output_min": 0.5, "output_max": 0.73, "target_min": 0.0, "target_max": 1.0, "target_mean": 0.5}


@pytest.mark.parametrize(
    ("last", "before", "says"),
    [
        ("sigmoid", "sigmoid", "applied twice"),
        ("sigmoid", "relu", "to what a relu gives"),
        ("sigmoid", "tanh", "cannot be sure"),
    ],
)
def test_a_function_of_a_function_has_half_its_range(last: str, before: str, says: str) -> None:
    facts = {**ANSWERS, "output_activation": last, "output_activation_of": before}
    found = _found(facts, SURE, left=0.8)
    assert found[0].problem == "improper-output-activation"
    assert says in found[0].sentence


def test_one_function_is_none_too_many_and_two_may_do() -> None:
    assert not _found({**ANSWERS, "output_activation": "sigmoid"}, SURE)
    # Scores that are squashed before they become probabilities cost nothing where the loss comes down all the same.
    squashed = {**ANSWERS, "output_activation": "sigmoid", "output_activation_of": "tanh"}
    assert not _found(squashed, {**SURE, "output_min": 0.27}, left=0.05)
    # What is no probability to begin with may go through anything.
    assert not _found({**ANSWERS, "output_activation": "sigmoid", "output_activation_of": "elu"}, SURE)


@pytest.mark.parametrize(
    ("start", "end", "named"),
    [(0.98, 0.98, True), (0.6, 0.98, False), (1.3, 1.3, False), (0.3, 0.3, False)],
    ids=["cosines", "still growing", "beyond one", "far from one"],
)
def test_cosines_are_named_though_their_loss_falls_a_little(start: float, end: float, named: bool) -> None:
    facts = {"loss": "cross_entropy", "classes": 100, "target_kind": "indices", "output_activation": "none"}
    run = {
        "output_min": -0.7,
        "output_max": lambda share: start + (end - start) * share,
        "output_confidence": 0.023,
        "target_classes": 100.0,
        "target_top_share": 0.02,
        "prediction_top_share": 0.02,
    }
    sketch = Sketch(
        loss=falling(4.6, 3.7, 3.0),
        noise=0.002,
        baseline=math.log(100),
        accuracy=flat(0.88),
        facts=facts,
        run=run,
    )
    found = [one for one in examine(sketch.history()).diagnoses if "lie too close together" in one.sentence]
    assert [one.problem for one in found] == (["improper-output-activation"] if named else [])
    assert all(one.evidence["output_confidence"] == 0.023 for one in found)


VALUES = {"loss": "mse_loss", "classes": 8, "target_kind": "values", "task": "regression"}


@pytest.mark.parametrize(
    ("beyond", "left", "named"),
    [
        (0.85, 0.12, "improper-output-activation"),
        (0.5, 0.12, ""),  # noise about the edge of what can be said
        (0.85, 0.005, ""),
    ],
)
def test_targets_out_of_reach_are_told_by_the_error_they_leave(
    beyond: float, left: float, named: str
) -> None:
    run = {"target_min": -2.3, "target_max": 2.9, "target_mean": 0.0, "target_std": 1.0}
    facts = {**VALUES, "output_activation": "tanh"}
    assert _named(facts, {**run, "target_beyond": beyond}, left) == named


@pytest.mark.parametrize(
    ("share_at_first", "left", "named"), [(2e-5, 1.05, True), (0.4, 1.05, False), (2e-5, 0.6, False)]
)
def test_a_class_that_a_far_larger_value_left_no_room_for_is_named_also_once_that_is_learnt(
    share_at_first: float, left: float, named: bool
) -> None:
    run: dict[str, Any] = {
        "class_loss_left": lambda share: np.where(share > 0.5, left, 1.05),
        "class_loss_share": lambda share: np.where(share > 0.5, 0.3, share_at_first),
        "other_loss_share": lambda share: np.where(share > 0.5, 0.7, 1.0 - share_at_first),
    }
    sketch = Sketch(
        loss=falling(1e5, 8.0, 30.0),
        baseline=1e3,
        accuracy=None,
        facts={"loss": "mse_loss", "task": "regression", "classes": 1, "target_kind": "values"},
        run=run,
    )
    found = [one.sentence for one in examine(sketch.history()).diagnoses if one.problem == "slow-convergence"]
    assert bool(found) is named
    assert not named or "was 5e+04 times as large at first" in found[0]


def test_no_more_than_a_whole_range_is_out_of_reach() -> None:
    run = {
        "output_min": 0.0,
        "output_max": 1.0,
        "target_mean": 144.0,
        "target_std": 69.0,
        "target_min": 49.0,
        "target_max": 297.0,
    }
    facts = {
        "loss": "mse_loss",
        "target_kind": "values",
        "task": "regression",
        "output_activation": "sigmoid",
    }
    found = _found({**facts, "classes": 1}, run, left=0.99)
    assert "lie between 49 and 297: 100% of that range" in found[0].sentence
