"""A training taken apart: what a recipe is made of, and the metrics it is judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Pair = tuple[Tensor, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True, slots=True)
class Parts:
    """A training taken apart: all that a recipe needs.

    ``metric`` is ``"accuracy"`` (one-unit outputs are compared with ``threshold``, otherwise the largest unit
    counts; targets may be indices, one-hot or 0/1) or ``"r2"`` (share of variance explained, not under -1).
    """

    model: Callable[[], nn.Module]
    train: Pair
    val: Pair
    loss: Loss
    optimizer: OptimizerFactory
    batch_size: int
    epochs: int
    metric: str = "accuracy"
    higher_is_better: bool = True
    threshold: float = 0.5
    schedule: Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler] | None = None

    @property
    def steps(self) -> int:
        """How many optimizer steps the training is planned to take."""
        return self.epochs * -(-len(self.train[0]) // self.batch_size)

    def score(self, output: Tensor, target: Tensor) -> float:
        """The metric of a set of predictions."""
        return accuracy(output, target, self.threshold) if self.metric == "accuracy" else r2(output, target)


def accuracy(output: Tensor, target: Tensor, threshold: float = 0.5) -> float:
    """Share of right predictions, for indices, one-hot and 0/1 targets."""
    if output.ndim == 1 or output.shape[-1] == 1:
        right = (output.reshape(-1) > threshold) == (target.reshape(-1) > 0.5)
    elif target.ndim == output.ndim:
        right = output.argmax(-1) == target.argmax(-1)
    else:
        right = output.argmax(-1) == target
    return float(right.float().mean())


def r2(output: Tensor, target: Tensor) -> float:
    """Share of the targets' variance that is explained; -1 where it is worse than that or not finite."""
    rest = ((output.reshape(target.shape) - target) ** 2).mean()
    value = float(1 - rest / target.var(unbiased=False))
    return max(-1.0, value) if value == value else -1.0
