"""The recorded pools that are kept beside the benchmark: stopping by diagnosis is ahead of not stopping on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from akeso.search.recorded import load
from benchmarks.search import evaluation
from benchmarks.search.pool import unpacked
from benchmarks.search.tasks import TASKS

POOLS = Path(evaluation.__file__).parent / "pools"


@pytest.mark.parametrize("task", ["Cifar10CNN", "Ex96Trans"])
def test_akeso_saves_time_on_a_recorded_search_and_loses_few_good_trials(task: str, tmp_path: Path) -> None:
    study = load(unpacked(POOLS / "card.tar.gz", tmp_path) / task)
    assert all(len(trial.values) == study.epochs for trial in study.trials)
    lines = evaluation.evaluate(
        study, TASKS[task].space, samplers={"random": 2}, rules=["nan", "akeso"], share=0.15
    )
    plain, ours = lines
    assert plain.tsba.mean == 0.0
    assert plain.hit_ratio.mean == 0.5
    assert ours.tsba.mean > 0.2
    assert ours.hit_ratio.mean > 0.55
    assert ours.false < 0.04


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert unpacked(tmp_path, tmp_path / "elsewhere") == tmp_path
