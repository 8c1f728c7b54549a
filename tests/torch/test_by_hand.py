"""Losses written out as arithmetic are recognised for what they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import akeso

EPS = 1e-7
Loss = Callable[[Tensor, Tensor], Tensor]


def _facts(loss: Loss, out: nn.Module, target: Tensor, units: int = 1, steps: int = 12) -> dict[str, object]:
    torch.manual_seed(0)
    x = torch.randn(len(target), 4)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, units), out)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model(x), target).backward()
            optimizer.step()
    history = watch.history
    baseline = history.series("baseline_loss").finite().values
    level = history.series("accuracy").finite().values
    return {**history.facts, "baseline": float(baseline[-1]) if len(baseline) else None, "rates": len(level)}


def _clamped(p: Tensor, y: Tensor) -> Tensor:
    p = p.clamp(EPS, 1 - EPS)
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()


def _with_eps(p: Tensor, y: Tensor) -> Tensor:
    return torch.mean(-y * torch.log(p + EPS) - (1 - y) * torch.log(1 - p + EPS))


def _log1p(p: Tensor, y: Tensor) -> Tensor:
    return -torch.sum(torch.log(p + EPS) * y + torch.log1p(-p) * (1 - y)) / len(y)


@pytest.mark.parametrize("loss", [_clamped, _with_eps, _log1p], ids=["clamped", "eps", "log1p"])
def test_a_binary_cross_entropy(loss: Loss) -> None:
    y = (torch.arange(40) % 4 == 0).float().reshape(-1, 1)
    facts = _facts(loss, nn.Sigmoid(), y)
    assert facts["loss"] == "binary_cross_entropy"
    assert facts["output_activation"] == "sigmoid"
    assert facts["task"] == "binary"
    assert facts["baseline"] == pytest.approx(0.5623, abs=0.02)  # the entropy of one in four
    assert facts["rates"]


@pytest.mark.parametrize(("out", "name"), [(nn.ReLU(), "relu"), (nn.Identity(), "none"), (nn.Tanh(), "tanh")])
def test_what_stands_before_it_is_seen_behind_the_safeguard(out: nn.Module, name: str) -> None:
    y = (torch.arange(40) % 2).float().reshape(-1, 1)
    for loss in (_clamped, _with_eps):
        if loss is _clamped or name == "relu":  # elsewhere the logarithm of what is negative is no number
            assert _facts(loss, out, y)["output_activation"] == name


def _indexed(p: Tensor, y: Tensor) -> Tensor:
    return -torch.log(p + EPS)[torch.arange(len(y)), y].mean()


def _gathered(p: Tensor, y: Tensor) -> Tensor:
    return -p.clamp_min(EPS).log().gather(1, y[:, None]).mean()


def _one_hot(p: Tensor, y: Tensor) -> Tensor:
    return -(F.one_hot(y, 3) * torch.log(p + EPS)).sum(1).mean()


@pytest.mark.parametrize("loss", [_indexed, _gathered, _one_hot], ids=["indexed", "gathered", "one-hot"])
def test_a_cross_entropy_over_classes(loss: Loss) -> None:
    facts = _facts(loss, nn.Softmax(1), torch.arange(60) % 3, units=3)
    assert facts["loss"] == "nll_loss"
    assert facts["output_activation"] == "softmax"
    assert facts["classes"] == 3
    assert facts["baseline"] == pytest.approx(1.0986, abs=0.02)


def test_arithmetic_that_only_looks_like_it_is_left_alone() -> None:
    """A policy gradient, soft targets of a teacher, an entropy, weighted classes."""
    weights = torch.rand(40)
    teacher = torch.rand(60, 3).softmax(1)
    choices = torch.arange(40) % 3

    def policy(p: Tensor, y: Tensor) -> Tensor:
        return -(torch.log(p)[torch.arange(len(y)), y] * weights).mean()

    def distilled(p: Tensor, y: Tensor) -> Tensor:
        return -(teacher * torch.log(p)).sum(1).mean()

    def entropy(p: Tensor, y: Tensor) -> Tensor:
        return (p * torch.log(p)).sum(1).mean()

    def weighted(p: Tensor, y: Tensor) -> Tensor:
        return -(5 * y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()

    assert _facts(weighted, nn.Sigmoid(), (choices > 1).float().reshape(-1, 1))["loss"] == "custom"
    assert _facts(policy, nn.Softmax(1), choices, units=3)["loss"] == "custom"
    assert _facts(distilled, nn.Softmax(1), torch.arange(60) % 3, units=3)["loss"] == "custom"
    assert _facts(entropy, nn.Softmax(1), choices, units=3)["loss"] == "custom"
