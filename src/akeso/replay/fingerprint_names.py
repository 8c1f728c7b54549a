"""Data that a dataset's code names without holding it: arrays in global variables and closures.

``def __getitem__(self, i): return x[i]`` reads a global array, and no attribute of the dataset leads there.
The names are read off the byte code of the user's classes and functions. What they stand for is followed
through functions, modules and datasets of the user's, and no further: a configuration or a model that happens
to be named is no data.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from akeso.replay.state_frames import is_users

_DATA = (torch.Tensor, np.ndarray, str, os.PathLike, list, tuple)
_CALLED = (FunctionType, MethodType, partial)


def file_of(value: Any) -> str | None:
    """Return the file that an open file, archive or memory map reads from."""
    if isinstance(value, np.memmap):
        return os.fspath(value.filename) if value.filename else None
    holder = getattr(value, "zip", value) if isinstance(value, Mapping) else value
    for name in ("filename", "name") if isinstance(holder, io.IOBase) else ("filename",):
        found = getattr(holder, name, None)
        if isinstance(found, str) and os.path.isfile(found):
            return found
    return None


class NamedData:
    """Finds what the code of objects names; ``seen`` are the identities of what need not be given."""

    def __init__(self, seen: set[int]) -> None:
        self._seen = seen
        self._followed: set[int] = set()

    def find(self, value: Any, depth: int = 4) -> Iterator[tuple[str, Any]]:
        """Yield arrays, tensors, lists and paths that the code of an object names, with their names."""
        if id(value) in self._followed:
            return
        self._followed.add(id(value))
        if isinstance(value, partial):
            yield from self.find(value.func, depth)
        elif isinstance(value, MethodType):
            yield from self.find(value.__self__, depth)
            yield from self._function(value.__func__, depth)
        elif isinstance(value, FunctionType):
            yield from self._function(value, depth)
        else:
            for function in _methods(type(value)):
                yield from self._function(function, depth)
            for item in _parts(value) if depth else ():
                yield from self.find(item, depth - 1)

    def _function(self, function: Any, depth: int) -> Iterator[tuple[str, Any]]:
        code = getattr(function, "__code__", None)
        if code is None or id(code) in self._followed or not is_users(code.co_filename):
            return
        self._followed.add(id(code))
        words = set(_words(code))
        named = {word: function.__globals__[word] for word in sorted(words) if word in function.__globals__}
        for word, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            try:
                named[word] = cell.cell_contents
            except ValueError:  # not bound yet
                continue
        for word, value in named.items():
            yield from self._named(word, value, words, depth)

    def _named(self, word: str, value: Any, words: set[str], depth: int) -> Iterator[tuple[str, Any]]:
        if isinstance(value, _DATA):
            if id(value) not in self._seen:
                self._seen.add(id(value))
                yield word, value
        elif isinstance(value, dict):
            for entry, item in list(value.items())[:1000]:
                if isinstance(item, _DATA) and not isinstance(item, str | os.PathLike):
                    yield from self._named(f"{word}[{entry!r}]", item, words, depth)
        elif (file := file_of(value)) is not None:
            yield word, file
        elif depth and isinstance(value, ModuleType):
            if is_users(value.__dict__.get("__file__") or "<frozen>"):
                for inner in sorted(words & set(vars(value))):
                    yield from self._named(f"{word}.{inner}", vars(value)[inner], words, depth - 1)
        elif depth and isinstance(value, _CALLED):
            yield from self.find(value, depth - 1)
        elif depth and isinstance(value, Dataset) and id(value) not in self._followed:
            for entry, item in list(vars(value).items()):
                if isinstance(item, _DATA):
                    yield from self._named(f"{word}.{entry}", item, words, depth - 1)
            yield from self.find(value, depth - 1)


def _methods(kind: type) -> Iterator[Any]:
    """Yield the functions of a class of the user's, and of the bases that are the user's too."""
    for base in kind.__mro__:
        if is_users(_home(base)):
            for function in vars(base).values():
                yield getattr(function, "fget", None) or getattr(function, "__func__", function)


def _parts(value: Any) -> Iterator[Any]:
    """Yield functions, datasets and callable objects of the user's that an object holds, alone or in lists."""
    for item in list(getattr(value, "__dict__", {}).values()):
        for part in item[:100] if isinstance(item, list | tuple) else (item,):
            if isinstance(part, torch.nn.Module):
                continue
            if isinstance(part, (*_CALLED, Dataset)) or (callable(part) and is_users(_home(type(part)))):
                yield part


def _words(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _words(constant)


def _home(kind: type) -> str:
    if kind.__module__ == "builtins":
        return "<frozen>"
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or "<user>"
