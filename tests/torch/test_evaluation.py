"""Which passes without gradients are followed as evaluations, and for how long."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import akeso
from akeso.torch.evaluating import Evaluations


@pytest.mark.parametrize("scored", [False, True])
def test_answers_that_nothing_is_made_of_are_not_followed_for_long(
    scored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed, follow = [], Evaluations.output

    def counted(self: Evaluations, *args: Any) -> None:
        if not args[1].requires_grad:
            followed.append(args[1])
        follow(self, *args)

    monkeypatch.setattr(Evaluations, "output", counted)
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with akeso.watch(model, optimizer):
        for _ in range(5):
            for _ in range(100):  # a rollout, or a validation batch by batch
                with torch.no_grad():
                    answer = model(torch.randn(3, 4))
                    if scored:
                        nn.functional.mse_loss(answer, torch.randn(3, 2))
            optimizer.zero_grad()
            nn.functional.mse_loss(model(torch.randn(8, 4)), torch.randn(8, 2)).backward()
            optimizer.step()
    assert len(followed) == (500 if scored else 32 + 16 + 8 + 4 + 4)


@pytest.mark.parametrize(
    ("momentum", "loaded", "evaluated", "named"),
    [
        (0.0, False, True, True),
        (0.1, False, True, False),
        (0.0, True, True, False),
        (0.0, False, False, False),
    ],
)
def test_a_norm_that_keeps_no_averages_is_named_where_it_is_evaluated(
    momentum: float, loaded: bool, evaluated: bool, named: bool
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, momentum=momentum), nn.Linear(8, 2))
    norm = model[1]
    assert isinstance(norm, nn.BatchNorm1d)
    if loaded:
        norm.load_state_dict({**norm.state_dict(), "running_mean": torch.randn(8)})
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(4):
            model.train()
            for _ in range(5):
                x = torch.randn(32, 4)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
                optimizer.step()
            if evaluated:
                model.eval()
                with torch.no_grad():
                    nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
    said = [found for found in watch.diagnoses if found.problem == "wrong-mode"]
    assert [found.layer for found in said] == (["1"] if named else [])
    assert all("its momentum is 0" in found.sentence for found in said)
