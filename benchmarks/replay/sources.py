"""Data of the programs: real where it is there, drawn from a fixed stream otherwise."""

from __future__ import annotations

import os
import random
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset


def _folder() -> Path:
    named = os.environ.get("AKESO_DATA")
    return Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "data"


@cache
def images(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Digits of 28×28, or patterns of ten kinds in noise where they are not there."""
    path = _folder() / "mnist.npz"
    if path.is_file():
        with np.load(path) as held:
            x, y = held["x_train"][:count], held["y_train"][:count]
        return torch.from_numpy(x).float().div(255).unsqueeze(1), torch.from_numpy(y).long()
    draw = np.random.default_rng(0)
    y = draw.integers(0, 10, count)
    x = draw.normal(size=(10, 1, 28, 28))[y] + draw.normal(size=(count, 1, 28, 28))
    return torch.from_numpy(x).float(), torch.from_numpy(y).long()


@cache
def words(count: int, length: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Film reviews as word numbers with their verdict, or drawn sequences whose first words decide."""
    path = _folder() / "imdb.npz"
    if path.is_file():
        with np.load(path) as held:
            x, y = held["x_train"][:count, :length].astype(np.int64) % 2000, held["y_train"][:count]
        return torch.from_numpy(x), torch.from_numpy(y).long()
    x = np.random.default_rng(1).integers(0, 2000, (count, length))
    return torch.from_numpy(x), torch.from_numpy(x[:, :4].sum(1) % 2).long()


@cache
def text(count: int, length: int = 32) -> torch.Tensor:
    """Windows of characters."""
    path = _folder() / "tinyshakespeare.txt"
    raw = path.read_bytes()[: count * length * 2] if path.is_file() else bytes(range(32, 127)) * count
    data = torch.from_numpy(np.frombuffer(raw, np.uint8).astype(np.int64) % 128)
    starts = torch.arange(count) * (data.numel() - length - 1) // count
    return torch.stack([data[start : start + length + 1] for start in starts.tolist()])


class Pictures(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Pictures read one by one, augmented with all that people use: random, NumPy, torch, a generator of its own."""

    def __init__(self, count: int, views: int = 1) -> None:
        self.x, self.y = images(count)
        self.views = views
        self.rng = np.random.default_rng()  # deliberately unseeded: keyed randomness must take it over

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        shown = [self._view(self.x[index]) for _ in range(self.views)]
        return (shown[0] if self.views == 1 else torch.stack(shown)), self.y[index]

    def _view(self, picture: torch.Tensor) -> torch.Tensor:
        if random.random() < 0.5:
            picture = picture.flip(-1)
        row, column = np.random.randint(-3, 4, 2)
        picture = picture.roll((int(row), int(column)), (-2, -1))
        picture = picture * float(self.rng.uniform(0.8, 1.2))
        return picture + 0.05 * torch.randn(picture.shape)
