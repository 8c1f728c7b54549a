"""AUTOTRAINER's eight symptoms as its paper writes them, flaws included.

``Acc`` is the training accuracy per epoch. A task without accuracy has an accuracy of 0, as the paper's tool
reports for regressions. Rules are looked at every ``every`` epochs, and one observation suffices.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from akeso.detectors._base import Detector
from akeso.detectors.epochs import epochs, last_in, per_epoch
from akeso.detectors.network import Window
from akeso.diagnosis import Symptom
from akeso.history import Floats, History


@dataclass(frozen=True, slots=True)
class Check:
    """What is known when the rules are looked at: epochs so far, accuracies, losses."""

    history: History
    epoch: Window
    count: int
    accuracy: Floats
    loss: Floats

    @property
    def best(self) -> float:
        """max(Acc)."""
        finite = self.accuracy[np.isfinite(self.accuracy)]
        return float(finite.max()) if len(finite) else 0.0


def _accuracies(history: History, seen: list[Window]) -> Floats:
    """Accuracy per epoch: of training where it was sampled, else of validation, else as in the epoch before."""
    trained, validated = per_epoch(history, "accuracy", seen), per_epoch(history, "val_accuracy", seen)
    found = np.where(np.isfinite(trained), trained, validated)
    for index in range(1, len(found)):
        if not math.isfinite(found[index]):
            found[index] = found[index - 1]
    return found


@dataclass(frozen=True)
class _Rule(Detector):
    problem: ClassVar[str]
    every: int = 3
    good_enough: float = 0.7

    def detect(self, history: History) -> Iterator[Symptom]:
        seen = epochs(history)
        accuracy, loss = _accuracies(history, seen), per_epoch(history, "loss", seen)
        for count in range(self.every, len(seen) + 1, self.every):
            check = Check(history, seen[count - 1], count, accuracy[:count], loss[:count])
            found = self.look(check)
            if found is not None:
                layer, evidence = found
                sentence = f"AUTOTRAINER's rule for {self.problem} holds in epoch {count}."
                yield Symptom(self.problem, "error", 0.5, seen[count - 1].end, layer, evidence, sentence)
                return

    @abstractmethod
    def look(self, check: Check) -> tuple[str, dict[str, float]] | None:
        """Layer and evidence when the rule holds."""


def _layer_gradients(check: Check) -> list[tuple[str, float]]:
    """The l2 norm of every layer's weight gradient in the epoch, first layer first."""
    found = []
    for layer in sorted(check.history.layers, key=lambda layer: layer.order):
        for parameter in layer.parameters:
            if len(parameter.shape) >= 2:
                norm = last_in(check.history, "grad_l2", parameter.name, check.epoch)
                if check.epoch.of(check.history.series("grad_l2", parameter.name)):
                    found.append((layer.name, norm))
                break
    return found


def _product(gradients: list[tuple[str, float]]) -> float:
    """The product of the ratios of consecutive layers: first norm over last norm."""
    if len(gradients) < 2:
        return math.nan
    first, last = gradients[0][1], gradients[-1][1]
    if last == 0:
        return math.inf if first > 0 else math.nan
    return first / last


@dataclass(frozen=True)
class AutotrainerVanishingGradient(_Rule):
    """Product of ratios ≤ β1, first norm ≤ β2, accuracy ≤ Θ."""

    name: ClassVar[str] = "autotrainer-vanishing-gradient"
    problem: ClassVar[str] = "vanishing-gradient"
    beta1: float = 1e-3
    beta2: float = 1e-4

    def look(self, check: Check) -> tuple[str, dict[str, float]] | None:
        gradients = _layer_gradients(check)
        product = _product(gradients)
        if product <= self.beta1 and gradients[0][1] <= self.beta2 and check.best <= self.good_enough:
            return gradients[0][0], {"product": product, "first": gradients[0][1], "accuracy": check.best}
        return None


@dataclass(frozen=True)
class AutotrainerExplodingGradient(_Rule):
    """Product of ratios ≥ β3 or a NaN gradient, accuracy ≤ Θ."""

    name: ClassVar[str] = "autotrainer-exploding-gradient"
    problem: ClassVar[str] = "exploding-gradient"
    beta3: float = 70.0

    def look(self, check: Check) -> tuple[str, dict[str, float]] | None:
        gradients = _layer_gradients(check)
        product = _product(gradients)
        broken = any(math.isnan(norm) for _, norm in gradients)
        if (product >= self.beta3 or broken) and check.best <= self.good_enough:
            return gradients[0][0], {"product": product, "nan": float(broken), "accuracy": check.best}
        return None


@dataclass(frozen=True)
class AutotrainerDyingRelu(_Rule):
    """Share of weight-gradient entries that are exactly 0 ≥ γ, accuracy ≤ Θ."""

    name: ClassVar[str] = "autotrainer-dying-relu"
    problem: ClassVar[str] = "dying-relu"
    gamma: float = 0.7

    def look(self, check: Check) -> tuple[str, dict[str, float]] | None:
        zero = total = 0.0
        for parameter in check.history.parameters:
            share = last_in(check.history, "grad_zero", parameter.name, check.epoch)
            if math.isfinite(share):
                size = math.prod(parameter.shape)
                zero, total = zero + share * size, total + size
        if total and zero / total >= self.gamma and check.best <= self.good_enough:
            return "", {"zero_gradients": zero / total, "accuracy": check.best}
        return None


@dataclass(frozen=True)
class AutotrainerOscillatingLoss(_Rule):
    """Paired local maxima and minima of the loss that differ by ≥ ζ, over the number of epochs, ≥ η."""

    name: ClassVar[str] = "autotrainer-oscillating-loss"
    problem: ClassVar[str] = "oscillating-loss"
    zeta: float = 0.03
    eta: float = 0.2

    def look(self, check: Check) -> tuple[str, dict[str, float]] | None:
        loss = check.loss
        inner = range(1, len(loss) - 1)
        highs = [loss[i] for i in inner if loss[i] > loss[i - 1] and loss[i] > loss[i + 1]]
        lows = [loss[i] for i in inner if loss[i] < loss[i - 1] and loss[i] < loss[i + 1]]
        large = sum(high - low >= self.zeta for high, low in zip(highs, lows, strict=False))
        if large / check.count >= self.eta:
            return "", {"swings": float(large), "epochs": float(check.count)}
        return None


@dataclass(frozen=True)
class AutotrainerSlowConvergence(_Rule):
    """No change of accuracy has exceeded δ so far."""

    name: ClassVar[str] = "autotrainer-slow-convergence"
    problem: ClassVar[str] = "slow-convergence"
    delta: float = 0.01

    def look(self, check: Check) -> tuple[str, dict[str, float]] | None:
        known = (
            check.accuracy if np.isfinite(check.accuracy).all() else np.nan_to_num(check.accuracy, nan=0.0)
        )
        largest = float(np.diff(known).max()) if len(known) > 1 else 0.0
        if largest <= self.delta:
            return "", {"largest_gain": largest, "accuracy": check.best}
        return None


def _task(history: History) -> str:
    """The paper's tool tells tasks by the shape of the labels alone: one column is binary."""
    kind, units = history.facts.get("target_kind"), history.facts.get("classes")
    return "multiclass" if kind in ("indices", "one-hot") and units != 1 else "binary"


_ACTIVATIONS = {"binary": ("sigmoid",), "multiclass": ("softmax",)}
_LOSSES = {
    "binary": ("binary_cross_entropy", "binary_cross_entropy_with_logits"),
    "multiclass": ("cross_entropy", "nll_loss"),
}


@dataclass(frozen=True)
class AutotrainerImproperOutputActivation(_Rule):
    """Last activation not among those recommended for the task, accuracy ≤ Θ."""

    name: ClassVar[str] = "autotrainer-improper-output-activation"
    problem: ClassVar[str] = "improper-output-activation"

    def look(self, check: Check) -> tuple[str, dict[str, float]] | None:
        given = check.history.facts.get("output_activation")
        if given and given not in _ACTIVATIONS[_task(check.history)] and check.best <= self.good_enough:
            return "", {"accuracy": check.best}
        return None


@dataclass(frozen=True)
class AutotrainerImproperLoss(_Rule):
    """Loss not among those recommended for the task, accuracy ≤ Θ."""

    name: ClassVar[str] = "autotrainer-improper-loss"
    problem: ClassVar[str] = "improper-loss"

    def look(self, check: Check) -> tuple[str, dict[str, float]] | None:
        given = check.history.facts.get("loss")
        if given and given not in _LOSSES[_task(check.history)] and check.best <= self.good_enough:
            return "", {"accuracy": check.best}
        return None


@dataclass(frozen=True)
class AutotrainerAbnormalData(_Rule):
    """A layer's output has an l∞ norm ≥ ω or is NaN, accuracy ≤ Θ."""

    name: ClassVar[str] = "autotrainer-abnormal-data"
    problem: ClassVar[str] = "abnormal-data"
    omega: float = 10.0

    def look(self, check: Check) -> tuple[str, dict[str, float]] | None:
        if check.best > self.good_enough:
            return None
        for site in check.history.scopes("act_linf"):
            values = check.epoch.of(check.history.series("act_linf", site)).values
            if len(values) and (math.isnan(values[-1]) or values[-1] >= self.omega):
                return site, {"largest_output": float(values[-1]), "accuracy": check.best}
        return None


RULES: tuple[type[Detector], ...] = (
    AutotrainerAbnormalData,
    AutotrainerDyingRelu,
    AutotrainerExplodingGradient,
    AutotrainerImproperLoss,
    AutotrainerImproperOutputActivation,
    AutotrainerOscillatingLoss,
    AutotrainerSlowConvergence,
    AutotrainerVanishingGradient,
)
