"""Metrics of every size, values that are not finite, and mistakes of akeso's own: no trial is lost."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

import akeso
from akeso.errors import BadInput
from akeso.search import DiagnosisPruner, DiagnosisStopper, memory
from akeso.search.curves import Scale
from akeso.search.judge import Judge
from akeso.search.reports import Reports
from akeso.search.traits import squared_distances
from akeso.search.values import as_number
from tests.search.trials import build, train_epoch

optuna.logging.set_verbosity(optuna.logging.ERROR)
ENDED = {TrialState.COMPLETE, TrialState.PRUNED}


def searched(value: Callable[[float, int, float], float], direction: str, trials: int = 30) -> optuna.Study:
    made = optuna.create_study(
        direction=direction, sampler=optuna.samplers.RandomSampler(seed=0), pruner=DiagnosisPruner()
    )

    def run(trial: optuna.Trial) -> Any:
        x = trial.suggest_float("x", 0, 1)
        noise = np.random.default_rng(trial.number).normal(size=10)
        with akeso.search.watch(trial, epochs=10) as health:
            for epoch in range(10):
                health.report(value(x, epoch, noise[epoch]))
        return health.value

    made.optimize(run, n_trials=trials)
    return made


CURVES: dict[str, tuple[Callable[[float, int, float], float], str]] = {
    "coefficient of determination": (
        lambda x, t, noise: 0.9 - x - 1e5 * math.exp(-3 * t) + 0.01 * noise,
        "maximize",
    ),
    "likelihood across zero": (lambda x, t, noise: 3 * x - 0.4 * t * (1 - x) + 0.01 * noise, "minimize"),
    "large": (lambda x, t, noise: 1e300 * (x + 1 / (t + 1)), "minimize"),
    "of both signs and large": (lambda x, t, noise: 1e308 * (x - 0.5), "minimize"),
    "tiny and large": (lambda x, t, noise: 1e-12 * x if x < 0.7 else 1e300 * x, "minimize"),
    "barely not zero": (lambda x, t, noise: 5e-324 * int(10 * x), "minimize"),
    "all the same": (lambda x, t, noise: 0.1, "maximize"),
    "far from zero": (lambda x, t, noise: 1e9 + 1e-3 * (x + 1 / (t + 1)), "minimize"),
}


@pytest.mark.parametrize("name", CURVES)
def test_metrics_of_every_size_are_judged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    made = searched(*CURVES[name])
    assert {trial.state for trial in made.trials} <= ENDED
    assert not caplog.messages  # no error of akeso's own was passed over


def test_squared_distances_are_exact_far_from_zero() -> None:
    points = np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    assert (
        squared_distances(points + 1e9, points + 1e9).tolist() == squared_distances(points, points).tolist()
    )


def test_a_scale_stays_finite() -> None:
    for curves in ([[1e308], [-1e308], [0.0]], [[0.0], [0.0], [5e-324]], [[1e308, 1e300], [-1e308, 1e300]]):
        scale = Scale(np.array(curves))
        assert np.isfinite(scale.compress(np.array([-1e308, 0.0, 1e-300, 1e308]))).all()


@pytest.mark.parametrize("watched", [False, True])
def test_a_best_value_of_before_hides_no_value_that_is_not_finite(watched: bool) -> None:
    made = optuna.create_study(pruner=DiagnosisPruner(value="best"))

    def run(trial: optuna.Trial) -> Any:
        values = [0.5, 0.4, math.nan, 0.3]
        if watched:
            with akeso.search.watch(trial, epochs=4) as health:
                for value in values:
                    health.report(value)
            return health.value
        for step, value in enumerate(values):
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return 0.3

    made.optimize(run, n_trials=1)
    assert made.trials[0].state == TrialState.PRUNED
    assert made.trials[0].user_attrs["akeso:problem"] == "non-finite"
    assert len(made.trials[0].intermediate_values) < 4


@pytest.mark.parametrize("kind", ["watch", "pruner", "stopper"])
def test_an_error_of_akesos_own_costs_no_trial(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(self: Judge, *given: Any) -> Any:
        raise ArithmeticError(f"broken in a {kind}")

    monkeypatch.setattr(Judge, "of_curve", breaks)
    values = [1.0, 0.5, 0.4]
    with caplog.at_level(logging.WARNING, "akeso.search"):
        if kind == "stopper":
            pytest.importorskip("ray.tune")
            stopper = DiagnosisStopper("loss", "min", epochs=3)
            assert not any(
                stopper("a", {"loss": value, "training_iteration": i}) for i, value in enumerate(values, 1)
            )
        else:
            made = optuna.create_study(pruner=DiagnosisPruner())

            def run(trial: optuna.Trial) -> Any:
                if kind == "watch":
                    with akeso.search.watch(trial, epochs=3) as health:
                        for value in values:
                            health.report(value)
                    return health.value
                for step, value in enumerate(values):
                    trial.report(value, step)
                    assert not trial.should_prune()
                return values[-1]

            made.optimize(run, n_trials=2)
            assert [trial.value for trial in made.trials] == [0.4, 0.4]
    assert [f"broken in a {kind}" in message for message in caplog.messages] == [True]  # said once


def test_a_value_that_is_not_finite_ends_a_trial_even_where_nothing_can_be_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory.Memory, "judges", lambda self, *given: 1 / 0)
    made = optuna.create_study()

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=3) as health:
            health.report(1.0)
            health.report(math.inf)
        return health.value

    made.optimize(run, n_trials=1)
    assert made.trials[0].user_attrs["akeso:problem"] == "non-finite"


@pytest.mark.parametrize("epochs", [0, True, 5.0, "5", np.float64(3)])
def test_epochs_that_are_no_count_are_refused_everywhere(epochs: Any) -> None:
    pytest.importorskip("ray.tune")
    for made in (
        lambda: akeso.search.watch(optuna.create_study().ask(), epochs=epochs),
        lambda: DiagnosisPruner(epochs=epochs),
        lambda: DiagnosisStopper("loss", "min", epochs=epochs),
    ):
        with pytest.raises(BadInput, match="epochs must be a whole number of at least 1, but got"):
            made()


def test_a_network_that_cannot_be_watched_costs_no_trial(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(*given: Any, **options: Any) -> Any:
        raise AttributeError("a module unlike all others")

    monkeypatch.setattr(akeso, "watch", breaks)
    made = optuna.create_study()

    def run(trial: optuna.Trial) -> Any:
        model, optimizer = build(0.1)
        with akeso.search.watch(trial, model, optimizer, epochs=3) as health:
            for _ in range(3):
                health.report(train_epoch(model, optimizer))
        return health.value

    with caplog.at_level(logging.WARNING, "akeso.search"):
        made.optimize(run, n_trials=2)
    assert [trial.state for trial in made.trials] == [TrialState.COMPLETE] * 2
    assert ["a module unlike all others" in message for message in caplog.messages] == [True]  # said once


@pytest.mark.parametrize("steps", [0, -1, 2.5, "9"])
def test_planned_steps_that_are_no_count_are_refused(steps: Any) -> None:
    with pytest.raises(BadInput, match="planned_steps must be a whole number of at least 1, but got"):
        akeso.search.watch(optuna.create_study().ask(), epochs=3, planned_steps=steps)


def test_a_mean_of_nothing_is_not_finite() -> None:
    nothing = np.ma.masked_invalid([math.nan, math.nan])
    assert math.isnan(as_number(nothing.mean()))
    assert as_number(np.ma.masked_invalid([math.nan, 0.5]).mean()) == 0.5


def test_a_number_beyond_all_floats_is_not_finite() -> None:
    assert as_number(10**400) == math.inf
    assert as_number(-(10**400)) == -math.inf


def test_what_a_trial_of_very_many_reports_writes_fits_into_any_storage() -> None:
    reports = Reports((False,), "last", in_study=True)
    for step in range(10_000):
        reports.add(step, (1.0,))
        reports.add_loss(1.2345678e-05)
    assert len(json.dumps(reports.about())) < 60_000  # a text in MySQL holds 64 kB
