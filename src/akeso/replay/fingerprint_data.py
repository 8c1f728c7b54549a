"""A manifest of the data a run reads: what the dataset holds or its code names, and the files it names.

Arrays, tensors and plain lists are digested; files are listed with their sizes, times and digests, so that one
that is missing or has changed is named when the run goes on, rather than found out in the middle of an epoch.
A file that was only touched has its digest still, and is as good as before.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

from akeso.replay import digests
from akeso.replay.fingerprint_names import NamedData, file_of

_WHOLE = 64 << 20
_MOST_FILES = 200_000
_SOME = 1000
_BLOCK, _SAMPLES = 1 << 16, 64
# Files that the code names and that are younger were written by this process: a log, an unpacked archive.
_LOADED = time.time()
_WORDS = (str, bytes, int, float, bool)


def manifest(dataset: Any, *code: Any) -> dict[str, Any]:
    """Return what is known of a dataset: its kind, its length, digests of its arrays, the files it names.

    ``code`` are functions that the samples pass through: a transform, a collate function.
    """
    arrays: dict[str, str] = {}
    files: dict[str, int] = {}
    seen: set[int] = set()
    for name, value in _walk(dataset, type(dataset).__name__, 4, seen):
        if isinstance(value, torch.Tensor):
            arrays[name] = str(digests.of_tensors([_part(value)]))
        elif _large(value):
            files[os.fspath(value.filename)] = os.path.getsize(value.filename)
        elif isinstance(value, np.ndarray):
            if value.dtype != object:
                arrays[name] = digests.of(_part_array(value))
        elif isinstance(value, str | os.PathLike) and len(files) < _MOST_FILES:
            text = os.fspath(value)
            # Only what looks like a path is asked about: a label is a string too.
            if isinstance(text, str) and os.sep in text and os.path.isfile(text):
                files[text] = os.path.getsize(text)
    named, more = _named(dataset, code, seen)
    some = {**dict(list(files.items())[:_SOME]), **more}
    return {
        "kind": f"{type(dataset).__module__}.{type(dataset).__qualname__}",
        "length": len(dataset),
        "arrays": arrays,
        "named": named,
        "files": {"count": len(files), "digest": _names(files), "some": some},
    }


def checkable(found: Mapping[str, Any]) -> bool:
    """Tell whether a manifest holds anything by which a change of the data could be noticed."""
    return bool(found["arrays"] or found["named"] or found["files"]["some"])


def compare(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for every difference between two manifests, missing files first."""
    found = []
    marks = then["files"].get("marks", {})
    for path, size in then["files"]["some"].items():
        if not os.path.exists(path):
            found.append(f"data: the file {path} is missing")
        elif os.path.getsize(path) != size:
            found.append(f"data: the file {path} had {size} bytes, has {os.path.getsize(path)}")
        elif path in marks and _written_since(path, marks[path]) and not _same_file(path, marks[path]):
            found.append(f"data: the file {path} holds other bytes than before")
    for name, digest in then.get("named", {}).items():
        if now["named"].get(name, digest) != digest:
            found.append(f"data: {name}, which the code of the dataset names, holds other values than before")
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


def file_marks(found: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the time of every file of a manifest, its digest, and whether that is of every byte.

    The first files get a digest of every byte, large ones of samples, and those beyond what can be read in
    a moment none.
    """
    marks, left = {}, _WHOLE
    for path, size in found["files"]["some"].items():
        whole = size <= left
        cost = min(size, _BLOCK * _SAMPLES)
        try:
            digest = _file_digest(path, whole) if whole or cost <= left else None
            marks[path] = [os.stat(path).st_mtime_ns, digest, whole]
        except OSError:
            continue
        left -= size if whole else cost if digest else 0
    return marks


def unsure(then: Mapping[str, Any]) -> str | None:
    """Return a sentence on files that were written since and could not be compared byte by byte, if any."""
    paths = [
        path
        for path, mark in then["files"].get("marks", {}).items()
        if not mark[2] and os.path.exists(path) and _written_since(path, mark)
    ]
    if not paths:
        return None
    what = f"the file {paths[0]} was" if len(paths) == 1 else f"{len(paths)} files, {paths[0]} first, were"
    return f"{what} written since the run began, with the same size; not every byte could be compared"


def _written_since(path: str, mark: Sequence[Any]) -> bool:
    return bool(os.stat(path).st_mtime_ns != mark[0])


def _same_file(path: str, mark: Sequence[Any]) -> bool:
    return mark[1] is None or bool(_file_digest(path, mark[2]) == mark[1])


def _file_digest(path: str, whole: bool) -> str:
    """Return the digest of a file, or of blocks spread evenly over one that would take too long to read."""
    total = blake2b(digest_size=12)
    with open(path, "rb") as file:
        if whole:
            while piece := file.read(1 << 20):
                total.update(piece)
        else:
            size = os.fstat(file.fileno()).st_size
            for number in range(_SAMPLES):
                file.seek(max(size - _BLOCK, 0) * number // (_SAMPLES - 1))
                total.update(file.read(_BLOCK))
    return total.hexdigest()


def _named(dataset: Any, code: tuple[Any, ...], seen: set[int]) -> tuple[dict[str, str], dict[str, int]]:
    """Return digests of what the code of a dataset names, and the files it names, with their sizes."""
    named: dict[str, str] = {}
    files: dict[str, int] = {}
    finder = NamedData(seen)
    for part in (dataset, *code):
        for name, value in finder.find(part):
            digest = None
            file = file_of(value) if _large(value) else None
            if isinstance(value, str | os.PathLike):
                file = os.fspath(value)
            elif file is None:
                digest = _digest(value)
            if digest is not None:
                named[name] = digest
            elif isinstance(file, str) and len(files) < _SOME and _is_old_file(file):
                files[file] = os.path.getsize(file)
    for entry, item in getattr(dataset, "__dict__", {}).items():
        if isinstance(item, list | tuple) and (digest := _digest(item)) is not None:
            named[f"{type(dataset).__name__}.{entry}"] = digest
    return named, files


def _is_old_file(path: str) -> bool:
    """Tell whether a path leads to a file that this process has not written itself, like a log."""
    return os.sep in path and os.path.isfile(path) and os.path.getmtime(path) < _LOADED


def _large(value: Any) -> bool:
    return isinstance(value, np.memmap) and value.nbytes > _WHOLE and file_of(value) is not None


def _digest(value: Any) -> str | None:
    if isinstance(value, torch.Tensor):
        return str(digests.of_tensors([_part(value)]))
    if isinstance(value, np.ndarray):
        return digests.of(_part_array(value)) if value.dtype != object else None
    if isinstance(value, list | tuple) and value and all(type(item) in _WORDS for item in value):
        # Paths are looked at as files: where a program unpacks its data may differ from time to time.
        some = value[:: max(1, len(value) // _MOST_FILES)]
        words = [item for item in some if not (isinstance(item, str) and os.sep in item)]
        return digests.of([len(value), *words])
    return None


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
