"""Losses that are low already and do not stay anywhere, because the steps are too long."""

from __future__ import annotations

import numpy as np

from akeso.detectors.testing import Curve, Sketch, falling
from akeso.diagnosis import Diagnosis
from akeso.examination import examine

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
