"""Parts of a loss that derivatives went into, and that nothing can learn from: ``create_graph`` was not said.

An equation that a network is to satisfy, or forces that are to come out of an energy, hold derivatives of what the
network gives. Taken without ``create_graph=True`` they are numbers like any others: added to the rest of a loss, they
only shift it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, Final

import torch

#: What gives derivatives, and where it is told to keep their graph.
GIVES: Final = "grad"
_KEPT: Final = 4
_SUMS: Final = frozenset(
    {"add", "__add__", "__radd__", "sub", "__sub__", "__rsub__", "__iadd__", "stack", "cat"}
)
#: How far behind the loss such a sum is looked for.
_FAR: Final = 6


class Severed:
    """Follows derivatives without a graph through the arithmetic of one sampled step."""

    def __init__(self) -> None:
        self._numbers: dict[int, weakref.ref[torch.Tensor]] = {}
        self._sums: list[Any] = []  # nodes of the graph at which they were added to something that learns

    def clear(self) -> None:
        """A new step begins, or the last one is over."""
        self._numbers.clear()
        self._sums.clear()

    def called(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """A function has been called."""
        if name == GIVES and isinstance(result, tuple):
            kept = kwargs.get("create_graph", args[_KEPT] if len(args) > _KEPT else False)
            for one in result if not kept else ():
                if isinstance(one, torch.Tensor):
                    self._numbers[id(one)] = weakref.ref(one)
            return
        if not self._numbers or not isinstance(result, torch.Tensor):
            return
        if not any(self._is_number(one) for one in _flat((*args, *kwargs.values()))):
            return
        if not result.requires_grad:
            self._numbers[id(result)] = weakref.ref(result)
        elif name in _SUMS and result.numel() < 64:
            self._sums.append(result.grad_fn)

    def _is_number(self, value: Any) -> bool:
        known = self._numbers.get(id(value))
        return known is not None and known() is value

    def within(self, loss: torch.Tensor) -> bool:
        """Whether such a sum is what backward runs from, or a part of it."""
        level = [loss.grad_fn]
        for _ in range(_FAR if self._sums else 0):
            if any(node is one for node in level for one in self._sums):
                return True
            level = [parent for node in level if node is not None for parent, _ in node.next_functions]
        return False


def _flat(values: tuple[Any, ...]) -> Iterator[Any]:
    for value in values:
        yield from value if isinstance(value, list | tuple) else (value,)
