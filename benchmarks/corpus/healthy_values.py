"""Healthy recipes on texts and on regressions of several scales and losses."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import healthy
from benchmarks.corpus._parts import Parts

_log_softmax = partial(F.log_softmax, dim=1)


def _ce(model, pairs, opt, batch, epochs, **more) -> Parts:  # type: ignore[no-untyped-def]
    return Parts(model, *pairs, nn.CrossEntropyLoss(), opt, batch, epochs, **more)


def _values(model, pairs, loss, opt, batch, epochs, **more) -> Parts:  # type: ignore[no-untyped-def]
    return Parts(model, *pairs, loss, opt, batch, epochs, "r2", **more)


@healthy("well-imdb-counts-logistic", dataset="imdb", expect=0.75, style="loader")
def _() -> Parts:
    pairs = sets.binary(sets.counts("imdb"))
    return Parts(
        lambda: nn.Linear(2000, 1), *pairs, nn.BCEWithLogitsLoss(), m.adam(3e-3), 64, 8, threshold=0.0
    )


@healthy("well-imdb-bag", dataset="imdb", expect=0.7, style="slices")
def _() -> Parts:
    pairs = sets.binary(sets.words("imdb", 3000, 600, 150))
    return Parts(
        lambda: m.Bag(1, dense=(16,), out=torch.sigmoid), *pairs, F.binary_cross_entropy, m.adam(5e-3), 64, 6
    )


@healthy("well-reuters-counts", dataset="reuters", expect=0.65, style="trainer")
def _() -> Parts:
    return _ce(lambda: m.ThreeLayer(2000, 64, 43), sets.counts("reuters", 2500), m.adam(), 64, 6)


@healthy("well-reuters-bag", dataset="reuters", expect=0.6, style="accuracy")
def _() -> Parts:
    return _ce(
        lambda: m.Bag(43, embed=48, dense=()), sets.words("reuters", 3000, 600, 100), m.adam(0.01), 64, 7
    )


@healthy("well-reuters-gru", dataset="reuters", family="recurrent", expect=0.55, style="loader")
def _() -> Parts:
    return _ce(
        lambda: m.TextNet(43, cell=nn.GRU, hidden=32),
        sets.words("reuters", 2500, 500, 50),
        m.adam(5e-3),
        64,
        7,
    )


@healthy("well-imdb-lstm", dataset="imdb", family="recurrent", expect=0.6, style="slices")
def _() -> Parts:
    return _ce(lambda: m.TextNet(2), sets.words("imdb", 3000, 600, 80), m.adam(5e-3), 64, 5)


@healthy("well-reuters-transformer", dataset="reuters", family="transformer", expect=0.55, style="loader")
def _() -> Parts:
    return _ce(
        lambda: m.Transformer(43, layers=2, length=50, dropout=0.1),
        sets.words("reuters", 2500, 500, 50),
        lambda p: torch.optim.AdamW(p, lr=2e-3),
        50,
        6,
    )


@healthy("well-regression-mse", dataset="generated", metric="r2", expect=0.7, style="loader")
def _() -> Parts:
    return _values(
        lambda: m.mlp([8, 32, 32, 1]), sets.regression(seed=30), nn.MSELoss(), m.adam(5e-3), 32, 30
    )


@healthy("well-regression-l1", dataset="generated", metric="r2", expect=0.65, style="slices")
def _() -> Parts:
    return _values(
        lambda: m.Deep([8, 32, 32, 1], torch.tanh), sets.regression(seed=31), F.l1_loss, m.adam(5e-3), 32, 30
    )


@healthy("well-regression-huber", dataset="generated", metric="r2", expect=0.65, style="trainer")
def _() -> Parts:
    return _values(
        lambda: m.ThreeLayer(8, 32, 1), sets.regression(seed=32), nn.HuberLoss(), m.sgd(0.05, 0.9), 32, 30
    )


@healthy("well-regression-hundreds", dataset="generated", metric="r2", expect=0.65, style="steps")
def _() -> Parts:
    # Targets around 60 with a spread of 20, losses in the hundreds: it learns all the same.
    (x, y), (xv, yv) = sets.regression(seed=33)
    pairs = ((x, 60 + 20 * y), (xv, 60 + 20 * yv))
    return _values(lambda: m.mlp([8, 64, 64, 1]), pairs, nn.MSELoss(), m.adam(0.01), 32, 40)


@healthy("well-regression-small-scale", dataset="generated", metric="r2", expect=0.6, style="loader")
def _() -> Parts:
    # Losses of 1e-4 from the start are the scale of the targets, not convergence.
    (x, y), (xv, yv) = sets.regression(seed=34)
    return _values(
        lambda: m.mlp([8, 32, 32, 1]), ((x, y / 50), (xv, yv / 50)), nn.MSELoss(), m.adam(3e-3), 32, 40
    )


@healthy("well-regression-noisy", dataset="generated", metric="r2", expect=0.15, style="slices")
def _() -> Parts:
    # Half of the variance cannot be explained by anything.
    return _values(
        lambda: m.mlp([8, 16, 1], nn.Tanh),
        sets.regression(1500, noise=1.2, seed=35),
        nn.MSELoss(),
        m.adam(3e-3),
        64,
        15,
    )


@healthy("well-regression-sum-loss", dataset="generated", metric="r2", expect=0.65, style="blind")
def _() -> Parts:
    return _values(
        lambda: m.mlp([8, 32, 32, 1]),
        sets.regression(seed=36),
        nn.MSELoss(reduction="sum"),
        m.adam(3e-3),
        32,
        30,
    )


@healthy("well-regression-linear", dataset="generated", metric="r2", expect=0.9, style="loader")
def _() -> Parts:
    draw = torch.Generator().manual_seed(37)
    x = torch.randn(900, 6, generator=draw)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [0.0], [3.0], [1.0]]) + 0.3 * torch.randn(
        900, 1, generator=draw
    )
    return _values(
        lambda: nn.Linear(6, 1), ((x[:600], y[:600]), (x[600:], y[600:])), nn.MSELoss(), m.sgd(0.02), 32, 15
    )


@healthy("well-regression-many-outputs", dataset="generated", metric="r2", expect=0.6, style="trainer")
def _() -> Parts:
    draw = torch.Generator().manual_seed(38)
    x = torch.randn(1100, 5, generator=draw)
    y = torch.sin(x @ torch.randn(5, 4, generator=draw) / 2)
    return _values(
        lambda: m.mlp([5, 48, 48, 4]),
        ((x[:800], y[:800]), (x[800:], y[800:])),
        F.smooth_l1_loss,
        m.adam(5e-3),
        32,
        30,
    )


@healthy("well-regression-bounded-sigmoid", dataset="generated", metric="r2", expect=0.65, style="accuracy")
def _() -> Parts:
    # Targets between 0 and 1: a sigmoid at the end is right.
    (x, y), (xv, yv) = sets.regression(seed=39)
    pairs = ((x, torch.sigmoid(y)), (xv, torch.sigmoid(yv)))
    return _values(
        lambda: m.mlp([8, 32, 32, 1], nn.ReLU, nn.Sigmoid()), pairs, nn.MSELoss(), m.adam(5e-3), 32, 30
    )


def _poisson(output: Tensor, target: Tensor) -> Tensor:
    return F.poisson_nll_loss(output, target, log_input=False, eps=1e-4)


@healthy("well-regression-counts-softplus", dataset="generated", metric="r2", expect=0.3, style="loader")
def _() -> Parts:
    draw = torch.Generator().manual_seed(40)
    x = torch.randn(1300, 4, generator=draw)
    rate = torch.exp(0.8 + 0.5 * x[:, :1] - 0.4 * x[:, 1:2])
    y = torch.poisson(rate, generator=draw)
    pairs = ((x[:1000], y[:1000]), (x[1000:], y[1000:]))
    return _values(lambda: m.mlp([4, 24, 1], nn.ReLU, nn.Softplus()), pairs, _poisson, m.adam(5e-3), 32, 20)
