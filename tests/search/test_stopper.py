"""``DiagnosisStopper`` where its metric is not reported, and what it says about a curve."""

from __future__ import annotations

import logging

import pytest
import torch

pytest.importorskip("ray.tune")

from akeso.errors import BadInput
from akeso.search.tune import DiagnosisStopper, ray_watch
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
    assert "'los', but trial a reported loss, accuracy without it" in record.getMessage()
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
