"""Recorded trials whose configurations samplers suggested, and the samplers that choose among them later."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from akeso.search.recorded import RecordedTrial, StudyRecorder, of_trials
from akeso.search.rules import NoRule
from akeso.search.simulation import simulate
from benchmarks.search import __main__ as program
from benchmarks.search import configurations, evaluation, kept
from benchmarks.search.configurations import Suggested
from benchmarks.search.kept import Kept
from benchmarks.search.pool import SUGGESTED
from benchmarks.search.samplers import SAMPLERS, _matern, _Process
from benchmarks.search.space import Choice, Number, Space, places

#: Trials of a search.
EACH = 60
SPACE: Space = {"x": Number(0, 1), "y": Number(1e-3, 1.0, log=True), "kind": Choice(("a", "b", "c"))}


def trained(number: int, params: dict[str, object]) -> RecordedTrial:
    """A trial that is best at the middle of ``x`` with the second kind."""
    end = 1 - abs(float(params["x"]) - 0.5) - 0.2 * (params["kind"] != "b")  # type: ignore[arg-type]
    return RecordedTrial(number, params, tuple(end * np.linspace(0.1, 1, 10)), tuple(range(1, 11)))


def drawn(numbers: Iterable[int]) -> list[RecordedTrial]:
    """Random trials."""
    source = configurations.Drawn(SPACE, "task")
    return [trained(number, source.configuration(number)) for number in numbers]


@pytest.mark.parametrize("first", [0, 1], ids=["tpe", "gp"])
def test_samplers_suggest_better_configurations_than_random_ones(first: int) -> None:
    known = drawn(range(1000, 1060))
    source = Suggested(SPACE, True, known, first, 2, EACH)
    found = []
    for number in range(first, first + 16, 2):
        found.append(trained(number, source.configuration(number)))
        source.ended(found[-1])
    better = np.median([trial.values[-1] for trial in found])
    assert better > np.quantile([trial.values[-1] for trial in known], 0.75)


def test_a_recording_goes_on_with_its_search_and_begins_another_when_that_is_over() -> None:
    known = drawn(range(1000, 1060))
    mine, others = drawn([4, 6]), drawn([5])  # another worker of two has the odd ones
    source = Suggested(SPACE, True, known, 4, 2, EACH, [*mine, *others])
    source.configuration(8)
    values = [trial.value for trial in source._study.trials if trial.value is not None]
    assert len(values) == configurations.BEGINNING + 2
    assert values[-2:] == [trial.values[-1] for trial in mine]
    source.ended(RecordedTrial(8, {}, (), (), crashed="out of memory"))
    assert source._study.trials[-1].state.name == "FAIL"
    source.configuration(4 + 2 * EACH)
    fresh = [trial.value for trial in source._study.trials if trial.value is not None]
    assert len(fresh) == configurations.BEGINNING
    assert fresh != values[: configurations.BEGINNING]


def test_suggesting_without_random_trials_is_refused_and_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"there are none of Cifar10CNN in .*give a pool that has them"):
        program.main(
            ["--only", "record", "--suggested", "--tasks", "Cifar10CNN", "--pool", str(tmp_path / "new")]
        )


@pytest.mark.parametrize("sampler", ["tpe", "gp", "smac"])
def test_samplers_that_learn_begin_at_random_and_then_take_suggested_trials_too(sampler: str) -> None:
    if sampler == "smac":
        pytest.importorskip("smac")
    pool, more = drawn(range(200)), drawn(range(1000, 1200))
    study = of_trials([*pool, *more], maximize=True, epochs=10)
    chooser = SAMPLERS[sampler](study, SPACE, 0, [trial.number for trial in pool], 40)
    ended = simulate(study, NoRule(), chooser, budget=400.0).ended
    assert all(trial.number < 200 for trial in ended[:10])
    assert any(trial.number >= 1000 for trial in ended[10:])
    assert np.mean([t.would for t in ended[20:]]) > np.mean([t.would for t in ended[:10]]) + 0.1


def test_random_search_is_judged_by_random_trials_alone() -> None:
    study = of_trials(drawn(range(100)), maximize=True, epochs=10)
    best = [trained(1000 + i, {"x": 0.5, "y": 0.1, "kind": "b"}) for i in range(50)]
    lines = evaluation.evaluate(
        study, SPACE, samplers={"random": 2, "gp": 2}, rules=["nan"], share=0.2, suggested=best
    )
    random, learning = lines
    assert random.hit_ratio.mean == learning.hit_ratio.mean == 0.5
    assert random.ceiling > 0.8
    assert learning.ceiling < random.ceiling, "the plain search finds suggested trials, which are the best"


def test_a_comparison_goes_on_where_it_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = of_trials(drawn(range(80)), maximize=True, epochs=10)
    file, simulated = tmp_path / "runs" / "repeats.jsonl", []
    before = evaluation.simulate

    def counting(*given: Any, **how: Any) -> Any:
        simulated.append(given[1].name)
        return before(*given, **how)

    def lines(repeats: int, rules: list[str]) -> list[Any]:
        simulated.clear()
        return evaluation.evaluate(
            study, SPACE, samplers={"tpe": repeats}, rules=rules, share=0.3, kept=Kept(file)
        )

    monkeypatch.setattr(evaluation, "simulate", counting)
    first = lines(2, ["nan"])
    assert simulated == ["none", "nan"] * 2
    with file.open("a") as torn:
        torn.write('{"of": "nan 2')
    assert lines(2, ["nan"]) == first
    assert simulated == []
    more = lines(3, ["nan", "akeso"])
    assert simulated == ["none", "akeso"] * 2 + ["none", "nan", "akeso"]
    assert more[0].repeats[:2] == first[0].repeats
    assert lines(3, ["nan", "akeso"]) == more
    assert simulated == []
    monkeypatch.setattr(kept, "PROFILES", kept.PROFILES[1:])  # as if the source of profiles had changed
    assert lines(3, ["nan", "akeso"]) == more
    assert simulated == ["none", "akeso"] * 3
    monkeypatch.setattr(kept, "JUDGING", kept.JUDGING[1:])
    assert lines(2, ["nan"]) == first
    assert simulated == ["none", "nan"] * 2


def test_kept_repeats_belong_to_all_source_that_a_simulation_runs() -> None:
    code = (
        "import sys, benchmarks.search.evaluation, benchmarks.search.kept as kept;"
        "from akeso.search import optuna_rules;"
        "known = {*kept.JUDGING, *kept.PROFILES};"
        "print(*[m for m in sys.modules if m.startswith(('akeso.', 'benchmarks.search.')) and m not in known])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # The catalogue only says which names of problems there are.
    harmless = {
        "akeso.catalogue",
        "akeso.errors",
        "akeso.extras",
        "akeso.search",
        "akeso.search._optional",
    }
    assert set(done.stdout.split()) - harmless == {"benchmarks.search.kept", "benchmarks.search.repeats"}


def test_a_pool_shows_by_its_folders_which_trials_were_suggested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(program.SPACES, "Task", SPACE)
    for folder, trials in (("Task", drawn(range(60))), (f"{SUGGESTED}/Task", drawn(range(1000, 1040)))):
        recorder = StudyRecorder(tmp_path / folder, name="Task", maximize=True, epochs=10)
        for trial in trials:
            recorder.add(trial)
    arguments = ["--only", "evaluate", "--tasks", "Task", "--rules", "nan", "--repeats", "2", "--jobs", "1"]
    arguments += ["--kept", str(tmp_path / "kept.jsonl")]
    assert (
        program.main([*arguments, "--samplers", "random,tpe", "--share", "0.2", "--pool", str(tmp_path)]) == 0
    )
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("Task")]
    assert [row[1] for row in rows] == ["random", "tpe"]


def test_a_gaussian_process_that_grows_says_what_one_made_at_once_would() -> None:
    points = np.stack([places(SPACE, trial.params) for trial in drawn(range(120))])
    rows, y = np.random.default_rng(0).permutation(120)[:90], np.random.default_rng(1).normal(size=90)
    process = _Process(points, 1.0)
    process.see(rows[:30])
    process.see(rows)
    mean, spread = process.moments(y)
    seen, across = points[rows], _matern(points, points[rows], 1.0)
    inverse = np.linalg.inv(_matern(seen, seen, 1.0) + 0.1 * np.eye(90))
    assert np.allclose(mean, across @ inverse @ y)
    assert np.allclose(spread**2, 1 - np.einsum("ij,jk,ik->i", across, inverse, across))
    assert math.isfinite(spread.min())
