"""Gradients that die out on their way to the first layers. The cure: another activation, drawn to fit."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import sick
from benchmarks.corpus._parts import Parts

_P = "vanishing-gradient"
_INIT = ("poor-initialisation",)


def _bce(model, pairs, opt, batch, epochs) -> Parts:  # type: ignore[no-untyped-def]
    return Parts(
        model, *sets.binary(pairs), F.binary_cross_entropy_with_logits, opt, batch, epochs, threshold=0.0
    )


def _ce(model, pairs, opt, batch, epochs) -> Parts:  # type: ignore[no-untyped-def]
    return Parts(model, *pairs, nn.CrossEntropyLoss(), opt, batch, epochs)


@sick("circle-sigmoid-12x5", _P, dataset="circle", style="loader", also=("saturated-activation",))
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.mlp([2] + [5] * 12 + [1], nn.SELU if fixed else nn.Sigmoid)
        return m.initialised(net, m.lecun) if fixed else net

    return _bce(model, sets.circle(), m.adam(1e-2), 128, 120)


@sick("circle-sigmoid-8x16", _P, dataset="circle", style="slices")
def _(fixed: bool) -> Parts:
    return _bce(
        lambda: m.mlp([2] + [16] * 8 + [1], nn.ELU if fixed else nn.Sigmoid), sets.circle(), m.adam(), 64, 80
    )


@sick("circle-hardsigmoid-6x8", _P, dataset="circle", style="blind", also=("saturated-activation",))
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.Deep([2] + [8] * 6 + [1], torch.tanh if fixed else F.hardsigmoid)
        return m.initialised(net, m.xavier) if fixed else net

    return _bce(model, sets.circle(), m.sgd(0.1, 0.9), 50, 80)


@sick("circle-tanh-tiny-init", _P, dataset="circle", style="trainer", also=_INIT)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.mlp([2] + [10] * 7 + [2], nn.Tanh)
        return m.initialised(net, m.xavier if fixed else m.normal(0.02))

    return _ce(model, sets.circle(), m.sgd(0.05, 0.9), 70, 80)


@sick("blob-sigmoid-14x10", _P, dataset="blob", style="accuracy")
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.mlp([2] + [10] * 14 + [3], nn.SELU if fixed else nn.Sigmoid), m.lecun)

    return _ce(model, sets.blob(), m.adam(), 128, 150)


@sick("blob-sigmoid-9x5", _P, dataset="blob", style="steps")
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.Deep([2] + [5] * 9 + [3], F.elu if fixed else torch.sigmoid),
        sets.blob(),
        m.adam(3e-3),
        64,
        80,
    )


@sick("blob-softmax-hidden", _P, dataset="blob", style="loader", also=("saturated-activation",))
def _(fixed: bool) -> Parts:
    # Somebody put a softmax after every layer, not only after the last.
    return _ce(
        lambda: m.mlp([2] + [16] * 6 + [3], nn.ReLU if fixed else lambda: nn.Softmax(dim=1)),
        sets.blob(),
        m.adam(),
        32,
        40,
    )


@sick("mnist-sigmoid-8x64", _P, dataset="mnist", style="loader")
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.mlp([784] + [64] * 8 + [10], nn.ELU if fixed else nn.Sigmoid),
        sets.mnist(flat=True),
        m.adam(),
        64,
        10,
    )


@sick("mnist-sigmoid-5x96-sgd", _P, dataset="mnist", style="accuracy")
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.Deep([784] + [96] * 5 + [10], F.relu if fixed else torch.sigmoid),
        sets.mnist(flat=True),
        m.sgd(0.05, 0.9),
        64,
        12,
    )


@sick("mnist-lenet-sigmoid-tail", _P, dataset="mnist", family="convolutional", style="trainer")
def _(fixed: bool) -> Parts:
    act = F.leaky_relu if fixed else torch.sigmoid
    return _ce(lambda: m.LeNet(dense=[64] * 7, act=act), sets.mnist(1500, 400), m.adam(), 64, 8)


@sick("mnist-tanh-tiny-init-10", _P, dataset="mnist", style="slices", also=_INIT)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        return m.initialised(
            m.Deep([784] + [64] * 10 + [10], torch.tanh), m.xavier if fixed else m.normal(0.01)
        )

    return _ce(model, sets.mnist(flat=True), m.adam(), 100, 12)


@sick("mnist-relu-small-init-12", _P, dataset="mnist", style="blind", also=_INIT)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.mlp([784] + [80] * 12 + [10], nn.ReLU)
        return m.initialised(net, m.he if fixed else m.normal(0.03))

    return _ce(model, sets.mnist(flat=True), m.sgd(0.02, 0.9), 64, 10)


@sick("mnist-rows-rnn-sigmoid-stack", _P, dataset="mnist", family="recurrent", style="loader")
def _(fixed: bool) -> Parts:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(28, 32, batch_first=True)
            self.tail = m.mlp([32] + [32] * 6 + [10], nn.ReLU if fixed else nn.Sigmoid)
            if fixed:
                m.initialised(self.tail, m.he)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            _, h = self.rnn(x.squeeze(1))
            return self.tail(h[-1])

    return _ce(Rows, sets.mnist(1500, 400), m.adam(2e-3), 64, 12)


@sick("cifar-lenet-sigmoid", _P, dataset="cifar10", family="convolutional", style="loader")
def _(fixed: bool) -> Parts:
    act = F.relu if fixed else torch.sigmoid
    return _ce(
        lambda: m.LeNet(3, 32, dense=[84, 64, 48, 32], act=act, conv_act=act),
        sets.cifar(2500),
        m.adam(),
        64,
        10,
    )


@sick("cifar-conv-sigmoid-deep", _P, dataset="cifar10", family="convolutional", style="steps")
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.conv_chain(widths=(8, 16, 16, 16), act=nn.ELU if fixed else nn.Sigmoid, norm=False),
        sets.cifar(),
        m.adam(2e-3),
        50,
        10,
    )


@sick("imdb-bag-sigmoid-6", _P, dataset="imdb", style="slices")
def _(fixed: bool) -> Parts:
    act = F.relu if fixed else torch.sigmoid
    return _bce(
        lambda: m.Bag(1, dense=[32] * 6, act=act), sets.words("imdb", 3000, 600, 120), m.adam(3e-3), 64, 6
    )


@sick("imdb-lstm-sigmoid-tail-9", _P, dataset="imdb", family="recurrent", style="loader")
def _(fixed: bool) -> Parts:
    act = F.relu if fixed else torch.sigmoid
    return _ce(
        lambda: m.TextNet(2, dense=[24] * 9, act=act), sets.words("imdb", 2000, 500, 60), m.adam(4e-3), 64, 8
    )


@sick("reuters-bag-sigmoid-7", _P, dataset="reuters", style="trainer")
def _(fixed: bool) -> Parts:
    act = F.leaky_relu if fixed else torch.sigmoid
    return _ce(
        lambda: m.Bag(43, embed=48, dense=[64] * 7, act=act),
        sets.words("reuters", 3000, 600, 100),
        m.adam(3e-3),
        64,
        10,
    )


@sick("reuters-gru-sigmoid-tail-9", _P, dataset="reuters", family="recurrent", style="accuracy")
def _(fixed: bool) -> Parts:
    act = F.elu if fixed else torch.sigmoid
    return _ce(
        lambda: m.TextNet(43, cell=nn.GRU, hidden=32, dense=[32] * 9, act=act),
        sets.words("reuters", 2500, 500, 60),
        m.adam(4e-3),
        64,
        8,
    )


@sick("reuters-transformer-no-skip", _P, dataset="reuters", family="transformer", style="loader", also=_INIT)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.HandTransformer(43, layers=5, residual=fixed, norm=fixed),
        sets.words("reuters", 2500, 500, 50),
        m.adam(1e-3),
        50,
        7,
    )


@sick("imdb-transformer-sigmoid-tail", _P, dataset="imdb", family="transformer", style="steps")
def _(fixed: bool) -> Parts:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = m.Transformer(32, layers=1, width=32)
            self.tail = m.Deep([32] + [32] * 5 + [2], F.relu if fixed else torch.sigmoid)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.tail(self.body(ids))

    return _ce(Net, sets.words("imdb", 3000, 500, 60), m.adam(2e-3), 64, 6)
