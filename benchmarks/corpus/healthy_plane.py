"""Healthy recipes on Circle and Blob: outputs, losses, depths, batch sizes and optimizers of many kinds."""

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


@healthy("well-circle-deep-tanh", dataset="circle", expect=0.7, style="steps")
def _() -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.mlp([2] + [16] * 8 + [2], nn.Tanh), lambda w: nn.init.xavier_normal_(w, 5 / 3))

    return _ce(model, sets.circle(), m.adam(3e-3), 50, 40)


@healthy("well-circle-sigmoid-hidden", dataset="circle", expect=0.75, style="blind")
def _() -> Parts:
    return _ce(lambda: m.mlp([2, 24, 2], nn.Sigmoid), sets.circle(), m.adam(0.05), 32, 50)


@healthy("well-circle-batch-1", dataset="circle", expect=0.62, style="slices")
def _() -> Parts:
    pairs = sets.binary(sets.circle())
    return Parts(
        lambda: m.mlp([2, 32, 1], nn.ReLU), *pairs, nn.BCEWithLogitsLoss(), m.adam(5e-3), 1, 4, threshold=0.0
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
