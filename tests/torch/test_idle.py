"""Optimizers that never step, and backward passes that need none."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from akeso.torch.watching import watch_everything


@pytest.mark.parametrize("how", ["never", "by hand", "no optimizer"])
def test_an_optimizer_that_never_steps_is_named(how: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = None if how == "no optimizer" else torch.optim.Adam(model.parameters())
    x, y = torch.randn(64, 6), torch.randint(0, 3, (64,))
    with watch_everything() as watch:
        for _ in range(150):
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()
            if how == "by hand":
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter -= 0.1 * parameter.grad
    found = [one for one in watch.diagnoses if one.problem == "parameters-not-trained"]
    assert [one.evidence["optimizer"] for one in found] == (["Adam"] if how == "never" else [])
    assert optimizer is None or optimizer.param_groups


def test_a_new_optimizer_for_every_task_is_described_a_few_times() -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    x, y = torch.randn(64, 6), torch.randint(0, 3, (64,))
    with watch_everything() as watch:
        for _ in range(40):
            copy = nn.Linear(6, 3)
            copy.load_state_dict(model.state_dict())
            optimizer = torch.optim.SGD(copy.parameters(), lr=0.1)
            F.cross_entropy(copy(x), y).backward()
            optimizer.step()
    assert len(watch.history.facts["optimizers"]) == 16
