"""The user's files during attempts: put aside, put back, and what attempts wrote kept in the run folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Keeping:
    """Sees to it that attempts start from the files the first run started from and leave none behind.

    What the untreated run wrote once it trained (checkpoints, results) is out of the way while an attempt runs,
    so that no attempt goes on from it; data it prepared before stays in place. An attempt that goes on after a
    pause finds what it has written itself.
    """

    def __init__(self, aside: Path) -> None:
        self._aside = aside
        self._results: list[str] = []

    def untreated(self, folder: Path) -> None:
        """Take in what the untreated run in this folder wrote."""
        for record in _records(folder):
            if record["training"] and not record["existed"] and record["path"] not in self._results:
                self._results.append(record["path"])

    @contextmanager
    def attempt(self, folder: Path) -> Iterator[None]:
        """An attempt that works in this folder runs inside."""
        moved: list[tuple[Path, Path]] = []
        for number, path in enumerate(self._results):
            if os.path.isfile(path):
                self._aside.mkdir(parents=True, exist_ok=True)
                place = self._aside / f"{number}-{os.path.basename(path)}"
                shutil.move(path, place)
                moved.append((place, Path(path)))
        _lay_out(folder)
        try:
            yield
        finally:
            _collect(folder)
            for place, home in moved:
                home.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(place, home)
            with contextlib.suppress(OSError):
                self._aside.rmdir()


def _records(folder: Path) -> list[dict[str, Any]]:
    found = []
    with contextlib.suppress(OSError):
        for line in (folder / "files.jsonl").read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def _changed(folder: Path) -> Iterator[tuple[Path, Path, Path | None]]:
    """The place of every file an attempt has changed, of its version and of the one before."""
    for number, record in enumerate(_records(folder)):
        if record["training"] or record["existed"]:  # else it is data, prepared for every run to come
            path = Path(record["path"])
            backup = Path(record["backup"]) if record["backup"] else None
            yield path, folder / "files" / f"{number}-{path.name}", backup


def _collect(folder: Path) -> None:
    """Move what the attempt wrote into its folder and put back what was there before."""
    for path, own, backup in _changed(folder):
        with contextlib.suppress(OSError):
            if path.is_file():
                own.parent.mkdir(exist_ok=True)
                shutil.move(path, own)
            if backup is not None and backup.is_file():
                shutil.move(backup, path)


def _lay_out(folder: Path) -> None:
    """The reverse, for an attempt that goes on."""
    for path, own, backup in _changed(folder):
        with contextlib.suppress(OSError):
            if own.is_file():
                if backup is not None and path.is_file():
                    shutil.move(path, backup)
                shutil.move(own, path)
