"""From where in the program a stream is asked: which loops stand around that place, and whether they come back.

A loop over a stream of the run goes on where it was. A plain ``for`` begins anew in a resumed process: with a
stream that it asks in several of its iterations, it would ask for more in all than without the kill.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

from akeso.replay.state_frames import is_at_head, users_frames
from akeso.replay.state_liveness import begins_with, loops_of
from akeso.replay.state_marks import SCALARS


class Head(NamedTuple):
    """A ``for`` of the program."""

    code: CodeType
    line: int

    def __str__(self) -> str:
        return f"line {self.line} of {self.code.co_filename.rpartition('/')[2]}"


@dataclass(frozen=True, slots=True)
class Asked:
    """A place from which a stream is asked, and the ``for`` loops there."""

    site: tuple[CodeType, Any] | None
    heads: tuple[Head, ...]
    """Those that do the asking, through generators too; none for a bare ``next(...)``."""
    around: tuple[tuple[Head, Any], ...]
    """Those in whose body it stands, the innermost first, with what each has given for the present iteration."""


def asked_from(frame: FrameType | None, run: Any) -> Asked:
    """Return the place at which a frame, or the nearest of the user's, asks a stream of a run.

    Loops in which the run itself was made are left out: in each of their iterations it is another run.
    """
    site: tuple[CodeType, Any] | None = None
    heads: list[Head] = []
    around: list[tuple[Head, Any]] = []
    for _, users in users_frames(frame):
        code = users.f_code
        site = site or (code, _place(users))
        loops = loops_of(code, users.f_lineno)
        if loops and is_at_head(users):
            heads.append(Head(code, loops[0].lineno))
            loops = loops[1:]
        around += [
            (head, _given(loop, users))
            for loop in loops
            if (head := Head(code, loop.lineno)) not in run._made_in and not _goes_on(loop, users, run)
        ]
    return Asked(site, tuple(heads), tuple(around))


def loops_around(frame: FrameType | None) -> frozenset[Head]:
    """Return all ``for`` loops around the place where a frame stands."""
    return frozenset(
        Head(users.f_code, loop.lineno)
        for _, users in users_frames(frame)
        for loop in loops_of(users.f_code, users.f_lineno)
    )


def _place(frame: FrameType) -> Any:
    """Return where in its text a frame stands; the same call may be one instruction or another."""
    places = _places(frame.f_code)
    return places[frame.f_lasti // 2] if places else frame.f_lasti


@lru_cache(maxsize=256)
def _places(code: CodeType) -> tuple[Any, ...]:
    return tuple(code.co_positions()) if hasattr(code, "co_positions") else ()  # from Python 3.11 on


def _given(loop: ast.For, frame: FrameType) -> Any:
    """Return something that tells one iteration of a loop from another."""
    found = []
    for name in _names(loop.target):
        value = frame.f_locals.get(name)
        found.append(value if isinstance(value, SCALARS) else id(value))
    return found


def _names(target: ast.expr) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _goes_on(loop: ast.For, frame: FrameType, run: Any) -> bool:
    """Tell whether a loop begins where the program says: ``range(start, n)``, ``range(n - run.steps)``."""
    return begins_with(loop) or any(_meant(node, frame) is run for node in _read_of(loop))


@lru_cache(maxsize=256)
def _read_of(loop: ast.For) -> tuple[ast.expr, ...]:
    """Return what the head of a loop reads attributes of, without calling them."""
    nodes = list(ast.walk(loop.iter))
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    return tuple(node.value for node in nodes if isinstance(node, ast.Attribute) and node not in called)


def _meant(node: ast.expr, frame: FrameType) -> Any:
    """Return what a name or an attribute of one stands for."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return getattr(_meant(node.value, frame), "__dict__", {}).get(node.attr)
    return None
