"""Derivatives that go into a loss without their graph are named; those that only weigh something are not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import akeso


def _equation(kept: bool) -> list[str]:
    """``u'' = -sin(x)`` with ``u = 0`` at both ends."""
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))

    def step() -> torch.Tensor:
        x = (3.14 * torch.rand(100, 1)).requires_grad_(True)
        slope = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
        if kept:
            bend = torch.autograd.grad(slope.sum(), x, create_graph=True)[0]
        else:
            bend = torch.autograd.grad(slope.sum(), x, retain_graph=True)[0]
        ends = model(torch.tensor([[0.0], [3.14]])).square().mean()
        return ((bend + torch.sin(x)) ** 2).mean() + 10 * ends

    return _said(model, step)


def _forces(kept: bool) -> list[str]:
    """Energies and forces, taught at once."""
    model = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 1))

    def step() -> torch.Tensor:
        x = torch.randn(32, 3, requires_grad=True)
        energy = model(x)
        force = -torch.autograd.grad(energy, x, torch.ones_like(energy), True, kept)[0]
        taught = nn.functional.mse_loss(energy, x.detach().square().sum(1, keepdim=True))
        return taught + nn.functional.mse_loss(force, -2 * x.detach())

    return _said(model, step)


def _said(model: nn.Module, step) -> list[str]:
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(15):
            loss = step()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert not watch.history.events_of("probe-off")
    return [one.sentence for one in watch.diagnoses if one.problem == "parameters-not-trained"]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("problem", [_equation, _forces])
def test_derivatives_without_their_graph_are_named(problem, kept: bool) -> None:
    found = problem(kept)
    assert bool(found) is not kept
    assert kept or "create_graph=True" in found[0]


def test_derivatives_that_weigh_a_loss_against_another_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 1))

    def step() -> torch.Tensor:
        out = model(torch.randn(32, 3))
        one, other = (out - 1).square().mean(), out.abs().mean()
        sizes = [
            torch.autograd.grad(loss, model[2].weight, retain_graph=True)[0].norm() for loss in (one, other)
        ]
        return one + sizes[0] / (sizes[1] + 1e-4) * other

    assert not _said(model, step)


def test_derivatives_of_a_known_function_are_what_is_to_be_learnt() -> None:
    model = nn.Sequential(nn.Linear(2, 16), nn.SiLU(), nn.Linear(16, 1))

    def step() -> torch.Tensor:
        x = torch.randn(32, 2, requires_grad=True)
        known = torch.sin(x[:, :1]) * x[:, 1:]
        wanted = torch.autograd.grad(known.sum(), x)[0]
        slope = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
        return (slope - wanted).square().mean()

    assert "create_graph" not in str(_said(model, step))


def test_steps_of_a_learner_within_the_learner_may_be_numbers() -> None:
    model = nn.Linear(3, 1)

    def step() -> torch.Tensor:
        x, y = torch.randn(32, 3), torch.randn(32, 1)
        weights = dict(model.named_parameters())
        for _ in range(2):
            loss = (torch.func.functional_call(model, weights, (x,)) - y).square().mean()
            slopes = torch.autograd.grad(loss, list(weights.values()), retain_graph=True)
            weights = {name: one - 0.1 * by for (name, one), by in zip(weights.items(), slopes, strict=True)}
        return (torch.func.functional_call(model, weights, (x,)) - y).square().mean()

    assert not _said(model, step)


def test_samples_that_are_moved_along_a_derivative_are_data() -> None:
    class Shortcut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.last = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(x + torch.relu(self.inner(x)))

    model = Shortcut()

    def step() -> torch.Tensor:
        x = torch.randn(32, 3, requires_grad=True)
        y = (x[:, 0] > 0).long()
        slope = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), x)[0]
        return nn.functional.cross_entropy(model(x + 0.1 * slope.sign()), y)

    assert not _said(model, step)


@pytest.mark.parametrize(
    ("activation", "named"),
    [(nn.ReLU(), True), (nn.LeakyReLU(), True), (nn.Tanh(), False), (nn.SiLU(), False)],
)
def test_second_derivatives_of_straight_pieces_are_zero(activation: nn.Module, named: bool) -> None:
    model = nn.Sequential(nn.Linear(1, 16), activation, nn.Linear(16, 16), activation, nn.Linear(16, 1))

    def step() -> torch.Tensor:
        x = torch.rand(64, 1, requires_grad=True)
        slope = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
        bend = torch.autograd.grad(slope.sum(), x, create_graph=True)[0]
        return (bend + torch.sin(x)).square().mean() + model(torch.tensor([[0.0], [1.0]])).square().mean()

    found = _said(model, step)
    assert bool(found) is named
    assert not named or "exactly 0 everywhere" in found[0]


def test_the_length_of_a_slope_is_learnt_by_straight_pieces_as_well() -> None:
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))

    def step() -> torch.Tensor:
        x = torch.randn(64, 2, requires_grad=True)
        slope = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
        return (slope.norm(dim=1) - 1).square().mean()

    assert not any("exactly 0 everywhere" in sentence for sentence in _said(model, step))


def test_a_model_that_begins_flat_is_given_time() -> None:
    model = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Tanh(), nn.Linear(16, 1))
    nn.init.zeros_(model[3].weight)

    def step() -> torch.Tensor:
        x = torch.rand(64, 1, requires_grad=True)
        out = model(x)
        slope = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
        bend = torch.autograd.grad(slope.sum(), x, create_graph=True)[0]
        return (bend - 1.0).square().mean() + (out - x.detach()).square().mean()

    assert not _said(model, step)
