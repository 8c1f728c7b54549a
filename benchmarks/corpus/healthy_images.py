"""Healthy recipes on MNIST and CIFAR-10: dense and convolutional networks, schedules, norms, sparsity."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import healthy
from benchmarks.corpus._parts import Parts

_log_softmax = partial(F.log_softmax, dim=1)


def _ce(model, pairs, opt, batch, epochs, **more) -> Parts:  # type: ignore[no-untyped-def]
    return Parts(model, *pairs, nn.CrossEntropyLoss(), opt, batch, epochs, **more)


def _values(model, pairs, loss, opt, batch, epochs, **more) -> Parts:  # type: ignore[no-untyped-def]
    return Parts(model, *pairs, loss, opt, batch, epochs, "r2", **more)


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
