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

from akeso.torch.graph import nodes

#: What gives derivatives, and where it is told to keep their graph.
GIVES: Final = "grad"
_KEPT: Final = 4
_SUMS: Final = frozenset(
    {"add", "__add__", "__radd__", "sub", "__sub__", "__rsub__", "__iadd__", "stack", "cat"}
)
#: How far behind the loss such a sum is looked for.
_FAR: Final = 8
#: Nodes of a graph that are gone through to see that it comes from data alone.
_NODES: Final = 64
#: Nodes of a first derivative by which functions made of straight pieces are known, and how many are gone through.
_STRAIGHT: Final = frozenset(
    {"ThresholdBackwardBackward0", "LeakyReluBackwardBackward0", "HardtanhBackwardBackward0",
     "PreluKernelBackwardBackward0"}
)  # fmt: skip
_THROUGH: Final = 512


class Severed:
    """Follows derivatives without a graph through the arithmetic of one sampled step."""

    def __init__(self) -> None:
        self._numbers: dict[int, weakref.ref[torch.Tensor]] = {}
        self._sums: list[Any] = []  # nodes of the graph at which they were added to something that learns
        self.bent: torch.Tensor | None = None
        """A derivative of a derivative by data, where straight pieces lie between: it may be 0 everywhere."""

    def clear(self) -> None:
        """A new step begins, or the last one is over."""
        self._numbers.clear()
        self._sums.clear()
        self.bent = None

    def called(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, *, inside: bool
    ) -> None:
        """A function has been called, ``inside`` of a model or outside.

        Derivatives by weights are steps of a learner within the learner, which may well be numbers.
        """
        if name == GIVES and isinstance(result, tuple):
            kept = kwargs.get("create_graph", args[_KEPT] if len(args) > _KEPT else False)
            by = args[1] if len(args) > 1 else kwargs.get("inputs")
            of = list(_flat((args[0] if args else kwargs.get("outputs"),)))
            # What data alone gives has derivatives that are data, as those that a network is to have.
            if not kept and not all(map(_of_data, of)) and all(_of_data(one) for one in _flat((by,))):
                self._numbers.update((id(one), weakref.ref(one)) for one in result if one is not None)
            elif kept and self.bent is None and all(_of_data(one) for one in _flat((by,))):
                self.bent = next((one.detach() for one in result if one is not None and _straight(of)), None)
            return
        if not self._numbers or not isinstance(result, torch.Tensor):
            return
        given = [one for one in _flat((*args, *kwargs.values())) if isinstance(one, torch.Tensor)]
        others = [one for one in given if not self._is_number(one)]
        if len(others) == len(given):
            return
        if not result.requires_grad or all(_of_data(one) for one in others):
            self._numbers[id(result)] = weakref.ref(result)
        elif name in _SUMS and not inside:
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


def _of_data(tensor: Any) -> bool:
    """Whether a tensor comes from data alone, so that nothing can be learnt by it, although it has a gradient."""
    if not isinstance(tensor, torch.Tensor) or isinstance(tensor, torch.nn.Parameter):
        return not isinstance(tensor, torch.Tensor)
    waiting, seen = [tensor.grad_fn], 0
    while waiting:
        node = waiting.pop()
        seen += 1
        if node is None:
            continue
        if seen > _NODES or isinstance(getattr(node, "variable", None), torch.nn.Parameter):
            return False
        waiting += [parent for parent, _ in node.next_functions]
    return True


def _straight(derived: list[Any]) -> bool:
    """Whether what is derived is a derivative already, of functions made of straight pieces."""
    known = [one for one in derived if isinstance(one, torch.Tensor)]
    return any(type(node).__name__ in _STRAIGHT for node in nodes(*known, most=_THROUGH))
