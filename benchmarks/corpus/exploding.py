"""Gradients that grow from layer to layer or step to step. The cure: sane weights, norms, no exponential."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import sick
from benchmarks.corpus._parts import Parts

_P = "exploding-gradient"
_ALSO = ("poor-initialisation", "non-finite")


def _ce(model, pairs, opt, batch, epochs) -> Parts:  # type: ignore[no-untyped-def]
    return Parts(model, *pairs, F.cross_entropy, opt, batch, epochs)


@sick("circle-relu-big-init-10", _P, dataset="circle", style="loader", also=_ALSO)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.mlp([2] + [16] * 10 + [1], nn.LeakyReLU)
        return m.initialised(net, m.he if fixed else m.normal(1.5))

    pairs = sets.binary(sets.circle())
    return Parts(model, *pairs, nn.BCEWithLogitsLoss(), m.adam(2e-3), 64, 60, threshold=0.0)


class _Exponential(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(x)


@sick("circle-exponential-5", _P, dataset="circle", style="slices", also=("non-finite",))
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.mlp([2] + [8] * 4 + [2], nn.Tanh if fixed else _Exponential)
        return m.initialised(net, m.xavier) if fixed else net

    return _ce(model, sets.circle(), m.sgd(0.05, 0.9), 32, 50)


@sick("circle-linear-growth", _P, dataset="circle", style="steps", also=_ALSO)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.Deep([2] + [24] * 14 + [2], F.relu), m.he if fixed else m.uniform(-0.9, 0.9))

    return _ce(model, sets.circle(), m.adam(5e-4), 50, 50)


@sick("blob-exponential-3", _P, dataset="blob", style="accuracy", also=("non-finite",))
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.Deep([2] + [12] * 3 + [3], torch.tanh if fixed else torch.exp),
        sets.blob(),
        m.sgd(0.01),
        64,
        60,
    )


@sick("blob-relu-big-init-8", _P, dataset="blob", style="trainer", also=_ALSO)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.mlp([2] + [20] * 8 + [3], nn.ReLU), m.he if fixed else m.normal(1.0))

    return _ce(model, sets.blob(), m.sgd(0.02, 0.9), 64, 60)


@sick("blob-squares", _P, dataset="blob", style="loader", also=("non-finite",))
def _(fixed: bool) -> Parts:
    # Polynomial features of polynomial features: x**2 as an activation, three times over.
    return _ce(
        lambda: m.Deep([2] + [16] * 4 + [3], F.silu if fixed else torch.square),
        sets.blob(),
        m.sgd(0.01),
        50,
        50,
    )


@sick("mnist-relu-big-init-6", _P, dataset="mnist", style="loader", also=_ALSO)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.mlp([784] + [64] * 6 + [10], nn.ReLU), m.he if fixed else m.normal(0.5))

    return _ce(model, sets.mnist(flat=True), m.adam(), 64, 10)


@sick("mnist-lenet-unit-normal", _P, dataset="mnist", family="convolutional", style="slices", also=_ALSO)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.LeNet(dense=(64, 64, 64)), m.he if fixed else m.normal(1.0))

    return _ce(model, sets.mnist(1500, 400), m.sgd(0.01, 0.9), 64, 8)


@sick("mnist-skip-sum-no-norm", _P, dataset="mnist", style="trainer", also=_ALSO)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.Residual(784, 48, 10, blocks=20, norm=fixed)
        return net if fixed else m.initialised(net, m.he)

    return _ce(model, sets.mnist(flat=True), m.sgd(0.05, 0.9), 64, 8)


@sick("mnist-rows-relu-rnn", _P, dataset="mnist", family="recurrent", style="loader", also=_ALSO)
def _(fixed: bool) -> Parts:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.RNN(28, 48, nonlinearity="relu", batch_first=True)
            self.head = nn.Linear(48, 10)
            if fixed:
                nn.init.orthogonal_(self.rnn.weight_hh_l0)
            else:
                nn.init.normal_(self.rnn.weight_hh_l0, std=0.35)

        def forward(self, x: Tensor) -> Tensor:
            out, _ = self.rnn(x[:, 0])
            return self.head(out[:, -1])

    return _ce(Rows, sets.mnist(1500, 400), m.sgd(0.02, 0.9), 64, 10)


@sick("cifar-conv-big-init", _P, dataset="cifar10", family="convolutional", style="loader", also=_ALSO)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.conv_chain(widths=(12, 16, 24, 24)), m.he if fixed else m.normal(0.6))

    return _ce(model, sets.cifar(2500), m.adam(), 64, 8)


@sick(
    "cifar-lenet-xavier-gain-6", _P, dataset="cifar10", family="convolutional", style="accuracy", also=_ALSO
)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        gain = 1.0 if fixed else 6.0
        return m.initialised(m.LeNet(3, 32, dense=(64, 64)), lambda w: nn.init.xavier_normal_(w, gain=gain))

    return _ce(model, sets.cifar(2500), m.sgd(0.02, 0.9), 64, 8)


@sick("imdb-relu-rnn-big", _P, dataset="imdb", family="recurrent", style="trainer", also=_ALSO)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.TextNet(
            2,
            cell=lambda i, h, batch_first: nn.RNN(i, h, nonlinearity="relu", batch_first=batch_first),
            pool="mean",
        )
        if fixed:
            nn.init.eye_(net.rnn.weight_hh_l0)  # type: ignore[arg-type]
            net.rnn.weight_hh_l0.data.mul_(0.5)  # type: ignore[operator, union-attr]
        else:
            nn.init.normal_(net.rnn.weight_hh_l0, std=0.45)  # type: ignore[arg-type]
        return net

    return _ce(model, sets.words("imdb", 3000, 600, 60), m.adam(3e-3), 64, 8)


@sick("imdb-counts-big-init", _P, dataset="imdb", style="steps", also=_ALSO)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.mlp([2000] + [48] * 5 + [1], nn.ReLU)
        return m.initialised(net, m.he if fixed else m.normal(0.7))

    pairs = sets.binary(sets.counts("imdb"))
    return Parts(model, *pairs, F.binary_cross_entropy_with_logits, m.adam(5e-4), 64, 6, threshold=0.0)


@sick("reuters-counts-big-init", _P, dataset="reuters", style="slices", also=_ALSO)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.Deep([2000] + [64] * 6 + [43], F.relu), m.he if fixed else m.normal(0.5))

    return _ce(model, sets.counts("reuters", 2500), m.sgd(0.05, 0.9), 64, 8)


@sick("reuters-transformer-big-init", _P, dataset="reuters", family="transformer", style="loader", also=_ALSO)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.HandTransformer(43, layers=3, norm=False, scaled=True)
        return m.initialised(net, m.xavier if fixed else m.normal(0.6))

    return _ce(model, sets.words("reuters", 2500, 500, 40), m.adam(1e-3), 50, 8)


@sick(
    "imdb-transformer-unscaled-attention",
    _P,
    dataset="imdb",
    family="transformer",
    style="accuracy",
    also=_ALSO,
)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.HandTransformer(2, layers=3, norm=fixed, scaled=fixed)
        return net if fixed else m.initialised(net, m.normal(0.5))

    return _ce(model, sets.words("imdb", 3000, 500, 50), m.adam(1e-3), 64, 6)
