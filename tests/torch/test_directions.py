"""Losses that see the direction of outputs alone, in scripts that judge them by their distance and in others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import akeso

Measure = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def direction(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (1 - F.cosine_similarity(output, target, dim=1)).mean()


def distance(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((output - target) ** 2).mean()


def both(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return direction(output, target) + ((output - target) ** 2).sum(1).mean()


def _found(loss: Measure, measure: Measure) -> list[str]:
    torch.manual_seed(0)
    x = torch.randn(256, 4)
    y = 3.0 * torch.tanh(x @ torch.randn(4, 3))
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(10):
            for rows in torch.randperm(192).split(16):
                optimizer.zero_grad()
                loss(model(x[rows]), y[rows]).backward()
                optimizer.step()
            with torch.no_grad():
                measure(model(x[192:]), y[192:]).item()
    return [diagnosis.problem for diagnosis in watch.diagnoses if diagnosis.severity != "info"]


@pytest.mark.parametrize(
    "measure", [distance, F.mse_loss, lambda output, target: (target - output).abs().mean()]
)
def test_a_direction_does_not_teach_how_large_values_are(measure: Measure) -> None:
    assert _found(direction, measure) == ["improper-loss"]


@pytest.mark.parametrize(
    ("loss", "measure"), [(direction, direction), (both, distance), (F.mse_loss, distance)]
)
def test_a_loss_that_measures_what_the_script_does_is_well(loss: Measure, measure: Measure) -> None:
    assert not _found(loss, measure)


def test_two_views_of_the_same_sample_are_compared_by_direction_as_they_should_be() -> None:
    torch.manual_seed(0)
    encoder, head = nn.Linear(8, 6), nn.Linear(6, 6)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], 0.05)
    x = torch.randn(256, 8)
    with akeso.watch([encoder, head], optimizer) as watch:
        for step in range(40):
            rows = torch.arange(32 * step, 32 * (step + 1)) % len(x)
            one, other = (encoder(x[rows] + 0.1 * torch.randn(32, 8)) for _ in range(2))
            optimizer.zero_grad()
            direction(head(one), other.detach()).backward()
            optimizer.step()
            with torch.no_grad():
                distance(encoder(x[:32]), encoder(x[:32] + 0.1))
    assert "improper-loss" not in [diagnosis.problem for diagnosis in watch.diagnoses]


def test_outputs_without_a_place_of_their_own_are_let_be() -> None:
    model, x = nn.Linear(4, 3), torch.randn(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(5):
            optimizer.zero_grad()
            torch.func.vmap(model)(x).square().mean().backward()
            optimizer.step()
    assert "forward" not in [event.scope for event in watch.history.events_of("probe-off")]


@pytest.mark.parametrize(("factor", "named"), [(1.0, True), (16.0, False)])
def test_cosines_without_a_factor_are_named_for_some_hundred_classes_too(factor: float, named: bool) -> None:
    torch.manual_seed(0)
    places = torch.randn(200, 16)
    model = nn.ModuleList([nn.Linear(16, 32), nn.Linear(32, 200, bias=False)])
    optimizer = torch.optim.Adam(model.parameters(), 2e-2)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(150):
            y = torch.randint(0, 200, (128,))
            x = model[0](places[y] + 0.1 * torch.randn(128, 16))
            cosines = F.linear(F.normalize(x), F.normalize(model[1].weight))
            optimizer.zero_grad()
            F.cross_entropy(factor * cosines, y).backward()
            optimizer.step()
    found = [one.problem for one in watch.diagnoses if "lie too close together" in one.sentence]
    assert found == (["improper-output-activation"] if named else [])
