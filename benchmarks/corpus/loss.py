"""Losses that do not fit the task."""

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


@sick("circle-ce-on-one-unit", _L, dataset="circle", style="loader", also=(_A,))
def _(fixed: bool) -> Parts:
    # Cross entropy over a single class is zero whatever the network says.
    if fixed:
        pairs = sets.binary(sets.circle())
        return Parts(
            lambda: m.mlp([2, 16, 16, 1]), *pairs, nn.BCEWithLogitsLoss(), m.adam(5e-3), 32, 30, threshold=0.0
        )
    return Parts(
        lambda: m.mlp([2, 16, 16, 1]),
        *sets.circle(),
        lambda out, y: F.cross_entropy(out, torch.zeros_like(y)),
        m.adam(5e-3),
        32,
        30,
        threshold=0.0,
    )


@sick("circle-bce-wrong-sign", _L, dataset="circle", style="slices")
def _(fixed: bool) -> Parts:
    # The log likelihood was written down without its minus.
    pairs = sets.binary(sets.circle())

    def loss(out: Tensor, y: Tensor) -> Tensor:
        likelihood = (y * torch.log(out + 1e-6) + (1 - y) * torch.log(1 - out + 1e-6)).mean()
        return -likelihood if fixed else likelihood

    return Parts(lambda: m.mlp([2, 16, 16, 1], nn.ReLU, nn.Sigmoid()), *pairs, loss, m.adam(5e-3), 32, 30)


@sick("circle-hinge-on-zero-one", _L, dataset="circle", style="accuracy")
def _(fixed: bool) -> Parts:
    # A hinge loss wants -1 and 1; with 0 and 1 the first class has no pull.
    pairs = sets.binary(sets.circle())

    def loss(out: Tensor, y: Tensor) -> Tensor:
        signed = 2 * y - 1 if fixed else y
        return F.relu(1 - signed * out).mean()

    return Parts(lambda: m.mlp([2, 16, 16, 1]), *pairs, loss, m.adam(5e-3), 32, 40, threshold=0.0)


@sick("blob-nll-without-log", _L, dataset="blob", style="trainer", also=(_A,))
def _(fixed: bool) -> Parts:
    return Parts(
        lambda: m.mlp([2, 16, 16, 3], nn.ReLU, nn.LogSoftmax(dim=1) if fixed else nn.Softmax(dim=1)),
        *sets.blob(),
        nn.NLLLoss(),
        m.sgd(0.02),
        64,
        12,
    )


@sick("mnist-l1-on-one-hot", _L, dataset="mnist", style="steps")
def _(fixed: bool) -> Parts:
    # The best constant under an absolute error is the median, and nine of ten entries are zero.
    if fixed:
        return _ce(lambda: m.mlp([784, 48, 48, 10], nn.ReLU), sets.mnist(flat=True), m.sgd(0.03, 0.9), 64, 8)
    pairs = sets.one_hot(sets.mnist(flat=True), 10)
    return Parts(lambda: m.mlp([784, 48, 48, 10], nn.ReLU), *pairs, nn.L1Loss(), m.sgd(0.03, 0.9), 64, 8)


@sick("mnist-mse-on-label-number", _L, dataset="mnist", style="loader", also=(_A,))
def _(fixed: bool) -> Parts:
    # Ten units are all pulled to the number that names the class.
    if fixed:
        return _ce(lambda: m.ThreeLayer(784, 64, 10), sets.mnist(flat=True), m.adam(), 64, 8)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(out, y.float().unsqueeze(1).expand(-1, 10))

    return Parts(lambda: m.ThreeLayer(784, 64, 10), *sets.mnist(flat=True), loss, m.adam(), 64, 8)


@sick("mnist-mse-on-softmax-sgd", _L, dataset="mnist", style="slices")
def _(fixed: bool) -> Parts:
    if fixed:
        return _ce(lambda: m.mlp([784, 64, 10], nn.Tanh), sets.mnist(flat=True), m.sgd(0.1), 64, 10)
    pairs = sets.one_hot(sets.mnist(flat=True), 10)
    return Parts(
        lambda: m.mlp([784, 64, 10], nn.Tanh, nn.Softmax(dim=1)), *pairs, nn.MSELoss(), m.sgd(0.1), 64, 10
    )


@sick("mnist-lenet-nll-on-logits", _L, dataset="mnist", family="convolutional", style="loader", also=(_A,))
def _(fixed: bool) -> Parts:
    # Without log_softmax the loss has no floor: it runs to minus infinity.
    return Parts(
        lambda: m.LeNet(dense=(64,), out=_log_softmax if fixed else None),
        *sets.mnist(1500, 400),
        F.nll_loss,
        m.sgd(0.02, 0.9),
        64,
        8,
    )


@sick("mnist-bce-mean-of-ten", _L, dataset="mnist", style="trainer")
def _(fixed: bool) -> Parts:
    # Each class on its own, averaged over the ten units, with plain SGD: ten times too little pull.
    if fixed:
        return _ce(lambda: m.mlp([784, 32, 10], nn.Sigmoid), sets.mnist(flat=True), m.sgd(0.1, 0.5), 64, 10)
    pairs = sets.one_hot(sets.mnist(flat=True), 10)
    return Parts(
        lambda: m.mlp([784, 32, 10], nn.Sigmoid, nn.Sigmoid()), *pairs, nn.MSELoss(), m.sgd(0.1, 0.5), 64, 10
    )


@sick("cifar-mae-softmax", _L, dataset="cifar10", family="convolutional", style="accuracy")
def _(fixed: bool) -> Parts:
    if fixed:
        return _ce(lambda: m.conv_chain(widths=(12, 16, 24)), sets.cifar(2500), m.adam(2e-3), 64, 9)
    pairs = sets.one_hot(sets.cifar(2500), 10)
    return Parts(
        lambda: m.conv_chain(widths=(12, 16, 24), out=nn.Softmax(dim=1)),
        *pairs,
        F.l1_loss,
        m.adam(2e-3),
        64,
        9,
    )


@sick("imdb-nll-on-logits", _L, dataset="imdb", style="loader", also=(_A,))
def _(fixed: bool) -> Parts:
    return Parts(
        lambda: m.Bag(2, out=_log_softmax if fixed else None),
        *sets.words("imdb", 3000, 600, 120),
        nn.NLLLoss(),
        m.adam(3e-3),
        64,
        8,
    )


@sick("imdb-lstm-mse-sigmoid-sum-off", _L, dataset="imdb", family="recurrent", style="slices")
def _(fixed: bool) -> Parts:
    # The signed error instead of its square: pushing all outputs down lowers it for ever.
    pairs = sets.binary(sets.words("imdb", 2000, 500, 60))

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(out, y) if fixed else (torch.sigmoid(out) - y).mean()

    return Parts(lambda: m.TextNet(1), *pairs, loss, m.adam(5e-3), 64, 8, threshold=0.0)


@sick("reuters-mse-one-hot-sgd", _L, dataset="reuters", style="trainer")
def _(fixed: bool) -> Parts:
    if fixed:
        return _ce(lambda: m.ThreeLayer(2000, 64, 43), sets.counts("reuters", 2500), m.sgd(0.1, 0.9), 64, 8)
    pairs = sets.one_hot(sets.counts("reuters", 2500), 43)
    return Parts(
        lambda: nn.Sequential(m.ThreeLayer(2000, 64, 43), nn.Sigmoid()),
        *pairs,
        nn.MSELoss(),
        m.sgd(0.1, 0.9),
        64,
        8,
    )


@sick("reuters-kl-swapped", _L, dataset="reuters", style="blind", also=(_A,))
def _(fixed: bool) -> Parts:
    # kl_div wants logarithms of probabilities; it got the probabilities.
    pairs = sets.one_hot(sets.counts("reuters", 2500), 43)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return F.kl_div(F.log_softmax(out, 1) if fixed else F.softmax(out, 1), y, reduction="batchmean")

    return Parts(lambda: m.ThreeLayer(2000, 64, 43, "tanh"), *pairs, loss, m.sgd(0.05, 0.5), 64, 8)


@sick(
    "reuters-transformer-nll-on-logits",
    _L,
    dataset="reuters",
    family="transformer",
    style="loader",
    also=(_A,),
)
def _(fixed: bool) -> Parts:
    return Parts(
        lambda: m.Transformer(43, layers=1, length=50, out=_log_softmax if fixed else None),
        *sets.words("reuters", 2500, 500, 50),
        nn.NLLLoss(),
        m.adam(2e-3),
        50,
        6,
    )


@sick("regression-bce-on-values", _L, dataset="generated", style="loader")
def _(fixed: bool) -> Parts:
    # Standardised targets are no probabilities: cross entropy on them has no floor.
    return Parts(
        lambda: m.mlp([8, 32, 32, 1]),
        *sets.regression(seed=3),
        nn.MSELoss() if fixed else nn.BCEWithLogitsLoss(),
        m.adam(5e-3),
        32,
        30,
        "r2",
    )
