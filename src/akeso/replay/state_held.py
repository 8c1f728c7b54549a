"""State nobody tracked: plain values are held all the same, anything else is named.

At the first boundary of a run (before any batch) every variable of the user's frames is marked. A plain value
that is no longer what it was then, and that the loop does not merely use as scratch, belongs to the state of
the run: it is written to snapshots and bound again on resume. A generator found this way is captured like
one that was registered. What changes and cannot be written (a model, an optimizer, an iterator nobody
tracks) is returned as a :class:`Hole`, with the name of the variable and what to do.
"""

from __future__ import annotations

import io
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from akeso.errors import BadInput
from akeso.replay import digests, generators, state_foreign
from akeso.replay.state import pack
from akeso.replay.state_frames import assign, is_users, users_frames, variables
from akeso.replay.state_liveness import LoopNames, loops_around
from akeso.replay.state_tracked import put_back
from akeso.replay.state_wrappers import unwrap

_SCALARS = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (dict, list, set, tuple, deque, frozenset)
_ENDS = 64
_NEVER = object()


@dataclass(frozen=True, slots=True)
class Hole:
    """A variable that changes from step to step and would be lost by a resume."""

    name: str
    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class _Place:
    """One variable, attribute or item that can be read and bound."""

    path: str
    value: Any
    bind: Callable[[Any], None]
    foreign: bool = False
    """Whether it is a number of an object that belongs to an installed package."""


class Held:
    """Watches the frames of one program for one run."""

    def __init__(self, ours: tuple[type, ...], tracked: Callable[[], dict[str, Any]]) -> None:
        self._ours = ours
        self._tracked = tracked
        self._marks: dict[str, Any] | None = None
        self._always: set[str] = set()
        # Models and the like are told by identity: one object has many names on the way up the frames. Each
        # is kept with its first mark, and thereby alive, so that no other object can take its number.
        self._first: dict[int, tuple[Any, Any]] = {}

    def baseline(self, frame: FrameType, known: set[int]) -> None:
        """Remember what every variable is before the first batch."""
        self._marks = {}
        for place in self._places(frame, known, False, set()):
            if _is_stateful(place.value):
                self._changed(place.value)
            else:
                self._marks[place.path] = _mark(place.value)

    @property
    def ready(self) -> bool:
        """Whether there is a baseline to compare with."""
        return self._marks is not None

    def capture(
        self, frame: FrameType, known: set[int], at_end: bool
    ) -> tuple[dict[str, Any], tuple[Hole, ...]]:
        """Return the plain state found changed, by path, and the holes."""
        assert self._marks is not None
        held: dict[str, Any] = {}
        holes: list[Hole] = list(_hidden(frame)) if not at_end else []
        for place in self._places(frame, known, at_end, set()):
            value, path = place.value, place.path
            if _is_stateful(value):
                if not _wraps(value, known) and self._changed(value):
                    holes.append(_untracked(path, value))
                continue
            if place.foreign and path.endswith(".accumulate_grad_batches") and value > 1:
                holes.append(_accumulating(path, value))
            before = self._marks.get(path, _NEVER)
            if place.foreign and before is _NEVER:
                continue  # of an object that the loop makes; a resumed one makes its own
            changed = path in self._always or before is _NEVER or before != _mark(value)
            if generators.is_generator(value):
                held[path] = {"random": generators.private_state(value)}
            elif _is_iterator(value):
                holes.append(_iterator(path, value))
            elif changed:
                try:
                    pack(value, path)
                except BadInput as error:
                    if before is not _NEVER:
                        holes.append(Hole(path, f"it changes from step to step, and {error}", "or track it"))
                    continue
                held[path] = {"plain": value}
        return held, tuple(holes)

    def _changed(self, value: Any) -> bool:
        mark = _mark(value)
        return bool(self._first.setdefault(id(value), (value, mark))[1] != mark)

    def restore(self, frame: FrameType, known: set[int], state: dict[str, Any]) -> tuple[str, ...]:
        """Bind what was held; return the names that are no longer there."""
        self._always |= set(state)
        places = {place.path: place for place in self._places(frame, known, True, set())}
        lost = []
        for path, entry in state.items():
            place = places.get(path)
            if "random" in entry:
                if place is None or not generators.is_generator(place.value):
                    lost.append(path)
                else:
                    generators.restore_private(place.value, entry["random"])
                continue
            saved = entry["plain"]
            if place is not None:
                new = put_back(place.value, saved) if _in_place(place.value, saved) else saved
                if new is not place.value and not _bound(place, new):
                    lost.append(path)
            elif not self._create(frame, path, saved):
                lost.append(path)
        return tuple(lost)

    def _create(self, frame: FrameType, path: str, value: Any) -> bool:
        """Bind a variable that does not exist yet in this process."""
        for label, users in users_frames(frame):
            name = path.removeprefix(label)
            if path.startswith(label) and name.isidentifier():
                assign(users, name, value)
                return True
        return False

    def _places(self, frame: FrameType, known: set[int], at_end: bool, seen: set[int]) -> Iterator[_Place]:
        innermost = True
        for label, users in users_frames(frame):
            names = loops_around(users.f_code, users.f_lineno) if innermost else None
            scratch = _scratch(names, at_end) if names else frozenset()
            read = names.read if names else frozenset()
            for name, value in variables(users).items():
                # An iterator matters where the loops of the run take from it; those further out start anew.
                if name not in scratch and (name in read or not _is_iterator(value)):
                    bind = _binder(users, name)
                    yield from self._within(f"{label}{name}", value, bind, known, seen, 4)
            innermost = False
        for name, value in self._tracked().items():
            # Generators inside tracked objects, and plain attributes of modules: no state dict has them.
            for path, generator in generators.find(value, name):
                if id(generator) not in known and generator is not value:
                    yield _Place(f"track:{path}", generator, _no_bind)
            if isinstance(value, torch.nn.Module):
                for path, (owner, entry, item) in module_attributes(name, value).items():
                    if id(item) not in known:
                        yield _Place(f"track:{path}", item, _setter(owner, entry))

    def _within(
        self, path: str, value: Any, bind: Callable[[Any], None], known: set[int], seen: set[int], depth: int
    ) -> Iterator[_Place]:
        if isinstance(value, _SCALARS):
            yield _Place(path, value, bind)
            return
        if id(value) in known or id(value) in seen or self._skipped(value):
            return
        seen.add(id(value))
        if (
            isinstance(
                value, torch.Tensor | np.ndarray | np.generic | torch.nn.Module | torch.optim.Optimizer
            )
            or generators.is_generator(value)
            or _has_state(value)
            or _is_iterator(value)
        ):
            yield _Place(path, value, bind)
        elif isinstance(value, _CONTAINERS):
            inner = [item for item in _items(value) if depth and _is_users_object(item[1])]
            if inner:
                for entry, item in inner:
                    yield from self._within(f"{path}[{entry!r}]", item, _no_bind, known, seen, depth - 1)
            else:
                yield _Place(path, value, bind)
        elif depth and _is_users_object(value):
            for entry, item in list(vars(value).items()):
                setter = _setter(value, entry)
                yield from self._within(f"{path}.{entry}", item, setter, known, seen, depth - 1)
        elif depth and state_foreign.is_foreign(value):
            for entry, owner, attribute, number in state_foreign.numbers(value):
                yield _Place(f"{path}.{entry}", number, _setter(owner, attribute), foreign=True)
            for entry, scaler in state_foreign.scalers(value).items():
                yield from self._within(f"{path}.{entry}", scaler, _no_bind, known, seen, 0)

    def _skipped(self, value: Any) -> bool:
        kinds = (ModuleType, type, Dataset, DataLoader, Sampler, io.IOBase, torch.device, torch.dtype)
        # A generator, a bound method or a module may be callable too; only plain code is passed over here.
        return isinstance(value, (*self._ours, *kinds)) or hasattr(value, "__code__")


def module_attributes(name: str, module: torch.nn.Module) -> dict[str, tuple[Any, str, Any]]:
    """Return the plain attributes of a tracked module and its parts: owner, attribute and value by path."""
    base = set(vars(torch.nn.Module()))
    found = {}
    for path, part in module.named_modules():
        for entry, item in vars(part).items():
            if entry not in base and isinstance(
                item, (*_SCALARS, torch.Tensor, np.ndarray, list, dict, deque)
            ):
                found[".".join(word for word in (name, path, entry) if word)] = (part, entry, item)
    return found


def _binder(frame: FrameType, name: str) -> Callable[[Any], None]:
    return lambda value: assign(frame, name, value)


def _setter(owner: Any, attribute: str) -> Callable[[Any], None]:
    return lambda value: setattr(owner, attribute, value)


def _bound(place: _Place, value: Any) -> bool:
    """Bind a place; a package may guard its attributes, and that is no reason to end a run."""
    try:
        place.bind(value)
    except (AttributeError, TypeError):
        if not place.foreign:
            raise
        return False
    return True


def _no_bind(value: Any) -> None:
    raise BadInput("an item of a container cannot be bound")


def _scratch(names: LoopNames, at_end: bool) -> frozenset[str]:
    return names.scratch_at_end if at_end else names.scratch


def _items(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items() if isinstance(value, dict) else enumerate(value))[:1000]


def _in_place(live: Any, saved: Any) -> bool:
    return isinstance(live, torch.Tensor | np.ndarray | dict | list | set | deque) and type(live) is type(
        saved
    )


def _is_users_object(value: Any) -> bool:
    module = sys.modules.get(type(value).__module__)
    return hasattr(value, "__dict__") and is_users(getattr(module, "__file__", None) or "<user>")


def _has_state(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def _is_stateful(value: Any) -> bool:
    return isinstance(value, torch.nn.Module | torch.optim.Optimizer) or _has_state(value)


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


def _is_iterator(value: Any) -> bool:
    return hasattr(value, "__next__") and not isinstance(value, type)


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
        for line in names.zipped:
            yield Hole(
                f"{label}{line}",
                "zip() advances an iterator beside the batches, which would start over after a resume",
                "draw both from one dataset, for instance torch.utils.data.StackDataset",
            )
        return


def _untracked(path: str, value: Any) -> Hole:
    name = path.rpartition(":")[2]
    word = name.rpartition(".")[2] or name
    kind = type(value).__name__
    return Hole(
        path, f"this {kind} changes from step to step and is not tracked", f"run.track({word}={name})"
    )


def _iterator(path: str, value: Any) -> Hole:
    return Hole(
        path,
        f"this {type(value).__name__} is an iterator, whose position would be lost",
        "let run.batches(…) give the data, or make the iterator inside the loop",
    )


def _accumulating(path: str, count: int) -> Hole:
    return Hole(
        path,
        f"the trainer accumulates over {count} batches and counts them from 0 again after a resume",
        "accumulate in training_step, with manual optimization and a counter in run.state",
    )


def _label(entry: Any) -> str:
    return repr(entry) if isinstance(entry, _SCALARS) else type(entry).__name__


def _mark(value: Any, depth: int = 4) -> Any:
    """Return something small that changes when a value does; large data is looked at in samples."""
    if isinstance(value, float):
        return digests.bits(value)
    if isinstance(value, _SCALARS):
        return (type(value).__name__, value)
    if isinstance(value, torch.Tensor):
        flat = value.detach().reshape(-1) if value.layout == torch.strided else value.detach()._values()
        sample = flat[:: max(1, flat.numel() // 4096)]
        return (tuple(value.shape), value._version, str(digests.of_tensors([sample.cpu()])))
    if isinstance(value, np.ndarray):
        part = value.reshape(-1)[:: max(1, value.size // 4096)]
        return (value.shape, zlib.crc32(part.tobytes()) if value.dtype != object else repr(part)[:1000])
    if isinstance(value, torch.nn.Module):
        return [_mark(item) for item in (*value.parameters(), *value.buffers())]
    if isinstance(value, torch.optim.Optimizer):
        return _mark(value.state_dict(), 5)
    if generators.is_generator(value):
        return digests.of(value)
    if isinstance(value, _CONTAINERS) and depth:
        items = _items(value) if not isinstance(value, set | frozenset) else [(0, sorted(map(repr, value)))]
        some = items if len(items) <= 2 * _ENDS else items[:_ENDS] + items[-_ENDS:]
        return (len(value), [(_label(entry), _mark(item, depth - 1)) for entry, item in some])
    if _has_state(value) and depth:
        return _mark(value.state_dict(), depth - 1)
    return type(value).__name__
