"""Training at the wrong pace: losses that swing, and losses that hardly move."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import sick
from benchmarks.corpus._parts import Parts

_O = "oscillating-loss"
_HIGH = ("learning-rate-too-high",)
_S = "slow-convergence"
_LOW = ("learning-rate-too-low",)


def _ce(model, pairs, opt, batch, epochs) -> Parts:  # type: ignore[no-untyped-def]
    return Parts(model, *pairs, nn.CrossEntropyLoss(), opt, batch, epochs)


@sick("circle-sgd-lr-5", _O, dataset="circle", style="loader", also=_HIGH)
def _(fixed: bool) -> Parts:
    return _ce(lambda: m.mlp([2, 16, 16, 2], nn.Tanh), sets.circle(), m.sgd(0.3 if fixed else 5.0), 32, 40)


@sick("circle-adam-0.3-batch-8", _O, dataset="circle", style="slices", also=_HIGH)
def _(fixed: bool) -> Parts:
    pairs = sets.binary(sets.circle())
    opt = m.adam(5e-3 if fixed else 0.3)
    loss = nn.BCEWithLogitsLoss()
    return Parts(lambda: m.mlp([2, 24, 24, 1], nn.LeakyReLU), *pairs, loss, opt, 8, 10, threshold=0.0)


@sick("blob-momentum-0.99", _O, dataset="blob", style="trainer", also=_HIGH)
def _(fixed: bool) -> Parts:
    opt = m.sgd(0.05, 0.9) if fixed else m.sgd(1.0, 0.99)
    return _ce(lambda: m.mlp([2, 16, 16, 3], nn.Tanh), sets.blob(), opt, 50, 40)


@sick("blob-rmsprop-0.3", _O, dataset="blob", style="accuracy", also=_HIGH)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.Deep([2, 24, 24, 3], torch.tanh), sets.blob(), m.rmsprop(3e-3 if fixed else 0.3), 32, 30
    )


@sick(
    "mnist-relu-20x128",
    _O,
    dataset="mnist",
    style="loader",
    also=(*_HIGH, "vanishing-gradient", "dying-relu"),
)
def _(fixed: bool) -> Parts:
    # AUTOTRAINER's second example, with a step that makes it swing each time.
    def model() -> nn.Module:
        return m.initialised(m.mlp([784] + [128] * 20 + [10], nn.ReLU), m.he)

    return _ce(model, sets.mnist(1500, 400, flat=True), m.adam(3e-4 if fixed else 5e-3), 64, 10)


@sick("mnist-sgd-lr-2", _O, dataset="mnist", style="slices", also=_HIGH)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.ThreeLayer(784, 64, 10, "tanh"),
        sets.mnist(flat=True),
        m.sgd(0.1 if fixed else 2.0, 0.5),
        32,
        8,
    )


@sick(
    "mnist-lenet-adam-0.05",
    _O,
    dataset="mnist",
    family="convolutional",
    style="steps",
    also=(*_HIGH, "dying-relu"),
)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.LeNet(dense=(64,), act=torch.tanh, conv_act=F.leaky_relu),
        sets.mnist(1500, 400),
        m.adam(2e-3 if fixed else 0.05),
        32,
        8,
    )


@sick("mnist-batch-2-lr-0.2", _O, dataset="mnist", style="blind", also=_HIGH)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.mlp([784, 32, 10], nn.Tanh),
        sets.mnist(1500, 400, flat=True),
        m.sgd(0.01 if fixed else 0.5),
        2,
        2,
    )


@sick("cifar-conv-momentum-lr-0.5", _O, dataset="cifar10", family="convolutional", style="loader", also=_HIGH)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.conv_chain(widths=(12, 16, 24), act=nn.GELU),
        sets.cifar(2500),
        m.sgd(0.05 if fixed else 1.5, 0.9),
        64,
        10,
    )


@sick("cifar-batchnorm-adam-0.3", _O, dataset="cifar10", family="convolutional", style="trainer", also=_HIGH)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.conv_chain(widths=(12, 16, 24), norm=True),
        sets.cifar(2500),
        m.adam(3e-3 if fixed else 0.5),
        64,
        8,
    )


@sick("imdb-lstm-adam-0.3", _O, dataset="imdb", family="recurrent", style="loader", also=_HIGH)
def _(fixed: bool) -> Parts:
    return _ce(lambda: m.TextNet(2), sets.words("imdb", 2000, 500, 60), m.adam(5e-3 if fixed else 0.3), 64, 8)


@sick("imdb-transformer-adam-0.05", _O, dataset="imdb", family="transformer", style="steps", also=_HIGH)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.Transformer(2, layers=1, length=50),
        sets.words("imdb", 3000, 500, 50),
        m.adam(2e-3 if fixed else 0.08),
        64,
        6,
    )


@sick("reuters-bag-sgd-lr-60", _O, dataset="reuters", style="accuracy", also=_HIGH)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.mlp([2000, 64, 43], nn.Tanh),
        sets.counts("reuters", 2500),
        m.sgd(0.3 if fixed else 8.0, 0.9),
        64,
        8,
    )


@sick("reuters-gru-adam-0.2", _O, dataset="reuters", family="recurrent", style="slices", also=_HIGH)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.TextNet(43, cell=nn.GRU, hidden=32),
        sets.words("reuters", 2500, 500, 50),
        m.adam(5e-3 if fixed else 0.2),
        64,
        8,
    )


@sick("circle-sgd-1e-4", _S, dataset="circle", style="loader", also=_LOW)
def _(fixed: bool) -> Parts:
    pairs = sets.binary(sets.circle())
    return Parts(
        lambda: m.mlp([2, 16, 16, 1], nn.ReLU),
        *pairs,
        nn.BCEWithLogitsLoss(),
        m.sgd(0.3 if fixed else 1e-4),
        32,
        50,
        threshold=0.0,
    )


@sick("circle-adadelta", _S, dataset="circle", style="blind", also=_LOW)
def _(fixed: bool) -> Parts:
    lr = 1.0 if fixed else 1e-3
    return _ce(
        lambda: m.Deep([2, 24, 24, 2], torch.tanh),
        sets.circle(),
        lambda p: torch.optim.Adadelta(p, lr=lr),
        32,
        60,
    )


@sick("blob-adam-1e-6", _S, dataset="blob", style="accuracy", also=_LOW)
def _(fixed: bool) -> Parts:
    return _ce(lambda: m.mlp([2, 12, 12, 3], nn.Tanh), sets.blob(), m.adam(5e-3 if fixed else 1e-6), 50, 60)


@sick("blob-sgd-decay-to-nothing", _S, dataset="blob", style="slices", also=_LOW)
def _(fixed: bool) -> Parts:
    gamma = 0.99 if fixed else 0.3
    return Parts(
        lambda: m.mlp([2, 16, 16, 3], nn.Sigmoid),
        *sets.blob(),
        nn.CrossEntropyLoss(),
        m.sgd(0.1, 0.9),
        64,
        60,
        schedule=lambda o: torch.optim.lr_scheduler.ExponentialLR(o, gamma),
    )


@sick("mnist-sgd-3e-5", _S, dataset="mnist", style="trainer", also=_LOW)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.ThreeLayer(784, 64, 10), sets.mnist(flat=True), m.sgd(0.1 if fixed else 3e-4), 32, 10
    )


@sick("mnist-adam-3e-6", _S, dataset="mnist", style="loader", also=_LOW)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.mlp([784, 64, 64, 10], nn.GELU),
        sets.mnist(flat=True),
        m.adam(1e-3 if fixed else 3e-6),
        64,
        12,
    )


@sick("mnist-lenet-adagrad-1e-5", _S, dataset="mnist", family="convolutional", style="slices", also=_LOW)
def _(fixed: bool) -> Parts:
    lr = 1e-2 if fixed else 2e-5
    return _ce(m.LeNet, sets.mnist(1500, 400), lambda p: torch.optim.Adagrad(p, lr=lr), 64, 8)


@sick("cifar-conv-sgd-1e-4", _S, dataset="cifar10", family="convolutional", style="loader", also=_LOW)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.conv_chain(widths=(12, 16, 24)),
        sets.cifar(2500),
        m.sgd(0.05 if fixed else 1e-4, 0.9),
        50,
        10,
    )


@sick("cifar-batchnorm-adam-1e-6", _S, dataset="cifar10", family="convolutional", style="steps", also=_LOW)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.conv_chain(widths=(12, 16, 24), norm=True),
        sets.cifar(2500),
        m.adam(3e-3 if fixed else 3e-6),
        64,
        8,
    )


@sick("imdb-lstm-sgd-1e-3", _S, dataset="imdb", family="recurrent", style="trainer", also=_LOW)
def _(fixed: bool) -> Parts:
    opt = m.adam(5e-3) if fixed else m.sgd(1e-3)
    return _ce(lambda: m.TextNet(2), sets.words("imdb", 2000, 500, 60), opt, 64, 8)


@sick("imdb-bag-adam-1e-5", _S, dataset="imdb", style="accuracy", also=_LOW)
def _(fixed: bool) -> Parts:
    pairs = sets.binary(sets.words("imdb", 3000, 600, 120))
    return Parts(
        lambda: m.Bag(1),
        *pairs,
        F.binary_cross_entropy_with_logits,
        m.adam(5e-3 if fixed else 1e-5),
        64,
        8,
        threshold=0.0,
    )


@sick("reuters-counts-sgd-1e-4", _S, dataset="reuters", style="blind", also=_LOW)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.ThreeLayer(2000, 64, 43),
        sets.counts("reuters", 2500),
        m.sgd(0.1 if fixed else 1e-4, 0.9),
        64,
        10,
    )


@sick("reuters-transformer-adam-1e-6", _S, dataset="reuters", family="transformer", style="loader", also=_LOW)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.Transformer(43, layers=1, length=50),
        sets.words("reuters", 2500, 500, 50),
        m.adam(2e-3 if fixed else 3e-6),
        50,
        6,
    )


@sick("reuters-gru-adam-1e-5", _S, dataset="reuters", family="recurrent", style="slices", also=_LOW)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.TextNet(43, cell=nn.GRU, hidden=32),
        sets.words("reuters", 2500, 500, 50),
        m.adam(5e-3 if fixed else 1e-5),
        64,
        8,
    )
