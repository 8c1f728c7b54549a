"""Small tensors of the six data sets, prepared as a user would."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from benchmarks import data
from benchmarks.corpus._parts import Pair


def _pair(x: data.Array, y: data.Array, count: int) -> tuple[np.ndarray, Tensor]:  # type: ignore[type-arg]
    return np.asarray(x[:count]), torch.as_tensor(np.asarray(y[:count], np.int64))


def circle() -> tuple[Pair, Pair]:
    """Two rings: (700, 2) and (300, 2), labels 0 and 1."""
    d = data.circle()
    return (torch.tensor(d.x_train), torch.tensor(d.y_train)), (torch.tensor(d.x_val), torch.tensor(d.y_val))


def blob() -> tuple[Pair, Pair]:
    """Three clusters: (700, 2) and (300, 2), labels 0 to 2."""
    d = data.blob()
    return (torch.tensor(d.x_train), torch.tensor(d.y_train)), (torch.tensor(d.x_val), torch.tensor(d.y_val))


@cache
def mnist(train: int = 2000, val: int = 500, scale: float = 255.0, flat: bool = False) -> tuple[Pair, Pair]:
    """Digits as floats divided by ``scale``; (n, 1, 28, 28), or (n, 784) when flat."""
    d = data.mnist()
    shape = (-1, 784) if flat else (-1, 1, 28, 28)
    pairs = []
    for x, y, n in ((d.x_train, d.y_train, train), (d.x_val, d.y_val, val)):
        pixels, labels = _pair(x, y, n)
        pairs.append((torch.tensor(pixels.reshape(shape), dtype=torch.float32) / scale, labels))
    return pairs[0], pairs[1]


@cache
def cifar(train: int = 2000, val: int = 500, scale: float = 255.0, centre: float = 0.5) -> tuple[Pair, Pair]:
    """Photographs as floats, (n, 3, 32, 32), divided by ``scale``, centred and doubled."""
    d = data.cifar10()
    pairs = []
    for x, y, n in ((d.x_train, d.y_train, train), (d.x_val, d.y_val, val)):
        pixels, labels = _pair(x, y, n)
        image = torch.tensor(pixels.transpose(0, 3, 1, 2).copy(), dtype=torch.float32) / scale
        pairs.append(((image - centre) * 2 if centre else image, labels))
    return pairs[0], pairs[1]


@cache
def words(
    name: str, train: int = 2000, val: int = 500, length: int = 60, topics: int = 43
) -> tuple[Pair, Pair]:
    """The last ``length`` word ids of texts, (n, length); topics from ``topics`` on are left out."""
    d = data.imdb() if name == "imdb" else data.reuters()
    pairs = []
    for x, y, n in ((d.x_train, d.y_train, train), (d.x_val, d.y_val, val)):
        keep = np.asarray(y) < topics
        pairs.append(
            (torch.as_tensor(np.asarray(x[keep][:n, -length:], np.int64)), _pair(x[keep], y[keep], n)[1])
        )
    return pairs[0], pairs[1]


@cache
def counts(
    name: str, train: int = 2000, val: int = 500, vocabulary: int = 2000, scaled: bool = True
) -> tuple[Pair, Pair]:
    """Texts as word counts, (n, vocabulary): log-scaled to unit length, or as they are."""
    d = data.imdb() if name == "imdb" else data.reuters()
    pairs = []
    for x, y, n in ((d.x_train, d.y_train, train), (d.x_val, d.y_val, val)):
        ids, labels = _pair(x, y, n)
        bag = torch.zeros(len(ids), vocabulary)
        index = torch.as_tensor(ids.astype(np.int64))
        keep = ((index > 3) & (index < vocabulary)).float()
        bag.scatter_add_(1, index.clamp(max=vocabulary - 1), keep)
        if scaled:
            bag = torch.log1p(bag)
            bag = bag / bag.norm(dim=1, keepdim=True).clamp(min=1e-6) * 8
        pairs.append((bag, labels))
    return pairs[0], pairs[1]


def binary(pairs: tuple[Pair, Pair]) -> tuple[Pair, Pair]:
    """Labels as floats of shape (n, 1), for one-unit outputs."""
    (x, y), (xv, yv) = pairs
    return (x, y.float().unsqueeze(1)), (xv, yv.float().unsqueeze(1))


def one_hot(pairs: tuple[Pair, Pair], classes: int) -> tuple[Pair, Pair]:
    """Labels as one-hot floats of shape (n, classes)."""
    (x, y), (xv, yv) = pairs
    eye = torch.eye(classes)
    return (x, eye[y]), (xv, eye[yv])


@cache
def regression(count: int = 800, features: int = 8, noise: float = 0.1, seed: int = 0) -> tuple[Pair, Pair]:
    """A smooth function of several features with unit scale, (n, features) to (n, 1)."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count + 300, features, generator=draw)
    w = torch.randn(features, 3, generator=draw) / features**0.5
    h = x @ w
    y = torch.sin(1.5 * h[:, :1]) + h[:, 1:2] + 0.5 * h[:, 1:2] * h[:, 2:3]
    y = (y - y.mean()) / y.std() + noise * torch.randn(count + 300, 1, generator=draw)
    return (x[:count], y[:count]), (x[count:], y[count:])
