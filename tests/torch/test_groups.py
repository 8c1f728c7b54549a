"""Optimizers with several parameter groups: the one that trains most speaks for them."""

from __future__ import annotations

import torch
from torch import nn

import akeso
from akeso.torch import groups
from akeso.torch.surgery.optimizers import scale_rates


def _made(lazy: bool = False) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.LazyLinear(16) if lazy else nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    head, body = {"params": model[2].parameters(), "lr": 0.5}, {"params": model[0].parameters(), "lr": 1e-3}
    return model, torch.optim.SGD([head, body], lr=0.1, momentum=0.9)


def test_the_rate_of_the_body_is_recorded_and_not_that_of_a_head_before_it() -> None:
    model, optimizer = _made()
    with akeso.watch(model, optimizer) as watch:
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).pow(2).mean().backward()
            optimizer.step()
    assert set(watch.history.series("lr", "0").values) == {1e-3}
    assert watch.history.facts["optimizers"][0]["lr"] == 1e-3


def test_a_rate_is_set_for_the_body_and_the_head_keeps_its_proportion() -> None:
    _, optimizer = _made()
    scale_rates(optimizer, to=1e-2)
    assert [round(group["lr"], 6) for group in optimizer.param_groups] == [5.0, 0.01]
    assert optimizer.defaults["lr"] == 1e-2


def test_frozen_lazy_and_missing_parameters_lead_nothing() -> None:
    model, optimizer = _made(lazy=True)
    assert groups.rate(optimizer) == 0.5, "nothing is known of the body's size yet"
    model(torch.zeros(1, 4))
    assert groups.rate(optimizer) == 1e-3
    model[0].requires_grad_(False)
    assert groups.rate(optimizer) == 0.5
    optimizer.param_groups.clear()
    assert groups.leading(optimizer) == {}
    assert groups.rate(optimizer) is None


def test_a_rate_may_be_a_tensor() -> None:
    weight = nn.Parameter(torch.zeros(1))
    assert groups.rate(torch.optim.Adam([weight], lr=torch.tensor(0.25))) == 0.25
