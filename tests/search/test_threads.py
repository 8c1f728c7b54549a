"""Trials side by side in threads of one process, and studies that share a pruner: nobody hears of the others."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import optuna
import pytest
import torch
from optuna.trial import TrialState

import akeso
from akeso.search import DiagnosisPruner, attributes, memory
from akeso.search.profiles import AKESO
from akeso.torch.taps import TAPS
from tests.search.trials import build, data, train_epoch

optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def study(**options: Any) -> optuna.Study:
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), **options)


def curve(trial: optuna.Trial, epochs: int, scale: float = 1.0) -> list[float]:
    x = trial.suggest_float("x", 0, 1)
    return [scale * (x + 1 / (t + 1) + 0.003 * math.sin(5 * t + trial.number)) for t in range(epochs)]


@pytest.mark.usefixtures("restless")
def test_judges_belong_to_those_who_asked_for_them() -> None:
    made = optuna.create_study(directions=["minimize", "maximize"])

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=4, profile="bttackler") as health:
            for value in curve(trial, 4):
                health.report([value, -value])
        return health.value

    made.optimize(run, n_trials=6)

    def ask(at: int) -> bool:
        epochs = 3 + at % 12
        judges = memory.of_study(made, AKESO, "last").judges(made, epochs)
        return [judge.knowledge.epochs for judge in judges] == [epochs, epochs]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(200)))


@pytest.mark.parametrize("by_hand", [False, True])
def test_no_trial_is_lost_in_threads(by_hand: bool) -> None:
    made = study(pruner=DiagnosisPruner())

    def run(trial: optuna.Trial) -> Any:
        epochs = trial.suggest_categorical("epochs", [5, 8])
        values = curve(trial, epochs)
        if by_hand:
            for step, value in enumerate(values):
                trial.report(value, step)
                if trial.should_prune():
                    raise optuna.TrialPruned
            return values[-1]
        with akeso.search.watch(trial, epochs=epochs) as health:
            for value in values:
                health.report(value)
        return health.value

    made.optimize(run, n_trials=40, n_jobs=4)
    assert {trial.state for trial in made.trials} == {TrialState.COMPLETE, TrialState.PRUNED}


def test_studies_that_share_a_pruner_know_nothing_of_each_other() -> None:
    pruner = DiagnosisPruner()
    small, large, alone = study(pruner=pruner), study(pruner=pruner), study(pruner=DiagnosisPruner())

    def run(scale: float) -> Any:
        def objective(trial: optuna.Trial) -> Any:
            with akeso.search.watch(trial, epochs=10) as health:
                for value in curve(trial, 10, scale):
                    health.report(value)
            return health.value

        return objective

    for _ in range(12):
        small.optimize(run(1.0), n_trials=1)
        large.optimize(run(1000.0), n_trials=1)
    alone.optimize(run(1000.0), n_trials=12)
    assert [trial.values for trial in large.trials] == [trial.values for trial in alone.trials]
    assert any(trial.state == TrialState.PRUNED for trial in alone.trials)


def test_a_study_without_our_pruner_is_read_as_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    made, fits = study(), []
    usual = memory.Memory._judges
    monkeypatch.setattr(
        memory.Memory, "_judges", lambda self, *given: fits.append(given) or usual(self, *given)
    )

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=3) as health:
            for value in curve(trial, 3):
                health.report(value)
        return health.value

    made.optimize(run, n_trials=40)
    assert len(fits) < 30


def test_a_trial_hears_of_its_own_training_alone() -> None:
    made, both = study(pruner=DiagnosisPruner(false_stops=None)), threading.Barrier(2, timeout=60)
    x, y = data()
    losses: dict[int, list[float]] = {0: [], 1: []}

    def run(trial: optuna.Trial) -> Any:
        sick = trial.number == 1
        model, optimizer = build(1e30 if sick else 0.1)
        with akeso.search.watch(
            trial, model, optimizer, epochs=3, on_problem="shadow" if sick else "stop"
        ) as health:
            for _ in range(3):
                for batch in torch.arange(len(x)).split(16):
                    both.wait()  # step by step beside each other
                    optimizer.zero_grad()
                    loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
                    loss.backward()
                    optimizer.step()
                    losses[trial.number].append(loss.item())
                with torch.no_grad():
                    health.report(torch.nn.functional.cross_entropy(model(x), y))
        return health.value

    made.optimize(run, n_trials=2, n_jobs=2)
    healthy, sick = made.trials
    assert healthy.state == TrialState.COMPLETE
    assert sick.user_attrs[attributes.SHADOW]["problem"] == "non-finite"
    means = [sum(losses[0][at : at + 12]) / 12 for at in range(0, 36, 12)]
    assert healthy.user_attrs[attributes.TRIAL]["losses"] == pytest.approx(means, rel=1e-4)
    assert not TAPS._listeners


def test_an_objective_may_train_in_a_thread_of_its_own() -> None:
    made = study()

    def run(trial: optuna.Trial) -> Any:
        model, optimizer = build(1e30)
        x, y = data()

        def train() -> None:
            for _ in range(20):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()

        with akeso.search.watch(trial, model, optimizer, epochs=1) as health:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(train).result()
            health.report(0.5)
        return health.value

    made.optimize(run, n_trials=1)
    assert made.trials[0].user_attrs["akeso:problem"] == "non-finite"


def test_a_trial_that_searches_by_itself_hears_nothing_of_the_trials_within() -> None:
    def inner(trial: optuna.Trial) -> float:
        model, optimizer = build((0.1, 1e5)[trial.number % 2])
        with akeso.search.watch(trial, model, optimizer, epochs=2) as health:
            deepest = study()
            deepest.optimize(innermost, n_trials=1)
            for _ in range(2):
                health.report(train_epoch(model, optimizer))
        return float(health.value)

    def innermost(trial: optuna.Trial) -> float:
        model, optimizer = build(1e5)
        with akeso.search.watch(trial, epochs=1) as health:
            train_epoch(model, optimizer)
            health.report(1.0)
        return float(health.value)

    def outer(trial: optuna.Trial) -> float:
        model, optimizer = build(0.1)
        with akeso.search.watch(trial, model, optimizer, epochs=3) as health:
            for _ in range(3):
                within = study()
                within.optimize(inner, n_trials=2)
                states.append([one.state for one in within.trials])
                health.report(train_epoch(model, optimizer))
        return float(health.value)

    states: list[list[TrialState]] = []
    around = study()
    around.optimize(outer, n_trials=1)
    assert states == [[TrialState.COMPLETE, TrialState.PRUNED]] * 3
    (trial,) = around.trials
    assert trial.state == TrialState.COMPLETE
    losses = trial.user_attrs[attributes.TRIAL]["losses"]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] < 1.0
    assert not TAPS.listening
