"""The command line apart from ``run``: every command answers, every mistake is said."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from akeso.catalogue import PROBLEMS
from akeso.cli import COMMANDS, call, main
from akeso.history import Event
from akeso.journal import JournalWriter

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def sick_run(tmp_path: Path) -> Path:
    """A recorded run that became NaN."""
    folder = tmp_path / "sick"
    writer = JournalWriter(folder)
    writer.header({})
    for step in range(60):
        writer.readings(step, {"loss": {"": 1.0 if step < 50 else float("nan")}})
    writer.event(Event(50, "non-finite", "net.3", {"what": "loss", "module": "net.3", "value": "nan"}))
    writer.end({"steps": 60, "overhead": 0.004})
    return folder


def test_help_names_every_command_and_imports_none_of_them(capsys: Capture) -> None:
    before = set(sys.modules)
    assert not call(["--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    assert not {entry.module for entry in COMMANDS.values()} & (set(sys.modules) - before)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(name: str, capsys: Capture) -> None:
    assert not call([name, "--help"])
    assert "Usage: akeso" in capsys.readouterr().out


def test_a_misspelt_command_gets_a_proposal(capsys: Capture) -> None:
    assert call(["rn", "x.py"]) == 2
    assert "did you mean 'run'?" in capsys.readouterr().err
    assert call(["train.py"]) == 2
    assert "akeso run train.py" in capsys.readouterr().err


def test_the_entry_point_exits_with_the_code(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(sys, "argv", ["akeso", "nonsense"])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 2
    monkeypatch.setattr(sys, "argv", ["akeso", "list"])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 0


def test_report_says_what_was_found_and_exits_with_1(sick_run: Path, tmp_path: Path, capsys: Capture) -> None:
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    assert call(["report", str(sick_run), "--json", str(out), "--html", str(page)]) == 1
    text = capsys.readouterr().out
    assert "net.3" in text
    assert "step 50" in text
    document = json.loads(out.read_text())
    assert document["diagnoses"][0]["problem"] == "non-finite"
    assert document["diagnoses"][0]["layer"] == "net.3"
    assert document["steps"] == 60
    assert document["overhead"] == 0.004
    assert document["metrics"]["train_loss"] is None
    assert "net.3" in page.read_text()


def test_report_with_another_profile(sick_run: Path, capsys: Capture) -> None:
    assert call(["report", str(sick_run), "--profile", "bttackler"]) in (0, 1)
    assert call(["report", str(sick_run), "--profile", "nonsense"]) == 2
    assert "cannot read a profile" in capsys.readouterr().err


def test_report_of_what_is_no_run(tmp_path: Path, capsys: Capture) -> None:
    assert call(["report", str(tmp_path / "nowhere")]) == 2
    assert "there is no run folder" in capsys.readouterr().err
    assert call(["report", str(tmp_path)]) == 2
    assert "holds no journal" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_said(sick_run: Path, tmp_path: Path, capsys: Capture) -> None:
    assert call(["report", str(sick_run), "--json", str(tmp_path / "no" / "x.json")]) == 2
    assert "could not be written" in capsys.readouterr().err


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_is_explained(name: str, capsys: Capture) -> None:
    assert not call(["explain", name])
    text = capsys.readouterr().out
    assert PROBLEMS[name].title in text
    assert "How it is recognised" in text
    assert "What helps" in text


def test_an_unknown_problem_gets_a_proposal(capsys: Capture) -> None:
    assert call(["explain", "vanishing"]) == 2
    assert "did you mean 'vanishing-gradient'?" in capsys.readouterr().err
    assert not call(["explain", "Dying_ReLU".lower()])


def test_list_and_explain_as_json(tmp_path: Path) -> None:
    file = tmp_path / "problems.json"
    assert not call(["list", "--json", str(file)])
    problems = json.loads(file.read_text())["problems"]
    assert {entry["problem"] for entry in problems} == set(PROBLEMS)
    assert not call(["explain", "dying-relu", "--json", str(file)])
    assert json.loads(file.read_text())["problem"] == "dying-relu"


@pytest.mark.parametrize("name", ["akeso", "autotrainer", "bttackler"])
def test_a_printed_profile_can_be_used(name: str, sick_run: Path, tmp_path: Path, capsys: Capture) -> None:
    assert not call(["profile", name])
    mine = tmp_path / "mine.toml"
    mine.write_text(capsys.readouterr().out)
    assert call(["report", str(sick_run), "--profile", str(mine)]) == call(
        ["report", str(sick_run), "--profile", name]
    )
    assert call(["profile", "mine"]) == 2
