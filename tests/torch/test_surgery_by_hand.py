"""Surgery where layers and activations are written out: gates, and weights that no layer holds."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from akeso.remedies.edit import Edit
from akeso.torch.surgery import operate


class _Gated(nn.Module):
    """A convolution whose output is split into values and gates."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, 2 * after, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.conv(x).chunk(2, 1)
        return torch.tanh(value) * torch.sigmoid(gate)


def test_gated_layers_are_normalised_before_they_are_split() -> None:
    model = nn.Sequential(_Gated(3, 6), _Gated(6, 4), nn.Flatten(), nn.Linear(4 * 64, 2))
    images = torch.randn(5, 3, 8, 8)
    done = operate(model, [Edit("insert-normalisation", "hidden", {"kind": "batch"})], (images,))
    assert not done.refused
    assert [p.shape[0] for p in done.new_parameters] == [12, 12, 8, 8]
    assert isinstance(model[0].conv.akeso_norm, nn.BatchNorm2d)
    assert not hasattr(model[3], "akeso_norm")
    assert model(images).shape == (5, 2)
    seen: list[Tensor] = []
    model[1].conv.akeso_norm.register_forward_hook(lambda module, args, output: seen.append(output))
    model(images)
    assert seen[0].mean((0, 2, 3)).abs().max() < 1e-5
    again = operate(model, [Edit("insert-normalisation", "hidden", {"kind": "batch"})], (images,))
    assert again.refused


def test_weights_that_no_layer_holds_are_drawn_anew_where_they_are_out_of_range() -> None:
    class ByHand(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Parameter(torch.randn(64, 30))  # inputs first, as its bias says
            self.bias = nn.Parameter(torch.ones(30))
            self.fine = nn.Parameter(torch.randn(40, 30) / math.sqrt(30))

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x @ self.wide + self.bias) @ self.fine.T

    torch.manual_seed(0)
    model = ByHand()
    fine = model.fine.detach().clone()
    done = operate(model, [Edit("reinitialise", "", {"scheme": "auto"})], (torch.randn(3, 64),))
    assert not done.refused
    assert float(model.wide.detach().std()) == pytest.approx(math.sqrt(2 / 64), rel=0.1)
    assert torch.equal(model.fine, fine)
