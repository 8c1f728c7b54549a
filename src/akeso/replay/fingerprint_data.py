"""A manifest of the data a run reads: what the dataset holds in memory, and the files it names.

Arrays and tensors are digested; files named by the dataset are listed with their sizes, so that one that is
missing or has changed is named when the run goes on, rather than found out in the middle of an epoch.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from akeso.replay import digests

_WHOLE = 64 << 20
_MOST_FILES = 200_000


def manifest(dataset: Any) -> dict[str, Any]:
    """Return what is known of a dataset: its kind, its length, digests of its arrays, the files it names."""
    arrays: dict[str, str] = {}
    files: dict[str, int] = {}
    for name, value in _walk(dataset, type(dataset).__name__, 4, set()):
        if isinstance(value, torch.Tensor):
            arrays[name] = str(digests.of_tensors([_part(value)]))
        elif isinstance(value, np.ndarray):
            if value.dtype != object:
                arrays[name] = digests.of(_part_array(value))
        elif isinstance(value, str | os.PathLike) and len(files) < _MOST_FILES:
            text = os.fspath(value)
            # Only what looks like a path is asked about: a label is a string too.
            if isinstance(text, str) and os.sep in text and os.path.isfile(text):
                files[text] = os.path.getsize(text)
    return {
        "kind": f"{type(dataset).__module__}.{type(dataset).__qualname__}",
        "length": len(dataset),
        "arrays": arrays,
        "files": {"count": len(files), "digest": _names(files), "some": dict(list(files.items())[:1000])},
    }


def compare(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for every difference between two manifests, missing files first."""
    found = []
    for path, size in then["files"]["some"].items():
        if not os.path.exists(path):
            found.append(f"data: the file {path} is missing")
        elif os.path.getsize(path) != size:
            found.append(f"data: the file {path} had {size} bytes, has {os.path.getsize(path)}")
    if not found and then["files"]["digest"] != now["files"]["digest"]:
        counts = then["files"]["count"], now["files"]["count"]
        found.append(f"data: the list of files has changed ({counts[0]} before, {counts[1]} now)")
    if then["kind"] != now["kind"]:
        found.append(f"data: the dataset was a {then['kind']}, is a {now['kind']}")
    if then["length"] != now["length"]:
        found.append(f"data: the dataset had {then['length']} samples, has {now['length']}")
    elif then["arrays"] != now["arrays"]:
        names = sorted(set(then["arrays"]) ^ set(now["arrays"]))
        names += [name for name in then["arrays"] if now["arrays"].get(name, "") != then["arrays"][name]]
        found.append(f"data: {names[0]} holds other values than before")
    return tuple(found)


def _names(files: Mapping[str, int]) -> str:
    total = 0
    for path, size in files.items():
        total = zlib.crc32(f"{path}\0{size}\n".encode(), total)
    return f"{total:08x}"


def _part(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor, or an even tenth or less of one that would take too long to read."""
    if value.layout != torch.strided or value.numel() * value.element_size() <= _WHOLE:
        return value
    flat = value.reshape(-1) if value.is_contiguous() else value
    return flat[:: max(1, value.numel() * value.element_size() // _WHOLE)]


def _part_array(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if value.nbytes <= _WHOLE:
        return value
    flat = value.reshape(-1) if value.flags.c_contiguous else value
    return flat[:: max(1, value.nbytes // _WHOLE)]


def _walk(value: Any, name: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor | np.ndarray | str | os.PathLike):
        yield name, value
        return
    if (
        depth == 0
        or isinstance(value, int | float | bytes | type)
        or callable(getattr(value, "__code__", None))
    ):
        return
    if isinstance(value, Mapping):
        items = [(f"{name}[{entry!r}]", item) for entry, item in value.items()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        items = [(f"{name}[{number}]", item) for number, item in enumerate(parts)]
    else:
        items = [(f"{name}.{entry}", item) for entry, item in getattr(value, "__dict__", {}).items()]
    for label, item in items[:_MOST_FILES]:
        yield from _walk(item, label, depth - 1, seen)
