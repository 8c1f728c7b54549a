"""What the script calls its models where it makes an optimizer."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from types import FrameType

from torch import nn

from akeso.script.prescribed.places import is_users


class InReach:
    """Remembers by which names models could be called at a place; holds none of them."""

    def __init__(self) -> None:
        self._known: list[tuple[str, weakref.ref[nn.Module]]] = []

    def look(self) -> None:
        """Note what can be called at the innermost line of the user's own code that led here."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not is_users(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            self._known = [(name, weakref.ref(module)) for name, module in _modules(frame)]

    def of(self, model: nn.Module) -> str | None:
        """What a model is called there; None where it is out of reach."""
        return next((name for name, known in self._known if known() is model), None)


def _modules(frame: FrameType) -> Iterator[tuple[str, nn.Module]]:
    """Modules by local and global names, and by attributes of the object whose method this is."""
    code, names = frame.f_code, frame.f_globals | frame.f_locals
    yield from ((name, value) for name, value in names.items() if isinstance(value, nn.Module))
    if code.co_argcount:
        first = code.co_varnames[0]
        held = getattr(names.get(first), "__dict__", None) or {}
        held = held | (held.get("_modules") or {})
        yield from (
            (f"{first}.{name}", value) for name, value in held.items() if isinstance(value, nn.Module)
        )
