"""Marks: something small that changes when a value does, taken of every variable of a program."""

from __future__ import annotations

import itertools
import marshal
import zlib
from collections import deque
from collections.abc import Iterable
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
_CLOSE = 128
"""Items of a container that are looked at as closely as variables are."""
_MOST = 10_000
"""Items of a container that are looked at one by one; of those beyond, only whether they are the same objects."""
_WHOLE = 16 << 20
"""Bytes of an array or a tensor that are read whole; of a larger one, samples."""
_SAMPLES = 1 << 16


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


def changed(before: Any, value: Any) -> bool:
    """Tell whether a value is no longer what it was when it was marked."""
    if isinstance(value, CONTAINERS) and isinstance(before, tuple) and before[0] != len(value):
        return True
    return bool(before != mark(value))


def mark(value: Any, depth: int = 6, close: bool = True) -> Any:
    """Return the mark of a value; large arrays are looked at in samples, and tensors unless ``close`` not at all.

    A tensor counts how often it was written to; only ways around it (``.data``, a view of NumPy's) are not seen.
    """
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, float):
        return digests.bits(value)
    if isinstance(value, SCALARS):
        return (type(value).__name__, value)
    if isinstance(value, torch.Tensor):
        return _of_tensor(value) if close else (value.data_ptr(), value._version)
    if isinstance(value, np.ndarray):
        return _of_array(value, depth)
    if isinstance(value, torch.nn.Module):
        return [_of_tensor(item, 4096) for item in (*value.parameters(), *value.buffers())]
    if isinstance(value, torch.optim.Optimizer):
        return mark(value.state_dict(), 5)
    if generators.is_generator(value):
        return digests.of(value)
    if isinstance(value, CONTAINERS) and depth:
        return _of_container(value, depth, close)
    if is_iterator(value):
        return _of_iterator(value, depth)
    if has_state(value) and depth:
        return mark(value.state_dict(), depth - 1, close)
    if is_record(value) and depth:
        return (type(value).__name__, _of_items(attributes(value).items(), depth, close))
    if is_table(value):
        return _of_table(value)
    return type(value).__name__


def _of_tensor(value: torch.Tensor, samples: int = _SAMPLES) -> Any:
    if value.device.type == "meta":
        return (tuple(value.shape), value.dtype)
    flat = value.detach().reshape(-1) if value.layout == torch.strided else value.detach()._values()
    whole = samples == _SAMPLES and value.device.type == "cpu" and flat.nbytes <= _WHOLE
    sample = flat if whole else flat[:: max(1, flat.numel() // samples)]
    return (tuple(value.shape), value._version, str(digests.of_tensors([sample.cpu()])))


def _of_array(value: np.ndarray[Any, Any], depth: int) -> Any:
    if value.dtype == object:
        return (value.shape, _of_container(value.reshape(-1).tolist(), depth, False) if depth else None)
    flat = value.reshape(-1)
    part = flat if value.nbytes <= _WHOLE else flat[:: max(1, value.size // _SAMPLES)]
    return (value.shape, zlib.crc32(np.ascontiguousarray(part).view(np.uint8).data))


def _of_container(value: Any, depth: int, close: bool) -> Any:
    try:
        # All of it, however long and deep, as long as it holds nothing but plain values.
        return (len(value), zlib.crc32(marshal.dumps(dict(value) if isinstance(value, dict) else value, 2)))
    except (ValueError, TypeError):
        pass
    if isinstance(value, set | frozenset):
        return (len(value), sorted(map(repr, value)))
    pairs = iter(value.items() if isinstance(value, dict) else enumerate(value))
    first = _of_items(itertools.islice(pairs, _CLOSE), depth, close)
    more = _of_items(itertools.islice(pairs, _MOST - _CLOSE), depth, False)
    rest = np.fromiter((id(item) for _, item in pairs), np.int64)
    return (len(value), first, more, zlib.crc32(rest.data))


def _of_items(pairs: Iterable[tuple[Any, Any]], depth: int, close: bool = True) -> Any:
    return [(_label(entry), mark(item, depth - 1, close)) for entry, item in pairs]


def _label(entry: Any) -> str:
    return repr(entry) if isinstance(entry, SCALARS) else type(entry).__name__


def _of_iterator(value: Any, depth: int) -> Any:
    if isinstance(value, GeneratorType):
        frame = value.gi_frame
        inside = _of_items(frame.f_locals.items(), depth) if frame is not None and depth else None
        return (value.__name__, frame and frame.f_lasti, inside)
    return repr(value) if isinstance(value, itertools.count) else type(value).__name__


def _of_table(value: Any) -> Any:
    try:
        cells = np.asarray(value)
        return (cells.shape, repr(cells[:_ENDS].tolist()), repr(cells[-_ENDS:].tolist()))
    except Exception:  # whatever a package does when it is asked; it is not akeso's to fail
        return type(value).__name__
