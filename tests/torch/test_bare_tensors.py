"""Networks made of tensors, without any module: their layers are known all the same."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import _get_current_function_mode

import akeso
from akeso.detectors import network
from akeso.torch.watching import watch_everything


def _train(scale: float) -> akeso.Watch:
    """Five layers of tensors, drawn with ``scale`` times what their width asks for."""
    torch.manual_seed(0)
    sizes = [32, 64, 64, 64, 64, 5]
    tensors = []
    for inputs, outputs in itertools.pairwise(sizes):
        weight = scale * math.sqrt(2.0 / inputs) * torch.randn(inputs, outputs)
        tensors += [weight.requires_grad_(), torch.zeros(outputs, requires_grad=True)]
    optimizer = torch.optim.SGD(tensors, lr=0.02, momentum=0.9)
    x = torch.randn(512, 32)
    y = x[:, :5].argmax(1)
    with watch_everything() as watch:
        for step in range(120):
            rows = torch.arange(32 * step, 32 * (step + 1)) % len(x)
            h = x[rows]
            for weight, bias in zip(tensors[:-2:2], tensors[1:-2:2], strict=True):
                h = F.relu(h @ weight + bias)
            loss = F.cross_entropy(h @ tensors[-2] + tensors[-1], y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


def test_weights_drawn_far_too_large_are_named_before_what_comes_of_them() -> None:
    found = [diagnosis.problem for diagnosis in _train(8.0).diagnoses if diagnosis.severity != "info"]
    assert found[0] in ("poor-initialisation", "exploding-gradient")


def test_a_network_of_tensors_that_learns_is_well() -> None:
    watch = _train(1.0)
    assert not [diagnosis for diagnosis in watch.diagnoses if diagnosis.severity != "info"]
    weights = network.weights(watch.history)
    assert [weight.shape for weight in weights] == [(32, 64), (64, 64), (64, 64), (64, 64), (64, 5)]
    assert weights[0].init_std == pytest.approx(math.sqrt(2.0 / 32), rel=0.1)


def test_tensors_beside_a_module_are_not_taken_for_its_layers() -> None:
    model, extra = torch.nn.Linear(3, 3), torch.randn(3, 3, requires_grad=True)
    optimizer = torch.optim.SGD([*model.parameters(), extra], lr=0.1)
    with watch_everything() as watch:
        for _ in range(5):
            optimizer.zero_grad()
            F.mse_loss(model(torch.randn(8, 3)) @ extra, torch.zeros(8, 3)).backward()
            optimizer.step()
    assert all(layer.kind == "Linear" for layer in watch.history.layers)


@pytest.mark.parametrize(("axis", "found"), [(0, ["improper-output-activation"]), (1, []), (-1, [])])
def test_the_axis_of_a_softmax_is_read_from_the_graph(axis: int, found: list[str]) -> None:
    torch.manual_seed(0)
    weight = torch.zeros(8, 4, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=0.02)
    x = torch.randn(512, 8)
    y = x[:, :4].argmax(1)
    with watch_everything() as watch:
        for step in range(150):
            rows = torch.arange(32 * step, 32 * (step + 1)) % len(x)
            loss = F.nll_loss(F.log_softmax(x[rows] @ weight, dim=axis), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert [d.problem for d in watch.diagnoses if d.severity != "info"][:1] == found
    assert watch.history.facts["loss"] == ("nll_loss" if found else "cross_entropy")


@pytest.mark.parametrize("detached", [True, False])
def test_an_optimizer_of_something_else_than_what_the_loss_is_computed_from_is_named(detached: bool) -> None:
    torch.manual_seed(0)
    features = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh()).requires_grad_(False)
    wanted = features(torch.randn(8, 16))
    image = torch.randn(8, 16, requires_grad=True)
    optimizer = torch.optim.Adam([image.detach().requires_grad_() if detached else image], lr=0.05)
    with watch_everything() as watch:
        for _ in range(60):
            loss = F.mse_loss(features(image), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    found = [one for one in watch.diagnoses if one.severity == "error"]
    assert ("computed from something else" in " ".join(one.sentence for one in found)) is detached


def test_a_loop_without_an_optimizer_is_not_followed_once_it_was_looked_at() -> None:
    layer = torch.nn.Linear(4, 1)
    with watch_everything():
        for _ in range(3):
            layer.zero_grad()
            F.mse_loss(layer(torch.randn(8, 4)), torch.zeros(8, 1)).backward()
            for parameter in layer.parameters():
                assert parameter.grad is not None
                parameter.data.add_(parameter.grad, alpha=-0.1)
        assert _get_current_function_mode() is None
