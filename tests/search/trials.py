"""Small objectives that really train, shared by the tests with Optuna and Ray."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """A task that a small network learns within a few epochs."""
    x = torch.randn(192, 6, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] + x[:, 1] > 0).long()


def build(lr: float, seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    return model, torch.optim.SGD(model.parameters(), lr=lr)


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """One pass over the data; the loss on all of it afterwards."""
    x, y = data()
    for start in range(0, len(x), 16):
        optimizer.zero_grad()
        F.cross_entropy(model(x[start : start + 16]), y[start : start + 16]).backward()
        optimizer.step()
    with torch.no_grad():
        return float(F.cross_entropy(model(x), y))


def objective(trial: Any, epochs: int = 5, **options: Any) -> Any:
    """The loop of the documentation; a learning rate of 1e4 makes the network diverge within an epoch."""
    import akeso

    lr = trial.suggest_float("lr", 1e-3, 1e5, log=True)
    model, optimizer = build(lr)
    with akeso.search.watch(trial, model, optimizer, epochs=epochs, **options) as health:
        for _ in range(epochs):
            health.report(train_epoch(model, optimizer))
    return health.value
