"""The recorded pools that are kept beside the benchmark: stopping by diagnosis is ahead of not stopping on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from akeso.search.recorded import RecordedTrial, load, of_trials
from benchmarks.search import evaluation
from benchmarks.search.__main__ import main
from benchmarks.search.pool import record, unpacked
from benchmarks.search.space import Number
from benchmarks.search.tasks import QUICK, TASKS

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


def test_yardsticks_show_what_equal_searches_and_a_rule_that_knows_all_come_to() -> None:
    draw = np.random.default_rng(0)
    ends = draw.random(400)
    trials = [
        RecordedTrial(i, {"x": float(end)}, tuple(end * np.linspace(0.1, 1, 10)), tuple(range(1, 11)))
        for i, end in enumerate(ends.tolist())
    ]
    study = of_trials(trials, maximize=True, epochs=10)
    again, knowing, thrice = evaluation.evaluate(
        study, {"x": Number(0, 1)}, samplers={"random": 8}, rules=["again", "knowing", "thrice"], share=0.1
    )
    assert 0.3 < again.hit_ratio.mean < 0.7
    assert again.more_trials == pytest.approx(1, abs=0.05)
    assert knowing.hit_ratio.mean > 0.65
    assert knowing.tsba.mean > max(again.tsba.mean, 0.4)
    assert thrice.more_trials == pytest.approx(3, abs=0.05)
    assert 0.6 < thrice.hit_ratio.mean < 0.85
    assert thrice.tsba.mean > again.tsba.mean + 0.2
    assert 2 < knowing.more_trials < 3  # a quarter of all runs to its end, the rest for a fifth of the time


def test_a_pool_is_filled_up_to_what_a_comparison_needs_on_a_slow_machine(tmp_path: Path) -> None:
    try:
        TASKS["Cifar10LSTM"].data(QUICK, "cpu")
    except SystemExit as missing:
        pytest.skip(str(missing))
    size = replace(QUICK, images=8, checked=8, epochs=1)
    record(["Cifar10LSTM"], tmp_path, size, "cpu", minutes=0.0, jobs=1, keep=False, fewest=2)
    assert len(load(tmp_path / "Cifar10LSTM").trials) == 2


def test_a_rule_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "evaluate", "--rules", "akeso,guessing"])
    assert "unknown rules ['guessing']; there are again, knowing, thrice, nan" in capsys.readouterr().err
