"""``DiagnosisPruner``: alone in an objective that asks it, and on top of another pruner."""

from __future__ import annotations

import math
from typing import Any

import optuna
from optuna.trial import TrialState

import akeso
from akeso.search import DiagnosisPruner, attributes
from akeso.search.report import of_study

optuna.logging.set_verbosity(optuna.logging.ERROR)


def study(**options: Any) -> optuna.Study:
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), **options)


def test_the_pruner_works_in_an_objective_without_watch() -> None:
    made = study(direction="maximize", pruner=DiagnosisPruner())

    def run(trial: optuna.Trial) -> float:
        for epoch in range(4):
            value = math.nan if trial.number == 1 and epoch == 1 else 0.5 + 0.1 * epoch
            trial.report(value, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return 0.8

    made.optimize(run, n_trials=2)
    assert made.trials[0].state == TrialState.COMPLETE
    assert made.trials[1].state == TrialState.PRUNED
    assert made.trials[1].user_attrs["akeso:problem"] == "non-finite"


def unwatched(trial: optuna.Trial, heed: bool = True) -> float:
    """An objective of the usual kind: the seventh trial and those after it are hopeless."""
    x = trial.suggest_float("x", 0, 0.1) + (5.0 if trial.number > 5 else 0.0)
    for epoch in range(8):
        trial.report(x + 1 / (epoch + 1), 10 * epoch)
        if trial.should_prune() and heed:
            raise optuna.TrialPruned
    return x


def test_the_pruner_says_why_at_which_report_and_how_sure_its_study_is_of_the_others() -> None:
    made = study(pruner=DiagnosisPruner(epochs=8))
    made.optimize(unwatched, n_trials=8)
    last = made.trials[-1]
    assert (last.state, last.user_attrs["akeso:problem"]) == (TrialState.PRUNED, "hopeless-curve")
    assert last.user_attrs["akeso:step"] == max(last.intermediate_values)
    ran = [trial.user_attrs.get(attributes.TRIAL, {}) for trial in made.trials[:6]]
    # Those that a threshold could have stopped are told from those before it: calibration must know.
    assert not ran[0]
    assert ran[4]["guarded"] is True


def test_a_trial_that_goes_on_although_it_was_to_be_pruned_has_finished() -> None:
    made = study(pruner=DiagnosisPruner(epochs=8))
    made.optimize(lambda trial: unwatched(trial, heed=False), n_trials=8)
    last = made.trials[-1]
    row = of_study(made)[-1]
    assert (last.state, row["outcome"]) == (TrialState.COMPLETE, "finished")
    assert row["sentence"].startswith("went on and completed, although it was to be stopped. After ")
    assert row["step"] < max(last.intermediate_values)  # it is said once, however often it is asked
    assert attributes.curve_of(last, 0, (False,), 8, "last").full


def test_a_wrapped_pruner_is_named_in_an_objective_without_watch() -> None:
    made = study(pruner=DiagnosisPruner(optuna.pruners.ThresholdPruner(upper=0.9)))
    made.optimize(unwatched, n_trials=1)
    assert made.trials[0].user_attrs["akeso:sentence"] == "ThresholdPruner stopped the trial after 1 report."
    assert [row["outcome"] for row in of_study(made)] == ["stopped"]


def watched(trial: optuna.Trial) -> Any:
    with akeso.search.watch(trial, epochs=3) as health:
        for value in (0.5, 0.95, 0.4):
            health.report(value)
    return health.value


def test_a_wrapped_pruner_still_prunes_and_is_named() -> None:
    for pruner in (
        optuna.pruners.ThresholdPruner(upper=0.9),
        DiagnosisPruner(optuna.pruners.ThresholdPruner(upper=0.9)),
    ):
        made = study(pruner=pruner)
        made.optimize(watched, n_trials=1)
        assert made.trials[0].state == TrialState.PRUNED
        assert made.trials[0].user_attrs["akeso:problem"] == "ThresholdPruner"


def test_in_shadow_nothing_is_pruned_without_watch_either() -> None:
    made = study(pruner=DiagnosisPruner(optuna.pruners.MedianPruner(n_startup_trials=2), on_problem="shadow"))
    made.optimize(unwatched, n_trials=8)
    assert [trial.state for trial in made.trials] == [TrialState.COMPLETE] * 8
    would = made.trials[7].user_attrs[attributes.SHADOW]
    assert (would["action"], would["sentence"]) == ("stop", "MedianPruner stopped the trial after 1 report.")
