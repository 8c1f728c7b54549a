"""Healthy trainings that can be put as recipes: many tasks, losses, optimizers and shapes of networks."""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F

import torch
from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import Parts, healthy
from torch import Tensor, nn

_log_softmax = partial(F.log_softmax, dim=1)


def _ce(model, pairs, opt, batch, epochs, **more) -> Parts:  # type: ignore[no-untyped-def]
    return Parts(model, *pairs, nn.CrossEntropyLoss(), opt, batch, epochs, **more)


def _values(model, pairs, loss, opt, batch, epochs, **more) -> Parts:  # type: ignore[no-untyped-def]
    return Parts(model, *pairs, loss, opt, batch, epochs, "r2", **more)


# ---------------------------------------------------------------- two and three classes in the plane


@healthy("well-circle-one-unit-sigmoid", dataset="circle", expect=0.75, style="loader")
def _() -> Parts:
    pairs = sets.binary(sets.circle())
    return Parts(
        lambda: m.mlp([2, 16, 16, 1], nn.ReLU, nn.Sigmoid()), *pairs, nn.BCELoss(), m.adam(5e-3), 32, 30
    )


@healthy("well-circle-logits", dataset="circle", expect=0.75, style="slices")
def _() -> Parts:
    pairs = sets.binary(sets.circle())
    return Parts(
        lambda: m.Deep([2, 24, 1], torch.tanh),
        *pairs,
        F.binary_cross_entropy_with_logits,
        m.adam(0.02),
        50,
        40,
        threshold=0.0,
    )


@healthy("well-circle-two-unit-softmax", dataset="circle", expect=0.75, style="accuracy")
def _() -> Parts:
    return Parts(
        lambda: m.mlp([2, 20, 20, 2], nn.ReLU, nn.LogSoftmax(dim=-1)),
        *sets.circle(),
        nn.NLLLoss(),
        m.adam(5e-3),
        32,
        30,
    )


@healthy("well-circle-mse-sigmoid", dataset="circle", expect=0.75, style="trainer")
def _() -> Parts:
    # Squared error on a probability (the Brier score) is a proper loss, and this one learns.
    pairs = sets.binary(sets.circle())
    return Parts(
        lambda: m.mlp([2, 16, 16, 1], nn.ReLU, nn.Sigmoid()), *pairs, nn.MSELoss(), m.adam(5e-3), 32, 40
    )


@healthy("well-circle-deep-tanh", dataset="circle", expect=0.75, style="steps")
def _() -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.mlp([2] + [16] * 8 + [2], nn.Tanh), lambda w: nn.init.xavier_normal_(w, 5 / 3))

    return _ce(model, sets.circle(), m.adam(3e-3), 50, 40)


@healthy("well-circle-sigmoid-hidden", dataset="circle", expect=0.75, style="blind")
def _() -> Parts:
    return _ce(lambda: m.mlp([2, 24, 2], nn.Sigmoid), sets.circle(), m.adam(0.05), 32, 50)


@healthy("well-circle-batch-1", dataset="circle", expect=0.7, style="slices")
def _() -> Parts:
    pairs = sets.binary(sets.circle())
    return Parts(
        lambda: m.mlp([2, 16, 1], nn.ReLU), *pairs, nn.BCEWithLogitsLoss(), m.adam(5e-3), 1, 4, threshold=0.0
    )


@healthy("well-circle-full-batch", dataset="circle", expect=0.75, style="loader")
def _() -> Parts:
    return _ce(lambda: m.mlp([2, 32, 32, 2], nn.ReLU), sets.circle(), m.adam(0.01), 700, 200)


@healthy("well-blob-linear", dataset="blob", expect=0.78, style="loader")
def _() -> Parts:
    return _ce(lambda: nn.Linear(2, 3), sets.blob(), m.sgd(0.05), 32, 20)


@healthy("well-blob-mse-one-hot", dataset="blob", expect=0.78, style="slices")
def _() -> Parts:
    return Parts(
        lambda: m.mlp([2, 24, 3], nn.Tanh), *sets.one_hot(sets.blob(), 3), nn.MSELoss(), m.adam(0.01), 32, 30
    )


@healthy("well-blob-dropout-half", dataset="blob", expect=0.78, style="trainer")
def _() -> Parts:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 3))

    return _ce(model, sets.blob(), m.adam(5e-3), 32, 30)


@healthy("well-blob-batch-3", dataset="blob", expect=0.78, style="accuracy")
def _() -> Parts:
    return _ce(lambda: m.Deep([2, 16, 3], F.gelu), sets.blob(), m.sgd(0.01), 3, 5)


@healthy("well-blob-large-inputs-batchnorm", dataset="blob", expect=0.78, style="loader")
def _() -> Parts:
    # Inputs in the thousands are fine when the first layer normalises them.
    (x, y), (xv, yv) = sets.blob()

    def model() -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 3))

    return _ce(model, ((x * 1000 + 3e4, y), (xv * 1000 + 3e4, yv)), m.adam(5e-3), 50, 30)


@healthy("well-blob-tiny-60", dataset="blob", expect=0.76, style="slices")
def _() -> Parts:
    (x, y), val = sets.blob()
    return _ce(lambda: m.mlp([2, 8, 3], nn.ReLU), ((x[:60], y[:60]), val), m.adam(0.02), 20, 60)


@healthy("well-blob-rprop", dataset="blob", expect=0.78, style="blind")
def _() -> Parts:
    return _ce(
        lambda: m.mlp([2, 12, 3], nn.Tanh), sets.blob(), lambda p: torch.optim.Rprop(p, lr=0.01), 700, 80
    )


# ---------------------------------------------------------------- images


@healthy("well-mnist-mlp", dataset="mnist", expect=0.8, style="loader")
def _() -> Parts:
    return _ce(lambda: m.mlp([784, 64, 64, 10]), sets.mnist(flat=True), m.adam(), 64, 8)


@healthy("well-mnist-mlp-sgd-steady", dataset="mnist", expect=0.75, style="slices")
def _() -> Parts:
    # Slow but steady: every epoch is better than the one before.
    return _ce(lambda: m.ThreeLayer(784, 64, 10), sets.mnist(flat=True), m.sgd(0.03), 32, 14)


@healthy("well-mnist-lenet", dataset="mnist", family="convolutional", expect=0.85, style="trainer")
def _() -> Parts:
    return _ce(m.LeNet, sets.mnist(1500, 400), m.adam(2e-3), 64, 7)


@healthy("well-mnist-log-softmax-nll", dataset="mnist", family="convolutional", expect=0.8, style="accuracy")
def _() -> Parts:
    return Parts(
        lambda: m.LeNet(out=_log_softmax), *sets.mnist(1500, 400), F.nll_loss, m.sgd(0.03, 0.9), 64, 7
    )


@healthy("well-mnist-label-smoothing", dataset="mnist", expect=0.8, style="loader")
def _() -> Parts:
    return Parts(
        lambda: m.mlp([784, 64, 10], nn.GELU),
        *sets.mnist(flat=True),
        nn.CrossEntropyLoss(label_smoothing=0.2),
        lambda p: torch.optim.AdamW(p, lr=2e-3, weight_decay=0.01),
        64,
        8,
    )


@healthy("well-mnist-mse-one-hot", dataset="mnist", expect=0.75, style="steps")
def _() -> Parts:
    return Parts(
        lambda: m.mlp([784, 64, 10], nn.ReLU),
        *sets.one_hot(sets.mnist(flat=True), 10),
        F.mse_loss,
        m.adam(),
        64,
        8,
    )


@healthy("well-mnist-sparse-relu", dataset="mnist", expect=0.75, style="loader")
def _() -> Parts:
    # A negative bias makes activations sparse, not dead.
    def model() -> nn.Module:
        net = m.mlp([784, 256, 64, 10])
        nn.init.constant_(net[0].bias, -0.4)  # type: ignore[arg-type]
        return net

    return _ce(model, sets.mnist(flat=True), m.adam(), 64, 8)


@healthy("well-mnist-wide-with-idle-units", dataset="mnist", expect=0.8, style="slices")
def _() -> Parts:
    # Half of the first layer never fires; the other half is more than enough.
    def model() -> nn.Module:
        net = m.mlp([784, 256, 10])
        with torch.no_grad():
            net[0].bias[:128] = -20.0  # type: ignore[index]
        return net

    return _ce(model, sets.mnist(flat=True), m.adam(), 64, 8)


@healthy("well-mnist-residual-24", dataset="mnist", expect=0.75, style="trainer")
def _() -> Parts:
    return _ce(lambda: m.Residual(784, 48, 10, blocks=24), sets.mnist(1500, 400, flat=True), m.adam(), 64, 7)


@healthy("well-mnist-selu-12", dataset="mnist", expect=0.75, style="loader")
def _() -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.mlp([784] + [48] * 12 + [10], nn.SELU), m.lecun)

    return _ce(model, sets.mnist(flat=True), m.adam(5e-4), 64, 9)


@healthy("well-mnist-relu-he-10", dataset="mnist", expect=0.75, style="accuracy")
def _() -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.Deep([784] + [64] * 10 + [10], F.relu), m.he)

    return _ce(model, sets.mnist(flat=True), m.adam(5e-4), 64, 9)


@healthy("well-mnist-warmup-cosine", dataset="mnist", expect=0.8, style="loader")
def _() -> Parts:
    def schedule(opt: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        warm = torch.optim.lr_scheduler.LinearLR(opt, 0.05, total_iters=3)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 8)
        return torch.optim.lr_scheduler.SequentialLR(opt, [warm, cosine], milestones=[3])

    return _ce(
        lambda: m.mlp([784, 64, 64, 10]), sets.mnist(flat=True), m.adam(3e-3), 64, 11, schedule=schedule
    )


@healthy("well-mnist-step-schedule", dataset="mnist", expect=0.78, style="slices")
def _() -> Parts:
    # The loss falls in a stair: that is the schedule, not a stall.
    return _ce(
        lambda: m.ThreeLayer(784, 64, 10),
        sets.mnist(flat=True),
        m.sgd(0.1),
        64,
        12,
        schedule=lambda o: torch.optim.lr_scheduler.StepLR(o, 4, 0.1),
    )


@healthy("well-mnist-batchnorm-conv", dataset="mnist", family="convolutional", expect=0.85, style="trainer")
def _() -> Parts:
    return _ce(
        lambda: m.conv_chain(1, widths=(8, 16, 16), norm=True), sets.mnist(1500, 400), m.sgd(0.05, 0.9), 64, 8
    )


@healthy("well-mnist-bytes-batchnorm", dataset="mnist", family="convolutional", expect=0.8, style="loader")
def _() -> Parts:
    def model() -> nn.Module:
        return nn.Sequential(nn.BatchNorm2d(1), m.conv_chain(1, widths=(8, 16, 16)))

    return _ce(model, sets.mnist(1500, 400, scale=1.0), m.adam(3e-3), 64, 8)


@healthy("well-mnist-weight-decay", dataset="mnist", expect=0.8, style="steps")
def _() -> Parts:
    return _ce(
        lambda: m.mlp([784, 96, 10]),
        sets.mnist(flat=True),
        lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1),
        64,
        8,
    )


@healthy("well-mnist-batch-4", dataset="mnist", expect=0.75, style="blind")
def _() -> Parts:
    return _ce(lambda: m.mlp([784, 32, 10], nn.ReLU), sets.mnist(1500, 400, flat=True), m.sgd(0.02), 4, 3)


@healthy("well-mnist-nadam-silu", dataset="mnist", expect=0.8, style="accuracy")
def _() -> Parts:
    return _ce(
        lambda: m.Deep([784, 64, 64, 10], F.silu),
        sets.mnist(flat=True),
        lambda p: torch.optim.NAdam(p, 1e-3),
        64,
        7,
    )


@healthy("well-cifar-conv", dataset="cifar10", family="convolutional", expect=0.3, style="loader")
def _() -> Parts:
    # A small network on few photographs: far from perfect, and not sick.
    return _ce(lambda: m.conv_chain(widths=(12, 16, 24)), sets.cifar(2500), m.adam(2e-3), 64, 9)


@healthy("well-cifar-batchnorm", dataset="cifar10", family="convolutional", expect=0.3, style="slices")
def _() -> Parts:
    return _ce(lambda: m.conv_chain(widths=(12, 16, 24), norm=True), sets.cifar(2500), m.adam(2e-3), 64, 7)


@healthy("well-cifar-lenet-sgd", dataset="cifar10", family="convolutional", expect=0.28, style="trainer")
def _() -> Parts:
    return _ce(lambda: m.LeNet(3, 32, dense=(64,)), sets.cifar(2500), m.sgd(0.02, 0.9), 64, 9)


# ---------------------------------------------------------------- texts


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


# ---------------------------------------------------------------- values


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
