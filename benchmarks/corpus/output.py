"""Last activations that do not fit the task or the loss."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import sick
from benchmarks.corpus._parts import Parts

_A = "improper-output-activation"
_L = "improper-loss"
_softmax = partial(torch.softmax, dim=1)
_log_softmax = partial(F.log_softmax, dim=1)


def _ce(model, pairs, opt, batch, epochs) -> Parts:  # type: ignore[no-untyped-def]
    return Parts(model, *pairs, nn.CrossEntropyLoss(), opt, batch, epochs)


@sick("circle-one-unit-softmax", _A, dataset="circle", style="loader")
def _(fixed: bool) -> Parts:
    pairs = sets.binary(sets.circle())
    last = nn.Sigmoid() if fixed else nn.Softmax(dim=1)
    return Parts(lambda: m.mlp([2, 16, 16, 1], nn.ReLU, last), *pairs, nn.BCELoss(), m.adam(5e-3), 32, 40)


def _rounded(x: Tensor) -> Tensor:
    return torch.sigmoid(x).round()


@sick("circle-rounded-output", _A, dataset="circle", style="slices", also=("vanishing-gradient",))
def _(fixed: bool) -> Parts:
    # Rounding belongs in the metric: in front of the loss it lets no gradient through.
    pairs = sets.binary(sets.circle())
    last = torch.sigmoid if fixed else _rounded
    return Parts(lambda: m.Deep([2, 16, 16, 1], F.relu, last), *pairs, nn.BCELoss(), m.adam(5e-3), 32, 30)


@sick("circle-double-sigmoid", _A, dataset="circle", style="trainer", also=(_L,))
def _(fixed: bool) -> Parts:
    pairs = sets.binary(sets.circle())
    last = None if fixed else nn.Sigmoid()
    model = lambda: m.mlp([2, 16, 16, 1], nn.ReLU, last)  # noqa: E731
    loss = nn.BCEWithLogitsLoss()
    return Parts(model, *pairs, loss, m.sgd(0.05, 0.9), 64, 40, threshold=0.0 if fixed else 0.5)


@sick("blob-relu-output", _A, dataset="blob", style="accuracy")
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.mlp([2, 6, 6, 3], nn.Tanh, None if fixed else nn.ReLU()),
        sets.blob(),
        m.sgd(0.2, 0.9),
        64,
        40,
    )


@sick("blob-tanh-squeezed-logits", _A, dataset="blob", style="steps")
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.Deep([2, 10, 3], torch.tanh, None if fixed else torch.sigmoid),
        sets.blob(),
        m.sgd(0.02),
        64,
        50,
    )


@sick("mnist-double-softmax", _A, dataset="mnist", style="loader", also=(_L,))
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.mlp([784, 64, 64, 10], nn.ReLU, None if fixed else nn.Softmax(dim=1)),
        sets.mnist(flat=True),
        m.sgd(0.05, 0.5),
        64,
        10,
    )


@sick(
    "mnist-lenet-relu-output",
    _A,
    dataset="mnist",
    family="convolutional",
    style="slices",
    also=("dying-relu",),
)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.LeNet(dense=(64,), out=None if fixed else F.relu), sets.mnist(1500, 400), m.adam(), 64, 8
    )


@sick("mnist-lenet-double-softmax", _A, dataset="mnist", family="convolutional", style="trainer", also=(_L,))
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.LeNet(dense=(64,), out=None if fixed else _softmax),
        sets.mnist(1500, 400),
        m.sgd(0.02, 0.9),
        64,
        10,
    )


@sick("cifar-sigmoid-logits", _A, dataset="cifar10", family="convolutional", style="loader", also=(_L,))
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.conv_chain(widths=(12, 16, 24), out=None if fixed else nn.Sigmoid()),
        sets.cifar(2500),
        m.sgd(0.05, 0.9),
        50,
        10,
    )


@sick("imdb-bag-rounded-output", _A, dataset="imdb", style="accuracy", also=("vanishing-gradient",))
def _(fixed: bool) -> Parts:
    pairs = sets.binary(sets.words("imdb", 3000, 600, 120))
    last = torch.sigmoid if fixed else _rounded
    return Parts(lambda: m.Bag(1, out=last), *pairs, F.binary_cross_entropy, m.adam(3e-3), 64, 6)


@sick("imdb-lstm-one-unit-softmax", _A, dataset="imdb", family="recurrent", style="loader")
def _(fixed: bool) -> Parts:
    pairs = sets.binary(sets.words("imdb", 2000, 500, 60))
    return Parts(
        lambda: m.TextNet(1, out=torch.sigmoid if fixed else _softmax),
        *pairs,
        F.binary_cross_entropy,
        m.adam(5e-3),
        64,
        8,
    )


@sick("reuters-double-softmax", _A, dataset="reuters", style="blind", also=(_L,))
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: (
            m.ThreeLayer(2000, 64, 43)
            if fixed
            else nn.Sequential(m.ThreeLayer(2000, 64, 43), nn.Softmax(dim=-1))
        ),
        sets.counts("reuters", 2500),
        m.adam(5e-4),
        64,
        10,
    )


@sick(
    "reuters-transformer-double-softmax",
    _A,
    dataset="reuters",
    family="transformer",
    style="steps",
    also=(_L,),
)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.Transformer(43, layers=1, length=50, out=None if fixed else _softmax),
        sets.words("reuters", 2500, 500, 50),
        m.adam(2e-3),
        50,
        6,
    )


@sick("regression-sigmoid-output", _A, dataset="generated", style="slices")
def _(fixed: bool) -> Parts:
    last = None if fixed else nn.Sigmoid()
    return Parts(
        lambda: m.mlp([8, 32, 32, 1], nn.ReLU, last),
        *sets.regression(),
        nn.MSELoss(),
        m.adam(5e-3),
        32,
        30,
        "r2",
    )


@sick("regression-relu-output", _A, dataset="generated", style="trainer")
def _(fixed: bool) -> Parts:
    return Parts(
        lambda: m.Deep([8, 32, 32, 1], torch.tanh, None if fixed else F.relu),
        *sets.regression(seed=1),
        F.mse_loss,
        m.adam(5e-3),
        32,
        30,
        "r2",
    )


@sick("regression-tanh-output-wide-targets", _A, dataset="generated", style="loader")
def _(fixed: bool) -> Parts:
    (x, y), (xv, yv) = sets.regression(seed=2)
    return Parts(
        lambda: m.ThreeLayer(8, 32, 1, out="" if fixed else "tanh"),
        (x, 5 * y),
        (xv, 5 * yv),
        nn.SmoothL1Loss(),
        m.adam(5e-3),
        32,
        30,
        "r2",
    )
