"""The frames of a user's program: which there are, what they hold, and how a variable is put back.

Only frames of the user's own files are looked at: not akeso's, the standard library's or an installed
package's.
"""

from __future__ import annotations

import ctypes
import opcode
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_FOR_ITER = opcode.opmap["FOR_ITER"]
_OWN = str(Path(__file__).resolve().parents[1])


@lru_cache(maxsize=1)
def _libraries() -> tuple[str, ...]:
    """Return where the standard library and installed packages lie; to ask takes a third of a millisecond."""
    places = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return tuple({str(Path(place).resolve()) for place in places if place})


@lru_cache(maxsize=16384)
def is_users(filename: str) -> bool:
    """Tell whether a file belongs to the user's program."""
    if filename.startswith("<"):
        # Code typed into a shell or given to exec is the user's; the interpreter's own is called frozen.
        return not filename.startswith("<frozen")
    if "site-packages" in filename:
        return False
    path = str(Path(filename).resolve())
    return not path.startswith((*_libraries(), _OWN)) and "site-packages" not in path


def is_at_head(frame: FrameType) -> bool:
    """Tell whether a frame stands where a ``for`` asks for its next item."""
    return _instructions(frame.f_code)[frame.f_lasti] == _FOR_ITER


@lru_cache(maxsize=1024)
def _instructions(code: CodeType) -> bytes:
    return code.co_code


def users_frames(frame: FrameType | None) -> Iterator[tuple[str, FrameType]]:
    """Yield the user's frames from the innermost outwards, each with a label that every run gives it."""
    met: dict[str, int] = {}
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            name = frame.f_code.co_name
            label = Path(frame.f_code.co_filename).name + ("" if name == "<module>" else f":{name}")
            count = met[label] = met.get(label, 0) + 1
            yield (f"{label}:" if count == 1 else f"{label}~{count}:"), frame
        frame = frame.f_back


def variables(frame: FrameType) -> dict[str, Any]:
    """Return the variables of a frame that may hold state: neither dunder names nor those of comprehensions."""
    return {
        name: value
        for name, value in frame.f_locals.items()
        if not name.startswith("__") and name.isidentifier()
    }


def assign(frame: FrameType, name: str, value: Any) -> None:
    """Bind a variable of a running frame."""
    frame.f_locals[name] = value
    if sys.version_info < (3, 13) and frame.f_code.co_name != "<module>":
        # Before 3.13 f_locals of a function is a copy that has to be written back.
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
