"""Losses over pairs are told by a sign which of them belong together."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from akeso.torch.watching import watch_everything


@pytest.mark.parametrize("loss", ["cosine", "ranking", "hinge"])
@pytest.mark.parametrize("right", [True, False])
def test_targets_of_nought_where_a_sign_is_wanted_are_named(loss: str, right: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    with watch_everything() as watch:
        for _ in range(40):
            a, b = torch.randn(32, 8), torch.randn(32, 8)
            same = torch.rand(32) < 0.5
            b = torch.where(same[:, None], a + 0.1 * b, b)
            target = 2.0 * same - 1.0 if right else same.float()
            one, other = model(a), model(b)
            if loss == "cosine":
                value = nn.CosineEmbeddingLoss(margin=0.1)(one, other, target)
            elif loss == "ranking":
                value = F.margin_ranking_loss(one.sum(1), other.sum(1), target=target, margin=0.1)
            else:
                value = F.hinge_embedding_loss((one - other).norm(dim=1), target)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    found = [one for one in watch.diagnoses if one.problem == "improper-loss"]
    assert bool(found) is not right
    if found:
        assert "1 and 0" in found[0].sentence
        assert "2 * target - 1" in found[0].remedies[0]
