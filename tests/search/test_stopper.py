"""``DiagnosisStopper`` where its metric is not reported, and what it says about a curve."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("ray.tune")

from akeso.search.tune import DiagnosisStopper


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
    assert "'los', but trial a reported loss, accuracy without it" in record.getMessage()
    assert not stopper.reasons


def test_a_metric_that_only_some_results_have_is_not_complained_of(caplog: pytest.LogCaptureFixture) -> None:
    stopper = DiagnosisStopper("loss", "min", epochs=10)
    with caplog.at_level(logging.WARNING, "akeso.search"):
        assert not stopper("a", {"loss": 1.0, "training_iteration": 1})
        assert not stopper("a", {"speed": 1.0, "training_iteration": 2})
        assert not stopper("b", {"training_iteration": 1})
    assert not caplog.records
