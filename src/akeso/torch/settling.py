"""Whether the statistics that models are evaluated with have left their start.

Batch normalisation evaluates with running statistics, which begin at 0 and 1 and take in a tenth of what a batch shows.
Before some forty steps a part of that beginning is left in them, and what an evaluation shows may be no better than
guessing, however much was learnt. With large batches of few samples that is many epochs.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

#: What may be left of the start of running statistics when they are believed.
LEFT = 0.01


class Settling:
    """The running statistics of some models, looked at whenever they were evaluated."""

    def __init__(self, models: Iterable[nn.Module]) -> None:
        self._norms = [
            module
            for model in models
            for module in model.modules()
            if isinstance(module, _NormBase) and module.num_batches_tracked is not None
        ]
        self._before = self._counts()

    def unsettled(self) -> bool:
        """Whether there are some that are still on their way: they were brought up to date since the last look.

        Those that stand still, as frozen ones do, are as good as they will get.
        """
        if not self._norms:
            return False
        before, self._before = self._before, self._counts()
        left = [
            norm
            for norm, was, now in zip(self._norms, before, self._before, strict=True)
            if now > was and _left(norm.momentum, now) > LEFT
        ]
        if not left and all(now > was for was, now in zip(before, self._before, strict=True)):
            self._norms = []  # settled for good: nothing has to be read any more
        return bool(left)

    def _counts(self) -> list[int]:
        counts = [norm.num_batches_tracked for norm in self._norms if norm.num_batches_tracked is not None]
        if len({count.device for count in counts}) != 1:
            return [int(count) for count in counts]
        # One copy for all of them: each would wait for its device by itself.
        return [int(count) for count in torch.stack(counts).tolist()]


def _left(momentum: float | None, batches: int) -> float:
    """The share of its start that is left in a running mean after so many batches; None averages over all of them."""
    if momentum is None:
        return 0.0
    return float((1.0 - momentum) ** batches)
