"""What validation shows: overfitting, and results too good to be true."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from akeso.detectors import curves
from akeso.detectors._base import Detector
from akeso.detectors.bugs import mode_layers
from akeso.detectors.standing import Standing, standing
from akeso.diagnosis import Severity, Symptom
from akeso.history import History


@dataclass(frozen=True)
class Overfitting(Detector):
    """Validation got clearly worse than its best while the training loss went on falling."""

    name: ClassVar[str] = "overfitting"
    min_evaluations: int = 4
    rise: float = 0.1
    rise_that_matters: float = 0.3
    accuracy_lost: float = 0.03

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        validation = history.series("val_loss").finite()
        if len(validation) < self.min_evaluations or stand.adversarial or stand.diverged:
            return
        values = validation.values
        smooth = (
            values
            if len(values) < 8
            else np.convolve(np.pad(values, 1, mode="edge"), np.ones(3) / 3, "valid")
        )
        best = int(np.argmin(smooth))
        now = float(np.mean(values[-max(2, len(values) // 5) :]))
        scale = max(abs(float(smooth[best])), 1e-12)
        rise = (now - float(smooth[best])) / scale
        jitter = curves.noise(values) / scale
        if best >= len(values) - 2 or rise < max(self.rise, 3.0 * jitter):
            return
        before = history.series("loss").until(int(validation.steps[best])).finite().values
        if not len(before) or not math.isfinite(stand.last):
            return
        then = curves.median(curves.tail(before, 0.2, 5))
        if not stand.last < then + 0.5 * stand.noise:
            return
        lost = self._accuracy_lost(history)
        severity = self._severity(stand, rise, lost, now)
        yield Symptom(
            self.name,
            severity,
            0.85 if severity != "info" else 0.7,
            int(validation.steps[best]),
            "",
            {
                "val_loss_best": float(f"{smooth[best]:.4g}"),
                "val_loss_now": float(f"{now:.4g}"),
                "val_accuracy_lost": round(lost, 4) if math.isfinite(lost) else None,
                **stand.evidence(),
            },
            f"Validation loss rose from {smooth[best]:.3g} to {now:.3g} since step "
            f"{int(validation.steps[best])} while "
            f"the training loss went on falling.",
        )

    def _accuracy_lost(self, history: History) -> float:
        correct = history.series("val_accuracy").finite().values
        if len(correct) < self.min_evaluations:
            return math.nan
        best = np.sort(correct)[-max(2, len(correct) // 5) :]
        return float(np.mean(best) - np.mean(correct[-max(2, len(correct) // 5) :]))

    def _severity(self, stand: Standing, rise: float, lost: float, now: float) -> Severity:
        if math.isfinite(lost):
            return "warning" if lost >= self.accuracy_lost else "info"
        return "warning" if rise >= self.rise_that_matters else "info"


@dataclass(frozen=True)
class DataLeakage(Detector):
    """Validation is better than training where it should not be. A hint to look, never a verdict."""

    name: ClassVar[str] = "data-leakage"
    min_evaluations: int = 3
    ratio: float = 0.5

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        validation = history.series("val_loss").finite()
        dropped = any("dropout" in kind.lower() for _, kind in mode_layers(history))
        if (
            len(validation) < self.min_evaluations
            or stand.adversarial
            or dropped
            or not math.isfinite(stand.baseline)
        ):
            return
        trained = curves.at_steps(history.series("loss").finite(), validation)
        if len(trained) != len(validation) or not (trained > 0).all():
            return
        late = slice(len(validation) // 2, None)
        ratio = float(np.median(validation.values[late] / trained[late]))
        if not 0 <= ratio < self.ratio or not stand.last > 0.05 * stand.baseline:
            return
        yield Symptom(
            self.name,
            "info",
            0.5,
            int(validation.steps[0]),
            "",
            {"val_loss_over_train_loss": float(f"{ratio:.3g}"), **stand.evidence()},
            f"Validation loss is only {ratio:.0%} of the training loss: see whether the target leaks "
            "into the inputs.",
        )
