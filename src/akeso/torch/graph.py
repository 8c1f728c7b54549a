"""Going through the graph that a backward pass would go through."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch


def nodes(*tensors: torch.Tensor, most: int) -> Iterator[Any]:
    """The nodes that lead to these tensors, each once, the nearest first, and no more than ``most`` of them."""
    queue = deque([tensor.grad_fn for tensor in tensors])
    seen: set[Any] = set()
    while queue and len(seen) < most:
        node = queue.popleft()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        queue.extend(parent for parent, _ in node.next_functions)
