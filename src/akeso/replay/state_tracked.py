"""What a user tracks: how each kind of object is captured and put back, and what type of state it is.

The types are those of every piece of state a training loop carries:

=============  ====================================================  =====================================
type           meaning                                               in a snapshot
=============  ====================================================  =====================================
constant       never changes after the start                         its digest at most
recomputable   follows from other state                              nothing
random         a generator                                           its whole state
position       where the run stands in its data and its schedule     the numbers
learned        parameters, buffers, moments, running statistics      every bit
opaque         state of unknown meaning                              every bit that can be written
=============  ====================================================  =====================================
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from akeso.errors import BadInput
from akeso.replay import generators, state_foreign
from akeso.replay.state_filling import put_back
from akeso.replay.state_marks import has_state
from akeso.replay.state_wrappers import unwrap


class StateType(str, Enum):
    """The type of a piece of state; see the table of this module."""

    CONSTANT = "constant"
    RECOMPUTABLE = "recomputable"
    RANDOM = "random"
    POSITION = "position"
    LEARNED = "learned"
    OPAQUE = "opaque"


class Tracked(ABC):
    """One tracked object: a live view of its state, and the way back."""

    type: StateType = StateType.LEARNED

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value

    @abstractmethod
    def capture(self) -> Any:
        """Return the state as nested plain values and live tensors; nothing is copied."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Put the object into a captured state, in place."""


class TrackedModule(Tracked):
    """A module: parameters, buffers (those kept out of its state dict too), train mode, what is frozen."""

    value: torch.nn.Module

    def capture(self) -> Any:
        state = dict(self.value.state_dict())
        hidden = {name: buffer for name, buffer in self.value.named_buffers() if name not in state}
        return {
            "state": state,
            "hidden": hidden,
            "eval": [name for name, module in self.value.named_modules() if not module.training],
            "frozen": [name for name, item in self.value.named_parameters() if not item.requires_grad],
        }

    def restore(self, state: Any) -> None:
        whole = dict(state["state"])
        own = self.value.state_dict()
        missing, strange = sorted(set(whole) - set(own)), sorted(set(own) - set(whole))
        lazy = any("Lazy" in type(module).__name__ for module in self.value.modules())
        if (missing or strange) and not lazy:
            raise BadInput(
                f"{self.name} is another model than the one in the snapshot: it lacks {missing[:3]}, has "
                f"{strange[:3]} besides; build the model as the recorded script does. One that grows or is "
                "pruned on the way has to be brought to its form before the first batch: keep what tells the "
                "form in run.state, which is there as soon as the run is made"
            )
        self.value.load_state_dict(whole, strict=True)
        buffers = dict(self.value.named_buffers())
        with torch.no_grad():
            for name, saved in state["hidden"].items():
                buffers[name].copy_(saved)
        evaluating, frozen = set(state["eval"]), set(state["frozen"])
        for name, module in self.value.named_modules():
            module.training = name not in evaluating
        for name, item in self.value.named_parameters():
            item.requires_grad_(name not in frozen)


class TrackedOptimizer(Tracked):
    """An optimizer: its state dict, and the parameters it steps that belong to no tracked module."""

    value: torch.optim.Optimizer

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(name, value)
        #: Parameters that tracked modules have, with their names, by identity.
        self.known: dict[int, tuple[str, torch.Tensor]] = {}

    def groups(self) -> list[list[str | None]]:
        """Return the parameters of each group by their names in tracked modules."""
        unknown = (None, None)
        groups = self.value.param_groups
        return [[self.known.get(id(item), unknown)[0] for item in group["params"]] for group in groups]

    def add_groups(self, saved: list[list[str | None]]) -> None:
        """Give the optimizer the groups that the loop had added, as far as they are of tracked modules."""
        named = dict(self.known.values())
        for group in saved[len(self.value.param_groups) :]:
            if group and all(name in named for name in group):
                self.value.add_param_group({"params": [named[name] for name in group if name is not None]})

    def _loose(self) -> list[torch.Tensor]:
        return [
            item
            for group in self.value.param_groups
            for item in group["params"]
            if id(item) not in self.known
        ]

    def capture(self) -> Any:
        return {"state": self.value.state_dict(), "parameters": self._loose()}

    def restore(self, state: Any) -> None:
        saved = state["state"]
        then = [len(group["params"]) for group in saved["param_groups"]]
        now = [len(group["params"]) for group in self.value.param_groups]
        if then != now:
            raise BadInput(
                f"{self.name} had groups of {then} parameters when the snapshot was taken, and has {now} here; "
                "build it as the recorded script does. One that is made anew or given other parameters on the "
                "way has to be brought to its form before the first batch: keep what tells the form in run.state"
            )
        self.value.load_state_dict(saved)
        members = [item for group in self.value.param_groups for item in group["params"]]
        for number, entries in saved["state"].items():
            if not isinstance(number, int) or not isinstance(entries, dict):
                continue
            own = self.value.state[members[number]]
            for entry, item in entries.items():
                # load_state_dict casts moments to the type of their parameter; the bits must stay as they
                # were.
                if isinstance(item, torch.Tensor) and own[entry].dtype != item.dtype:
                    own[entry] = item.to(own[entry].device)
        with torch.no_grad():
            for item, value in zip(self._loose(), state["parameters"], strict=True):
                item.copy_(value)


class TrackedStateDict(Tracked):
    """Anything else that has ``state_dict`` and ``load_state_dict``: schedulers, scalers, averages."""

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(name, value)
        if isinstance(value, torch.optim.lr_scheduler.LRScheduler):
            self.type = StateType.POSITION

    def capture(self) -> Any:
        return self.value.state_dict()

    def restore(self, state: Any) -> None:
        self.value.load_state_dict(state)


class TrackedGenerator(Tracked):
    """A private generator."""

    type = StateType.RANDOM

    def capture(self) -> Any:
        return generators.private_state(self.value)

    def restore(self, state: Any) -> None:
        generators.restore_private(self.value, state)


class TrackedPlain(Tracked):
    """A tensor, an array or a container, restored in place so that every reference to it stays good."""

    def capture(self) -> Any:
        return self.value

    def restore(self, state: Any) -> None:
        put_back(self.value, state)


class TrackedFile(Tracked):
    """A file that grows: a process that goes on cuts off what was written after the snapshot."""

    type = StateType.POSITION

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(name, value)
        #: Whether the file is another process's to cut: in a replay, on ranks that do not lead.
        self.untouched = False
        self._then: Any = None
        mode = getattr(value, "mode", "a")
        if isinstance(mode, str) and ("w" in mode or "x" in mode):
            raise BadInput(
                f"run.track({name}=...) was given {value.name!r}, opened with mode {mode!r}, which empties it "
                "when the program is started again; open it with 'a'"
            )

    @property
    def path(self) -> Path:
        """Where the file lies."""
        return self.value if isinstance(self.value, Path) else Path(self.value.name)

    def capture(self) -> Any:
        if self._then is not None:
            return self._then
        if not isinstance(self.value, Path) and not self.value.closed:
            self.value.flush()
        return {"bytes": self.path.stat().st_size if self.path.exists() else 0}

    def restore(self, state: Any) -> None:
        if self.untouched:
            self._then = state
            return
        there = self.capture()["bytes"]
        if there < state["bytes"]:
            raise BadInput(
                f"{self.path} has {there} bytes, but had {state['bytes']} when the snapshot was taken: "
                "something was cut off or it was replaced; put it back, or begin a new run folder"
            )
        if there > state["bytes"]:
            os.truncate(self.path, state["bytes"])


class TrackedObject(Tracked):
    """An object of a class of the user's, by its attributes, but for code and what is tracked itself."""

    type = StateType.OPAQUE

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(name, value)
        self.known: set[int] = set()

    def _parts(self) -> dict[str, Tracked]:
        found = {}
        for entry, item in vars(self.value).items():
            if isinstance(item, _CODE) or _is_plain(item):
                continue
            if id(item) not in self.known and id(unwrap(item)) not in self.known:
                found[entry] = adopt(f"{self.name}.{entry}", item)
        return found

    def capture(self) -> Any:
        parts = self._parts()
        plain = {entry: item for entry, item in vars(self.value).items() if _is_plain(item)}
        return {"plain": plain, "parts": {entry: part.capture() for entry, part in parts.items()}}

    def restore(self, state: Any) -> None:
        parts = self._parts()
        for entry, item in state["parts"].items():
            parts[entry].restore(item)
        for entry, item in state["plain"].items():
            setattr(self.value, entry, put_back(getattr(self.value, entry, None), item))


class TrackedTrainer(Tracked):
    """An object of a training library, like an Accelerator: its counts and flags, and its scaler.

    The models, optimizers and schedulers it was given are tracked by themselves.
    """

    type = StateType.OPAQUE

    def capture(self) -> Any:
        found = state_foreign.numbers(self.value)
        scalers = state_foreign.scalers(self.value)
        return {
            "numbers": {path: number for path, _, _, number in found},
            "scalers": {entry: scaler.state_dict() for entry, scaler in scalers.items()},
        }

    def restore(self, state: Any) -> None:
        for path, owner, entry, number in list(state_foreign.numbers(self.value)):
            saved = state["numbers"].get(path, number)
            if saved != number:
                setattr(owner, entry, saved)
        for entry, scaler in state_foreign.scalers(self.value).items():
            if entry in state["scalers"]:
                scaler.load_state_dict(state["scalers"][entry])


_CODE = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType, torch.device, torch.dtype)
_FIXED = (type(None), bool, int, float, complex, str, bytes, tuple, frozenset)
_PLAIN = (torch.Tensor, np.ndarray, dict, list, set, deque)


def _is_plain(value: Any) -> bool:
    return isinstance(value, (*_PLAIN, *_FIXED))


def apart(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is tracked under a name: of a container of models, optimizers and the like every item."""
    pairs = (
        list(value.items() if isinstance(value, dict) else enumerate(value)) if _holds_state(value) else []
    )
    for entry, item in pairs:
        yield from apart(f"{name}.{entry}", item)
    if not pairs:
        yield name, value


def _holds_state(value: Any) -> bool:
    """Tell whether a container has objects in it that give their state themselves, and take it back."""
    if type(value) not in (list, tuple, dict):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return any(has_state(item) or generators.is_generator(item) or _holds_state(item) for item in parts)


def adopt(name: str, value: Any) -> Tracked:
    """Choose how an object is tracked, or say why it cannot be."""
    value = unwrap(value)
    if state_foreign.is_of_keras(value):
        raise BadInput(
            f"run.track({name}=...) was given {type(value).__name__}, which is of Keras: what its layers and "
            "optimizers hold cannot be brought back to the same bits here. Train in a loop with modules and "
            "optimizers of torch, or leave the run out and keep checkpoints with keras.callbacks.BackupAndRestore"
        )
    if isinstance(value, torch.nn.Module):
        return TrackedModule(name, value)
    if isinstance(value, torch.optim.Optimizer):
        return TrackedOptimizer(name, value)
    if generators.is_generator(value):
        return TrackedGenerator(name, value)
    if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
        return TrackedStateDict(name, value)
    if isinstance(value, _PLAIN):
        return TrackedPlain(name, value)
    if isinstance(value, Path | io.IOBase):
        return TrackedFile(name, value)
    if state_foreign.is_trainer(value):
        return TrackedTrainer(name, value)
    if hasattr(value, "__dict__") and not isinstance(value, _CODE):
        return TrackedObject(name, value)
    raise BadInput(
        f"run.track({name}=...) was given {value!r}, a {type(value).__name__}: a plain value is replaced, "
        f"not changed, so tracking it once sees nothing; keep it in run.state.{name}"
    )
