"""Marks: something small that changes when a value does, taken of every variable of a program."""

from __future__ import annotations

import itertools
import zlib
from collections import deque
from enum import Enum
from types import GeneratorType
from typing import Any

import numpy as np
import torch

from akeso.replay import digests, generators
from akeso.replay.state_records import attributes, is_record

SCALARS = (bool, int, float, complex, str, bytes, type(None))
CONTAINERS = (dict, list, set, tuple, deque, frozenset)
_ENDS = 64


def items(value: Any) -> list[tuple[Any, Any]]:
    """Return the items of a container with their keys or places; of a very long one the first thousand."""
    return list(itertools.islice(value.items() if isinstance(value, dict) else enumerate(value), 1000))


def has_state(value: Any) -> bool:
    """Tell whether an object can give its state and take it back; classes, as registries hold them, have none."""
    if isinstance(value, type):
        return False
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def is_iterator(value: Any) -> bool:
    """Tell whether a value has a position that is lost with it."""
    return hasattr(value, "__next__") and not isinstance(value, type)


def is_table(value: Any) -> bool:
    """Tell whether an object of another package holds data: a data frame, a series."""
    kind = type(value)
    return kind.__module__.partition(".")[0] not in ("torch", "numpy") and hasattr(kind, "__array__")


def mark(value: Any, depth: int = 4) -> Any:
    """Return the mark of a value; large data is looked at in samples."""
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, float):
        return digests.bits(value)
    if isinstance(value, SCALARS):
        return (type(value).__name__, value)
    if isinstance(value, torch.Tensor):
        return _of_tensor(value)
    if isinstance(value, np.ndarray):
        part = value.reshape(-1)[:: max(1, value.size // 4096)]
        return (value.shape, zlib.crc32(part.tobytes()) if value.dtype != object else repr(part)[:1000])
    if isinstance(value, torch.nn.Module):
        return [mark(item) for item in (*value.parameters(), *value.buffers())]
    if isinstance(value, torch.optim.Optimizer):
        return mark(value.state_dict(), 5)
    if generators.is_generator(value):
        return digests.of(value)
    if isinstance(value, CONTAINERS) and depth:
        return _of_container(value, depth)
    if is_iterator(value):
        return _of_iterator(value, depth)
    if has_state(value) and depth:
        return mark(value.state_dict(), depth - 1)
    if is_record(value) and depth:
        return (type(value).__name__, _of_items(list(attributes(value).items()), depth))
    if is_table(value):
        return _of_table(value)
    return type(value).__name__


def _of_tensor(value: torch.Tensor) -> Any:
    if value.device.type == "meta":
        return (tuple(value.shape), value.dtype)
    flat = value.detach().reshape(-1) if value.layout == torch.strided else value.detach()._values()
    sample = flat[:: max(1, flat.numel() // 4096)]
    return (tuple(value.shape), value._version, str(digests.of_tensors([sample.cpu()])))


def _of_container(value: Any, depth: int) -> Any:
    if isinstance(value, set | frozenset):
        return (len(value), sorted(map(repr, value)))
    if len(value) <= 2 * _ENDS:
        return (len(value), _of_items(items(value), depth))
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    start = list(itertools.islice(pairs, _ENDS))
    if isinstance(value, dict):
        end = [(entry, value[entry]) for entry in itertools.islice(reversed(value), _ENDS)]
    else:
        end = [(at, value[at]) for at in range(-_ENDS, 0)]
    return (len(value), _of_items(start + end, depth))


def _of_items(pairs: list[tuple[Any, Any]], depth: int) -> Any:
    return [(_label(entry), mark(item, depth - 1)) for entry, item in pairs]


def _label(entry: Any) -> str:
    return repr(entry) if isinstance(entry, SCALARS) else type(entry).__name__


def _of_iterator(value: Any, depth: int) -> Any:
    if isinstance(value, GeneratorType):
        frame = value.gi_frame
        inside = _of_items(list(frame.f_locals.items()), depth) if frame is not None and depth else None
        return (value.__name__, frame and frame.f_lasti, inside)
    return repr(value) if isinstance(value, itertools.count) else type(value).__name__


def _of_table(value: Any) -> Any:
    try:
        cells = np.asarray(value)
        return (cells.shape, repr(cells[:_ENDS].tolist()), repr(cells[-_ENDS:].tolist()))
    except Exception:  # whatever a package does when it is asked; it is not akeso's to fail
        return type(value).__name__
