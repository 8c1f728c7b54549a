"""The benchmark of small searches that train for real."""

from __future__ import annotations

import optuna

from benchmarks.search.small import search, to_its_end
from benchmarks.search.small_tasks import SMALL
from benchmarks.search.space import suggest


def test_a_trial_trained_to_its_end_afterwards_comes_to_what_it_would_have() -> None:
    task, size = SMALL["Digits"]
    ours = search("Digits", "random", "akeso", 1, 2)  # too young a search to end any
    assert [trial.epochs for trial in ours] == [size.epochs] * 2
    assert ours[-1].seconds == 2 * size.epochs
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for trial in ours:
        assert to_its_end("Digits", suggest(task.space, study.ask()), trial.number) == trial.value
