"""A training step as a CUDA graph: launched at once, without Python between its kernels.

Small networks on a large card wait for Python. Steps that are captured once per epoch (the learning rate of an epoch
is part of the capture) and replayed let many more trials share a card. A watch sees the steps that run as usual,
spread evenly over the epoch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class CapturedStep:
    """One step of the shapes it was captured with; adds its loss to ``total``."""

    def __init__(
        self, step: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, before: CapturedStep | None
    ) -> None:
        self._x, self._y = x.clone(), y.clone()
        self.total = torch.zeros((), device=x.device)
        self._graph = torch.cuda.CUDAGraph()
        # Memory is shared with the capture of the epoch before, which is alive until this one is done.
        pool = torch.cuda.graph_pool_handle() if before is None else before._graph.pool()
        torch.cuda.synchronize()
        self._graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            self.total += step(self._x, self._y)
        finally:
            self._graph.capture_end()

    def __call__(self, x: Tensor, y: Tensor) -> None:
        """Replay the step with this batch."""
        self._x.copy_(x)
        self._y.copy_(y)
        self._graph.replay()
