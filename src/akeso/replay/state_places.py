"""Where a program may keep state: variables, attributes, items, closures, and how each of them is bound.

From the frames of the user's program everything is followed that belongs to the user: objects, containers,
functions with what they close over and carry, classes with their own attributes. The global variables of
the user's other modules come last. Objects of installed packages give no more than their numbers.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from types import CellType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from akeso.errors import BadInput
from akeso.replay import generators, state_foreign
from akeso.replay.state_frames import assign, is_at_head, is_users, users_frames, variables
from akeso.replay.state_liveness import loops_around
from akeso.replay.state_marks import CONTAINERS, SCALARS, has_state, is_iterator, is_table
from akeso.replay.state_marks import items as items_of
from akeso.replay.state_records import attributes, is_record, is_users_kind
from akeso.replay.state_wrappers import unwrap

_DEPTH = 4
_PARTS = 16
"""Tensors or datasets of a dataset that are looked at; a longer list of them holds samples."""
_DATA = (Dataset, DataLoader, Sampler)
_SKIPPED = (ModuleType, *_DATA, io.IOBase, torch.device, torch.dtype)
_LEAVES = (torch.Tensor, np.ndarray, np.generic, torch.nn.Module, torch.optim.Optimizer, Enum)


@dataclass(frozen=True, slots=True)
class Place:
    """One variable, attribute or item that can be read and bound."""

    path: str
    value: Any
    bind: Callable[[Any], None]
    foreign: bool = False
    """Whether it is a number of an object that belongs to an installed package."""
    whole: bool = False
    """Whether it is a record, or a container of records, whose parts are places too and come next."""
    distant: bool = False
    """Whether the loop is not known to use it: a global variable of another module, say."""


class Places:
    """All places of a program as it stands now."""

    def __init__(self, ours: tuple[type, ...], tracked: Callable[[], dict[str, Any]]) -> None:
        self._skipped = (*ours, *_SKIPPED)
        self._tracked = tracked
        #: Objects, functions and classes met by the last search, by path: what an attribute can be given to.
        self._owners: dict[str, Any] = {}

    def find(self, frame: FrameType, known: set[int], at_end: bool) -> Iterator[Place]:
        """Yield the places that a frame, those around it and the user's modules lead to."""
        walk = _Walk(known, self._skipped)
        self._owners = walk.owners
        innermost, spaces = True, set()
        for label, users in users_frames(frame):
            spaces.add(id(users.f_globals) if users.f_code.co_name == "<module>" else 0)
            names = None
            if innermost:
                names = loops_around(users.f_code, users.f_lineno, at_end or is_at_head(users))
            scratch: frozenset[str] = frozenset()
            if names is not None:
                scratch = names.scratch_at_end if at_end else names.scratch
            read = names.read if names else frozenset()
            for name, value in variables(users).items():
                # An iterator matters where the loops of the run take from it; those further out start anew.
                if name not in scratch and (name in read or not is_iterator(value)):
                    yield from walk.within(f"{label}{name}", value, _binder(users, name), _DEPTH)
            innermost = False
        for name, value in self._tracked().items():
            # Generators inside tracked objects, and plain attributes of modules: no state dict has them.
            for path, generator in generators.find(value, name):
                if id(generator) not in known and generator is not value:
                    yield Place(f"track:{path}", generator, no_bind)
            if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
                own = _module_attributes if isinstance(value, torch.nn.Module) else _optimizer_attributes
                for path, owner, entry, item in own(name, value):
                    if not _only(item, known):
                        yield from walk.within(f"track:{path}", item, _setter(owner, entry), _DEPTH)
        walk.distant = True
        for module in users_modules():
            if id(vars(module)) not in spaces:
                for name, value in list(vars(module).items()):
                    if not name.startswith("__"):
                        bind = _setter(module, name)
                        yield from walk.within(f"{module.__name__}:{name}", value, bind, _DEPTH)

    def create(self, frame: FrameType, path: str, value: Any) -> bool:
        """Bind a variable or an attribute that does not exist yet in this process; ``find`` comes before."""
        for label, users in users_frames(frame):
            name = path.removeprefix(label)
            if path.startswith(label) and name.isidentifier():
                assign(users, name, value)
                return True
        owner, _, name = path.rpartition(".")
        holder = self._owners.get(owner)
        if holder is None:
            module, _, name = path.rpartition(":")
            holder = sys.modules.get(module)
        if holder is None or not name.isidentifier():
            return False
        setattr(holder, name, value)
        return True


def changeable(*values: Any) -> Iterator[Place]:
    """Yield the places that these values, a dataset and its transform say, lead to."""
    walk = _Walk(set(), _SKIPPED)
    for number, value in enumerate(values):
        yield from walk.within(str(number), value, no_bind, _DEPTH)


class _Walk:
    """One way through everything; what was met once is not met again."""

    def __init__(self, known: set[int], skipped: tuple[type, ...]) -> None:
        self._known, self._skipped = known, skipped
        self._seen: set[int] = set()
        self.owners: dict[str, Any] = {}
        self.distant = False

    def within(self, path: str, value: Any, bind: Callable[[Any], None], depth: int) -> Iterator[Place]:
        if isinstance(value, SCALARS):
            yield Place(path, value, bind, distant=self.distant)
            return
        if id(value) in self._known or id(value) in self._seen:
            return
        if depth and isinstance(value, Dataset) and not isinstance(value, IterableDataset):
            self._seen.add(id(value))
            yield from self._data(path, value, depth)
            return
        if depth and isinstance(value, Sampler):
            self._seen.add(id(value))
            yield from self._data(path, value, depth)
            return
        if depth and isinstance(value, DataLoader):
            self._seen.add(id(value))
            for entry in ("dataset", "sampler", "batch_sampler"):
                yield from self.within(f"{path}.{entry}", getattr(value, entry, None), no_bind, depth)
            return
        if isinstance(value, self._skipped):
            return
        if isinstance(value, dict) and "__builtins__" in value:
            return  # names that code given to exec runs in: they are looked at where it runs
        self._seen.add(id(value))
        if (
            isinstance(value, _LEAVES)
            or generators.is_generator(value)
            or has_state(value)
            or is_iterator(value)
        ):
            yield Place(path, value, bind, distant=self.distant)
        elif isinstance(value, CONTAINERS):
            if _only(value, self._known):
                return  # a list of models, each of them tracked
            inner = [pair for pair in items_of(value) if depth and is_record(pair[1])]
            yield Place(path, value, bind, whole=bool(inner), distant=self.distant)
            data = [pair for pair in items_of(value) if depth and isinstance(pair[1], _DATA)]
            for entry, item in inner + data:
                yield from self.within(f"{path}[{entry!r}]", item, no_bind, depth - 1)
        elif depth and is_record(value):
            self.owners[path] = value
            yield Place(path, value, bind, whole=True, distant=self.distant)
            for entry, item in attributes(value).items():
                yield from self.within(f"{path}.{entry}", item, _setter(value, entry), depth - 1)
        elif depth and isinstance(value, FunctionType | MethodType | partial | type):
            yield from self._code(path, value, depth)
        elif depth and state_foreign.is_foreign(value):
            for entry, owner, attribute, number in state_foreign.numbers(value):
                yield Place(f"{path}.{entry}", number, _setter(owner, attribute), foreign=True)
            for entry, scaler in state_foreign.scalers(value).items():
                yield from self.within(f"{path}.{entry}", scaler, no_bind, 0)
            if is_table(value):
                yield Place(path, value, bind, distant=self.distant)

    def _data(self, path: str, value: Any, depth: int) -> Iterator[Place]:
        """Yield what a loop may change of its data: numbers, arrays, lists of plain values; no cache of samples."""
        self.owners[path] = value
        for entry, item in list(vars(value).items()):
            name, bind = f"{path}.{entry}", _setter(value, entry)
            if isinstance(item, (*SCALARS, torch.Tensor, np.ndarray)):
                yield from (replace(place, distant=True) for place in self.within(name, item, bind, 0))
            elif isinstance(item, Dataset | Sampler) or is_record(item):
                yield from self.within(name, item, bind, depth - 1)
            elif isinstance(item, CONTAINERS) and item:
                first = next(iter(item.values() if isinstance(item, dict) else item))
                if isinstance(first, SCALARS):
                    yield Place(name, item, bind, distant=True)
                elif isinstance(first, torch.Tensor | np.ndarray | Dataset) and isinstance(
                    item, list | tuple
                ):
                    for number, part in enumerate(item[:_PARTS]):
                        yield from self.within(f"{name}[{number}]", part, no_bind, depth - 1)

    def _code(self, path: str, value: Any, depth: int) -> Iterator[Place]:
        """Yield what functions close over and carry, and what classes of the user's hold themselves."""
        if isinstance(value, partial):
            yield from self.within(f"{path}.func", value.func, no_bind, depth - 1)
            for number, item in enumerate((*value.args, *value.keywords.values())):
                yield from self.within(f"{path}({number})", item, no_bind, depth - 1)
        elif isinstance(value, MethodType):
            yield from self.within(f"{path}.__self__", value.__self__, no_bind, depth - 1)
        elif isinstance(value, FunctionType):
            if is_users(value.__code__.co_filename):
                self.owners[path] = value
                yield from self._function(path, value, depth)
        elif is_users_kind(value) and not issubclass(value, (*self._skipped, Enum, BaseException)):
            self.owners[path] = value
            for entry, item in list(vars(value).items()):
                if not (entry.startswith("__") or hasattr(item, "__get__") or callable(item)):
                    yield from self.within(f"{path}.{entry}", item, _setter(value, entry), depth - 1)

    def _function(self, path: str, value: FunctionType, depth: int) -> Iterator[Place]:
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            try:
                item = cell.cell_contents
            except ValueError:  # not bound yet
                continue
            yield from self.within(f"{path}<{name}>", item, _celler(cell), depth - 1)
        for entry, item in list(vars(value).items()):
            if entry != "__wrapped__" or isinstance(item, FunctionType):
                yield from self.within(f"{path}.{entry}", item, _setter(value, entry), depth - 1)
        for number, item in enumerate(value.__defaults__ or ()):
            if not isinstance(item, SCALARS):
                yield from self.within(f"{path}({number})", item, no_bind, depth - 1)


def users_modules() -> list[ModuleType]:
    """Return the modules of the user's program that have been imported."""
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(module, ModuleType) and file and module.__name__ == name and is_users(file):
            found.append(module)
    return found


def _module_attributes(name: str, module: Any) -> Iterator[tuple[str, Any, str, Any]]:
    """Yield path, owner, attribute and value of the plain attributes of a tracked module and its parts."""
    base = set(vars(torch.nn.Module()))
    kinds = (*SCALARS, torch.Tensor, np.ndarray, *CONTAINERS)
    for path, part in module.named_modules():
        for entry, item in list(vars(part).items()):
            if entry not in base and (isinstance(item, kinds) or is_record(item)):
                yield ".".join(word for word in (name, path, entry) if word), part, entry, item


def _optimizer_attributes(name: str, value: Any) -> Iterator[tuple[str, Any, str, Any]]:
    """Yield the same of an optimizer that is not torch's own: a count of steps, slow weights, an inner one."""
    if type(value).__module__.partition(".")[0] == "torch":
        return
    base = {*vars(torch.optim.SGD([torch.zeros(1)], 0.1)), "_opt_called", "step"}
    for entry, item in list(vars(value).items()):
        if entry not in base and not callable(item):
            yield f"{name}.{entry}", value, entry, item


def _only(value: Any, known: set[int]) -> bool:
    """Tell whether a container holds nothing but what is tracked: models, the list of weights of a recurrent layer."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return bool(parts) and all(
        id(item) in known or id(unwrap(item)) in known or _only(item, known) for item in parts
    )


def _binder(frame: FrameType, name: str) -> Callable[[Any], None]:
    return lambda value: assign(frame, name, value)


def _setter(owner: Any, attribute: str) -> Callable[[Any], None]:
    return lambda value: setattr(owner, attribute, value)


def _celler(cell: CellType) -> Callable[[Any], None]:
    return lambda value: setattr(cell, "cell_contents", value)


def no_bind(value: Any) -> None:
    """Stand for a place that cannot be bound."""
    raise BadInput("an item of a container cannot be bound")
