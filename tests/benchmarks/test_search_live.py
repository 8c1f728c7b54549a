"""The benchmark that searches for real, with every search kept in a journal that can be gone on with."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import optuna
import pytest

from akeso.search.simulation import Ended
from akeso.search.verdict import CONTINUE
from benchmarks.search.__main__ import main
from benchmarks.search.live import (
    Search,
    compared,
    ended_in,
    go_on,
    is_over,
    lines_in,
    opened,
    run_live,
    verdict,
)
from benchmarks.search.small_tasks import SMALL

SIZES = {"Friedman": replace(SMALL["Friedman"][1], epochs=2)}


def searched(*trials: tuple[float, float]) -> list[Ended]:
    """Trials that ended at these moments with these values."""
    return [Ended(i, at, 1.0, 1, CONTINUE, value, math.nan) for i, (at, value) in enumerate(trials)]


def test_a_search_has_the_time_of_the_plain_one_and_as_much_again_to_reach_its_best() -> None:
    plain = searched((10.0, 0.5), (20.0, 0.3), (30.0, 0.4))

    def over(*trials: tuple[float, float]) -> bool:
        return is_over(searched(*trials), plain, 3, maximize=False)

    assert not over((29.0, 0.1))
    assert over((29.0, 0.3), (31.0, 0.6))
    assert not over((29.0, 0.4), (59.0, 0.4))
    assert over((29.0, 0.4), (60.0, 0.4))
    assert not is_over(searched((99.0, 0.1)), plain[:2], 3, maximize=False), "the plain search is not over"


def test_what_comes_after_the_time_of_the_plain_search_counts_for_the_time_saved_alone() -> None:
    plain = searched((10.0, 0.5), (20.0, 0.3), (30.0, 0.4), (99.0, 0.0))
    found = compared(searched((5.0, 0.6), (29.0, 0.31), (40.0, 0.1)), plain, 3, maximize=False)
    assert found.times == (20.0, 40.0)
    assert (found.trials, found.trials_without) == (2, 3)
    assert found.hit_ratio == pytest.approx(2 / 5)


def test_a_search_goes_on_where_it_stopped_and_a_trial_cut_short_is_not_counted(tmp_path: Path) -> None:
    search = Search("Friedman", "random", "akeso", 0)
    task, size = SMALL["Friedman"][0], SIZES["Friedman"]
    go_on(search.plain, SIZES, tmp_path, "cpu", 2, time.time() + 60)
    plain = opened(search.plain, tmp_path, task, size)
    assert [trial.state.name for trial in plain.trials] == ["COMPLETE"] * 2

    slow = {"Friedman": replace(size, epochs=10**6)}
    go_on(search, slow, tmp_path, "cpu", 2, time.time() + 1.5)
    cut = opened(search, tmp_path, task, size)
    assert cut.trials[-1].state.name == "FAIL"
    assert ended_in(cut) == []

    go_on(search, SIZES, tmp_path, "cpu", 2, time.time() + 60)
    mine, theirs = ended_in(opened(search, tmp_path, task, size)), ended_in(plain)
    assert is_over(mine, theirs, 2, maximize=False)
    assert mine[-1].seconds == pytest.approx(sum(e.spent for e in mine))
    (line,) = lines_in(tmp_path, SIZES, ["random", "tpe"], ["akeso"], 3, 2)
    assert len(line.repeats) == 1


def test_both_searches_begin_with_the_same_trials(tmp_path: Path) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    task, size = SMALL["Friedman"][0], SIZES["Friedman"]
    asked = [
        opened(Search("Friedman", "random", rule, 3), tmp_path, task, size).ask().suggest_float("x", 0, 1)
        for rule in ("none", "akeso")
    ]
    assert asked[0] == asked[1]


def test_what_cannot_be_run_is_refused_and_what_is_not_there_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"minutes": 0.0, "jobs": 1, "repeats": 1, "trials": 1}
    with pytest.raises(SystemExit, match="--rules names 'nan'"):
        run_live(SIZES, tmp_path, "cpu", samplers=["random"], rules=["nan"], **options)  # type: ignore[arg-type]
    with pytest.raises(SystemExit, match="--samplers names 'grid'"):
        run_live(SIZES, tmp_path, "cpu", samplers=["grid"], rules=["akeso"], **options)  # type: ignore[arg-type]
    assert verdict([], 30) == 1
    assert "no repeat is over yet" in capsys.readouterr().out


def test_recorded_searches_are_shown_again_on_any_machine(capsys: pytest.CaptureFixture[str]) -> None:
    of_before = ["--only", "live", "--size", "swift", "--samplers", "tpe,gp", "--rules", "akeso"]
    kept = [
        "--tasks",
        "Ex96Trans",
        "--pool",
        str(Path(__file__).parents[2] / "benchmarks/search/pools/live.tar.gz"),
    ]
    assert main([*of_before, *kept, "--minutes", "0", "--repeats", "6"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[3] for line in shown.splitlines() if line.startswith("Ex96Trans")] == ["2", "2"]
    assert "TSBA 53.0% [13.1%, 53.0%] (of single pairs 10.4%" in shown
    assert "Top10HR 80.0%" in shown
    assert "false stops not known" in shown
    with pytest.raises(SystemExit):
        main(of_before)
    assert "add --device cuda, not cpu" in capsys.readouterr().err
