"""BTTackler's seven quality indicators with the thresholds its authors published, flaws included.

Everything is looked at once per epoch: the early indicators in the first half of the epochs, the late ones in
the second half. Per-layer magnitudes are root mean squares of the gradient's entries.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from akeso.detectors._base import Detector
from akeso.detectors.epochs import are_seen, epochs, last_in, per_epoch, planned_epochs
from akeso.detectors.network import Window
from akeso.diagnosis import Severity, Symptom
from akeso.history import Floats, History


@dataclass(frozen=True)
class _Indicator(Detector):
    problem: ClassVar[str]
    severity: ClassVar[Severity] = "error"
    stage: ClassVar[str] = "any"

    def detect(self, history: History) -> Iterator[Symptom]:
        seen = epochs(history)
        planned = planned_epochs(history, seen)
        loss = per_epoch(history, "loss", seen)
        for count, window in enumerate(seen, 1):
            early = 2 * count <= planned
            if (self.stage == "early" and not early) or (self.stage == "late" and early):
                continue
            figure = self.look(history, window, loss[:count], planned)
            if figure is not None:
                named = self.name.removeprefix("bttackler-").upper()
                where = f"in epoch {count}."
                if not are_seen(history):
                    where = (
                        f"in step {window.end}, at the end of part {count} of {planned}: the epochs of the run were "
                        "not seen, and equal parts of its steps stand for them."
                    )
                sentence = f"BTTackler's indicator {named} is positive {where}"
                evidence = {"figure": figure, "epoch": count}
                yield Symptom(self.problem, self.severity, 0.5, window.end, "", evidence, sentence)
                return

    @abstractmethod
    def look(self, history: History, window: Window, loss: Floats, planned: int) -> float | None:
        """The figure that makes the indicator positive, or ``None``."""


def _magnitudes(history: History, window: Window) -> Floats:
    """Root mean square gradient of every weight, first layer first."""
    found = []
    for parameter in history.parameters:
        if len(parameter.shape) >= 2 and window.of(history.series("grad_l2", parameter.name)):
            norm = last_in(history, "grad_l2", parameter.name, window)
            found.append(norm / math.sqrt(max(1, math.prod(parameter.shape))))
    return np.asarray(found, np.float64)


def _amplification(magnitudes: Floats) -> float:
    """Median over adjacent layers of how much larger the gradient is one layer nearer to the input."""
    if len(magnitudes) < 2:
        return math.nan
    with np.errstate(all="ignore"):
        ratios = magnitudes[:-1] / magnitudes[1:]
    known = ratios[~np.isnan(ratios)]
    return float(np.median(known)) if len(known) else math.nan


@dataclass(frozen=True)
class AbnormalGradientValues(_Indicator):
    """NaN, infinity, or a layer whose gradient is beyond a safe bound."""

    name: ClassVar[str] = "bttackler-agv"
    problem: ClassVar[str] = "exploding-gradient"
    bound: float = 10.0

    def look(self, history: History, window: Window, loss: Floats, planned: int) -> float | None:
        magnitudes = _magnitudes(history, window)
        if not len(magnitudes):
            return None
        if not np.isfinite(magnitudes).all():
            return math.nan
        return float(magnitudes.max()) if magnitudes.max() > self.bound else None


@dataclass(frozen=True)
class ExponentiallyAmplifiedGradients(_Indicator):
    """Median amplification between adjacent layers too large."""

    name: ClassVar[str] = "bttackler-eag"
    problem: ClassVar[str] = "exploding-gradient"
    stage: ClassVar[str] = "early"
    amplification: float = 100.0

    def look(self, history: History, window: Window, loss: Floats, planned: int) -> float | None:
        found = _amplification(_magnitudes(history, window))
        return found if found > self.amplification else None


@dataclass(frozen=True)
class ExponentiallyReducedGradients(_Indicator):
    """Median amplification between adjacent layers too small, or gradients tiny altogether."""

    name: ClassVar[str] = "bttackler-erg"
    problem: ClassVar[str] = "vanishing-gradient"
    stage: ClassVar[str] = "early"
    amplification: float = 1e-3
    magnitude: float = 1e-5

    def look(self, history: History, window: Window, loss: Floats, planned: int) -> float | None:
        magnitudes = _magnitudes(history, window)
        found = _amplification(magnitudes)
        if found < self.amplification:
            return found
        return (
            float(np.median(magnitudes))
            if len(magnitudes) and np.median(magnitudes) < self.magnitude
            else None
        )


@dataclass(frozen=True)
class PassiveLossChanges(_Indicator):
    """Mean change of the loss per epoch small against the initial loss."""

    name: ClassVar[str] = "bttackler-plc"
    problem: ClassVar[str] = "slow-convergence"
    stage: ClassVar[str] = "early"
    change: float = 1e-3

    def look(self, history: History, window: Window, loss: Floats, planned: int) -> float | None:
        if len(loss) < 2 or not np.isfinite(loss).all() or loss[0] == 0:
            return None
        found = float(np.mean(np.abs(np.diff(loss))) / abs(loss[0]))
        return found if found < self.change else None


@dataclass(frozen=True)
class LowActivationRatio(_Indicator):
    """Too many zeros in the outputs of a layer."""

    name: ClassVar[str] = "bttackler-lar"
    problem: ClassVar[str] = "dying-relu"
    zeros: float = 0.7

    def look(self, history: History, window: Window, loss: Floats, planned: int) -> float | None:
        found = [last_in(history, "act_zero", site, window) for site in history.scopes("act_zero")]
        known = [value for value in found if math.isfinite(value)]
        return max(known) if known and max(known) > self.zeros else None


@dataclass(frozen=True)
class UnexpectedLossChanges(_Indicator):
    """Fluctuation of the loss around a linear fit over the last epochs too large."""

    name: ClassVar[str] = "bttackler-ulc"
    problem: ClassVar[str] = "oscillating-loss"
    stage: ClassVar[str] = "late"
    window: float = 0.25
    fluctuation: float = 0.01

    def look(self, history: History, window: Window, loss: Floats, planned: int) -> float | None:
        length = max(3, round(self.window * planned))
        late = loss[-length:]
        if len(late) < length or not np.isfinite(late).all():
            return None
        x = np.arange(length, dtype=np.float64)
        residual = late - np.polyval(np.polyfit(x, late, 1), x)
        found = float(np.mean(np.abs(residual)) / max(abs(float(np.mean(late))), 1e-30))
        return found if found > self.fluctuation else None


@dataclass(frozen=True)
class NoMoreGainIndicator(_Indicator):
    """The best of the last epochs is worse than the best so far; benign."""

    name: ClassVar[str] = "bttackler-nmg"
    problem: ClassVar[str] = "no-more-gain"
    severity: ClassVar[Severity] = "info"
    stage: ClassVar[str] = "late"
    window: float = 0.3

    def look(self, history: History, window: Window, loss: Floats, planned: int) -> float | None:
        length = max(1, round(self.window * planned))
        if len(loss) <= length or not np.isfinite(loss).all():
            return None
        late, so_far = float(loss[-length:].min()), float(loss.min())
        return late if late > so_far else None


INDICATORS: tuple[type[Detector], ...] = (
    AbnormalGradientValues,
    ExponentiallyAmplifiedGradients,
    ExponentiallyReducedGradients,
    LowActivationRatio,
    NoMoreGainIndicator,
    PassiveLossChanges,
    UnexpectedLossChanges,
)
