"""Listening to what a script prints, without coming between it and its streams."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable
from typing import Any, Final

#: Longer lines are no metrics; what lies beyond is not looked at.
_LONGEST: Final = 2000
_LINE: Final = re.compile(r"([^\r\n]*)([\r\n])")

LineHeard = Callable[[str, bool], None]


class Listener:
    """Hears the lines written to one text stream.

    The stream stays the very same object, with its buffer, encoding and file number; only its ``write`` is
    replaced on the instance by one that passes everything on first. What is written to ``stream.buffer`` or
    to the file number does not pass here and is not heard.

    ``heard`` is called with each line and with whether it was whole (ended by a line feed) or one state of a
    progress bar (ended by a carriage return). It never gets to raise into the script.
    """

    def __init__(self, stream: Any, heard: LineHeard) -> None:
        self._stream = stream
        self._heard = heard
        self._rest = ""
        self._busy = False
        self.at_line_start = True

    def install(self) -> bool:
        """Begin to listen; whether the stream allows it."""
        write = getattr(self._stream, "write", None)
        if write is None:
            return False

        def write_and_listen(text: str) -> int:
            written: int = write(text)
            if not self._busy:  # what a listener prints itself is not heard again
                self._busy = True
                try:
                    self._take(text)
                finally:
                    self._busy = False
            return written

        try:
            self._stream.write = write_and_listen
        except (AttributeError, TypeError):
            return False
        return True

    def remove(self) -> None:
        """Listen no longer; the stream is as it was."""
        with contextlib.suppress(AttributeError):
            del self._stream.write

    def _take(self, text: Any) -> None:
        if not isinstance(text, str) or not text:
            return
        self.at_line_start = text.endswith("\n")
        if "\n" not in text and "\r" not in text:
            self._rest = (self._rest + text)[:_LONGEST]
            return
        end = 0
        for line in _LINE.finditer(text):
            self._hear(self._rest + line[1], line[2] == "\n")
            self._rest = ""
            end = line.end()
        self._rest = text[end : end + _LONGEST]

    def _hear(self, line: str, whole: bool) -> None:
        if line:
            with contextlib.suppress(Exception):
                self._heard(line[:_LONGEST], whole)


def listen(heard: LineHeard) -> tuple[Listener | None, Listener | None]:
    """Listen to standard output and standard error; ``None`` for a stream that does not allow it."""
    listeners = []
    for stream in (sys.stdout, sys.stderr):
        listener = Listener(stream, heard)
        listeners.append(listener if listener.install() else None)
    return listeners[0], listeners[1]
