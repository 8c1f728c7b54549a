"""Several objectives: which trials are among the best of their study, and what that spares them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from optuna.trial import TrialState
from torch import nn

import akeso
from akeso.search.curves import Curve, Knowledge
from akeso.search.judge import Judge
from akeso.search.multi import judge_many, unsurpassed
from akeso.search.profiles import AKESO
from akeso.search.traits import Traits
from tests.search.trials import train_epoch

optuna.logging.set_verbosity(optuna.logging.ERROR)

EPOCHS = 8


def study_of(curves: list[list[list[float]]]) -> optuna.Study:
    """A study of two objectives, both minimised, in which these trials have finished."""
    made = optuna.create_study(directions=["minimize", "minimize"])

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=EPOCHS) as health:
            for row in curves[trial.number]:
                health.report(row)
        return health.value

    made.optimize(run, n_trials=len(curves))
    return made


def finished(*ends: tuple[float, float]) -> list[list[list[float]]]:
    return [[[a + 1 / (t + 1), b] for t in range(EPOCHS)] for a, b in ends]


@pytest.mark.parametrize(("second", "state"), [(0.5, TrialState.COMPLETE), (4.0, TrialState.PRUNED)])
def test_a_trial_that_no_finished_one_surpasses_keeps_its_values_when_it_breaks(
    second: float, state: TrialState
) -> None:
    made = study_of(finished((0.1, 1.0), (0.2, 1.1), (0.3, 1.2)))

    def breaks(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=EPOCHS) as health:
            health.report([3.0, second])
            health.report([math.nan, second])
        return health.value

    made.optimize(breaks, n_trials=1)
    last = made.trials[-1]
    assert last.state == state
    assert last.values == ([3.0, 0.5] if state == TrialState.COMPLETE else None)
    assert last.user_attrs["akeso:problem"] == "non-finite"


@pytest.mark.parametrize(("size", "state"), [(0.01, TrialState.COMPLETE), (2.0, TrialState.PRUNED)])
def test_a_dead_network_that_is_best_in_another_objective_goes_on(size: float, state: TrialState) -> None:
    made = study_of(finished((0.1, 1.0), (0.2, 1.1), (0.3, 1.2)))

    def dead(trial: optuna.Trial) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
        for layer in model[::2]:
            assert isinstance(layer, nn.Linear)
            nn.init.constant_(layer.bias, -50.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with akeso.search.watch(trial, model, optimizer, epochs=EPOCHS) as health:
            for _ in range(EPOCHS):
                for _ in range(2):
                    loss = train_epoch(model, optimizer)
                health.report([loss, size])
        return health.value

    made.optimize(dead, n_trials=1)
    assert made.trials[-1].state == state
    if state == TrialState.PRUNED:
        assert made.trials[-1].user_attrs["akeso:problem"] == "dying-relu"


def test_who_is_among_the_best_needs_finished_trials_and_finite_reports() -> None:
    curves = [Curve((2.0, end), full=True) for end in (1.0, 2.0)]
    known = [Judge(AKESO, Knowledge(curves, 2), maximize=False) for _ in range(2)]
    young = [Judge(AKESO, Knowledge(curves[:1], 2), maximize=False) for _ in range(2)]
    good = [np.array([5.0, 0.9]), np.array([0.5, math.inf])]
    assert unsurpassed(known, good)  # as it stood before the report that was not finite
    assert not unsurpassed(known, [np.array([1.0]), np.array([1.0])])  # equal to a finished one
    assert not unsurpassed(young, good)
    assert not unsurpassed(known, [np.array([]), np.array([])])


@pytest.mark.parametrize(("ends", "who"), [((0.0,), "one finished trial of this study is"),
                                           ((0.0, 0.1), "2 finished trials of this study are")])  # fmt: skip
def test_the_sentence_counts_the_trials_that_are_better(ends: tuple[float, ...], who: str) -> None:
    every = (*ends, *(5 + 0.01 * i for i in range(30)))
    curves = [Curve((end + 1, end + 0.5, end), full=True) for end in every]
    judges = [Judge(AKESO, Knowledge(curves, 3), maximize=False) for _ in range(2)]
    assert f"{who} better in all" in judge_many(judges, [np.array([6.0, 5.5])] * 2, 3).sentence


def test_a_late_learner_that_has_moved_in_no_objective_is_left_alone_and_one_that_wakes_as_well() -> None:
    """The finished ones fell at once; of one that stands still they say nothing."""
    falls = 1 / (1 + np.arange(12.0))
    curves = [
        [Curve(tuple(end + up * falls), full=True) for end in np.linspace(0.1, 0.5, 30)] for up in (1, 2)
    ]
    judges = [Judge(AKESO, Knowledge(some, 12), maximize=False) for some in curves]
    asleep, slow = np.full(8, 2.0), 2.0 - 0.08 * np.arange(8)
    waking = np.append(np.full(6, 2.0), [1.4, 0.6])
    assert not judge_many(judges, [asleep, asleep], 12)
    assert not judge_many(judges, [waking, waking], 12)
    assert judge_many(judges, [slow, slow], 12).action == "stop"
    assert judge_many(judges, [asleep, slow], 12).action == "stop"


def test_reports_before_batch_norm_has_settled_are_not_judged_with_several_objectives_either() -> None:
    falls = 1 / (1 + np.arange(12.0))
    curves = [Curve(tuple(end + falls), full=True) for end in np.linspace(0.1, 0.5, 30)]
    judges = [Judge(AKESO, Knowledge(curves, 12), maximize=False) for _ in range(2)]
    unsettled = Traits({}, (), 6)
    rising = 2.0 - 0.08 * np.arange(6)  # moves, so that it is no late learner
    assert judge_many(judges, [rising, rising], 12).action == "stop"
    assert not judge_many(judges, [rising, rising], 12, unsettled)
    settled = np.concatenate([rising, [0.2, 0.15]])
    assert not judge_many(judges, [settled, settled], 12, unsettled)
    hopeless = np.concatenate([rising, [1.5, 1.42, 1.34, 1.26]])
    assert judge_many(judges, [hopeless, hopeless], 12, unsettled).action == "stop"
