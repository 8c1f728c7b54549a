"""Evaluations that stay the same to the last digit while training changes weights: another model is evaluated."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

import akeso
from akeso.detectors.testing import Curve, Sketch, falling, flat
from akeso.history import Event, History


def _found(history: History) -> list[str]:
    sentences = [one.sentence for one in akeso.examine(history).diagnoses if one.severity != "info"]
    return [sentence for sentence in sentences if "same to the last digit" in sentence]


@pytest.mark.parametrize("cloned", [True, False])
def test_parameters_that_are_cloned_before_a_functional_call_never_learn(cloned: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(300, 4)
    y = (x[:, 0] > 0).float()
    model = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 1))
    given = dict(model.named_parameters())
    if cloned:
        given = {name: value.detach().clone().requires_grad_() for name, value in given.items()}
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    def lost(begin: int, end: int) -> torch.Tensor:
        answer = functional_call(model, given, (x[begin:end],)).squeeze(1)
        return F.binary_cross_entropy_with_logits(answer, y[begin:end])

    with akeso.watch(model, optimizer) as watch:
        for step in range(64):
            at = 25 * (step % 8)
            gradients = torch.autograd.grad(lost(at, at + 25), list(given.values()))
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
            if step % 8 == 7:
                with torch.no_grad():
                    lost(200, 300)
    assert bool(_found(watch.history)) is cloned


@pytest.mark.parametrize("written", [False, True])
def test_averages_that_are_put_into_the_dict_of_a_state_never_reach_the_server(written: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(300, 4)
    y = (x @ torch.randn(4, 3)).argmax(1)
    server = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    with akeso.watch() as watch:
        for _ in range(8):
            states = []
            for client in range(3):
                model = copy.deepcopy(server)
                optimizer = torch.optim.SGD(model.parameters(), 0.2)
                for i in torch.arange(80 * client, 80 * client + 80).split(10):
                    optimizer.zero_grad()
                    F.cross_entropy(model(x[i]), y[i]).backward()
                    optimizer.step()
                states.append(model.state_dict())
            average = {name: sum(state[name] for state in states) / 3 for name in states[0]}
            if written:
                server.load_state_dict(average)
            else:
                server.state_dict().update(average)
            with torch.no_grad():
                F.cross_entropy(server(x[240:]), y[240:])
    assert bool(_found(watch.history)) is not written


@pytest.mark.parametrize("written", [False, True])
def test_an_average_that_stands_still_is_named_though_noise_makes_its_losses_differ(written: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(600, 3) @ torch.randn(3, 12)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 12))
    nn.init.zeros_(model[2].weight)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with akeso.watch() as watch:
        for step in range(360):
            noise = 0.5 * torch.randn(64, 12)
            optimizer.zero_grad()
            F.mse_loss(model(x[torch.randint(0, 500, (64,))] + noise), noise).backward()
            optimizer.step()
            with torch.no_grad():
                for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
                    if written:
                        mean.lerp_(weight, 0.05)
                    else:
                        mean = mean.lerp(weight, 0.05)
                if step % 45 == 44:
                    noise = 0.5 * torch.randn(100, 12)
                    F.mse_loss(average(x[500:] + noise), noise)
    found = [one.problem for one in watch.diagnoses if one.severity != "info"]
    assert found == ([] if written else ["parameters-not-trained"])


@pytest.mark.parametrize(
    ("validation", "gradient", "found"),
    [
        (flat(2.4), 0.05, True),
        (flat(0.1), 0.05, False),  # a reference that was trained before
        (falling(2.4, 2.3), 0.05, False),
        (flat(math.log(10)), 0.0, False),  # dead units give the same answers, too
    ],
)
def test_only_what_stays_the_same_although_gradients_flow_is_said(
    validation: Curve, gradient: float, found: bool
) -> None:
    sketch = Sketch(
        accuracy=None,
        validation=validation,
        gradient=lambda index: gradient,
        events=tuple(Event(step, "evaluation", "", {"copy": True}) for step in range(37, 300, 37)),
    )
    assert bool(_found(sketch.history())) is found
