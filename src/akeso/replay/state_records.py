"""Objects that are nothing but their attributes: of classes of the user's, and plain namespaces.

A record is written as the name of its class and its attributes, and made again without calling any code of
the class. The class has to be found under its name in a module that the program has imported; one that is
defined inside a function is not.
"""

from __future__ import annotations

import argparse
import io
import sys
import types
from enum import Enum
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from akeso.replay.state_frames import is_users

_SPACES = (types.SimpleNamespace, argparse.Namespace)
_OTHER = (
    torch.Tensor,
    torch.nn.Module,
    torch.optim.Optimizer,
    Dataset,
    DataLoader,
    Sampler,
    io.IOBase,
    BaseException,
    Enum,
    type,
    types.ModuleType,
)
_VALUES = (str, bytes, bytearray, int, float, complex, list, tuple, dict, set, frozenset)


def is_users_kind(kind: type) -> bool:
    """Tell whether a class is defined in the user's program."""
    if kind.__module__ == "builtins":
        return False
    module = sys.modules.get(kind.__module__)
    return is_users(getattr(module, "__file__", None) or "<user>")


def is_record(value: Any) -> bool:
    """Tell whether an object is of a class of the user's, or a namespace, and has attributes of its own."""
    kind = type(value)
    if kind in _SPACES:
        return True
    if isinstance(value, (*_OTHER, *_VALUES)) or not is_users_kind(kind):
        return False
    return hasattr(value, "__dict__") or any("__slots__" in vars(base) for base in kind.__mro__)


def attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, those in slots included."""
    found = dict(getattr(value, "__dict__", {}))
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            name = f"_{base.__name__.lstrip('_')}{slot}" if slot.startswith("__") else slot
            if slot not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return found


def name_of(kind: type) -> str | None:
    """Return the name under which a class can be found again, if it can."""
    name = f"{kind.__module__}:{kind.__qualname__}"
    return name if kind_of(name) is kind else None


def kind_of(name: str) -> type | None:
    """Return the class of a name, if it is one of a module that the program has imported."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for word in path.split("."):
        found = getattr(found, word, None)
    return found if isinstance(found, type) else None


def make(kind: type, state: dict[str, Any]) -> Any:
    """Make an object of a class with these attributes."""
    return put(object.__new__(kind), state)


def put(value: Any, state: dict[str, Any]) -> Any:
    """Give an object these attributes and no others."""
    for name in attributes(value):
        if name not in state:
            object.__delattr__(value, name)
    for name, item in state.items():
        object.__setattr__(value, name, item)
    return value


def is_frozen(value: Any) -> bool:
    """Tell whether an object is of a frozen dataclass: such ones are replaced, never changed."""
    return bool(getattr(getattr(type(value), "__dataclass_params__", None), "frozen", False))
