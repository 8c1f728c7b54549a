"""Losses that are low already and do not stay anywhere, because the steps are too long."""

from __future__ import annotations

import numpy as np
import pytest

from akeso.detectors.settling import jumps
from akeso.detectors.testing import Curve, Sketch, falling, flat
from akeso.diagnosis import Diagnosis
from akeso.examination import examine
from tests.detectors.sketches import over_time

REGRESSION = {"task": "regression", "loss": "mse_loss", "classes": 1, "target_kind": "values"}
TARGETS = {"target_mean": 0.0, "target_std": 1.0, "target_min": -2.5, "target_max": 2.5}


def _thrown(share: np.ndarray) -> np.ndarray:
    """A loss that comes down at once and then goes up and down by factors."""
    return 0.05 * np.exp(1.1 * np.sin(1 + 41 * share)) + np.exp(-40 * share)


def _found(
    loss: Curve, validation: Curve, update: float, rate: Curve = lambda share: np.full_like(share, 0.1)
) -> list[Diagnosis]:
    sketch = Sketch(
        steps=600, loss=loss, validation=validation, evaluations=16, baseline=1.0, accuracy=None, facts=REGRESSION,
        run=TARGETS, update=lambda index: update, rate=rate,
    )  # fmt: skip
    return [one for one in examine(sketch.history()).diagnoses if one.severity != "info"]


def test_long_steps_that_throw_a_low_loss_about_are_named() -> None:
    found = _found(_thrown, _thrown, 0.025)
    assert [one.problem for one in found] == ["oscillating-loss"]
    assert "does not settle" in found[0].sentence


def test_the_same_curve_with_short_steps_is_not_their_doing() -> None:
    assert not _found(_thrown, _thrown, 0.002)


def test_a_schedule_is_given_time_to_calm_the_loss_down() -> None:
    assert not _found(_thrown, _thrown, 0.025, lambda share: 0.1 * (1.001 - share))


def test_a_loss_that_is_next_to_nothing_may_jump() -> None:
    assert not _found(lambda s: 0.05 * _thrown(s), lambda s: 0.05 * _thrown(s), 0.025)


def test_validation_that_jumps_alone_is_a_matter_of_its_samples() -> None:
    assert not _found(falling(1.0, 0.05, 20.0), _thrown, 0.025)


@pytest.mark.parametrize(
    ("betas", "loss", "named"),
    [
        ([0.999, 0.9], falling(1.0, 0.1, 40.0), True),
        ([0.9, 0.999], falling(1.0, 0.1, 40.0), False),
        ([0.5, 0.9], falling(1.0, 0.1, 40.0), False),
        ([0.999, 0.9], falling(1.0, 0.001, 2.0), False),  # it learns all the same
        ([0.999, 0.9], falling(1.0, 0.005, 40.0), False),  # it has learnt
    ],
)
def test_betas_in_the_wrong_order_are_named_where_the_loss_stays_up(
    betas: list[float], loss: Curve, named: bool
) -> None:
    facts = {**REGRESSION, "optimizers": [{"name": "AdamW", "lr": 1e-3, "betas": betas}]}
    sketch = Sketch(steps=600, loss=loss, baseline=1.0, accuracy=None, facts=facts, run=TARGETS)
    found = [one for one in examine(sketch.history()).diagnoses if one.severity != "info"]
    assert [one.problem for one in found] == (["oscillating-loss"] if named else [])
    assert not named or "look swapped" in found[0].sentence


@pytest.mark.parametrize(
    ("update", "left", "named"), [(0.25, 0.25, True), (0.25, 0.02, False), (0.02, 0.25, False)]
)
def test_steps_that_change_the_weights_by_a_quarter_to_the_end_cannot_settle(
    update: float, left: float, named: bool
) -> None:
    level = falling(1.0, left, 40.0)
    found = _found(level, level, update)
    assert [one.problem for one in found] == (["oscillating-loss"] if named else [])


def _spiky(share: np.ndarray) -> np.ndarray:
    """One batch in three holds an absurd target, under a loss that bounds what it does to the weights."""
    return np.where(np.round(share * 599) % 3 == 0, 15.0, 0.1)


def test_batches_with_absurd_targets_swing_alone_where_validation_is_good() -> None:
    sketch = Sketch(
        steps=600, loss=_spiky, validation=falling(0.9, 0.1, 8.0), evaluations=16, baseline=5.0, accuracy=None,
        facts={**REGRESSION, "loss": "huber_loss"}, run=TARGETS,
    )  # fmt: skip
    assert not [one for one in examine(sketch.history()).diagnoses if one.severity != "info"]


@pytest.mark.parametrize(("validation", "named"), [(flat(2.5), True), (falling(2.3, 0.2, 20.0), False)])
def test_swings_are_named_where_validation_is_bad(validation: Curve, named: bool) -> None:
    sketch = Sketch(
        loss=lambda s: 2.2 + 1.8 * np.sin(180 * s), noise=0.0, update=lambda i: 0.05, accuracy=flat(0.1),
        validation=validation, evaluations=12,
    )  # fmt: skip
    found = [one.problem for one in examine(sketch.history()).diagnoses if one.severity != "info"]
    assert ("oscillating-loss" in found) is named


@pytest.mark.parametrize(("dips", "named"), [((13,), False), ((9, 11, 13), True)])
def test_one_bad_validation_is_an_accident(dips: tuple[int, ...], named: bool) -> None:
    def accuracy(share: np.ndarray) -> np.ndarray:
        return np.where(np.isin(np.round(16 * share), dips), 0.6, 0.85)

    sketch = Sketch(validation_accuracy=accuracy, evaluations=16, facts={"val_size": 2000})
    found = [one.problem for one in examine(sketch.history()).diagnoses if one.severity != "info"]
    assert ("oscillating-loss" in found) is named


def test_what_is_typical_does_not_depend_on_the_worst_value() -> None:
    assert jumps(np.array([0.837, 0.718, 0.833, 0.801]))[1] < 0.03
    assert jumps(np.array([0.60, 0.72, 0.62, 0.41, 0.84, 0.78]))[1] > 0.05
    assert jumps(np.array([0.5])) == (0.0, 0.0)


HOT = {"optimizers": [{"name": "Adam", "lr": 0.05}], "dataset_size": 500}


@pytest.mark.parametrize(
    ("facts", "rate", "left", "named"),
    [
        (HOT, 0.05, 0.7, True),
        ({**HOT, "dropout": {"drop": 0.5}}, 0.05, 0.7, False),  # dropout keeps a training loss up by itself
        ({**HOT, "dataset_size": 50_000}, 0.05, 0.7, False),  # more samples than can be learned by heart
        (HOT, 0.005, 0.7, False),  # a rate that many take
        (HOT, 0.05, 0.1, False),  # learned
        ({**HOT, "optimizers": [{"name": "SGD", "lr": 0.05}]}, 0.05, 0.7, False),  # usual for this one
    ],
)
def test_a_rate_far_above_the_usual_that_keeps_up_what_could_be_learned_by_heart(
    facts: dict[str, object], rate: float, left: float, named: bool
) -> None:
    sketch = Sketch(
        loss=falling(2.3, left, 12.0),
        accuracy=lambda share: 0.1 + (0.98 - left / 2.3 - 0.1) * (1 - np.exp(-12 * share)),
        run={"batch_size": 32.0},
        facts=facts,
        rate=lambda share: np.full_like(share, rate),
        width=64,
    )
    found = [one for one in examine(sketch.history()).diagnoses if one.severity != "info"]
    assert ([one.problem for one in found] == ["learning-rate-too-high"]) == named
    assert named or not found


@pytest.mark.parametrize(
    ("momentum", "again", "named"),
    [
        (0.99, 0.62, True),
        (0.99, 0.45, False),  # it stays where it was
        (0.0, 0.62, False),  # a usual rate: something else is wrong
    ],
)
def test_a_small_model_under_a_hot_rate_must_have_lost_what_it_had_learnt(
    momentum: float, again: float, named: bool
) -> None:
    """A momentum of 0.99 makes a step a hundred times as long: no model is too small to be thrown back by that."""
    sketch = Sketch(
        loss=lambda share: 0.45 + 0.55 * np.exp(-12 * share) + (again - 0.45) * np.clip(6 * share - 3, 0, 1),
        baseline=1.0,
        noise=0.05,
        accuracy=None,
        run={**TARGETS, "batch_size": 32.0},
        facts={
            **REGRESSION,
            "optimizers": [{"name": "SGD", "lr": 0.05, "momentum": momentum}],
            "dataset_size": 50_000,
        },
        steps=6000,
        rate=lambda share: np.full_like(share, 0.05),
    )
    found = [one for one in examine(sketch.history()).diagnoses if one.severity != "info"]
    assert ("learning-rate-too-high" in [one.problem for one in found]) is named
    assert not named or "went up again" in found[0].sentence


@pytest.mark.parametrize(
    ("name", "size", "loss", "named"),
    [
        ("Rprop", 3200, falling(1.0, 0.3, 40.0), True),
        ("Rprop", 32, falling(1.0, 0.3, 40.0), False),  # whole gradients
        ("Rprop", 3200, falling(1.0, 0.02, 12.0), False),  # it learns all the same
        ("Adam", 3200, falling(1.0, 0.3, 40.0), False),
    ],
)
def test_signs_of_batches_lead_rprop_astray(name: str, size: int, loss: Curve, named: bool) -> None:
    facts = {**REGRESSION, "optimizers": [{"name": name, "lr": 0.01}], "dataset_size": size}
    sketch = Sketch(
        steps=600, loss=loss, baseline=1.0, accuracy=None, facts=facts, run={**TARGETS, "batch_size": 32.0}
    )
    found = [one for one in examine(sketch.history()).diagnoses if one.severity != "info"]
    assert [one.problem for one in found] == (["oscillating-loss"] if named else [])
    assert not named or "100 batches" in found[0].sentence


@pytest.mark.parametrize(
    ("optimizer", "peak", "update", "left", "named"),
    [
        ("AdamW", 0.05, 0.02, 0.85, True),
        ("SGD", 0.05, 0.02, 0.85, False),  # how far SGD goes is a matter of the gradients, too
        ("AdamW", 0.003, 0.02, 0.85, False),
        ("AdamW", 0.05, 0.002, 0.85, False),  # large weights hardly feel it
        ("AdamW", 0.05, 0.02, 0.3, False),  # it learns all the same
    ],
)
def test_a_rate_far_above_the_usual_one_is_named_where_little_is_learnt_under_a_schedule(
    optimizer: str, peak: float, update: float, left: float, named: bool
) -> None:
    facts = {**REGRESSION, "optimizers": [{"name": optimizer, "lr": peak, "momentum": 0.9}]}
    sketch = Sketch(
        steps=600, loss=falling(1.0, left, 8.0), baseline=1.0, accuracy=None, facts=facts, run=TARGETS,
        update=lambda index: update, rate=lambda share: 0.5 * peak * (1.02 + np.cos(np.pi * share)),
    )  # fmt: skip
    found = [one for one in examine(sketch.history()).diagnoses if one.severity != "info"]
    assert ("learning-rate-too-high" in [one.problem for one in found]) is named
    assert not named or "times what AdamW usually gets" in found[0].sentence


@pytest.mark.parametrize(("end", "named"), [(0.62, True), (0.2, False)])
def test_what_was_learnt_early_and_never_regained_was_lost_whatever_the_schedule_does_at_the_end(
    end: float, named: bool
) -> None:
    def loss(share: np.ndarray) -> np.ndarray:
        return np.interp(share, [0, 0.03, 0.06, 0.2, 1.0], [1.0, 0.4, 0.35, 0.8, end])

    def rate(share: np.ndarray) -> np.ndarray:
        return 0.03 * np.minimum(share / 0.2, np.sqrt(0.2 / np.maximum(share, 1e-3)))

    sketch = Sketch(
        steps=1800, loss=loss, baseline=1.0, accuracy=None, facts=REGRESSION, run=TARGETS, rate=rate,
        update=lambda index: 0.006,
    )  # fmt: skip
    found = [one for one in examine(sketch.history()).diagnoses if one.severity != "info"]
    assert [one.problem for one in found] == (["learning-rate-too-high"] if named else [])


@pytest.mark.parametrize(("growth", "named"), [(8.0, True), (1.5, False)])
def test_weights_that_a_high_rate_has_driven_far_out_are_hardly_moved_any_more(
    growth: float, named: bool
) -> None:
    facts = {**REGRESSION, "optimizers": [{"name": "AdamW", "lr": 0.05}]}
    sketch = Sketch(
        steps=600, loss=falling(1.0, 0.8, 8.0), baseline=1.0, accuracy=None, facts=facts, run=TARGETS,
        update=lambda index: 0.002, rate=lambda share: np.full_like(share, 0.05),
    )  # fmt: skip
    history = over_time(
        sketch.history(),
        "weight_l2",
        lambda _, share, value: value * (1 + (growth - 1) * min(1.0, 5 * share)),
    )
    found = [one for one in examine(history).diagnoses if one.severity != "info"]
    assert [one.problem for one in found] == (["learning-rate-too-high"] if named else [])
    assert not named or "grown to 8 times" in found[0].sentence


@pytest.mark.parametrize(
    ("rate", "since", "named"), [(0.015, 0.1, True), (0.015, 2.0, False), (0.002, 0.1, False)]
)
def test_a_high_rate_after_which_no_gradient_reaches_the_first_layers_is_the_cause(
    rate: float, since: float, named: bool
) -> None:
    facts = {**REGRESSION, "optimizers": [{"name": "AdamW", "lr": rate}]}
    sketch = Sketch(
        steps=600, layers=6, loss=falling(1.0, 0.93, 8.0), baseline=1.0, accuracy=None, facts=facts, run=TARGETS,
        update=lambda index: 2e-4, rate=lambda share: np.full_like(share, rate),
    )  # fmt: skip
    first = ("net.0.", "net.2.", "net.4.")
    history = over_time(
        sketch.history(),
        "grad_l2",
        lambda scope, share, value: 1e-6 * value if share > since and scope.startswith(first) else value,
    )
    found = [one.problem for one in examine(history).diagnoses if one.severity != "info"]
    assert (found[:1] == ["learning-rate-too-high"]) is named
    assert ("vanishing-gradient" in found) is (since < 1)
