"""Weights of 16 bits: steps that are rounded away are named where nothing is learnt, and only there."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import akeso


class Exact(torch.optim.Adam):
    """Keeps the weights in float32 and hands out what they come to in 16 bits."""

    def __init__(self, weights: list[nn.Parameter], lr: float) -> None:
        self.given = weights
        self.exact = [weight.detach().float().requires_grad_() for weight in weights]
        self.inner = torch.optim.Adam(self.exact, lr)
        super().__init__(weights, lr)

    def step(self, closure: object = None) -> None:
        for weight, exact in zip(self.given, self.exact, strict=True):
            exact.grad = None if weight.grad is None else weight.grad.float()
        self.inner.step()
        with torch.no_grad():
            for weight, exact in zip(self.given, self.exact, strict=True):
                weight.copy_(exact)


def trained(
    dtype: torch.dtype, lr: float, optimizer: type[torch.optim.Adam] = torch.optim.Adam
) -> akeso.Watch:
    """A network on rings of points, in numbers of some size."""
    torch.manual_seed(0)
    x = torch.randn(1024, 12)
    y = (x.square().sum(1) > 11.3).long()
    model = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)).to(
        dtype
    )
    stepper = optimizer(list(model.parameters()), lr)
    with akeso.watch(model, stepper, planned_steps=160) as watch:
        for _ in range(10):
            for rows in torch.randperm(1024).split(64):
                stepper.zero_grad()
                nn.functional.cross_entropy(model(x[rows].to(dtype)).float(), y[rows]).backward()
                stepper.step()
    return watch


def rounded(watch: akeso.Watch) -> list[str]:
    """What is said of steps that are rounded away."""
    return [one.sentence for one in watch.diagnoses if one.evidence.get("reason") == "rounded-away"]


def test_steps_that_are_rounded_away_are_named() -> None:
    (sentence,) = rounded(trained(torch.bfloat16, 1e-5))
    assert "The weights have 16 bits" in sentence


@pytest.mark.parametrize(
    ("dtype", "lr", "optimizer"),
    [
        (torch.float32, 1e-5, torch.optim.Adam),  # too slow, and nothing is lost
        (torch.bfloat16, 1e-2, torch.optim.Adam),  # steps long enough
        (torch.bfloat16, 1e-5, Exact),  # every step counts in the copy
    ],
)
def test_steps_that_count_are_not(dtype: torch.dtype, lr: float, optimizer: type[torch.optim.Adam]) -> None:
    watch = trained(dtype, lr, optimizer)
    assert rounded(watch) == []
    assert bool(watch.history.scopes("update_lost")) is (dtype is torch.bfloat16)


def test_what_is_lost_is_counted_by_what_the_gradients_ask() -> None:
    wide, narrow = trained(torch.bfloat16, 1e-5).history, trained(torch.bfloat16, 1e-2).history
    lost = wide.series("update_lost", "2.weight").values
    assert len(lost) >= 4
    assert lost.min() > 0.8
    assert narrow.series("update_lost", "2.weight").values.mean() < 0.2
