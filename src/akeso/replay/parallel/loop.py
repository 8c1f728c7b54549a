"""One whole training step over virtual ranks, for loops that need nothing special."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from akeso.replay.parallel.ranks import VirtualRanks


def step(
    ranks: VirtualRanks,
    optimizer: torch.optim.Optimizer,
    batch: Any,
    loss_function: Callable[[Any], torch.Tensor],
    *,
    clip_norm: float | None = None,
    scaler: Any = None,
) -> torch.Tensor:
    """Compute the combined gradient of a batch, clip it where wanted, and step the optimizer.

    Args:
        ranks: The virtual ranks of the model.
        optimizer: Its optimizer.
        batch: The global batch.
        loss_function: From a micro-batch to its mean loss, model included.
        clip_norm: The largest norm of the combined gradient.
        scaler: A ``GradScaler`` for mixed precision.

    Returns:
        The loss over the whole batch, the same bits on every process.
    """
    optimizer.zero_grad(set_to_none=True)
    with ranks:
        for micro in ranks.split(batch):
            ranks.backward(loss_function(micro), scaler=scaler)
    if scaler is not None:
        scaler.unscale_(optimizer)
    if clip_norm is not None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        torch.nn.utils.clip_grad_norm_(parameters, clip_norm)
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
    return ranks.loss
