"""Logs that a program appends to without saying so: what a process that goes on will find in them.

Files are only cut back where the user has tracked them. But a snapshot notes how long each file was that the
process had open for writing, and a process that goes on says which of them hold the lines of steps that are run
again, or have been emptied since. Seen is what the system shows of a process under ``/proc``; a file that is
opened for every line and closed again is not, nor is one that was open before this module came, as those that a process
inherits and writes to all through its life.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

_OPEN = Path("/proc/self/fd")


def lengths(besides: Path) -> dict[str, int]:
    """Return the length of every file that is open for writing; those in one folder and the streams left out."""
    found = {}
    streams = {*_EARLIER, *(_place(number) for number in range(3))}
    for number in _numbers():
        try:
            path = os.readlink(_OPEN / str(number))
            mode = int(_line(number, "flags:"), 8)
            status = os.fstat(number)
        except (OSError, ValueError):  # closed meanwhile
            continue
        written = mode & os.O_ACCMODE != os.O_RDONLY and _place(number) not in streams
        if written and os.path.isfile(path) and besides not in Path(path).parents:
            found[path] = status.st_size
    return found


def differing(then: Mapping[str, int], now: Mapping[str, int], tracked: Collection[Path]) -> Iterator[str]:
    """Yield what to say of files that are not as long as they were when the snapshot was taken."""
    known = {str(path.resolve()) for path in tracked}
    for path in sorted((then.keys() & now.keys()) - known):
        before, size = then[path], now[path]
        if size > before:
            yield (
                f"{path} was {before} bytes long when the snapshot was taken and has {size} now: what the steps "
                "after it wrote will stand there twice; run.track(log=file) cuts it back"
            )
        elif size < before:
            yield (
                f"{path} was {before} bytes long when the snapshot was taken and has {size} now: it was emptied or "
                "cut, perhaps by opening it with 'w'; open it with 'a', and run.track(log=file)"
            )


def _place(number: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _numbers() -> list[int]:
    try:
        return sorted(number for number in map(int, os.listdir(_OPEN)) if number > 2)
    except (OSError, ValueError):  # no such thing on this system
        return []


def _line(number: int, name: str) -> str:
    text = (_OPEN.parent / "fdinfo" / str(number)).read_text()
    return next(line for line in text.splitlines() if line.startswith(name)).split()[1]


_EARLIER = {_place(number) for number in _numbers()}
