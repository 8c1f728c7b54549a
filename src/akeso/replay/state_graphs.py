"""Graphs of autograd that a loop carries from one iteration to the next.

A list of log-probabilities that waits for the end of an episode, a loss summed over several batches: what will
be asked for gradients later cannot be written to a file. A graph that a backward pass has gone through is no
such thing: torch has let go of what it needed.
"""

from __future__ import annotations

from typing import Any

_MOST = 1000


def is_alive(node: Any) -> bool:
    """Tell whether a backward pass through the graph of a node is still possible."""
    waiting, seen = [node], {node}
    while waiting and len(seen) < _MOST:
        node = waiting.pop()
        for name in dir(node):
            if name.startswith("_saved_"):
                try:
                    getattr(node, name)
                except RuntimeError:  # freed by a backward pass
                    return False
        for further, _ in node.next_functions:
            if further is not None and further not in seen:
                seen.add(further)
                waiting.append(further)
    return True
