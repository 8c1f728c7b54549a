"""Which line of the program is running: its own, not a library's."""

from __future__ import annotations

import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import FrameType

_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_AKESO = str(Path(__file__).resolve().parents[2])


@lru_cache(maxsize=4096)
def is_own(filename: str) -> bool:
    """Tell whether a file belongs to the program: not to Python, an installed package, or akeso."""
    if filename.startswith("<") or "site-packages" in filename or "dist-packages" in filename:
        return False
    return not filename.startswith((*_LIBRARIES, _AKESO))


def own_frame(start: int = 1) -> FrameType | None:
    """The innermost frame of the program itself, or None when no line of it is running."""
    frame: FrameType | None = sys._getframe(start)
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None


def calling_frame(start: int = 2) -> FrameType | None:
    """The frame that called into akeso directly: akeso's own frames are passed over, nothing else is."""
    frame: FrameType | None = sys._getframe(start)
    while frame is not None and frame.f_code.co_filename.startswith(_AKESO):
        frame = frame.f_back
    return frame


def place(frame: FrameType | None) -> str:
    """``file:line`` of a frame, the file by its name alone."""
    if frame is None:
        return ""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def own_line() -> str:
    """``file:line`` of the innermost line of the program itself; empty when there is none."""
    return place(own_frame(2))
