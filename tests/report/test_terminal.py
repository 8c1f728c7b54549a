"""Reports on terminals, pipes and poor locales; a real pseudo-terminal where one is needed."""

from __future__ import annotations

import contextlib
import io
import os
import pty
from pathlib import Path

import pytest

from akeso.examination import Examination
from akeso.history import History
from akeso.report import run_document
from akeso.report.terminal import lines, picture, show
from akeso.script.output import Listener
from akeso.script.voice import Voice
from tests.report.test_document import EFFECT, REMARK, ROOT, history

SICK = run_document(history(), Examination((ROOT, EFFECT, REMARK), ("no input seen",)), 0.0071, run="runs/a")
HEALTHY = run_document(history(), Examination((), ()), 0.0071)


def on_a_terminal(action: object, monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    """What arrives at a terminal when something is written to it."""
    for name in ("NO_COLOR", "TERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "90", **environment}.items():
        monkeypatch.setenv(name, value)
    master, slave = pty.openpty()
    with open(slave, "w", encoding="utf-8") as stream:
        action(stream)  # type: ignore[operator]
    shown = b""
    with contextlib.suppress(OSError):  # what Linux says at the end of a terminal that was closed
        while part := os.read(master, 65536):
            shown += part
    os.close(master)
    return shown.decode().replace("\r\n", "\n")


def test_the_plain_report_tells_root_consequence_and_remark_in_this_order() -> None:
    text = "\n".join(lines(SICK))
    assert text.splitlines()[0] == "akeso: one problem, and 1 that follows from it"
    order = ["The inputs are out of scale", "Scale the inputs.", "95 % of the units", "Nothing has been gained",
             "binary · 100 steps", "not checked: no input seen", "watching took 0.7% of the time"]  # fmt: skip
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "scale 1,000,000" in text
    assert "run runs/a" in text
    assert "akeso explain abnormal-data" in text


def test_a_healthy_run_is_three_lines() -> None:
    assert len(list(lines(HEALTHY))) == 3
    assert next(lines(HEALTHY)) == "akeso: healthy"


def test_a_run_without_steps_says_so() -> None:
    document = run_document(History(), Examination((), ()), 0.0)
    assert next(lines(document)) == "akeso: nothing was trained: no optimizer step was seen"


def test_a_pipe_gets_plain_text() -> None:
    stream = io.StringIO()
    show(SICK, stream)
    assert stream.getvalue() == "".join(f"{line}\n" for line in lines(SICK))
    assert "\x1b" not in stream.getvalue()


def test_a_locale_without_signs_gets_a_report_too() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    show(SICK, stream)
    assert b"x Data not prepared" in raw.getvalue()


def test_a_terminal_gets_a_panel_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_a_terminal(lambda stream: show(SICK, stream), monkeypatch)
    assert "╭" in shown
    assert "\x1b[1;31m" in shown
    assert "The inputs are out of scale." in shown


def test_no_color_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_a_terminal(lambda stream: show(SICK, stream), monkeypatch, NO_COLOR="1")
    assert "╭" in shown
    assert "[31m" not in shown
    assert "[1;31m" not in shown
    said = on_a_terminal(lambda stream: Voice(stream).finding(ROOT), monkeypatch, NO_COLOR="1")
    assert "[31m" not in said


def test_a_dumb_terminal_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_a_terminal(lambda stream: show(SICK, stream), monkeypatch, TERM="dumb")
    assert "╭" not in shown
    assert "\x1b" not in shown


def test_a_finding_takes_the_place_of_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    def act(stream: io.TextIOWrapper) -> None:
        stream.write("\r 50%|#####     | 5/10")
        Voice(stream).finding(ROOT)

    shown = on_a_terminal(act, monkeypatch)
    bar, line = shown.split("\r\x1b[2K")
    assert bar.endswith("5/10")
    assert line == "akeso \x1b[31m✖\x1b[0m step 3: The inputs are out of scale.\n"


def test_in_a_file_a_finding_gets_a_line_of_its_own(tmp_path: Path) -> None:
    with open(tmp_path / "log", "w", encoding="utf-8") as stream:
        listener = Listener(stream, lambda line, whole: None)
        assert listener.install()
        voice = Voice(stream, listener)
        stream.write("\r 50%|#####     | 5/10")
        voice.finding(ROOT)
        voice.say("something else")
        listener.remove()
    text = (tmp_path / "log").read_text()
    assert text.splitlines()[-2:] == [
        "akeso ✖ step 3: The inputs are out of scale.",
        "akeso: something else",
    ]
    assert "\x1b" not in text


def test_a_quiet_voice_tells_no_findings_but_its_own_trouble() -> None:
    stream = io.StringIO()
    voice = Voice(stream, quiet=True)
    voice.finding(ROOT)
    voice.say("the disk is full")
    assert stream.getvalue() == "akeso: the disk is full\n"


def test_a_picture_can_be_taken() -> None:
    svg = picture(SICK, "akeso run train.py")
    assert svg.startswith("<svg")
    assert "train.py" in svg
    assert "url(" not in svg.replace("url(#", "")
