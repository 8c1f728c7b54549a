"""Autoencoders whose code is pulled to the prior until it carries nothing."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import akeso


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.mean, self.logarithm = nn.Linear(32, 4), nn.Linear(32, 4)
        self.outer = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.inner(x)
        mean, logarithm = self.mean(hidden), self.logarithm(hidden)
        drawn = mean + torch.randn_like(mean) * torch.exp(0.5 * logarithm)
        return self.outer(drawn), mean, logarithm


def _trained(weight: float, rate: float = 1e-2, *, validated: bool = True) -> list[tuple[str, str]]:
    torch.manual_seed(0)
    x = torch.sigmoid(3 * torch.randn(640, 3) @ torch.randn(3, 16))
    model = Variational()
    optimizer = torch.optim.Adam(model.parameters(), rate)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(20):
            for rows in torch.randperm(512).split(32):
                said, mean, logarithm = model(x[rows])
                rebuilt = F.binary_cross_entropy_with_logits(said, x[rows], reduction="none").sum(1).mean()
                prior = -0.5 * (1 + logarithm - mean.pow(2) - logarithm.exp()).sum(1).mean()
                optimizer.zero_grad()
                (rebuilt + weight * prior).backward()
                optimizer.step()
            if validated:
                with torch.no_grad():
                    F.binary_cross_entropy_with_logits(model(x[512:])[0], x[512:], reduction="none").sum(1)
    return [(found.problem, found.sentence) for found in watch.diagnoses if found.severity != "info"]


def test_a_code_that_the_prior_has_emptied_is_named_first() -> None:
    problem, sentence = _trained(100.0)[0]
    assert problem == "over-regularised"
    assert "code of the autoencoder has collapsed" in sentence


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_a_code_that_carries_something_is_left_alone(weight: float) -> None:
    assert "collapsed" not in str(_trained(weight))


def test_a_network_that_has_hardly_moved_is_not_said_to_have_collapsed() -> None:
    assert "collapsed" not in str(_trained(0.0, rate=1e-6))
    assert "collapsed" not in str(_trained(1.0, rate=1e-6))
