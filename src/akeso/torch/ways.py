"""How far gradients have to go: the graph behind a loss, read as the ways from it to the weights."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

#: Nodes of a graph that are looked at; larger ones (recurrences over long sequences) are left alone.
_MOST = 5000
#: Nodes that may lie between a weight and the operation that uses it: transposed, cast, viewed.
_BETWEEN = 3


def farthest_weight(loss: torch.Tensor) -> int | None:
    """Operations with weights on the shortest way from ``loss`` to whichever weight is farthest off.

    In a plain stack that is its depth; every shortcut makes it less. None where the graph is too large to tell.
    """
    if loss.grad_fn is None:
        return None
    near: dict[Any, int] = {loss.grad_fn: 0}
    queue: deque[Any] = deque([loss.grad_fn])
    done: set[Any] = set()
    farthest = 0
    while queue:
        node = queue.popleft()
        if node in done:
            continue
        done.add(node)
        if len(done) > _MOST:
            return None
        parents = [parent for parent, _ in node.next_functions if parent is not None]
        weighted = len(node.next_functions) > 1 and any(_is_weight(parent) for parent in parents)
        distance = near[node] + weighted
        if weighted:
            farthest = max(farthest, distance)
        for parent in parents:
            if parent not in done and distance < near.get(parent, distance + 1):
                near[parent] = distance
                # Those at the same distance first, so that whatever is taken out is as near as it gets.
                (queue.append if weighted else queue.appendleft)(parent)
    return farthest


def _is_weight(node: Any) -> bool:
    """Whether a node hands on a matrix of weights, whatever was done to it on the way."""
    for _ in range(_BETWEEN):
        variable = getattr(node, "variable", None)
        if variable is not None:
            return bool(variable.dim() >= 2)
        if len(node.next_functions) != 1 or node.next_functions[0][0] is None:
            return False
        node = node.next_functions[0][0]
    return False
