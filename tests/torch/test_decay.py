"""Weight decay that holds a network back, told apart from decay that does it good."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import akeso


@pytest.mark.parametrize(
    ("decay", "noise", "found"),
    [
        pytest.param(0.06, 0.0, ["over-regularised"], id="too strong"),
        pytest.param(1e-3, 0.0, [], id="usual"),
        pytest.param(0.01, 0.4, [], id="strong, which labels that are partly wrong ask for"),
    ],
)
def test_decay_is_named_where_it_cancels_what_is_to_be_learnt(
    decay: float, noise: float, found: list[str]
) -> None:
    torch.manual_seed(0)
    x, y = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    x, y = x.float() / 16, torch.where(torch.rand(len(y)) < noise, torch.randint(0, 10, y.shape), y)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, weight_decay=decay)
    with akeso.watch(model, optimizer, planned_steps=870, budget=0.1) as watch:
        for _ in range(30):
            for batch in torch.randperm(len(x)).split(64):
                optimizer.zero_grad()
                F.cross_entropy(model(x[batch]), y[batch]).backward()
                optimizer.step()
    assert [one.problem for one in watch.diagnoses if one.severity != "info"] == found
