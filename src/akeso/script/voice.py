"""How akeso speaks while a script runs: rarely, in single lines, above the script's own progress bar."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from akeso.diagnosis import Diagnosis, Severity
from akeso.script.output import Listener

_MARKS: Final[dict[Severity, tuple[str, str]]] = {
    "error": ("✖", "x"),
    "warning": ("▲", "!"),
    "info": ("●", "i"),
}
_COLOURS: Final[dict[Severity, str]] = {"error": "31", "warning": "33", "info": "36"}


def is_terminal(stream: Any) -> bool:
    """Whether a stream is shown to somebody who can see colours."""
    try:
        return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):
        return False


def mark_of(severity: Severity, encoding: str | None) -> str:
    """The sign of a severity that the stream can show."""
    sign, plain = _MARKS[severity]
    try:
        sign.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return plain
    return sign


class Voice:
    """Says single lines on standard error.

    On a terminal the line takes the place of a progress bar, which its owner draws again below at its next
    update. Elsewhere it is plain text, on a line of its own.
    """

    def __init__(self, stream: Any = None, listener: Listener | None = None, quiet: bool = False) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._listener = listener
        self._quiet = quiet

    def say(self, message: str) -> None:
        """Say something about akeso itself; also when quiet, because it is about what the user asked for."""
        self._write(f"akeso: {message}")

    def finding(self, diagnosis: Diagnosis) -> None:
        """Say what was just found."""
        if self._quiet:
            return
        mark = mark_of(diagnosis.severity, getattr(self._stream, "encoding", None))
        if is_terminal(self._stream) and not os.environ.get("NO_COLOR"):
            mark = f"\x1b[{_COLOURS[diagnosis.severity]}m{mark}\x1b[0m"
        self._write(f"akeso {mark} step {diagnosis.step}: {diagnosis.sentence}")

    def _write(self, line: str) -> None:
        if is_terminal(self._stream):
            line = f"\r\x1b[2K{line}"
        elif self._listener is not None and not self._listener.at_line_start:
            line = f"\n{line}"
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except (OSError, ValueError, AttributeError):
            return  # nobody listens any more; the report and the exit code still tell
