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
    so that no attempt goes on from it; data it prepared before stays in place.
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


def _collect(folder: Path) -> None:
    """Move what the attempt wrote into its folder and put back what was there before."""
    files = folder / "files"
    for number, record in enumerate(_records(folder)):
        path = Path(record["path"])
        if not record["training"] and not record["existed"]:
            continue  # data prepared for every run to come
        with contextlib.suppress(OSError):
            if path.is_file():
                files.mkdir(exist_ok=True)
                name = path.name if not (files / path.name).exists() else f"{number}-{path.name}"
                shutil.move(path, files / name)
            if record["backup"] and os.path.isfile(record["backup"]):
                shutil.move(record["backup"], path)
    with contextlib.suppress(OSError):
        (folder / "backups").rmdir()
