"""Embeddings: outputs that collapse, triplets the wrong way round, cosines that are too small to tell anything."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import akeso


def _tower() -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))


def _said(step, model: nn.Module, *, steps: int, rate: float = 5e-3) -> list[str]:
    optimizer = torch.optim.Adam(model.parameters(), rate)
    with akeso.watch(model, optimizer, planned_steps=steps, budget=0.2) as watch:
        for _ in range(steps):
            optimizer.zero_grad()
            step().backward()
            optimizer.step()
    assert not watch.history.events_of("probe-off")
    return [f"{one.problem}: {one.sentence}" for one in watch.diagnoses if one.severity != "info"]


@pytest.mark.parametrize("apart", [False, True])
def test_two_views_that_are_drawn_together_and_nothing_apart_collapse(apart: bool) -> None:
    torch.manual_seed(0)
    model = _tower()

    def step() -> torch.Tensor:
        x = torch.randn(64, 16)
        one, other = (model(x + 0.1 * torch.randn_like(x)) for _ in range(2))
        drawn = 2 - 2 * F.cosine_similarity(one, other, dim=-1).mean()
        alike = F.normalize(one, dim=1) @ F.normalize(one, dim=1).T
        return drawn + (alike.fill_diagonal_(0).square().mean() if apart else 0.0)

    found = _said(step, model, steps=150)
    assert [one.partition(":")[0] for one in found] == ([] if apart else ["constant-prediction"])
    assert apart or "have collapsed" in found[0]


@pytest.mark.parametrize("stops", [False, True])
def test_views_that_a_model_compares_itself_and_gives_nothing_but_their_loss_are_seen(stops: bool) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tower, self.predictor = _tower(), nn.Linear(8, 8)

        def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            one, other = self.tower(one), self.tower(other)
            if stops:
                one, other = self.predictor(one), F.normalize(other.detach() - other.detach().mean(0))
            return 2 - 2 * F.cosine_similarity(one, other, dim=-1).mean()

    torch.manual_seed(0)
    model = Both()

    def step() -> torch.Tensor:
        x = torch.randn(64, 16)
        loss: torch.Tensor = model(*(x + 0.1 * torch.randn_like(x) for _ in range(2)))
        return loss

    found = [one for one in _said(step, model, steps=150) if "have collapsed" in one]
    assert bool(found) is not stops


@pytest.mark.parametrize("turned", [False, True])
def test_triplets_are_held_against_their_margin(turned: bool) -> None:
    torch.manual_seed(0)
    model, kinds = _tower(), 2 * torch.randn(10, 16)

    def drawn(kind: torch.Tensor) -> torch.Tensor:
        return model(kinds[kind] + 0.5 * torch.randn(len(kind), 16))

    def step() -> torch.Tensor:
        kind = torch.randint(10, (32,))
        near, far = drawn(kind), drawn((kind + torch.randint(1, 10, (32,))) % 10)
        return F.triplet_margin_loss(drawn(kind), *((far, near) if turned else (near, far)), margin=0.7)

    found = _said(step, model, steps=200)
    assert bool(found) is turned
    assert not turned or found[0].startswith("unlearnable-labels")
    assert not turned or "stays at its margin" in found[0]


@pytest.mark.parametrize("temperature", [0.1, 20.0])
def test_cosines_that_hardly_differ_leave_the_loss_at_chance_however_right_the_answers_are(
    temperature: float,
) -> None:
    torch.manual_seed(0)
    model = _tower()

    def step() -> torch.Tensor:
        x = torch.randn(128, 16)
        one, other = (F.normalize(model(x + 0.3 * torch.randn_like(x)), dim=1) for _ in range(2))
        return F.cross_entropy(one @ other.T / temperature, torch.arange(128))

    found = _said(step, model, steps=150)
    assert bool(found) is (temperature > 1)
    assert not found or found[0].startswith("improper-output-activation")
    assert not found or "temperature" in found[0]
