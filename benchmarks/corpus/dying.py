"""ReLUs that are dead or die. The cure: fitting weights, a smaller step, another activation."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import sick
from benchmarks.corpus._parts import Parts

_P = "dying-relu"
_INIT = ("poor-initialisation",)
_LR = ("learning-rate-too-high",)


def _ce(model, pairs, opt, batch, epochs) -> Parts:  # type: ignore[no-untyped-def]
    return Parts(model, *pairs, nn.CrossEntropyLoss(), opt, batch, epochs)


@sick("circle-relu-negative-bias", _P, dataset="circle", style="slices", also=_INIT)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.Deep([2, 32, 32, 2], F.relu), m.he, bias=0.0 if fixed else -4.0)

    return _ce(model, sets.circle(), m.sgd(0.05, 0.9), 50, 40)


@sick("circle-relu-adam-0.3", _P, dataset="circle", style="accuracy", also=_LR)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.mlp([2, 16, 16, 16, 2], nn.ReLU), sets.circle(), m.adam(5e-3 if fixed else 0.3), 32, 30
    )


@sick("blob-relu-30x4", _P, dataset="blob", style="trainer", also=_INIT)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.mlp([2] + [4] * 30 + [3], nn.SELU if fixed else nn.ReLU)
        return m.initialised(net, m.lecun if fixed else m.he)

    return _ce(model, sets.blob(), m.adam(2e-3), 128, 80)


@sick("blob-relu-negative-weights", _P, dataset="blob", style="blind", also=_INIT)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.mlp([2, 24, 24, 24, 3], nn.ReLU), m.he if fixed else m.uniform(-0.5, 0.02))

    return _ce(model, sets.blob(), m.sgd(0.02, 0.9), 64, 40)


@sick("blob-relu-momentum-kick", _P, dataset="blob", style="steps", also=_LR)
def _(fixed: bool) -> Parts:
    lr = 0.01 if fixed else 1.0
    return _ce(lambda: m.Deep([2, 20, 20, 20, 3], F.relu), sets.blob(), m.sgd(lr, 0.9), 64, 50)


@sick(
    "mnist-relu-34x128",
    _P,
    dataset="mnist",
    style="loader",
    also=("vanishing-gradient", "poor-initialisation"),
)
def _(fixed: bool) -> Parts:
    # AUTOTRAINER's first example, its weights drawn as Keras does.
    def model() -> nn.Module:
        net = m.mlp([784] + [128] * 34 + [10], nn.SELU if fixed else nn.ReLU)
        return m.initialised(net, m.lecun if fixed else m.xavier)

    return _ce(model, sets.mnist(1500, 400, flat=True), m.adam(5e-4 if fixed else 1e-3), 64, 8)


@sick("mnist-relu-adam-0.1", _P, dataset="mnist", style="slices", also=_LR)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.Deep([784, 64, 64, 64, 64, 10], F.relu),
        sets.mnist(flat=True),
        m.adam(1e-3 if fixed else 0.1),
        64,
        8,
    )


@sick("mnist-lenet-bias-minus-2", _P, dataset="mnist", family="convolutional", style="loader", also=_INIT)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.LeNet(dense=(64, 64)), m.he, bias=0.0 if fixed else -2.0)

    return _ce(model, sets.mnist(1500, 400), m.adam(), 64, 8)


@sick("mnist-conv-lr-kick", _P, dataset="mnist", family="convolutional", style="trainer", also=_LR)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.conv_chain(1, widths=(8, 16, 16)),
        sets.mnist(1500, 400),
        m.adam(2e-3 if fixed else 0.2),
        50,
        10,
    )


@sick(
    "cifar-lenet-negative-weights",
    _P,
    dataset="cifar10",
    family="convolutional",
    style="accuracy",
    also=_INIT,
)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.LeNet(3, 32, dense=(64, 64)), m.he if fixed else m.uniform(-0.12, 0.0))

    return _ce(model, sets.cifar(2500), m.adam(), 64, 8)


@sick("cifar-relu-rmsprop-kick", _P, dataset="cifar10", family="convolutional", style="loader", also=_LR)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.LeNet(3, 32, dense=(84, 84)), sets.cifar(2500), m.rmsprop(1e-3 if fixed else 0.05), 64, 8
    )


@sick("imdb-counts-dead-first-layer", _P, dataset="imdb", style="loader", also=_INIT)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.mlp([2000, 48, 48, 1], nn.ReLU)
        nn.init.constant_(net[0].bias, 0.0 if fixed else -6.0)  # type: ignore[arg-type]
        return net

    pairs = sets.binary(sets.counts("imdb"))
    return Parts(model, *pairs, F.binary_cross_entropy_with_logits, m.adam(), 64, 8, threshold=0.0)


@sick(
    "imdb-bag-relu-16", _P, dataset="imdb", style="steps", also=("vanishing-gradient", "poor-initialisation")
)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.Bag(2, dense=[8] * 16, act=F.selu if fixed else F.relu)
        return m.initialised(net, m.lecun if fixed else m.he)

    return _ce(model, sets.words("imdb", 3000, 600, 120), m.adam(2e-3), 64, 8)


@sick("reuters-counts-lr-kick", _P, dataset="reuters", style="trainer", also=_LR)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.ThreeLayer(2000, 64, 43),
        sets.counts("reuters", 2500),
        m.adam(1e-3 if fixed else 0.3),
        64,
        8,
    )


@sick("reuters-lstm-dead-tail", _P, dataset="reuters", family="recurrent", style="slices", also=_INIT)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.TextNet(43, hidden=32, dense=(48, 48), act=F.relu)
        for layer in net.dense:
            nn.init.constant_(layer.bias, 0.1 if fixed else -3.0)  # type: ignore[arg-type]
        return net

    return _ce(model, sets.words("reuters", 2500, 500, 50), m.adam(4e-3), 64, 8)


@sick(
    "reuters-transformer-dead-tail", _P, dataset="reuters", family="transformer", style="loader", also=_INIT
)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        body = m.Transformer(48, layers=1, length=50)
        tail = m.initialised(m.mlp([48, 48, 48, 43], nn.ReLU), m.he, bias=0.0 if fixed else -5.0)
        return nn.Sequential(body, nn.ReLU(), tail)

    return _ce(model, sets.words("reuters", 2500, 500, 50), m.adam(2e-3), 50, 6)
