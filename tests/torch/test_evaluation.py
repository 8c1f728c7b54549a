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
