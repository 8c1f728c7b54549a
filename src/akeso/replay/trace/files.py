"""Data files that change while a program reads them."""

from __future__ import annotations

import os
import stat
import sys
from typing import Any

from akeso.replay.trace.lines import is_own

_MOST = 50_000


class FileWatch:
    """Notes size and time of every file the process opens for reading, and compares at the end.

    Python's audit hooks cannot be removed; after ``changed`` was asked the hook does nothing any more.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}
        self._written: set[str] = set()
        self._active = False

    def start(self) -> None:
        """Begin to look at files as they are opened."""
        self._active = True
        sys.addaudithook(self._opened)

    def _opened(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name != "open" or not self._active:
            return
        path, _, flags = arguments
        if not isinstance(path, str | bytes) or len(self._seen) > _MOST:
            return
        text = os.path.abspath(os.fsdecode(path))
        writing = isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))
        if writing:
            self._written.add(text)
        elif text not in self._seen and is_own(text) and not text.startswith(("/proc", "/sys", "/dev")):
            stamp = _stamp(text)
            if stamp is not None:
                self._seen[text] = stamp

    def changed(self) -> tuple[str, ...]:
        """The files that were read, not written by this process as far as Python knows, and are different now."""
        self._active = False
        return tuple(
            path
            for path, stamp in sorted(self._seen.items())
            if path not in self._written and _stamp(path) not in (stamp, None)
        )


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    # Folders change with everything in them, and devices with every look at them.
    return (found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None
