"""How pictures are laid out: colours that lie side by side, and patterns that only look like it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import akeso

COUNT, SIDE = 64, 32


def photographs(colours: int = 3) -> torch.Tensor:
    """Smooth pictures with the same edges in all colours, the colours last, as files of pictures have them."""
    torch.manual_seed(0)
    shapes = F.interpolate(torch.randn(COUNT, 1, 8, 8), (SIDE, SIDE), mode="bilinear")
    edges = F.avg_pool2d(torch.randn(COUNT, 1, SIDE + 2, SIDE + 2), 3, 1).sign()
    tints = F.interpolate(torch.randn(COUNT, colours, 3, 3), (SIDE, SIDE), mode="bilinear")
    return (shapes + 0.2 * edges + 0.5 * tints).movedim(1, -1).contiguous()


def padded(pictures: torch.Tensor) -> torch.Tensor:
    """Shifted by some places over a rim of zeros, and half of them mirrored, as augmentation does."""
    wide = F.pad(pictures, (3, 3, 3, 3))
    found = torch.stack([one[:, i % 7 : i % 7 + SIDE, i % 5 : i % 5 + SIDE] for i, one in enumerate(wide)])
    found[::2] = found[::2].flip(-1)
    return found


def pattern(value: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], side: int = SIDE) -> torch.Tensor:
    """What a function of row and column gives, with a little noise."""
    torch.manual_seed(0)
    row, column = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    return value(row, column).float() + 0.05 * torch.randn(COUNT, 3, side, side)


def problems(pictures: torch.Tensor, *, convolved: bool = True) -> list[str]:
    """What is said of a training on these."""
    torch.manual_seed(0)
    first: nn.Module = nn.Conv2d(pictures.shape[1], 4, 3, stride=2) if convolved else nn.Flatten()
    wide = first(pictures[:1]).numel()
    model = nn.Sequential(first, nn.ReLU(), nn.Flatten(), nn.Linear(wide, 2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    labels = (pictures.mean((1, 2, 3)) > pictures.mean()).long()
    with akeso.watch(model, optimizer) as watch:
        for step in range(24):
            rows = torch.arange(16 * step, 16 * (step + 1)) % COUNT
            optimizer.zero_grad()
            F.cross_entropy(model(pictures[rows]), labels[rows]).backward()
            optimizer.step()
    return [diagnosis.problem for diagnosis in watch.diagnoses]


@pytest.mark.parametrize("colours", [3, 4])
def test_colours_that_a_reshape_left_side_by_side_are_told_of(colours: int) -> None:
    raw = photographs(colours)
    scrambled = raw.reshape(COUNT, colours, SIDE, SIDE)
    assert "wrong-axis" in problems(scrambled)
    assert "wrong-axis" in problems(padded(scrambled))
    own = raw / raw.std((0, 1, 2)) - torch.arange(colours)
    assert "wrong-axis" in problems(own.reshape(COUNT, colours, SIDE, SIDE))
    # Which value comes first makes no difference where each has weights of its own.
    assert "wrong-axis" not in problems(scrambled, convolved=False)


def test_pictures_whose_colours_are_channels_are_left_alone() -> None:
    right = photographs().permute(0, 3, 1, 2)
    for pictures in (
        right,
        right.contiguous(),
        right.transpose(2, 3),
        padded(right),
        photographs(4).permute(0, 3, 1, 2),
    ):
        assert "wrong-axis" not in problems(pictures)


@pytest.mark.parametrize("period", [2, 3, 4])
def test_patterns_that_come_back_every_few_places_are_left_alone(period: int) -> None:
    for side in (SIDE, 48):
        for pictures in (
            pattern(lambda row, column: column % period == 0, side),
            pattern(lambda row, column: row % period == 0, side),
            pattern(lambda row, column: (row + column) % period == 0, side),
            pattern(lambda row, column: (row // period + column // period) % 2, side),
            pattern(lambda row, column: (row % period == 0) & (column % period == 0), side),
        ):
            assert "wrong-axis" not in problems(pictures)
    torch.manual_seed(0)
    tiles = torch.rand(COUNT, 3, period, period).repeat(1, 1, 12, 12)
    assert "wrong-axis" not in problems(tiles)
    assert "wrong-axis" not in problems(torch.randn(COUNT, 3, SIDE, SIDE))
