"""Nested state as plain JSON beside named tensors, and back again: no pickle.

:func:`pack` takes a value apart into a tree that JSON can hold and the tensors it refers to; :func:`unpack`
puts it together again, with the same types, bits, devices and strides. A value of a kind that cannot be
written exactly is refused with the path that leads to it; nothing is left out silently except functions
inside dictionaries, which are code and not state (a scheduler's lambda). Objects of the user's classes are
written by their attributes: see :mod:`akeso.replay.state_records`.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch

from akeso.errors import BadInput
from akeso.replay.snapshot_tensors import NAMES
from akeso.replay.state_graphs import is_alive
from akeso.replay.state_records import attributes, is_record, kind_of, make, name_of
from akeso.replay.state_sharing import Shared, Sharing

Tree = Any
_CHANGEABLE = (list, dict, set, deque, bytearray, np.ndarray)
_FACTORIES: dict[str, Callable[[], Any]] = {
    "list": list,
    "dict": dict,
    "set": set,
    "int": int,
    "float": float,
}


def is_code(value: Any) -> bool:
    """Tell whether a value is a function or the like, and no state."""
    return callable(value) and not hasattr(value, "state_dict") and not is_record(value)


class Kept(dict[str, Any]):
    """Values that a packing has kept, by name: among them, what is one object stays one."""


class Packing:
    """Collects the tensors of a tree under names; one storage that is met twice is kept once."""

    def __init__(self, shared: bool = True) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._shared = shared
        #: Names of the tensors met, by where their memory begins.
        self._known: dict[int, list[str]] = {}
        self._around: set[int] = set()
        #: Trees of values that were kept, and of everything in them that can be changed in place.
        self._kept: dict[int, tuple[Any, Tree]] = {}
        self._keeping = False
        self._sharing = Sharing()
        self.graphs: list[str] = []
        """Where tensors were met through whose graph gradients may still have to flow: no file can hold it."""

    def keep(self, value: Any, path: str) -> None:
        """Take a value apart now, for when it is met later; it must stay as it is until then.

        Raises:
            BadInput: It cannot be written. Nothing of it stays.
        """
        before, kept = len(self.tensors), len(self._kept)
        self._keeping = True
        try:
            self._kept[id(value)] = (value, self.tree(value, path))
        except BadInput:
            for name in list(self.tensors)[before:]:
                self._known[self.tensors.pop(name).data_ptr()].remove(name)
            for number in list(self._kept)[kept:]:
                del self._kept[number]
            self._around.clear()
            raise
        finally:
            self._keeping = False

    def name(self, tensor: torch.Tensor, path: str) -> str:
        known = self._known.setdefault(tensor.data_ptr(), [])
        if self._shared and known and tensor.numel():
            for name in known:
                if _is_same(tensor, self.tensors[name]):
                    return name
        name = path if path not in self.tensors else f"{path}#{len(self.tensors)}"
        known.append(name)
        self.tensors[name] = tensor
        return name

    def tree(self, value: Any, path: str) -> Tree:
        """Return the JSON tree of a value, adding its tensors."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"$": "float", "v": repr(value)}
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if id(value) in self._kept:
            known = self._kept[id(value)][1]
            return self._sharing.met_again(known) if self._keeping else known
        if type(value) is Kept:
            return {name: self._sharing.labelled(self.tree(item, path)) for name, item in value.items()}
        found = self._made_up(value, path)
        if self._keeping and (isinstance(value, _CHANGEABLE) or is_record(value)):
            # The value stays with it, and thereby alive, so that no other can take its number.
            self._kept[id(value)] = (value, found)
        if found is None:
            raise BadInput(
                f"{path} is of type {type(value).__module__}.{type(value).__qualname__}, which cannot be "
                "written exactly without pickle; give the object state_dict and load_state_dict methods, or "
                "keep plain values"
            )
        return found

    def _made_up(self, value: Any, path: str) -> Tree | None:
        if type(value) is list:
            return [self.tree(item, f"{path}.{number}") for number, item in enumerate(value)]
        return self._mapping(value, path) if isinstance(value, dict) else self._other(value, path)

    def _tensor(self, value: torch.Tensor, path: str) -> Tree:
        plain = value.detach()
        if value.grad_fn is not None and not self.graphs and is_alive(value.grad_fn):
            self.graphs.append(path)
        node: dict[str, Any]
        if value.layout == torch.sparse_coo:
            parts = self.tree([plain._indices(), plain._values()], path)
            node = {"$": "sparse", "p": parts, "s": list(plain.shape), "c": plain.is_coalesced()}
        elif value.layout == torch.strided and not value.is_quantized:
            node = {"$": "tensor", "n": self.name(plain, path)}
            if plain.device.type != "cpu":
                node["d"] = str(plain.device)
            if not plain.is_contiguous():
                node["s"] = list(plain.stride())
            if plain.dtype not in NAMES:
                # Lies in the file as bytes, which say nothing of their meaning.
                node["t"], node["z"] = str(plain.dtype), list(plain.shape)
        else:
            kind = "quantized" if value.is_quantized else value.layout
            raise BadInput(
                f"{path} is a {kind} tensor; only dense tensors and those of torch.sparse_coo can be written to "
                "a snapshot"
            )
        if value.requires_grad and value.is_leaf:
            node["g"] = isinstance(value, torch.nn.Parameter) + 1
        return node

    def _mapping(self, value: dict[Any, Any], path: str) -> Tree:
        items = [(entry, item) for entry, item in value.items() if not is_code(item)]
        plain = type(value) is dict and all(type(entry) is str and entry != "$" for entry, _ in items)
        if plain:
            return {entry: self.tree(item, f"{path}.{entry}") for entry, item in items}
        pairs = [[self.tree(entry, path), self.tree(item, f"{path}.{entry}")] for entry, item in items]
        if type(value) is dict:
            return {"$": "dict", "v": pairs}
        if type(value) in (OrderedDict, Counter):
            return {"$": type(value).__name__, "v": pairs}
        if type(value) is defaultdict:
            factory = getattr(value.default_factory, "__name__", "")
            if _FACTORIES.get(factory) is value.default_factory:
                return {"$": "defaultdict", "f": factory, "v": pairs}
        raise BadInput(f"{path} is a {type(value).__qualname__}; keep a plain dict in the state of a run")

    def _other(self, value: Any, path: str) -> Tree | None:
        if isinstance(value, np.ndarray) and value.dtype != object:
            kept = np.ascontiguousarray(value)
            raw = torch.from_numpy(kept.reshape(-1).view(np.uint8).copy())
            return {"$": "array", "n": self.name(raw, path), "t": kept.dtype.str, "s": list(value.shape)}
        if isinstance(value, np.generic):
            return {"$": "scalar", "t": value.dtype.str, "v": base64.b64encode(value.tobytes()).decode()}
        if type(value) in (tuple, set, frozenset, deque, torch.Size):
            items = sorted(value, key=repr) if isinstance(value, set | frozenset) else list(value)
            node = {"$": type(value).__name__, "v": self.tree(items, path)}
            if type(value) is deque:
                node["m"] = value.maxlen
            return node
        if isinstance(value, torch.dtype | torch.device):
            return {"$": type(value).__name__, "v": str(value)}
        if isinstance(value, bytes | bytearray):
            return {"$": type(value).__name__, "v": base64.b64encode(value).decode()}
        if isinstance(value, complex):
            return {"$": "complex", "v": [self.tree(value.real, path), self.tree(value.imag, path)]}
        if isinstance(value, Path):
            return {"$": "path", "v": str(value)}
        return self._of_users_kind(value, path)

    def _of_users_kind(self, value: Any, path: str) -> Tree | None:
        """Write members of enumerations, named tuples and records by the names of their classes."""
        kind = name_of(type(value))
        if kind is None:
            return None
        if isinstance(value, Enum):
            return (
                {"$": "enum", "c": kind, "v": value.name} if value.name in type(value).__members__ else None
            )
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"$": "named", "c": kind, "v": self.tree(list(value), path)}
        if not is_record(value) or hasattr(value, "state_dict") or hasattr(value, "__next__"):
            return None
        if id(value) in self._around:
            raise BadInput(f"{path} leads back to an object around it; a snapshot cannot hold such a circle")
        self._around.add(id(value))
        state = {name: self.tree(item, f"{path}.{name}") for name, item in attributes(value).items()}
        self._around.discard(id(value))
        return {"$": "record", "c": kind, "v": state}


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors that begin at the same place of memory stand for the same numbers."""
    return (
        one.shape == other.shape
        and one.stride() == other.stride()
        and (one.dtype, one.device) == (other.dtype, other.device)
        and (one.is_conj(), one.is_neg()) == (other.is_conj(), other.is_neg())
    )


def pack(value: Any, path: str = "state", shared: bool = True) -> tuple[Tree, dict[str, torch.Tensor]]:
    """Take a value apart into a JSON tree and named tensors (not copied yet).

    Tensors that are one in memory get one name, unless they are not to be ``shared``.
    """
    packing = Packing(shared)
    return packing.tree(value, path), packing.tensors


def unpack(tree: Tree, tensors: Mapping[str, torch.Tensor], shared: Shared | None = None) -> Any:
    """Put a packed value together again; what was one object is one again for all that get the same ``shared``."""
    shared = shared if shared is not None else Shared()
    if isinstance(tree, list):
        return [unpack(item, tensors, shared) for item in tree]
    if not isinstance(tree, dict):
        return tree
    kind = tree.get("$")
    if kind is None:
        return {entry: unpack(item, tensors, shared) for entry, item in tree.items()}
    if kind == "again":
        return shared.again(tree["i"])
    if kind == "shared":
        return shared.first(tree["i"], unpack(tree["v"], tensors, shared))
    if kind == "tensor":
        name = (tree["n"], tree.get("g", 0))
        return shared.again(name) if name in shared else shared.first(name, _tensor_back(tree, tensors))
    if kind == "sparse":
        return _tensor_back(tree, tensors)
    if kind == "array":
        raw = tensors[tree["n"]].numpy().copy()
        return raw.view(np.dtype(tree["t"])).reshape(tree["s"])
    if kind == "scalar":
        return np.frombuffer(base64.b64decode(tree["v"]), dtype=np.dtype(tree["t"]))[0]
    body = tree["v"]
    if "c" in tree:
        return _of_users_kind_back(kind, tree["c"], body, tensors, shared)
    if kind in ("dict", "OrderedDict", "Counter", "defaultdict"):
        pairs = [(unpack(entry, tensors, shared), unpack(item, tensors, shared)) for entry, item in body]
        if kind == "defaultdict":
            return defaultdict(_FACTORIES[tree["f"]], pairs)
        return _MAPPINGS[kind](pairs)
    if kind == "deque":
        return deque(unpack(body, tensors, shared), maxlen=tree["m"])
    return _PLAIN[kind](unpack(body, tensors, shared))


def _of_users_kind_back(
    kind: str, name: str, body: Any, tensors: Mapping[str, torch.Tensor], shared: Shared
) -> Any:
    found: Any = kind_of(name)
    if found is None:
        raise BadInput(f"the snapshot holds an object of the class {name}, which the program no longer has")
    if kind == "enum":
        return found[body]
    if kind == "named":
        return found._make(unpack(body, tensors, shared))
    return make(found, {entry: unpack(item, tensors, shared) for entry, item in body.items()})


def _counter(pairs: list[tuple[Any, int]]) -> Counter[Any]:
    return Counter(dict(pairs))


def _tensor_back(tree: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    if tree["$"] == "sparse":
        indices, numbers = unpack(tree["p"], tensors)
        value = torch.sparse_coo_tensor(indices, numbers, tree["s"], check_invariants=True)
        value = value._coalesced_(tree["c"])
    else:
        source = tensors[tree["n"]]
        if "t" in tree:
            # A copy begins where numbers of any size may; in the file these lie wherever the bytes before them end.
            source = source.clone().view(_dtype(tree["t"])).view(tree["z"])
        value = source.clone()
        if "s" in tree:
            value = torch.empty_strided(source.shape, tree["s"], dtype=source.dtype).copy_(source)
        value = value.to(tree.get("d", "cpu"))
    mark = tree.get("g", 0)
    if mark == 2:
        return torch.nn.Parameter(value)
    return value.requires_grad_() if mark else value


def _dtype(text: str) -> Any:
    return getattr(torch, text.removeprefix("torch."))


_MAPPINGS: dict[str, Callable[[Any], Any]] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": _counter}
_PLAIN: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "Size": torch.Size,
    "float": float,
    "bytes": base64.b64decode,
    "bytearray": lambda text: bytearray(base64.b64decode(text)),
    "complex": lambda parts: complex(*parts),
    "path": Path,
    "device": torch.device,
    "dtype": _dtype,
}
