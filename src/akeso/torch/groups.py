"""Which of an optimizer's parameter groups speaks for it."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parameter import is_lazy


def leading(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The group that trains most weights: its rate is the one to go by where others are a head's or a norm's.

    >>> body, head = torch.nn.Linear(9, 9), torch.nn.Linear(9, 1)
    >>> groups = [{"params": head.parameters(), "lr": 1.0}, {"params": body.parameters(), "lr": 0.1}]
    >>> leading(torch.optim.SGD(groups))["lr"]
    0.1
    """
    groups: list[dict[str, Any]] = optimizer.param_groups
    if len(groups) < 2:
        return groups[0] if groups else {}
    return max(groups, key=_weights)


def rate(optimizer: torch.optim.Optimizer) -> float | None:
    """The learning rate of the leading group; None where it has none."""
    found = leading(optimizer).get("lr")
    if isinstance(found, torch.Tensor):
        found = found.item()
    return float(found) if isinstance(found, int | float) else None


def _weights(group: dict[str, Any]) -> int:
    return sum(p.numel() for p in group["params"] if p.requires_grad and not is_lazy(p))
