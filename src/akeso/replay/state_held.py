"""State nobody tracked: plain values are held all the same, anything else is named.

At the first boundary of a run (before any batch) everything the program can reach is marked: see
:mod:`akeso.replay.state_places`. A plain value that is no longer what it was then, and that the loop does not
merely use as scratch, belongs to the state of the run: it is written to snapshots and bound again on resume.
A generator found this way is captured like one that was registered. What changes and cannot be written (a
model, an optimizer, an iterator nobody tracks) is returned as a :class:`Hole`, with the name of the variable
and what to do.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import torch

from akeso.errors import BadInput
from akeso.replay import generators
from akeso.replay.state import Packing
from akeso.replay.state_filling import Filling
from akeso.replay.state_frames import users_frames
from akeso.replay.state_liveness import loops_around
from akeso.replay.state_marks import changed, has_state, is_iterator, is_table, mark
from akeso.replay.state_places import Place, Places
from akeso.replay.state_records import is_record
from akeso.replay.state_tracked import TrackedModule
from akeso.replay.state_wrappers import unwrap

_NEVER = object()
_HIDDEN = {
    "zip": (
        "zip() advances an iterator beside the batches, which would start over after a resume",
        "draw both from one dataset, for instance torch.utils.data.StackDataset",
    ),
    "islice": (
        "islice() counts from 0 again after a resume, and would let more batches through in all",
        "leave the loop with break, by the number that enumerate(…, run.index) gives, with run.batches(…) first",
    ),
}


@dataclass(frozen=True, slots=True)
class Hole:
    """A variable that changes from step to step and would be lost by a resume."""

    name: str
    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}; {self.remedy}"


class Held:
    """Watches the frames of one program for one run."""

    def __init__(self, ours: tuple[type, ...], tracked: Callable[[], dict[str, Any]]) -> None:
        self._places = Places(ours, tracked)
        self._marks: dict[str, Any] | None = None
        self._records: dict[str, Any] = {}
        self._always: set[str] = set()
        # Models and the like are told by identity: one object has many names on the way up the frames. Each
        # is kept with its first mark, and thereby alive, so that no other object can take its number.
        self._first: dict[int, tuple[Any, Any]] = {}
        self._tracked = tracked

    def baseline(self, frame: FrameType, known: set[int]) -> None:
        """Remember what every variable is before the first batch."""
        self._marks = {}
        for place in self._places.find(frame, known, False):
            if _is_stateful(place.value):
                self._changed(place.value)
            elif is_record(place.value):
                self._records[place.path] = place.value
            else:
                self._marks[place.path] = mark(place.value)

    @property
    def ready(self) -> bool:
        """Whether there is a baseline to compare with."""
        return self._marks is not None

    def capture(
        self, frame: FrameType, known: set[int], at_end: bool, packing: Packing
    ) -> tuple[dict[str, Any], tuple[Hole, ...]]:
        """Return the plain state found changed, by path and kept by the packing, and the holes."""
        assert self._marks is not None
        held: dict[str, Any] = {}
        holes: list[Hole] = list(_hidden(frame)) if not at_end else []
        written: str | None = None
        for place in self._places.find(frame, known, at_end):
            path, value = place.path, place.value
            if written is not None and path.startswith((f"{written}.", f"{written}[")):
                continue  # a part of what is written as a whole
            if is_record(value):
                if self._records.get(path, _NEVER) is not value and _error(value, path, packing) is None:
                    # Put in the place of another, or made by the loop: not to be mixed with what was there.
                    held[path], written = {"plain": value, "new": True}, path
                continue
            entry, hole = self._examine(place, known, packing)
            holes += [hole] if hole is not None else []
            if entry is not None:
                held[path] = entry
                self._always.add(path)  # not to be compared again
                written = path if place.whole else written
        return held, tuple(holes)

    def _examine(
        self, place: Place, known: set[int], packing: Packing
    ) -> tuple[dict[str, Any] | None, Hole | None]:
        """Return what a snapshot has to hold of a place, if anything, and the hole that it is, if it is one."""
        assert self._marks is not None
        path, value = place.path, place.value
        if _is_stateful(value):
            if _wraps(value, known):
                return None, None
            if id(value) not in self._first and isinstance(value, torch.nn.Module):
                return self._made(path, value)
            return None, _untracked(path, value) if self._changed(value) else None
        hole = None
        if place.foreign and path.endswith(".accumulate_grad_batches") and value > 1:
            hole = _accumulating(path, value)
        before = self._marks.get(path, _NEVER)
        if before is _NEVER and (place.foreign or (place.distant and not _is_plain(value))):
            return None, hole  # of an object that the loop makes; a resumed one makes its own
        if generators.is_generator(value):
            return {"random": generators.private_state(value)}, hole
        if is_iterator(value):
            moved = not place.distant or before != mark(value)
            return None, _iterator(path, value) if moved else hole
        if path not in self._always and before is not _NEVER and not changed(before, value):
            return None, hole
        if is_table(value) and not isinstance(value, np.ndarray | np.generic | torch.Tensor):
            return None, _table(path, value)
        error = _error(value, path, packing)
        if error is None:
            return {"plain": value}, hole
        if place.whole and before is not _NEVER and len(value) == before[0]:
            return None, hole  # its parts are looked at one by one
        if before is not _NEVER:
            hole = Hole(path, f"it changes from step to step, and {error}", "or track it")
        return None, hole

    def _made(self, path: str, value: torch.nn.Module) -> tuple[dict[str, Any] | None, Hole | None]:
        """Return what a snapshot has to hold of a model that the loop has made: a copy of the best one, mostly."""
        if not value.state_dict():
            return None, None
        for name, other in self._tracked().items():
            if _is_alike(value, other):
                return {"like": name, "state": TrackedModule(path, value).capture()}, None
        return None, _made_in_loop(path, value)

    def _changed(self, value: Any) -> bool:
        now = mark(value)
        return bool(self._first.setdefault(id(value), (value, now))[1] != now)

    def restore(
        self, frame: FrameType, known: set[int], state: dict[str, Any], filling: Filling
    ) -> tuple[str, ...]:
        """Bind what was held, or put it into what is there; return the names that are no longer there."""
        self._always |= set(state)
        places = {place.path: place for place in self._places.find(frame, known, True)}
        lost = []
        for path, entry in state.items():
            place = places.get(path)
            if "random" in entry:
                if place is None or not generators.is_generator(place.value):
                    lost.append(path)
                else:
                    generators.restore_private(place.value, entry["random"])
                continue
            if "like" in entry:
                entry = {"plain": _copy(path, self._tracked()[entry["like"]], entry["state"]), "new": True}
            saved = entry["plain"]
            if place is None:
                if not self._places.create(frame, path, saved):
                    lost.append(path)
                continue
            kept = not entry.get("new") and _in_place(place.value, saved)
            new = filling.put_back(place.value, saved) if kept else saved
            if new is not place.value and not _bound(place, new, filling):
                lost.append(path)
        return tuple(lost)


def _is_alike(one: Any, other: Any) -> bool:
    """Tell whether two models are of one form: the same parts under the same names, of the same shapes."""
    if type(one) is not type(other):
        return False
    parts = [[(name, type(part)) for name, part in model.named_modules()] for model in (one, other)]
    if parts[0] != parts[1]:
        return False
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(
        isinstance(item, torch.Tensor) and mine[name].shape == item.shape for name, item in theirs.items()
    )


def _copy(path: str, like: torch.nn.Module, state: Any) -> torch.nn.Module:
    """Make a model of the form of another, in the state that was kept."""
    made = copy.deepcopy(like)
    made.zero_grad(set_to_none=True)
    TrackedModule(path, made).restore(state)
    return made


def _error(value: Any, path: str, packing: Packing) -> BadInput | None:
    """Have a value taken apart, or return why it cannot be written."""
    try:
        packing.keep(value, path)
    except BadInput as error:
        return error
    return None


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | complex | str | bytes)


def _bound(place: Place, value: Any, filling: Filling) -> bool:
    """Bind a place, or put the value into what is there; a package may guard its attributes."""
    try:
        place.bind(value)
    except BadInput:  # an item of a container
        return filling.put_back(place.value, value) is place.value
    except (AttributeError, TypeError):
        if not place.foreign:
            raise
        return False
    return True


def _in_place(live: Any, saved: Any) -> bool:
    return isinstance(live, torch.Tensor | np.ndarray | dict | list | set | deque) and type(live) is type(
        saved
    )


def _is_stateful(value: Any) -> bool:
    return isinstance(value, torch.nn.Module | torch.optim.Optimizer) or (
        not isinstance(value, type) and has_state(value)
    )


def _wraps(value: Any, known: set[int]) -> bool:
    """Tell whether an object only wraps what is tracked: a compiled or joined model, a prepared optimizer."""
    if id(unwrap(value)) in known:
        return True
    if isinstance(value, torch.nn.Module):
        parts = (*value.parameters(), *value.buffers())
        return bool(parts) and all(id(part) in known for part in parts)
    if isinstance(value, torch.optim.Optimizer):
        return any(
            id(part) in known for part in vars(value).values() if isinstance(part, torch.optim.Optimizer)
        )
    return False


def _hidden(frame: FrameType) -> Iterator[Hole]:
    for label, users in users_frames(frame):
        names = loops_around(users.f_code, users.f_lineno)
        if names is None:
            return
        for name, line in names.counters:
            yield Hole(
                f"{label}{name}",
                f"enumerate() on line {line} counts from 0 again after a resume",
                "write enumerate(…, run.index), with run.batches(…) first",
            )
        for name, line in names.hidden:
            yield Hole(f"{label}{line}", *_HIDDEN[name])
        return


def _untracked(path: str, value: Any) -> Hole:
    name = path.rpartition(":")[2]
    word = name.rpartition(".")[2] or name
    kind = type(value).__name__
    return Hole(
        path, f"this {kind} changes from step to step and is not tracked", f"run.track({word}={name})"
    )


def _made_in_loop(path: str, value: Any) -> Hole:
    return Hole(
        path,
        f"this {type(value).__name__} was made in the loop, and a resumed process cannot make it again",
        "keep copy.deepcopy(model.state_dict()) instead, or make it before the loop and track it",
    )


def _iterator(path: str, value: Any) -> Hole:
    return Hole(
        path,
        f"this {type(value).__name__} is an iterator, whose position would be lost",
        "let run.batches(…) give the data, or make the iterator inside the loop",
    )


def carried_graph(path: str) -> Hole:
    """Return what to say of a tensor that carries its graph over very many iterations."""
    return Hole(
        path,
        "its graph is carried from step to step, and no snapshot can hold a graph",
        "detach() what needs no gradient any more, or call backward() before the next batch now and then",
    )


def plain_loop(place: str, stream: str) -> Hole:
    """Return what to say of a loop of the program's own that asks a stream once in every iteration."""
    return Hole(
        place,
        f"this for counts from its beginning again after a resume, and would ask for more batches of {stream!r} in all",
        "go over the batches themselves, or write for i in run.iterations(n, name=…) there",
    )


def _accumulating(path: str, count: int) -> Hole:
    return Hole(
        path,
        f"the trainer accumulates over {count} batches and counts them from 0 again after a resume",
        "accumulate in training_step, with manual optimization and a counter in run.state",
    )


def _table(path: str, value: Any) -> Hole:
    return Hole(
        path,
        f"this {type(value).__name__} changes from step to step and cannot be written without pickle",
        "keep its rows in a list, and make it from them where it is needed",
    )
