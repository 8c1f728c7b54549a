"""Where in which model the program is: names of modules, without touching the models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle


class ModuleStack:
    """Follows the forward passes of every module through torch's global hooks.

    Args:
        entered: Called with each outermost module and its arguments before its forward pass.
    """

    def __init__(self, entered: Callable[[torch.nn.Module, Any], None] | None = None) -> None:
        self._entered = entered
        self._stack: list[torch.nn.Module] = []
        self._names: WeakKeyDictionary[torch.nn.Module, str] = WeakKeyDictionary()
        self._roots: WeakKeyDictionary[torch.nn.Module, str] = WeakKeyDictionary()
        self._handles: list[RemovableHandle] = []

    def start(self) -> None:
        """Begin to follow."""
        self._handles = [
            register_module_forward_pre_hook(self._push),
            register_module_forward_hook(self._pop, always_call=True),
        ]

    def stop(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._stack = [], []

    @property
    def path(self) -> str:
        """Path of the innermost module whose forward pass runs; empty between forward passes."""
        return self._names.get(self._stack[-1], type(self._stack[-1]).__name__) if self._stack else ""

    @property
    def roots(self) -> dict[str, torch.nn.Module]:
        """The outermost modules seen so far, by name."""
        return {name: module for module, name in self._roots.items()}

    def innermost(self, attribute: str) -> Any:
        """The value of an attribute of the innermost running module that has it; None when none has."""
        return next((getattr(m, attribute) for m in reversed(self._stack) if hasattr(m, attribute)), None)

    def inside(self, kind: type[torch.nn.Module]) -> bool:
        """Whether a module of a kind is running."""
        return any(isinstance(module, kind) for module in self._stack)

    def tensor_names(self) -> dict[int, str]:
        """From the storage of every parameter and buffer of the known models to its name."""
        found: dict[int, str] = {}
        for name, root in self.roots.items():
            for path, tensor in (*root.named_parameters(), *root.named_buffers()):
                found.setdefault(address_of(tensor), f"{name}.{path}")
        return found

    def _push(self, module: torch.nn.Module, arguments: Any) -> None:
        if not self._stack:
            self._name(module)
            if self._entered is not None:
                self._entered(module, arguments)
        self._stack.append(module)

    def _pop(self, module: torch.nn.Module, arguments: Any, output: Any) -> None:
        if module in self._stack:
            while self._stack and self._stack.pop() is not module:
                pass

    def _name(self, root: torch.nn.Module) -> None:
        if root in self._roots:
            return
        taken = set(self._roots.values())
        base = type(root).__name__
        name = next(
            candidate
            for number in range(len(taken) + 1)
            if (candidate := base if number == 0 else f"{base}#{number + 1}") not in taken
        )
        self._roots[root] = name
        for path, module in root.named_modules():
            self._names.setdefault(module, f"{name}.{path}" if path else name)


def address_of(tensor: torch.Tensor) -> int:
    """Where the storage of a tensor lies; 0 for those that have none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # lazy parameters, tensors without a storage
        return 0
