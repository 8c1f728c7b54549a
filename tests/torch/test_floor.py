"""Targets that are no plain yes or no leave some loss in any case, which is not held against a training."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import akeso
from akeso.detectors.standing import standing


def _trained(targets: torch.Tensor, smoothing: float = 0.0) -> float:
    """The share that is left, as seen by a watch, of a loss that is as small as it can be."""
    model = nn.Linear(4, targets.shape[1] if targets.dim() > 1 else 3, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    perfect = targets if targets.dim() > 1 else functional.one_hot(targets, 3).float()
    if targets.dim() == 1:
        perfect = (1 - smoothing) * perfect + smoothing / 3
    with akeso.watch(model, optimizer) as watch:
        for _ in range(12):
            optimizer.zero_grad()
            nothing = model(torch.zeros(len(targets), 4))
            if targets.dim() > 1:
                loss = functional.binary_cross_entropy_with_logits(nothing + torch.logit(perfect), targets)
            else:
                loss = functional.cross_entropy(nothing + perfect.log(), targets, label_smoothing=smoothing)
            loss.backward()
            optimizer.step()
    return standing(watch.history).remaining_loss


def test_shares_as_targets_and_smoothed_labels_have_a_floor() -> None:
    torch.manual_seed(0)
    assert _trained(torch.rand(64, 5) * 0.9 + 0.05) == pytest.approx(0.0, abs=0.02)
    assert _trained(torch.arange(60) % 3, smoothing=0.2) == pytest.approx(0.0, abs=0.02)


def test_a_constant_prediction_still_leaves_everything() -> None:
    torch.manual_seed(0)
    share = torch.rand(64, 5)
    model = nn.Linear(4, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.logit(share.mean(0)))
    with akeso.watch(model, optimizer) as watch:
        for _ in range(12):
            optimizer.zero_grad()
            functional.binary_cross_entropy_with_logits(model(torch.ones(64, 4)), share).backward()
            optimizer.step()
    left = standing(watch.history).remaining_loss
    assert math.isclose(left, 1.0, abs_tol=0.02)
