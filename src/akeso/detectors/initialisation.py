"""Weights that start all alike, far too small or far too large."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.standing import standing
from akeso.diagnosis import Symptom
from akeso.history import History


@dataclass(frozen=True)
class PoorInitialisation(Detector):
    """The deviation of the initial weights does not fit the width of the layers, and the training suffers."""

    name: ClassVar[str] = "poor-initialisation"
    min_steps: int = 15
    large: float = 5.0
    small: float = 0.1
    constant: float = 1e-6
    remaining: float = 0.6

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.steps < self.min_steps or stand.adversarial or not stand.suffers(self.remaining):
            return
        matrices = [weight for weight in network.weights(history) if min(weight.shape[:2]) > 1]
        if not matrices:
            matrices = network.weights(history)
        if not matrices:
            return
        gains = np.asarray([weight.init_std * math.sqrt(weight.fan_in) for weight in matrices])
        alike = np.asarray([w.init_std <= self.constant * max(1.0, abs(w.init_mean)) for w in matrices])
        offset = np.asarray([abs(w.init_mean) * w.fan_in for w in matrices])
        hidden = alike[:-1] if len(matrices) > 1 else alike
        forgetful = [
            (w, gain) for w, gain in zip(matrices, gains, strict=True) if _remembers(w) and gain < self.small
        ]
        middle = float(np.median(gains[~alike])) if (~alike).any() else 0.0
        start, _ = network.extent(history)
        if hidden.any():
            worst = matrices[int(np.argmax(alike))]
            sentence = (
                f"The weights of {worst.layer} all start at {worst.init_mean:g}: its units can never differ."
            )
            confidence = 0.92
        elif middle > self.large or (
            np.median(offset) > 3 * self.large and middle < float(np.median(offset))
        ):
            worst = matrices[int(np.argmax(gains))]
            sentence = (
                f"The initial weights are {middle:.2g} times as large as the width of the layers asks for."
            )
            confidence = min(0.95, 0.7 + 0.1 * math.log10(max(1.0, middle / self.large)) * 2)
        elif forgetful and not middle < self.small:
            worst, middle = forgetful[0]
            sentence = (
                f"The recurrent weights of {worst.layer} start at {middle:.2g} times what their width asks for: what "
                "came a few steps before is forgotten."
            )
            confidence = 0.8
        elif middle < self.small:
            worst = matrices[int(np.argmin(gains))]
            sentence = (
                f"The initial weights are only {middle:.2g} times what the width of the layers asks for."
            )
            confidence = min(0.95, 0.65 + 0.1 * math.log10(self.small / max(middle, 1e-12)) * 2)
        else:
            return
        yield Symptom(
            self.name,
            "error",
            confidence,
            start,
            worst.layer,
            {
                "init_std_times_sqrt_inputs": curves.rounded(middle),
                "init_std": curves.rounded(worst.init_std),
                "init_mean": curves.rounded(worst.init_mean),
                "constant_matrices": int(alike.sum()),
                **stand.evidence(),
            },
            sentence,
        )


def _remembers(weight: network.Weight) -> bool:
    """Whether the state of a plain recurrent layer goes through these weights; gates have a way around them."""
    return "weight_hh" in weight.name and weight.role.endswith("RNN")
