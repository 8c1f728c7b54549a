"""The commands, on a real program that is really killed."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from akeso.errors import BadInput, Refused
from akeso.replay import run_folder
from akeso.replay.cli import replay, snapshot
from akeso.replay.journal import read
from akeso.replay.replaying import replay as again
from akeso.replay.resume import outlook, resume
from tests.script.commands import Done, python_at_once

PROGRAM = Path(__file__).with_name("killed_program.py")


def _program(script: Path, folder: Path, kill_at: int = 0) -> Done:
    return python_at_once(Path.cwd(), str(script), str(folder), KILL_AT=str(kill_at))


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str, str]:
    """A whole run, and one killed and resumed; their folders and their results."""
    home = tmp_path_factory.mktemp("lives")
    script = home / "train.py"
    shutil.copy(PROGRAM, script)
    whole = _program(script, home / "whole")
    assert whole.returncode == 0, whole.stderr
    assert _program(script, home / "cut", 27).returncode == -signal.SIGKILL
    assert resume(home / "cut") == 0
    results = [(home / f"{name}.json").read_text() for name in ("whole", "cut")]
    return home / "whole", home / "cut", results[0], results[1]


def test_a_killed_run_ends_in_the_same_bits(lives: tuple[Path, Path, str, str]) -> None:
    whole, cut, wanted, found = lives
    assert found == wanted
    one, two = read(whole), read(cut)
    assert len(two.all("resume")) == 1
    assert two.all("mismatch") == ()
    assert all(one.steps()[step].differences(two.steps()[step]) == () for step in one.steps())


@pytest.mark.usefixtures("runs_begin_at_once")
def test_the_newest_snapshot_is_proved_complete(lives: tuple[Path, Path, str, str]) -> None:
    before = (lives[1] / "replay.jsonl").read_bytes()
    found = CliRunner().invoke(snapshot, [str(lives[1]), "--prove"])
    assert found.exit_code == 0, found.output
    assert "run again from the snapshot of step" in found.output
    assert "all 2 equal, bit for bit" in found.output
    assert (lives[1] / "replay.jsonl").read_bytes() == before


def test_snapshots_are_shown_with_the_types_of_state(lives: tuple[Path, Path, str, str]) -> None:
    found = CliRunner().invoke(snapshot, [str(lives[0])])
    assert found.exit_code == 0
    assert "whole" in found.output
    for line in ("optimizer", "train.py:main:best", "learned", "position", "recomputable"):
        assert line in found.output


@pytest.mark.usefixtures("runs_begin_at_once")
@pytest.mark.parametrize("way", ["moved", "copied"])
def test_a_moved_or_copied_run_goes_on_where_it_is(way: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    shutil.copy(PROGRAM, script)
    here, there = tmp_path / "here", tmp_path / "there"
    assert _program(script, here, 12).returncode == -signal.SIGKILL
    before = (here / "replay.jsonl").read_bytes()
    (shutil.move if way == "moved" else shutil.copytree)(here, there)
    step = outlook(there)["step"]
    assert resume(there) == 0
    found = read(there)
    assert found.all("resume")[0]["from"] == step
    assert found.all("mismatch") == ()
    assert max(found.steps()) == 40
    if way == "moved":
        assert again(there, 19, 21).equal
        assert not here.exists()
    else:
        assert (here / "replay.jsonl").read_bytes() == before


@pytest.mark.usefixtures("runs_begin_at_once")
def test_a_program_that_keeps_its_run_elsewhere_each_time_is_named(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os\nfrom akeso.replay import Run\n"
        "run = Run(f'{os.getpid()}')\nfor _ in run.iterations(3): run.step(0.0)\n"
    )
    assert python_at_once(tmp_path, str(script)).returncode == 0
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    with pytest.raises(BadInput, match="has ended without going on with it"):
        resume(folder)


def test_an_edited_script_is_refused(lives: tuple[Path, Path, str, str]) -> None:
    script = lives[0].parent / "train.py"
    text = script.read_text()
    script.write_text(text + "\n# edited\n")
    found = _program(script, lives[1])
    script.write_text(text)
    assert found.returncode != 0
    assert "code: train.py has been edited since the run began" in found.stderr.decode()


def test_differences_between_runs_are_sentences() -> None:
    def about(script: str, words: list[str], threads: int) -> dict[str, object]:
        program = {"script": f"/x/{script}", "command": [script, *words], "cwd": "/x", "hash seed": "0"}
        return {"program": program, "code": {}, "fingerprint": {"threads": {"intra-op": threads}}}

    then = about("a.py", ["--lr", "1"], 1)
    assert run_folder.differences(then, about("a.py", ["--lr", "1"], 1)) == ()
    assert run_folder.differences(then, about("b.py", ["--lr", "1"], 1)) == (
        "program: the run belongs to /x/a.py, this is /x/b.py",
    )
    assert run_folder.differences(then, about("a.py", ["--lr", "2"], 2)) == (
        "program: it was started with arguments [--lr 1], now with [--lr 2]",
        "threads: intra-op was 1, is 2",
    )
    with pytest.raises(Refused, match=r"(?s)intra-op was 1, is 2.*--allow"):
        run_folder.refuse(Path("runs/a"), ("threads: intra-op was 1, is 2",))


def test_bad_requests_are_explained(lives: tuple[Path, Path, str, str], tmp_path: Path) -> None:
    for words, message in (
        ([str(lives[0]), "--steps", "400:410"], "ends at step 40"),
        ([str(lives[0]), "--steps", "9:3"], "goes forward"),
        ([str(lives[0]), "--steps", "x"], "two numbers like 400:420"),
        ([str(tmp_path), "--steps", "1:2"], "give the one that the script gave akeso.replay.Run"),
    ):
        error = CliRunner().invoke(replay, words).exception
        assert isinstance(error, BadInput)
        assert message in str(error)
