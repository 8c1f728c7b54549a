"""Data that a network cannot digest: raw scales, outliers, missing values, shifted or dominating features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import sick
from benchmarks.corpus._parts import Pair, Parts

_P = "abnormal-data"


def _ce(model, pairs, opt, batch, epochs) -> Parts:  # type: ignore[no-untyped-def]
    return Parts(model, *pairs, nn.CrossEntropyLoss(), opt, batch, epochs)


def _mapped(pairs: tuple[Pair, Pair], change) -> tuple[Pair, Pair]:  # type: ignore[no-untyped-def]
    (x, y), (xv, yv) = pairs
    return (change(x), y), (change(xv), yv)


@sick("circle-times-500", _P, dataset="circle", style="loader")
def _(fixed: bool) -> Parts:
    pairs = sets.binary(_mapped(sets.circle(), lambda x: x if fixed else 500 * x))
    return Parts(
        lambda: m.mlp([2, 16, 16, 1], nn.Tanh),
        *pairs,
        nn.BCEWithLogitsLoss(),
        m.adam(5e-3),
        32,
        40,
        threshold=0.0,
    )


@sick("circle-offset-1000", _P, dataset="circle", style="slices")
def _(fixed: bool) -> Parts:
    # Coordinates counted from a far origin.
    pairs = _mapped(sets.circle(), lambda x: x if fixed else x + 1000)
    return _ce(lambda: m.mlp([2, 16, 16, 2], nn.ReLU), pairs, m.adam(5e-3), 32, 40)


@sick("circle-timestamp-column", _P, dataset="circle", style="accuracy")
def _(fixed: bool) -> Parts:
    # A row number in seconds since 1970 rides along with two good features.
    def change(x: Tensor) -> Tensor:
        clock = torch.linspace(-1, 1, len(x)).unsqueeze(1)
        return torch.cat([x, clock if fixed else 1.6e9 + 5e5 * clock], dim=1)

    pairs = _mapped(sets.circle(), change)
    return _ce(lambda: m.Deep([3, 24, 24, 2], F.relu), pairs, m.adam(5e-3), 32, 40)


@sick("circle-few-missing", _P, dataset="circle", style="trainer", also=("non-finite",))
def _(fixed: bool) -> Parts:
    (x, y), val = sets.circle()
    x = x.clone()
    rows = torch.arange(13, len(x), 97)
    x[rows, 0] = 0.0 if fixed else float("nan")
    return _ce(lambda: m.mlp([2, 16, 16, 2], nn.Tanh), ((x, y), val), m.adam(5e-3), 32, 40)


@sick("blob-one-outlier-per-hundred", _P, dataset="blob", style="loader")
def _(fixed: bool) -> Parts:
    # A sensor that returns 1e5 when it fails.
    (x, y), val = sets.blob()
    x = x.clone()
    rows = torch.arange(5, len(x), 60)
    if fixed:
        x[rows] = x.median(dim=0).values
    else:
        x[rows, 1] = 1e5
    return _ce(lambda: m.mlp([2, 16, 16, 3], nn.ReLU), ((x, y), val), m.sgd(0.02, 0.9), 32, 40)


@sick("blob-times-1000-sgd", _P, dataset="blob", style="steps", also=("exploding-gradient", "non-finite"))
def _(fixed: bool) -> Parts:
    pairs = _mapped(sets.blob(), lambda x: x / 5 if fixed else 1000 * x)
    return _ce(lambda: m.Deep([2, 20, 20, 3], F.relu), pairs, m.sgd(0.02, 0.9), 64, 40)


@sick("blob-tiny-scale", _P, dataset="blob", style="blind", also=("slow-convergence",))
def _(fixed: bool) -> Parts:
    # Metres where kilometres were meant, the other way round: everything is within 1e-3 of zero.
    pairs = _mapped(sets.blob(), lambda x: x / 5 if fixed else x * 1e-4)
    return _ce(lambda: m.mlp([2, 16, 16, 3], nn.ReLU), pairs, m.sgd(0.05, 0.9), 64, 30)


@sick("mnist-bytes-sgd", _P, dataset="mnist", style="loader", also=("exploding-gradient", "dying-relu"))
def _(fixed: bool) -> Parts:
    pairs = sets.mnist(flat=True) if fixed else sets.mnist(flat=True, scale=1.0)
    return _ce(lambda: m.mlp([784, 64, 64, 10], nn.ReLU), pairs, m.sgd(0.05, 0.9), 64, 10)


@sick("mnist-bytes-tanh", _P, dataset="mnist", style="slices", also=("saturated-activation",))
def _(fixed: bool) -> Parts:
    pairs = sets.mnist(flat=True) if fixed else sets.mnist(flat=True, scale=1.0)
    return _ce(lambda: m.ThreeLayer(784, 48, 10, "tanh"), pairs, m.adam(), 64, 8)


@sick(
    "mnist-dark-offset-lenet",
    _P,
    dataset="mnist",
    family="convolutional",
    style="trainer",
    also=("saturated-activation",),
)
def _(fixed: bool) -> Parts:
    # The camera adds a constant that was never subtracted.
    pairs = _mapped(sets.mnist(1500, 400), lambda x: x if fixed else x + 60)
    return _ce(lambda: m.LeNet(dense=(48,), act=torch.tanh, conv_act=torch.tanh), pairs, m.adam(2e-3), 64, 8)


@sick("mnist-divided-twice", _P, dataset="mnist", style="accuracy", also=("slow-convergence",))
def _(fixed: bool) -> Parts:
    # ToTensor had already divided by 255.
    pairs = sets.mnist(flat=True) if fixed else sets.mnist(flat=True, scale=255.0 * 255.0)
    return _ce(lambda: m.mlp([784, 64, 64, 10], nn.ReLU), pairs, m.sgd(0.05, 0.9), 64, 10)


@sick(
    "mnist-rows-bytes-lstm",
    _P,
    dataset="mnist",
    family="recurrent",
    style="loader",
    also=("saturated-activation",),
)
def _(fixed: bool) -> Parts:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(28, 32, batch_first=True)
            self.out = nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.lstm(x.squeeze(1))[0][:, -1])

    pairs = sets.mnist(1500, 400) if fixed else sets.mnist(1500, 400, scale=0.2)
    return _ce(Rows, pairs, m.adam(4e-3), 64, 8)


@sick(
    "cifar-bytes-sgd",
    _P,
    dataset="cifar10",
    family="convolutional",
    style="loader",
    also=("exploding-gradient", "dying-relu"),
)
def _(fixed: bool) -> Parts:
    pairs = sets.cifar(2500) if fixed else sets.cifar(2500, scale=1.0, centre=0.0)
    return _ce(lambda: m.LeNet(3, 32, dense=(64,)), pairs, m.sgd(0.02, 0.9), 64, 8)


@sick(
    "cifar-bytes-sixteen-bit",
    _P,
    dataset="cifar10",
    family="convolutional",
    style="accuracy",
    also=("exploding-gradient", "dying-relu"),
)
def _(fixed: bool) -> Parts:
    pairs = sets.cifar(2500) if fixed else sets.cifar(2500, scale=1 / 257, centre=0.0)
    return _ce(lambda: m.conv_chain(widths=(12, 16, 24), act=nn.ELU), pairs, m.adam(2e-3), 64, 8)


@sick("imdb-raw-ids-as-numbers", _P, dataset="imdb", style="slices")
def _(fixed: bool) -> Parts:
    # Word ids fed to a linear layer as if they were quantities; the cure is to count the words.
    if fixed:
        pairs = sets.counts("imdb")
        return _ce(lambda: m.mlp([2000, 32, 2], nn.ReLU), pairs, m.adam(), 64, 8)
    (x, y), (xv, yv) = sets.words("imdb", 2000, 500, 200)
    return _ce(lambda: m.mlp([200, 32, 2], nn.ReLU), ((x.float(), y), (xv.float(), yv)), m.adam(), 64, 8)


@sick("imdb-length-feature-huge", _P, dataset="imdb", style="trainer")
def _(fixed: bool) -> Parts:
    def change(x: Tensor) -> Tensor:
        size = x.sum(dim=1, keepdim=True)
        size = (size - 40) / 10 if fixed else size * 1e4
        return torch.cat([x, size], dim=1)

    pairs = sets.binary(_mapped(sets.counts("imdb"), change))
    return Parts(
        lambda: m.mlp([2001, 32, 1], nn.Tanh), *pairs, nn.BCEWithLogitsLoss(), m.adam(), 64, 8, threshold=0.0
    )


@sick(
    "reuters-counts-times-1000",
    _P,
    dataset="reuters",
    style="steps",
    also=("exploding-gradient", "dying-relu"),
)
def _(fixed: bool) -> Parts:
    pairs = _mapped(sets.counts("reuters", 2500), lambda x: x if fixed else 1000 * x)
    return _ce(lambda: m.ThreeLayer(2000, 64, 43), pairs, m.sgd(0.05, 0.9), 64, 8)


@sick("reuters-counts-infinite-idf", _P, dataset="reuters", style="loader", also=("non-finite",))
def _(fixed: bool) -> Parts:
    # log(n / document frequency): infinite for words that no training text holds.
    (x, y), (xv, yv) = sets.counts("reuters", 2500)
    frequency = (x > 0).sum(dim=0).float()
    idf = torch.log(len(x) / (frequency + 1 if fixed else frequency))
    return _ce(
        lambda: m.mlp([2000, 64, 43], nn.ReLU), ((x * idf / 3, y), (xv * idf / 3, yv)), m.adam(), 64, 8
    )


@sick(
    "regression-targets-times-1e4",
    _P,
    dataset="generated",
    style="loader",
    also=("exploding-gradient", "slow-convergence"),
)
def _(fixed: bool) -> Parts:
    # House prices in full, with a learning rate made for unit scale.
    (x, y), (xv, yv) = sets.regression(seed=4)
    factor, shift = (1.0, 0.0) if fixed else (1e4, 5e5)
    return Parts(
        lambda: m.mlp([8, 32, 32, 1]),
        (x, y * factor + shift),
        (xv, yv * factor + shift),
        nn.MSELoss(),
        m.adam(3e-3),
        32,
        30,
        "r2",
    )


@sick(
    "regression-feature-in-millions", _P, dataset="generated", style="accuracy", also=("exploding-gradient",)
)
def _(fixed: bool) -> Parts:
    pairs = sets.regression(seed=5)
    if not fixed:
        pairs = _mapped(pairs, lambda x: x * torch.tensor([1.0, 1.0, 1e6, 1.0, 1.0, 1e3, 1.0, 1.0]))
    return Parts(lambda: m.ThreeLayer(8, 32, 1), *pairs, F.mse_loss, m.adam(3e-3), 32, 30, "r2")


@sick("regression-missing-as-9999", _P, dataset="generated", style="slices")
def _(fixed: bool) -> Parts:
    (x, y), (xv, yv) = sets.regression(seed=6)
    x, xv = x.clone(), xv.clone()
    for part in (x, xv):
        rows = torch.arange(3, len(part), 12)
        part[rows, 1] = 0.0 if fixed else -9999.0
    return Parts(
        lambda: m.mlp([8, 32, 32, 1], nn.Tanh), (x, y), (xv, yv), nn.MSELoss(), m.sgd(0.05, 0.9), 32, 30, "r2"
    )
