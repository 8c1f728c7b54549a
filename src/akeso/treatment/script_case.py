"""One run of a script under a prescription: its folder, its process, what it answered, and why it failed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from akeso.errors import BadInput
from akeso.history import History
from akeso.journal import read
from akeso.remedies.edit import Prescription
from akeso.script.prescribed.order import Answer
from akeso.script.prescribed.process import Running, Stop


@dataclass(slots=True)
class Case:
    """One prescription with one seed: its folder, its process, and how far it has come."""

    folder: Path
    prescription: Prescription
    seed: int | None
    running: Running | None = None
    answer: Answer | None = None
    failed: str | None = None
    ended: bool = False
    used: float = 0.0


def history_of(folder: Path) -> History:
    try:
        return read(folder).history
    except BadInput:
        return History()


def answer_of(folder: Path, stop: Stop) -> tuple[Answer, str | None]:
    """What the child answered, and why it failed where it did."""
    file = folder / "answer.json"
    answer = Answer.read(file) if file.is_file() else None
    silent = stop.why == "ended" and (answer is None or answer.ended in ("steps", "error-found"))
    if stop.why == "late" or silent or answer is None:
        steps = history_of(folder).steps
        why = "ran longer than its time limit" if stop.why == "late" else _exit(stop.code)
        return Answer(ended="crashed", reason=why, steps=steps, trained=steps > 0), why
    if answer.ended == "crashed":
        return answer, f"{answer.reason} ({_last_line(folder)})"
    return answer, answer.reason if answer.ended == "refused" else None


def _exit(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"ended with exit code {code} and no answer"


def _last_line(folder: Path) -> str:
    with contextlib.suppress(OSError):
        lines = (folder / "output.log").read_text(errors="replace").strip().splitlines()
        if lines:
            return lines[-1][:200]
    return "it printed nothing"
