"""Tracebacks as a script would give them without akeso."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final

import akeso

_PACKAGE: Final = Path(akeso.__file__).parent
#: Frames from here stand between the script and what it calls: the runner, the listener, the hooks in torch.
_BETWEEN: Final = tuple(str(_PACKAGE / part) for part in ("script", "torch"))


def without_akeso(error: BaseException) -> None:
    """Take akeso's frames out of an exception and of those it came from.

    An error that akeso raised itself keeps them: the script has called akeso, and they are part of the story.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        waiting += [current.__cause__, current.__context__]
        own = type(current).__module__.split(".")[0] == "akeso"
        trace = current.__traceback__
        current.__traceback__ = (_leading(trace) or trace) if own else _stripped(trace)


def _leading(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame that is not akeso's on."""
    rest = trace
    while rest is not None and (_is_between(rest) or _file(rest).startswith("<frozen importlib")):
        rest = rest.tb_next
    return rest


def _stripped(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without any frame of akeso."""
    frames: list[TracebackType] = []
    trace = _leading(trace)
    while trace is not None:
        if not _is_between(trace):
            frames.append(trace)
        trace = trace.tb_next
    following: TracebackType | None = None
    for frame in reversed(frames):
        frame.tb_next = following
        following = frame
    return following


def _is_between(trace: TracebackType) -> bool:
    return _file(trace).startswith(_BETWEEN)


def _file(trace: TracebackType) -> str:
    return trace.tb_frame.f_code.co_filename
