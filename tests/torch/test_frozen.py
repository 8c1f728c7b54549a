"""Frozen weights that are written to follow somebody: they are not said to be as they were drawn."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import akeso


class Twins(nn.Module):
    """A network and a frozen twin of it, which is to be its average."""

    def __init__(self) -> None:
        super().__init__()
        self.online = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8))
        self.predictor = nn.Linear(8, 8)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (self.predictor(self.online(x)) - self.target(y)).square().mean()

    def follow(self) -> None:
        for slow, fast in zip(self.target.parameters(), self.online.parameters(), strict=True):
            slow.data.mul_(0.98).add_(fast.data, alpha=0.02)


@pytest.mark.parametrize("follows", [True, False])
def test_a_frozen_part_that_follows_the_rest_is_not_as_it_was_drawn(follows: bool) -> None:
    torch.manual_seed(0)
    model = Twins()
    optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], 1e-3)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(60):
            x = torch.randn(32, 16)
            optimizer.zero_grad()
            model(x, x + 0.1 * torch.randn(32, 16)).backward()
            optimizer.step()
            if follows:
                model.follow()
    assert ("look as they were drawn" in str([one.sentence for one in watch.diagnoses])) is not follows
