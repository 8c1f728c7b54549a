"""Studies with constraints: a trial that violates one comes after all that do not, however good it is."""

from __future__ import annotations

import math
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState, create_trial

import akeso
from akeso.search import attributes
from akeso.search.curves import Curve, Knowledge
from akeso.search.report import of_study

optuna.logging.set_verbosity(optuna.logging.ERROR)
EPOCHS = 10
LARGEST = 0.4


def searched(mode: Any, *, early: bool, by_function: bool = False) -> optuna.Study:
    """The larger a network, the better it ends; most are larger than allowed."""

    def objective(trial: optuna.Trial) -> float:
        size, other = trial.suggest_float("size", 0, 1), trial.suggest_float("other", 0, 1)
        trial.set_user_attr("room", size - LARGEST)
        if early and not by_function:
            trial.set_constraint("room", size - LARGEST)
        end = 0.4 + 0.3 * size + 0.2 * other * (size + 0.3)
        with akeso.search.watch(trial, epochs=EPOCHS, on_problem=mode) as health:
            for epoch in range(EPOCHS):
                health.report(end - 0.4 * math.exp(-epoch / (2 + size)))
        if not early and not by_function:
            trial.set_constraint("room", size - LARGEST)
        return float(health.value)

    sampler: optuna.samplers.BaseSampler = optuna.samplers.RandomSampler(seed=2)
    if by_function:
        sampler = optuna.samplers.NSGAIISampler(
            seed=2, population_size=100, constraints_func=lambda trial: (trial.user_attrs["room"],)
        )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, n_trials=40)
    return study


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("kind", ["early", "late", "by function"])
def test_the_best_quarter_is_that_of_the_feasible_trials(kind: str) -> None:
    how = {"early": kind == "early", "by_function": kind == "by function"}
    whole, study = searched("shadow", **how), searched("stop", **how)
    feasible = [trial for trial in whole.trials if trial.params["size"] <= LARGEST]
    assert 8 <= len(feasible) <= 20
    best = sorted(feasible, key=lambda trial: -float(trial.value or 0))[: len(feasible) // 4]
    assert [study.trials[trial.number].state for trial in best] == [TrialState.COMPLETE] * len(best)
    assert study.best_value == whole.best_value
    quarter = [row["number"] for row in of_study(whole) if row["best_quarter"]]
    assert quarter == [trial.number for trial in feasible if float(trial.value or 0) >= _tenth(feasible)]


def _tenth(feasible: list[Any]) -> float:
    """Where the best ten of forty trials end, all of them feasible."""
    return float(sorted((trial.value for trial in feasible), reverse=True)[:10][-1])


def test_trials_that_are_not_feasible_are_models_and_no_aims() -> None:
    good, bad = (0.9, 0.1), (0.9, 0.5)
    known = Knowledge([Curve(good, True, feasible=False), Curve(bad, True), Curve((0.9,), False, True)], 2)
    assert known.curves.tolist() == [list(good), list(bad)]
    assert known.feasible.tolist() == [False, True]
    assert known.finals.tolist() == [0.5, math.inf, math.inf]
    assert known.best(1) == 0.5
    broken = Curve((0.9,), False, True, expected=0.2, feasible=False)
    assert len(Knowledge([broken], 2).given_up) == 0


def test_several_objectives_are_not_given_up_for_a_trial_that_is_not_feasible() -> None:
    def study(violated: float) -> optuna.Study:
        made = optuna.create_study(
            directions=["minimize", "minimize"], sampler=optuna.samplers.RandomSampler(seed=0)
        )
        for number in range(8):
            ends = (0.1 + number / 100, 0.1) if number < 4 else (0.5 + number / 100, 0.5)
            curve = [[end + math.exp(-epoch) for end in ends] for epoch in range(EPOCHS)]
            about = {"outcome": "finished", "epochs": EPOCHS, "reports": EPOCHS}
            made.add_trial(
                create_trial(
                    values=curve[-1],
                    user_attrs={attributes.TRIAL: about, attributes.CURVE: curve},
                    constraints={"room": violated if number < 4 else -1.0},
                )
            )
        return made

    def objective(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=EPOCHS) as health:
            for epoch in range(EPOCHS):
                health.report([0.4 + math.exp(-epoch), 0.4 + math.exp(-epoch)])
        return health.value

    for violated, state in ((-1.0, TrialState.PRUNED), (1.0, TrialState.COMPLETE)):
        made = study(violated)
        made.optimize(objective, n_trials=1)
        assert made.trials[-1].state == state


def test_constraints_are_read_as_optuna_had_them_before_they_had_names() -> None:
    class Before:
        def __init__(self, known: Any) -> None:
            self.system_attrs = {} if known is None else {"constraints": known}

    assert attributes.constraints_of(Before(None)) == {}
    assert attributes.constraints_of(Before([0.5, -1.0])) == {"0": 0.5, "1": -1.0}
    assert not attributes.is_feasible(Before((0.5, -1.0)))
    assert attributes.is_feasible(Before((0.0, -1.0)))
    assert attributes.is_feasible(Before(None))
