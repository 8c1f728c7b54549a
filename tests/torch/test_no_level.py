"""Losses whose level tells nothing: differences around zero, and likelihoods of counts in noisy batches."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import akeso


def test_a_machine_trained_by_a_difference_of_energies_is_healthy() -> None:
    torch.manual_seed(0)
    x = (torch.as_tensor(load_digits().data)[:1000].float() / 16 > 0.5).float()

    class Machine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(0.01 * torch.randn(48, 64))
            self.seen, self.hidden = nn.Parameter(torch.zeros(64)), nn.Parameter(torch.zeros(48))

        def dream(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.bernoulli(torch.sigmoid(F.linear(x, self.weight, self.hidden)))
            return torch.bernoulli(torch.sigmoid(F.linear(h, self.weight.t(), self.seen)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return -(x @ self.seen + F.softplus(F.linear(x, self.weight, self.hidden)).sum(1)).mean()

    machine = Machine()
    optimizer = torch.optim.SGD(machine.parameters(), 0.1)
    with akeso.watch(machine, optimizer, planned_steps=400, budget=0.1) as watch:
        for _ in range(400):
            batch = x[torch.randint(len(x), (32,))]
            with torch.no_grad():
                dreamt = machine.dream(batch)
            loss = machine(batch) - machine(dreamt)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert not [one for one in watch.diagnoses if one.severity != "info"]


def test_a_last_layer_that_begins_as_zeros_does_not_make_the_gradient_vanish() -> None:
    torch.manual_seed(0)
    x = torch.randn(4000, 5)
    y = torch.poisson((3 + x[:, 0].sin() + 0.25 * x[:, 1]).exp())
    model = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    nn.init.zeros_(model[4].weight)
    nn.init.constant_(model[4].bias, float(y.mean().log()))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with akeso.watch(model, optimizer, planned_steps=900, budget=0.1) as watch:
        for _ in range(900):
            i = torch.randint(len(x), (64,))
            loss = F.poisson_nll_loss(model(x[i]).squeeze(1), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert not [one for one in watch.diagnoses if one.severity != "info"]
