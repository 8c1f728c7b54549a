"""Where in somebody's script something was made or called, so that a change can be shown there."""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType
from typing import Any

_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_LIBRARIES = tuple(
    {
        os.path.realpath(path) + os.sep
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        if (path := sysconfig.get_paths().get(name))
    }
)


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file of the user's own."""

    file: str
    line: int

    def to_dict(self) -> dict[str, Any]:
        """The place as plain JSON values."""
        return {"file": self.file, "line": self.line}


@lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Whether a file of code is the user's own, not akeso's nor a library's."""
    if file.startswith("<"):
        return False
    real = os.path.realpath(file)
    if real.startswith(_OURS + os.sep):
        return False
    return not any(real.startswith(library) for library in _LIBRARIES) and "site-packages" not in real


def objects_above(skip: int = 1) -> Iterator[Any]:
    """The objects in whose methods, of the user's own code, this is called; the innermost first."""
    frame: FrameType | None = sys._getframe(skip)
    while frame is not None:
        code = frame.f_code
        if code.co_argcount and is_users(code.co_filename):
            yield frame.f_locals.get(code.co_varnames[0])
        frame = frame.f_back


def made_at(kind: type) -> Place | None:
    """Where a class of the user's own is written, or None."""
    try:
        file, line = inspect.getsourcefile(kind), inspect.getsourcelines(kind)[1]
    except (OSError, TypeError):
        return None
    return Place(os.path.realpath(file), line) if file is not None and is_users(file) else None


def caller(skip: int = 1) -> Place | None:
    """The innermost line of the user's own code that led here, or None."""
    frame: FrameType | None = sys._getframe(skip)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return Place(os.path.realpath(frame.f_code.co_filename), frame.f_lineno)
        frame = frame.f_back
    return None


def called_directly(skip: int = 1) -> bool:
    """Whether it is a line of the user's own code that calls this, with nothing but akeso's own in between."""
    frame: FrameType | None = sys._getframe(skip)
    while frame is not None and os.path.realpath(frame.f_code.co_filename).startswith(_OURS + os.sep):
        frame = frame.f_back
    return frame is not None and is_users(frame.f_code.co_filename)
