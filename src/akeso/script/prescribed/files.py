"""What a script does to files, seen before it happens: read its data, write results, write over its own data.

Every file that an attempt is about to change is copied first, so that the user's files can be put back.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.remove": 1, "os.rename": 2, "os.truncate": 1}


class FileWatch:
    """Hears of opened, removed and renamed files through an audit hook.

    ``log`` gets one line per touched file at once, so that it is known even when the process is killed;
    ``backups`` is where files are copied before they change, None for no copies. ``overwrites`` is called with
    the path when the script is about to change a file that it read as data before it began to train.
    """

    def __init__(
        self, log: Path, backups: Path | None, ignored: Path, overwrites: Callable[[str], None]
    ) -> None:
        self._log = open(log, "a", encoding="utf-8")  # noqa: SIM115
        self._backups = backups
        self._overwrites = overwrites
        self._ignored = _ignored(ignored)
        self._read: set[str] = set()
        self._written: set[str] = set()
        self._busy = False
        self._on = True
        self.training = False

    def install(self) -> None:
        """Begin to hear; a hook cannot be taken away again, only told to be silent."""
        sys.addaudithook(self._hear)

    def stop(self) -> None:
        """Hear nothing any more."""
        self._on = False
        self._log.close()

    def wrote(self, path: Any) -> None:
        """A file is about to be written in a way that hooks do not see."""
        if isinstance(path, (str, os.PathLike)):
            self._changing(os.fspath(path))

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._on or self._busy:
            return
        if event == "open":
            path, mode, flags = args
            if not isinstance(path, (str, bytes)):
                return
            writing = (
                any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool(flags & _WRITING)
            )
            (self._changing if writing else self._reading)(os.fsdecode(path))
        elif event in _CHANGES:
            for path in args[: _CHANGES[event]]:
                if isinstance(path, (str, bytes, os.PathLike)):
                    self._changing(os.fsdecode(path))

    def _reading(self, path: str) -> None:
        if self.training:
            return
        real = os.path.realpath(path)
        if real not in self._written and not self._is_ignored(real) and not real.endswith((".py", ".pyc")):
            self._read.add(real)

    def _changing(self, path: str) -> None:
        real = os.path.realpath(path)
        if self._is_ignored(real):
            return
        self._busy = True
        try:
            if real in self._read and real not in self._written:
                self._overwrites(path)
            if real not in self._written:
                self._written.add(real)
                self._note(real)
        finally:
            self._busy = False

    def _note(self, real: str) -> None:
        existed = os.path.isfile(real)
        backup = None
        if existed and self._backups is not None:
            self._backups.mkdir(parents=True, exist_ok=True)
            backup = self._backups / f"{len(self._written)}-{os.path.basename(real)}"
            with contextlib.suppress(OSError):
                shutil.copy2(real, backup)
        record = {
            "path": real,
            "existed": existed,
            "training": self.training,
            "backup": str(backup) if backup is not None else None,
        }
        self._log.write(json.dumps(record) + "\n")
        self._log.flush()

    def _is_ignored(self, real: str) -> bool:
        return real.startswith(self._ignored) or f"{os.sep}__pycache__{os.sep}" in real


def _ignored(run: Path) -> tuple[str, ...]:
    """Where changes are nobody's loss: devices, temporary files, caches, Python itself, our own folder."""
    paths = sysconfig.get_paths()
    folders = {
        "/dev", "/proc", "/sys", "/run", tempfile.gettempdir(), str(run),
        *(paths[name] for name in ("stdlib", "purelib", "platlib")),
        os.path.join(os.path.expanduser("~"), ".cache"),
    }  # fmt: skip
    here = os.getcwd()
    return tuple(
        os.path.realpath(folder) + os.sep
        for folder in folders
        if not os.path.realpath(here).startswith(os.path.realpath(folder) + os.sep) or folder == str(run)
    )
