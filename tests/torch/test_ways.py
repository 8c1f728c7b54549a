"""The shortest way from a loss to the weight that is farthest off."""

from __future__ import annotations

import torch
from torch import nn

from akeso.torch.ways import farthest_weight


class Shortcuts(nn.Module):
    """As many layers as are asked for, each with a way around it."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.head(x)


def stack(layers: int, bias: bool = True) -> nn.Module:
    parts = [part for _ in range(layers) for part in (nn.Linear(8, 8, bias=bias), nn.ReLU())]
    return nn.Sequential(*parts)


def way(model: nn.Module, *shape: int) -> int | None:
    return farthest_weight(model(torch.randn(*(shape or (4, 8)))).float().square().mean())


def test_a_plain_stack_is_as_far_as_it_is_deep() -> None:
    assert way(stack(12)) == 12
    assert way(stack(12, bias=False)) == 12
    assert way(stack(3), 4, 5, 8) == 3
    assert way(nn.Sequential(*[nn.Conv1d(4, 4, 3) for _ in range(5)]), 2, 4, 30) == 5


def test_shortcuts_bring_all_weights_near() -> None:
    assert way(Shortcuts(20)) == 2
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 4)
    assert way(encoder, 2, 5, 16) == 2


def test_lower_precision_makes_no_difference() -> None:
    model = stack(12)
    with torch.autocast("cpu", torch.bfloat16):
        assert way(model) == 12


def test_what_has_no_graph_or_too_large_a_one_has_no_answer() -> None:
    assert farthest_weight(torch.tensor(1.0)) is None
    cell, state = nn.RNNCell(2, 2), torch.zeros(1, 2)
    for _ in range(2000):
        state = cell(torch.ones(1, 2), state)
    assert farthest_weight(state.sum()) is None
