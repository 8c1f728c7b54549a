"""Single values far off from all others, in inputs and in targets."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from akeso.detectors.testing import Curve, Sketch, falling, flat
from akeso.diagnosis import Diagnosis
from akeso.examination import examine

REGRESSION = {"task": "regression", "loss": "mse_loss", "classes": 1, "target_kind": "values"}
TARGETS = {"target_mean": 0.0, "target_std": 1.0, "target_iqr": 1.3, "target_min": -2.5, "target_max": 2.5}


def _found(loss: Curve, baseline: float, run: Mapping[str, float | Curve]) -> list[Diagnosis]:
    sketch = Sketch(
        loss=loss, baseline=baseline, accuracy=None, facts=REGRESSION, run={**TARGETS, **run}, noise=0.05
    )
    return [one for one in examine(sketch.history()).diagnoses if one.severity != "info"]


def test_codes_for_missing_values_are_found_after_standardising() -> None:
    run = {"input_min": -7.2, "input_max": 0.3, "input_outlier": 300.0, "input_feature_outlier": 2e4}
    found = _found(flat(0.93), 1.0, run)
    assert found[0].problem == "abnormal-data"
    assert "feature" in found[0].sentence


def test_features_with_long_tails_are_no_codes() -> None:
    run = {"input_min": -7.2, "input_max": 0.3, "input_outlier": 40.0, "input_feature_outlier": 150.0}
    assert "abnormal-data" not in [one.problem for one in _found(flat(0.93), 1.0, run)]


def test_one_value_that_several_samples_share_far_off_is_a_code() -> None:
    run = {"input_min": -7.2, "input_max": 0.3, "input_outlier": 40.0, "input_feature_outlier": 150.0}
    shared = {**run, "input_feature_far": -7.2, "input_feature_alike": 2.0}
    (found,) = _found(falling(1.0, 0.12, 8.0), 1.0, shared)
    assert found.problem == "abnormal-data"
    assert "always -7.2" in found.sentence
    # A value of its own in every batch is a long tail.
    tail = {**run, "input_feature_far": lambda s: -7.2 - s, "input_feature_alike": 1.0}
    assert not _found(falling(1.0, 0.12, 8.0), 1.0, tail)


def test_outliers_that_nothing_suffers_from_are_not_spoken_of() -> None:
    run = {"input_min": -7.2, "input_max": 0.3, "input_outlier": 300.0, "input_feature_outlier": 2e4}
    assert not _found(falling(1.0, 0.03, 8.0), 1.0, run)


def test_what_flattens_a_feature_in_most_batches_harms_a_training_that_learns_from_the_others() -> None:
    run = {"input_min": -7.2, "input_max": 0.3, "input_outlier": 300.0, "input_feature_outlier": 2e3}
    learns = falling(1.0, 0.2, 8.0)
    assert [one.problem for one in _found(learns, 1.0, run)] == ["abnormal-data"]
    now_and_then = {**run, "input_feature_outlier": lambda s: np.where(s < 0.01, 2e3, 50.0)}
    assert not _found(learns, 1.0, now_and_then)


def _in_units_of_grams(share: np.ndarray) -> np.ndarray:
    """One batch in three holds a target a thousand times too large."""
    return np.where(np.round(share * 299) % 3 == 0, 2300.0, 3.0)


def _swinging(share: np.ndarray) -> np.ndarray:
    return np.where(np.round(share * 299) % 3 == 0, 2e5, 1500.0)


def test_targets_in_the_wrong_units_are_named_before_the_swings_they_cause() -> None:
    run = {"target_outlier": _in_units_of_grams, "target_std": lambda share: _swinging(share) ** 0.5}
    found = [one.problem for one in _found(_swinging, 7e4, run)]
    assert found[0] == "abnormal-data"


@pytest.mark.parametrize("level", [0.02, 0.3])
def test_a_loss_low_against_the_usual_targets_is_not_drowned_by_the_outliers(level: float) -> None:
    run = {"target_outlier": _in_units_of_grams, "target_std": lambda share: _swinging(share) ** 0.5}
    assert not _found(falling(7e4, level, 20.0), 7e4, run)
