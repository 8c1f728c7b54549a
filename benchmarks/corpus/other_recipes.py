"""Further faults that can be put as recipes: weights, regularisation, data size and labels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import sick
from benchmarks.corpus._parts import Parts


def _ce(model, pairs, opt, batch, epochs) -> Parts:  # type: ignore[no-untyped-def]
    return Parts(model, *pairs, nn.CrossEntropyLoss(), opt, batch, epochs)


@sick(
    "circle-zero-weights",
    "poor-initialisation",
    dataset="circle",
    style="loader",
    also=("vanishing-gradient", "dying-relu"),
)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.mlp([2, 16, 16, 2], nn.ReLU), m.he if fixed else nn.init.zeros_)

    return _ce(model, sets.circle(), m.adam(5e-3), 32, 30)


@sick("mnist-constant-weights", "poor-initialisation", dataset="mnist", style="slices")
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.Deep([784, 64, 64, 10], torch.tanh)
        return net if fixed else m.initialised(net, lambda w: nn.init.constant_(w, 0.01))

    return _ce(model, sets.mnist(flat=True), m.sgd(0.1), 64, 8)


@sick(
    "cifar-ones-last-layer",
    "poor-initialisation",
    dataset="cifar10",
    family="convolutional",
    style="trainer",
    also=("exploding-gradient",),
)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        net = m.conv_chain(widths=(12, 16, 24))
        if not fixed:
            for module in net:
                if isinstance(module, nn.Conv2d):
                    nn.init.constant_(module.weight, 0.05)
        return net

    return _ce(model, sets.cifar(2500), m.adam(2e-3), 64, 9)


@sick(
    "mnist-tanh-wide-weights",
    "saturated-activation",
    dataset="mnist",
    style="loader",
    also=("poor-initialisation",),
)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.mlp([784, 64, 64, 64, 10], nn.Tanh), m.xavier if fixed else m.normal(2.0))

    return _ce(model, sets.mnist(flat=True), m.sgd(0.02, 0.9), 64, 10)


@sick(
    "circle-sigmoid-wide-weights",
    "saturated-activation",
    dataset="circle",
    style="steps",
    also=("poor-initialisation",),
)
def _(fixed: bool) -> Parts:
    def model() -> nn.Module:
        return m.initialised(m.Deep([2, 24, 24, 24, 2], torch.tanh), m.xavier if fixed else m.normal(6.0))

    return _ce(model, sets.circle(), m.adam(2e-3), 32, 40)


@sick(
    "mnist-adam-3",
    "learning-rate-too-high",
    dataset="mnist",
    style="accuracy",
    also=("oscillating-loss", "dying-relu", "exploding-gradient"),
)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.mlp([784, 64, 10], nn.LeakyReLU),
        sets.mnist(flat=True),
        m.adam(1e-3 if fixed else 3.0),
        64,
        8,
    )


@sick(
    "regression-sgd-diverges",
    "learning-rate-too-high",
    dataset="generated",
    style="slices",
    also=("exploding-gradient", "non-finite", "oscillating-loss"),
)
def _(fixed: bool) -> Parts:
    return Parts(
        lambda: m.mlp([8, 32, 32, 1], nn.LeakyReLU),
        *sets.regression(seed=7),
        nn.MSELoss(),
        m.sgd(0.03 if fixed else 3.0),
        32,
        30,
        "r2",
    )


@sick(
    "regression-loss-sum",
    "learning-rate-too-high",
    dataset="generated",
    style="loader",
    also=("exploding-gradient", "non-finite", "improper-loss"),
)
def _(fixed: bool) -> Parts:
    # reduction="sum" makes the step grow with the batch.
    return Parts(
        lambda: m.ThreeLayer(8, 32, 1),
        *sets.regression(seed=8),
        nn.MSELoss(reduction="mean" if fixed else "sum"),
        m.sgd(0.05),
        128,
        40,
        "r2",
    )


@sick(
    "cifar-sgd-lr-3",
    "learning-rate-too-high",
    dataset="cifar10",
    family="convolutional",
    style="blind",
    also=("exploding-gradient", "dying-relu", "non-finite", "oscillating-loss"),
)
def _(fixed: bool) -> Parts:
    return _ce(lambda: m.LeNet(3, 32, dense=(64,)), sets.cifar(2500), m.sgd(0.05 if fixed else 3.0), 64, 8)


@sick(
    "mnist-rmsprop-1e-6",
    "learning-rate-too-low",
    dataset="mnist",
    style="trainer",
    also=("slow-convergence",),
)
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.Deep([784, 48, 48, 10], F.gelu),
        sets.mnist(flat=True),
        m.rmsprop(1e-3 if fixed else 1e-6),
        64,
        9,
    )


@sick(
    "regression-adam-1e-6",
    "learning-rate-too-low",
    dataset="generated",
    style="steps",
    also=("slow-convergence",),
)
def _(fixed: bool) -> Parts:
    return Parts(
        lambda: m.mlp([8, 32, 32, 1], nn.Tanh),
        *sets.regression(seed=9),
        F.smooth_l1_loss,
        m.adam(3e-3 if fixed else 1e-6),
        32,
        30,
        "r2",
    )


@sick("mnist-dropout-095", "over-regularised", dataset="mnist", style="loader")
def _(fixed: bool) -> Parts:
    rate = 0.2 if fixed else 0.97

    def model() -> nn.Module:
        return nn.Sequential(
            nn.Linear(784, 64),
            nn.ReLU(),
            nn.Dropout(rate),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Dropout(rate),
            nn.Linear(64, 10),
        )

    return _ce(model, sets.mnist(flat=True), m.adam(), 64, 9)


@sick("mnist-weight-decay-1", "over-regularised", dataset="mnist", style="slices")
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.ThreeLayer(784, 64, 10),
        sets.mnist(flat=True),
        m.sgd(0.05, 0.9, weight_decay=1e-4 if fixed else 0.3),
        64,
        9,
    )


@sick("reuters-adam-weight-decay", "over-regularised", dataset="reuters", style="accuracy")
def _(fixed: bool) -> Parts:
    return _ce(
        lambda: m.ThreeLayer(2000, 64, 43),
        sets.counts("reuters", 2500),
        m.adam(1e-3, weight_decay=0.0 if fixed else 0.5),
        64,
        8,
    )


@sick("regression-weight-decay", "over-regularised", dataset="generated", style="trainer")
def _(fixed: bool) -> Parts:
    return Parts(
        lambda: m.mlp([8, 32, 32, 1], nn.Tanh),
        *sets.regression(seed=10),
        nn.MSELoss(),
        lambda p: torch.optim.AdamW(p, lr=5e-3, weight_decay=0.01 if fixed else 60.0),
        32,
        30,
        "r2",
    )


def _memorised(pairs, share: float):  # type: ignore[no-untyped-def]
    """Few examples, some of them with a wrong label: what a big network learns by heart."""
    (x, y), val = pairs
    draw = torch.Generator().manual_seed(0)
    flip = torch.rand(len(y), generator=draw) < share
    return (x, torch.where(flip, torch.randint(0, int(y.max()) + 1, y.shape, generator=draw), y)), val


@sick("mnist-overfit-noisy-200", "overfitting", dataset="mnist", style="loader")
def _(fixed: bool) -> Parts:
    pairs = _memorised(sets.mnist(800, 1000, flat=True), 0.5)
    opt = m.sgd(0.05, 0.9, weight_decay=0.01 if fixed else 0.0)
    return _ce(lambda: m.mlp([784, 256, 256, 10], nn.ReLU), pairs, opt, 32, 5 if fixed else 40)


@sick("regression-overfit-60", "overfitting", dataset="generated", style="slices")
def _(fixed: bool) -> Parts:
    (x, y), val = sets.regression(80, 8, noise=1.0, seed=11)
    return Parts(
        lambda: m.mlp([8, 128, 128, 1], nn.ReLU),
        (x, y),
        val,
        nn.MSELoss(),
        lambda p: torch.optim.AdamW(p, lr=3e-3, weight_decay=0.01),
        16,
        4 if fixed else 150,
        "r2",
    )


@sick("mnist-shuffled-labels", "unlearnable-labels", dataset="mnist", style="loader", also=("overfitting",))
def _(fixed: bool) -> Parts:
    # Images and labels were shuffled separately.
    (x, y), (xv, yv) = sets.mnist(flat=True)
    draw = torch.Generator().manual_seed(1)
    pairs = ((x, y if fixed else y[torch.randperm(len(y), generator=draw)]), (xv, yv))
    return _ce(lambda: m.mlp([784, 32, 10], nn.ReLU), pairs, m.adam(), 64, 9)


@sick("reuters-sorted-apart", "unlearnable-labels", dataset="reuters", style="slices", also=("overfitting",))
def _(fixed: bool) -> Parts:
    (x, y), val = sets.counts("reuters", 2500)
    pairs = ((x, y if fixed else y.flip(0)), val)
    return _ce(lambda: m.ThreeLayer(2000, 32, 43), pairs, m.adam(1e-3), 64, 6)


@sick(
    "regression-unrelated-targets",
    "unlearnable-labels",
    dataset="generated",
    style="trainer",
    also=("overfitting",),
)
def _(fixed: bool) -> Parts:
    (x, y), val = sets.regression(1500, seed=12)
    draw = torch.Generator().manual_seed(2)
    pairs = ((x, y if fixed else y[torch.randperm(len(y), generator=draw)]), val)
    return Parts(lambda: m.mlp([8, 24, 1], nn.Tanh), *pairs, nn.MSELoss(), m.adam(3e-3), 32, 20, "r2")


@sick("circle-norm-without-eps", "non-finite", dataset="circle", style="loader", also=("dying-relu",))
def _(fixed: bool) -> Parts:
    # A layer norm written by hand: a unit that is silent for the whole batch has no spread to divide by.
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(2, 64), nn.Linear(64, 32), nn.Linear(32, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.a(x))
            x = (x - x.mean(0)) / (x.std(0) + (1e-3 if fixed else 0.0))
            return self.c(F.relu(self.b(x)))

    pairs = sets.binary(sets.circle())
    return Parts(Net, *pairs, nn.BCEWithLogitsLoss(), m.adam(5e-3), 35, 30, threshold=0.0)


@sick("regression-sqrt-of-zero", "non-finite", dataset="generated", style="slices", also=("improper-loss",))
def _(fixed: bool) -> Parts:
    # The gradient of a root at zero is infinite, and a padded row gives exactly zero.
    (x, y), val = sets.regression(seed=13)
    x, y = x.clone(), y.clone()
    x[::50], y[::50] = 0.0, 0.0

    def loss(out: Tensor, target: Tensor) -> Tensor:
        return torch.sqrt((out - target) ** 2 + (1e-8 if fixed else 0.0)).mean()

    class NoBias(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(8, 48, bias=False)
            self.b = nn.Linear(48, 1, bias=False)

        def forward(self, v: Tensor) -> Tensor:
            return self.b(torch.tanh(self.a(v)))

    return Parts(NoBias, (x, y), val, loss, m.adam(5e-3), 32, 30, "r2")


@sick("mnist-zero-variance-pixels", "non-finite", dataset="mnist", style="trainer", also=("abnormal-data",))
def _(fixed: bool) -> Parts:
    # Normalising by a variance that is zero for the pixels at the border.
    (x, y), (xv, yv) = sets.mnist(flat=True)
    spread = x.std(dim=0) + (0.1 if fixed else 0.0)
    mean = x.mean(dim=0)
    pairs = (((x - mean) / spread, y), ((xv - mean) / spread, yv))
    return _ce(lambda: m.ThreeLayer(784, 64, 10), pairs, m.sgd(0.02, 0.9), 64, 8)
