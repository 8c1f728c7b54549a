"""The models of a program: their parameters before training, and whatever else of theirs changes along
the way.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch

from akeso.replay import digests
from akeso.replay.trace.modules import ModuleStack

# Averaged copies and the like are never run forward; they are looked for among all living objects.
_SEARCHES = (1, 2, 100)


class Models:
    """Knows every model of the process: those that ran forward, and copies that only follow along."""

    def __init__(self, stack: ModuleStack) -> None:
        self._stack = stack
        self._described: WeakSet[torch.nn.Module] = WeakSet()
        self._followers: WeakSet[torch.nn.Module] = WeakSet()
        self._kept: dict[int, tuple[int, int, str]] = {}

    def note_initial(self, write: Callable[[str, dict[str, Any]], None]) -> None:
        """Write the digests of the parameters of models that have not been described yet."""
        for name, root in self._stack.roots.items():
            if root in self._described:
                continue
            self._described.add(root)
            tensors = dict(root.named_parameters())
            if tensors:
                found = {path: str(digests.of_tensors([tensor])) for path, tensor in tensors.items()}
                write("model", {"name": name, "parameters": found})

    def others(self, optimizer: torch.optim.Optimizer, step: int) -> dict[str, str]:
        """Digests of buffers, and of parameters that this optimizer does not train, by model."""
        if step in _SEARCHES:
            self._search()
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        found: dict[str, str] = {}
        named = self._stack.roots
        known = set(named.values())
        followers = [module for module in self._followers if module not in known]
        for number, module in enumerate(sorted(followers, key=lambda m: type(m).__name__)):
            named[f"{type(module).__name__}~{number + 1}"] = module
        for name, root in named.items():
            parts = [self._digest(t) for t in root.parameters() if id(t) not in trained]
            # Kernels write running statistics without counting up versions: buffers are always looked at.
            buffers = [b for b in root.buffers() if b.is_floating_point() or b.numel() == 1]
            if parts or buffers:
                found[name] = digests.of([*parts, str(digests.of_tensors(buffers))])
        return found

    def _digest(self, tensor: torch.Tensor) -> str:
        version, address = tensor._version, tensor.data_ptr()
        kept = self._kept.get(id(tensor))
        if kept is None or kept[:2] != (version, address):
            kept = (version, address, str(digests.of_tensors([tensor])))
            self._kept[id(tensor)] = kept
        return kept[2]

    def _search(self) -> None:
        modules = [thing for thing in gc.get_objects() if _is_module(thing)]
        inner = {id(child) for module in modules for child in list(module.modules())[1:]}
        for module in modules:
            if id(module) not in inner and any(True for _ in module.parameters()):
                self._followers.add(module)


def _is_module(thing: object) -> bool:
    # type() rather than isinstance(): proxies answer isinstance by waking up what they stand for.
    return issubclass(type(thing), torch.nn.Module) and "_parameters" in getattr(thing, "__dict__", {})
