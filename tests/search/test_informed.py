"""Samplers that look at completed trials only hear of stopped ones."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState, create_trial

import akeso
from akeso.errors import BadInput
from akeso.search import DiagnosisPruner, InformedSampler, attributes
from akeso.search.informed import inform, shown

optuna.logging.set_verbosity(optuna.logging.ERROR)
EPOCHS = 10


class LeftAlone(optuna.samplers.GPSampler):
    """The same sampler under a name that akeso does not know."""


def curve(trial: optuna.Trial) -> list[float]:
    """Falls to where a bowl over two hyperparameters says."""
    at = np.array([trial.suggest_float("a", 0, 1), trial.suggest_float("b", 0, 1)])
    end = 0.1 + float(np.sum((at - 0.7) ** 2))
    return [end + 0.8 * math.exp(-0.5 * epoch) for epoch in range(EPOCHS)]


def watched(trial: optuna.Trial) -> float:
    with akeso.search.watch(trial, epochs=EPOCHS) as health:
        for value in curve(trial):
            health.report(value)
    return float(health.value)


def by_hand(trial: optuna.Trial) -> float:
    for epoch, value in enumerate(values := curve(trial)):
        trial.report(value, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return values[-1]


def repeats(study: optuna.Study) -> int:
    """Trials that were suggested where another one had just been given up."""
    at = np.array([[trial.params["a"], trial.params["b"]] for trial in study.trials])
    stopped = np.array([trial.state == TrialState.PRUNED for trial in study.trials])
    near = np.linalg.norm(at[1:] - at[:-1], axis=1) < 0.05
    return int(np.sum(near & stopped[:-1]))


def searched(sampler: optuna.samplers.BaseSampler, objective: Any) -> optuna.Study:
    study = optuna.create_study(sampler=sampler, pruner=DiagnosisPruner(epochs=EPOCHS))
    study.optimize(objective, n_trials=20)
    assert any(
        trial.state == TrialState.PRUNED for trial in study.trials
    )  # in the study they stay what they are
    return study


def test_what_was_given_up_is_not_suggested_again() -> None:
    alone = searched(LeftAlone(seed=1), watched)
    assert isinstance(alone.sampler, LeftAlone)
    for objective in (watched, by_hand):
        told = searched(optuna.samplers.GPSampler(seed=1), objective)
        assert isinstance(told.sampler, InformedSampler)
        assert repeats(told) <= 1 < 4 <= repeats(alone)


@pytest.mark.parametrize("objective", [watched, by_hand])
@pytest.mark.parametrize("mode", ["stop", "shadow"])
def test_a_study_that_is_resumed_hears_of_those_that_were_stopped_before(objective: Any, mode: Any) -> None:
    storage = optuna.storages.InMemoryStorage()
    first = optuna.create_study(study_name="one", storage=storage, pruner=DiagnosisPruner(epochs=EPOCHS))
    first.optimize(by_hand, n_trials=6)
    first.add_trial(
        create_trial(
            state=TrialState.PRUNED,
            params={"a": 0.1, "b": 0.1},
            distributions=dict.fromkeys("ab", optuna.distributions.FloatDistribution(0, 1)),
            intermediate_values={0: 1.5},
        )
    )
    again = optuna.load_study(
        study_name="one",
        storage=storage,
        sampler=optuna.samplers.GPSampler(seed=1),
        pruner=DiagnosisPruner(epochs=EPOCHS, on_problem=mode),
    )
    again.optimize(objective, n_trials=1)
    assert isinstance(again.sampler, InformedSampler) == (mode == "stop")


@pytest.mark.parametrize("early", [True, False])
def test_a_stopped_trial_is_shown_if_it_has_set_the_constraints_that_others_have(early: bool) -> None:
    def objective(trial: optuna.Trial) -> float:
        if early:
            trial.set_constraint("room", trial.suggest_float("a", 0, 1) - 0.8)
        value = watched(trial)
        if not early:
            trial.set_constraint("room", trial.params["a"] - 0.8)
        return value

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    study.optimize(objective, n_trials=12)
    study.sampler = InformedSampler(optuna.samplers.GPSampler(seed=1, n_startup_trials=2))
    study.optimize(objective, n_trials=1)  # the sampler refuses trials that differ in their constraints
    stopped = [trial.number for trial in study.trials if trial.state == TrialState.PRUNED]
    assert stopped
    assert {shown(study).trials[number].state == TrialState.COMPLETE for number in stopped} == {early}


def study_of(*trials: Any, direction: str = "minimize") -> optuna.Study:
    study = optuna.create_study(direction=direction)
    for trial in trials:
        study.add_trial(trial)
    return study


def stopped(reports: dict[int, float], **about: Any) -> Any:
    known = {attributes.TRIAL: about} if about else {}
    return create_trial(state=TrialState.PRUNED, intermediate_values=reports, user_attrs=known)


def test_stopped_trials_are_shown_with_the_end_foreseen_or_the_last_known() -> None:
    study = study_of(
        create_trial(value=1.0),
        create_trial(value=5.0),
        stopped({0: 9.0, 1: 4.5}, expected=2.5),
        stopped({0: 9.0, 1: 3.5}),
        stopped({}),
        stopped({0: 1e9}),
    )
    seen = shown(study).trials
    assert [trial.value for trial in seen] == [1.0, 5.0, 2.5, 3.5, 5.0, 5.0]
    assert all(trial.state == TrialState.COMPLETE for trial in seen)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 2 + ["PRUNED"] * 4
    completed = shown(study).get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    assert len(completed) == 6
    assert not shown(study).get_trials(states=(TrialState.PRUNED,))


def settled(value: float, reports: dict[int, float], **about: Any) -> Any:
    return create_trial(value=value, intermediate_values=reports, user_attrs={attributes.TRIAL: about})


@pytest.mark.parametrize("up", [1.0, -1.0])
def test_an_end_in_other_units_than_the_values_is_shown_as_the_value_in_its_place(up: float) -> None:
    """As of an objective that reports a loss of around 1 and returns an error in thousands."""

    def whole(value: float, last: float) -> Any:
        return create_trial(value=up * value, intermediate_values={0: up * 2.0, 1: up * last})

    study = study_of(
        whole(4000.0, 0.4),
        whole(8000.0, 0.8),
        create_trial(value=up * 9000.0),
        stopped({0: up * 1.2}, expected=up * 0.6),
        stopped({0: up * 0.5}),
        stopped({0: up * 1.9}),
        stopped({}),
        direction="minimize" if up > 0 else "maximize",
    )
    values = [up * trial.value for trial in shown(study).trials[3:]]
    assert values == pytest.approx([6000.0, 5000.0, 8000.0, 9000.0])


def test_trials_that_ended_early_with_their_value_are_shown_with_the_end_foreseen_for_them() -> None:
    study = study_of(
        create_trial(value=1.0),
        settled(2.0, {0: 9.0, 1: 2.0}, indicator="no-more-gain", expected=1.8),
        settled(2.0, {0: 9.0, 1: 2.0}, indicator="no-more-gain", expected=2.3),  # never worse than it stood
        settled(2.0, {0: 9.0, 1: 2.0}, indicator="no-more-gain"),
        settled(7.0, {0: 9.0, 1: 2.0}, indicator="no-more-gain", expected=1.8),  # returned something else
    )
    assert [trial.value for trial in shown(study).trials] == [1.0, 1.8, 2.0, 2.0, 7.0]
    assert [trial.value for trial in study.trials] == [1.0, 2.0, 2.0, 2.0, 7.0]
    most = study_of(
        create_trial(value=0.9),
        settled(0.5, {0: 0.5}, indicator="no-more-gain", expected=0.6),
        direction="maximize",
    )
    assert [trial.value for trial in shown(most).trials] == [0.9, 0.6]


def test_the_worst_value_of_a_study_that_maximises_is_its_lowest() -> None:
    study = study_of(
        create_trial(value=0.9),
        create_trial(value=0.2),
        stopped({0: 0.1}, expected=0.4),
        stopped({0: 0.05}),
        direction="maximize",
    )
    assert [trial.value for trial in shown(study).trials] == [0.9, 0.2, 0.4, 0.2]


def test_without_a_completed_trial_there_is_nothing_to_measure_by() -> None:
    study = study_of(stopped({0: 3.0}))
    assert [trial.state for trial in shown(study).trials] == [TrialState.PRUNED]


def test_samplers_that_learn_from_stopped_trials_and_several_objectives_are_left_alone() -> None:
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    before = study.sampler
    inform(study)
    assert study.sampler is before
    many = optuna.create_study(directions=["minimize", "minimize"], sampler=optuna.samplers.GPSampler(seed=0))
    inform(many)
    assert isinstance(many.sampler, optuna.samplers.GPSampler)
    assert shown(many) is many


@pytest.mark.parametrize(
    "pruner", [optuna.pruners.NopPruner(), optuna.pruners.HyperbandPruner(max_resource=EPOCHS)]
)
def test_any_sampler_can_be_wrapped(pruner: optuna.pruners.BasePruner) -> None:
    def best(sampler: optuna.samplers.BaseSampler) -> list[float]:
        study = optuna.create_study(sampler=sampler, pruner=pruner)
        study.optimize(lambda trial: curve(trial)[-1], n_trials=14)
        return [trial.params["a"] for trial in study.trials]

    # Where nothing was stopped, the search is the same to the last digit.
    assert best(InformedSampler(optuna.samplers.TPESampler(seed=3))) == best(
        optuna.samplers.TPESampler(seed=3)
    )
    InformedSampler(optuna.samplers.RandomSampler(seed=0)).reseed_rng()


def test_something_else_than_a_sampler_is_an_error() -> None:
    with pytest.raises(BadInput, match="wraps a sampler of Optuna, but got str"):
        InformedSampler("tpe")  # type: ignore[arg-type]


def test_a_sampler_inside_another_one_hears_of_stopped_trials_too() -> None:
    inner = optuna.samplers.GPSampler(seed=0, n_startup_trials=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        made = optuna.create_study(sampler=optuna.samplers.PartialFixedSampler({"y": 0.5}, inner))
    inform(made)
    assert isinstance(made.sampler, InformedSampler)
    inform(made)
    assert isinstance(made.sampler.wrapped, optuna.samplers.PartialFixedSampler)
    made.optimize(lambda trial: trial.suggest_float("x", 0, 1) + trial.suggest_float("y", 0, 1), n_trials=5)
    assert {trial.params["y"] for trial in made.trials} == {0.5}
