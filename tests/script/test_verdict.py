"""From a history to an exit code, and what is said on the way."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from akeso.history import Event, History
from akeso.script.program import Ending, Program
from akeso.script.request import RunRequest, Threshold, reaches
from akeso.script.verdict import conclude

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def sick() -> History:
    history = History()
    for step in range(60):
        history.add(step, "loss", "", 1.0 if step < 50 else math.nan)
    history.events.append(
        Event(50, "non-finite", "net.3", {"what": "loss", "module": "net.3", "value": "nan"})
    )
    return history


def request(**options: object) -> RunRequest:
    return RunRequest(Program("train.py"), **options)  # type: ignore[arg-type]


def code_of(history: History, ending: Ending = Ending(0), trouble: str = "", **options: object) -> int:  # noqa: B008
    verdict = conclude(request(**options), ending, history, 0.01, Path("nowhere"), 0, trouble)
    return verdict.code


@pytest.mark.parametrize(("fail_on", "code"), [("error", 1), ("warning", 1), ("info", 1), ("never", 0)])
def test_findings_give_1_from_the_asked_severity_on(fail_on: Threshold, code: int, capsys: Capture) -> None:
    assert code_of(sick(), fail_on=fail_on) == code
    assert "net.3" in capsys.readouterr().err


def test_severities_are_ordered() -> None:
    assert reaches("error", "warning")
    assert reaches("warning", "warning")
    assert not reaches("info", "warning")
    assert not reaches("error", "never")


def test_a_healthy_run_gives_0() -> None:
    history = History()
    for step in range(100):
        history.add(step, "loss", "", 0.98**step)
    assert code_of(history) == 0


def test_exit_zero_and_a_failing_script_keep_the_scripts_code() -> None:
    assert code_of(sick(), exit_zero=True) == 0
    assert code_of(sick(), Ending(3, failed=True)) == 3
    assert code_of(sick(), Ending(3, failed=True), exit_zero=True) == 3


def test_trouble_of_akeso_gives_2_and_status_error(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "out.json"
    assert code_of(History(), trouble="watching could not be started", json_file=file) == 2
    assert json.loads(file.read_text())["status"] == "error"
    assert "could not judge this run: watching could not be started" in capsys.readouterr().err


def test_quiet_says_nothing(capsys: Capture) -> None:
    assert code_of(sick(), quiet=True) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_json_that_cannot_be_written_is_an_error_of_akeso(tmp_path: Path, capsys: Capture) -> None:
    assert code_of(sick(), json_file=tmp_path / "no" / "out.json") == 2
    assert "could not be written" in capsys.readouterr().err


def test_other_ranks_leave_the_verdict_to_the_first(capsys: Capture) -> None:
    verdict = conclude(request(), Ending(0), sick(), 0.01, Path("nowhere"), rank=1)
    assert verdict.code == 0
    assert capsys.readouterr().err == ""
