from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from akeso.errors import BadInput
from akeso.replay.diff import find_difference
from akeso.replay.diff.cli import diff
from akeso.replay.diff.recording import first_difference, read_recording
from akeso.replay.trace.job import Launcher
from benchmarks.planted import PLANTS, Plant, jobs_of, judge, prepare

TRACED = ("one changed sample", "nondeterministic kernel", "fused optimizer", "control: more logging")
BY_RECORD = ("learning rate from step 4", "initial seed", "decay of the averaged model")


@pytest.fixture(scope="module")
def launcher() -> object:
    with Launcher(timeout=300) as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("planted")
    prepare(found)
    return found


def recorded(name: str, folder: Path, launcher: Launcher) -> tuple[Plant, Path, Path]:
    plant = next(plant for plant in PLANTS if plant.name == name)
    jobs = jobs_of(plant, folder)
    if not Path(jobs[0].folder).exists():
        assert all(not status.error for status in launcher.run(jobs))
    return plant, Path(jobs[0].folder), Path(jobs[1].folder)


@pytest.mark.parametrize("name", TRACED)
def test_the_planted_cause_is_found_by_running_again(name: str, folder: Path, launcher: Launcher) -> None:
    plant, a, b = recorded(name, folder, launcher)
    finding = find_difference(a, b, launcher=launcher)
    assert judge(plant, finding) == "", finding.text()
    assert json.loads(json.dumps(finding.document()))["equal"] == (not plant.cause)


@pytest.mark.parametrize("name", BY_RECORD)
def test_the_records_alone_name_step_and_kind(name: str, folder: Path, launcher: Launcher) -> None:
    plant, a, b = recorded(name, folder, launcher)
    finding = find_difference(a, b, run_again=False)
    assert finding.cause == plant.cause, finding.text()
    assert plant.step is None or finding.step == plant.step
    assert finding.operation is None


def test_the_command_says_it_in_words_and_json_and_by_its_exit_status(
    folder: Path, launcher: Launcher
) -> None:
    _, a, b = recorded("learning rate from step 4", folder, launcher)
    runner = CliRunner()
    said = runner.invoke(diff, [str(a), str(b), "--no-rerun"])
    assert said.exit_code == 1
    assert "lr 0.01 and 0.005" in said.output
    assert "First differing step: 4" in said.output
    document = json.loads(runner.invoke(diff, [str(a), str(b), "--no-rerun", "--json"]).output)
    assert (document["cause"], document["first_step"]) == ("optimizer", 4)
    same = runner.invoke(diff, [str(a), str(a), "--no-rerun"])
    assert same.exit_code == 0
    assert "bit for bit" in same.output


def test_a_run_killed_early_is_compared_over_the_steps_it_has(folder: Path, launcher: Launcher) -> None:
    _, a, b = recorded("learning rate from step 4", folder, launcher)
    journal = b / "replay.jsonl"
    torn = folder / "torn"
    torn.mkdir()
    lines = journal.read_bytes().splitlines(keepends=True)
    (torn / "replay.jsonl").write_bytes(b"".join(lines[:6]) + lines[6][:20])
    short = read_recording(torn)
    assert 0 < len(short.steps) < 4
    assert first_difference(read_recording(a), short) == (None, ())
    assert "has 6 steps" in " ".join(find_difference(a, torn).notes)


def test_a_folder_of_something_else_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no journal"):
        read_recording(tmp_path)
    outcome = CliRunner().invoke(diff, [str(tmp_path), str(tmp_path / "nothing")])
    assert outcome.exit_code == 2
