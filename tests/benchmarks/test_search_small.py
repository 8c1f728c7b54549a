"""The benchmark of small searches that train for real."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import optuna
import pytest

from akeso.search.recorded import StudyRecorder, load
from benchmarks.search.configurations import Drawn
from benchmarks.search.pool import record_trial, unpacked
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


@pytest.mark.parametrize("name", SMALL)
def test_a_trial_of_every_small_task_trains_and_is_recorded(name: str, tmp_path: Path) -> None:
    task, size = SMALL[name]
    recorder = StudyRecorder(tmp_path, name=name, maximize=task.maximize, epochs=1, value_of="best")
    params = Drawn(task.space, name).configuration(3)
    record_trial(task, 3, params, replace(size, epochs=1), "cpu", recorder, math.inf, keep=False)
    (trial,) = load(tmp_path).trials
    assert math.isfinite(trial.values[0])
    assert math.isfinite(trial.losses[0])
    assert trial.params == params == Drawn(task.space, name).configuration(3)


def test_the_pool_that_is_kept_holds_trials_of_every_small_task(tmp_path: Path) -> None:
    folder = unpacked(Path(__file__).parents[2] / "benchmarks/search/pools/small.tar.gz", tmp_path)
    for name, (task, size) in SMALL.items():
        study = load(folder / name)
        assert (study.maximize, study.epochs, study.value_of) == (task.maximize, size.epochs, "best")
        assert sum(len(trial.values) == size.epochs for trial in study.trials) > 900
        assert set(study.trials[0].params) == set(task.space)
