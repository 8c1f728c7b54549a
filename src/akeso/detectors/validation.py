"""What validation shows: overfitting, results too good to be true, and none of what was learnt."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.bugs import mode_layers
from akeso.detectors.reversal import reversal
from akeso.detectors.standing import (
    Standing,
    chance_level,
    several_losses,
    standing,
    validation_accuracy,
    validation_loss,
)
from akeso.detectors.steps import pass_length
from akeso.diagnosis import Severity, Symptom
from akeso.history import History, Series


@dataclass(frozen=True)
class Overfitting(Detector):
    """Validation got clearly worse than its best while the training loss went on falling."""

    name: ClassVar[str] = "overfitting"
    min_evaluations: int = 4
    rise: float = 0.1
    rise_that_matters: float = 0.3
    rise_of_constant: float = 0.3
    rise_of_constant_if_held: float = 0.6
    rise_worth_a_word: float = 0.05
    accuracy_lost: float = 0.03
    fitted: float = 0.7

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        validation = validation_loss(history)
        correct = validation_accuracy(history)
        if max(len(validation), len(correct)) < self.min_evaluations or stand.adversarial or stand.diverged:
            return
        rise, best, since = _worsening(validation)
        lost, _, accuracy_since = _worsening(Series(correct.steps, -correct.values), relative=False)
        by_loss = rise >= self.rise
        by_accuracy = lost >= self.accuracy_lost
        if not by_loss and not by_accuracy:
            return
        since = since if by_loss else accuracy_since
        before = history.series("loss").until(since).finite().values
        if not len(before) or not math.isfinite(stand.last):
            return
        then = curves.median(curves.tail(before, 0.2, 5))
        fitted = (
            stand.last < self.fitted * stand.baseline if math.isfinite(stand.baseline) else stand.improved
        )
        if not fitted or not stand.last < then + 0.5 * stand.noise:
            return
        severity: Severity = "info"
        worth = rise * best / stand.baseline if math.isfinite(stand.baseline) else math.nan
        # Answers that stay as right as they were are only given with too much confidence.
        held = len(correct) >= self.min_evaluations and not by_accuracy
        grave = worth >= (self.rise_of_constant_if_held if held else self.rise_of_constant)
        alone = len(correct) < self.min_evaluations and rise >= self.rise_that_matters
        if by_accuracy or grave or (alone and not worth < self.rise_worth_a_word):
            severity = "warning"
        words = (
            f"validation loss rose by {rise:.0%}" if by_loss else f"validation accuracy fell by {lost:.1%}"
        )
        yield Symptom(
            self.name,
            severity,
            0.85 if severity != "info" else 0.7,
            since,
            "",
            {
                "val_loss_best": float(f"{best:.4g}") if by_loss else None,
                "val_loss_rise": float(f"{rise:.3g}") if by_loss else None,
                "val_accuracy_lost": round(lost, 4) if len(correct) else None,
                **stand.evidence(),
            },
            f"The model overfits: {words} since step {since} while the training loss went on falling.",
        )


def _worsening(series: Series, *, relative: bool = True) -> tuple[float, float, int]:
    """How far a validation curve got worse than its best, beyond its own noise; its best; since when."""
    # What is evaluated again without a step in between is another model, the best one so far say, or other data.
    steps, first = np.unique(series.steps, return_index=True)
    series = Series(steps, series.values[first])
    values = series.values
    if len(values) < 4:
        return 0.0, math.nan, 0
    smooth = (
        values if len(values) < 8 else np.convolve(np.pad(values, 1, mode="edge"), np.ones(3) / 3, "valid")
    )
    best = int(np.argmin(smooth))
    now = float(np.mean(values[-max(2, len(values) // 5) :]))
    scale = max(abs(float(smooth[best])), 1e-12) if relative else 1.0
    rise = (now - float(smooth[best])) / scale
    if best >= len(values) - 2 or rise < 3.0 * curves.noise(values) / scale:
        return 0.0, float(smooth[best]), int(series.steps[best])
    return rise, float(smooth[best]), int(series.steps[best])


@dataclass(frozen=True)
class ValidationMismatch(Detector):
    """Right about samples that are new in training, and like guessing about those of validation.

    Or given inputs on another scale in validation, which gets nothing out of what is learnt.
    """

    name: ClassVar[str] = "validation-mismatch"
    min_evaluations: int = 4
    learnt: float = 0.15
    of_that: float = 0.25
    ever: float = 0.5
    far_below: float = 0.3
    scale: float = 8.0
    fitted: float = 0.5
    flat: float = 0.05

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.adversarial or stand.diverged:
            return
        found = (
            self._scaled(history, stand) or self._reversed(history, stand) or self._guessing(history, stand)
        )
        if found is not None:
            yield found

    def _scaled(self, history: History, stand: Standing) -> Symptom | None:
        """Inputs of validation that are on another scale than those of training, where that does it no good."""
        names = ("input_mean", "input_std", "val_input_mean", "val_input_std")
        mean, spread, own_mean, own_spread = (
            curves.median(history.series(one).finite().values) for one in names
        )
        if not (spread > 0 and own_spread > 0) or not self._in_vain(history, stand):
            return None
        off = max(own_spread / spread, spread / own_spread)
        if off < self.scale and not abs(own_mean - mean) > self.scale * max(spread, own_spread):
            return None
        # Where classes are far apart the answers may survive it; how sure they are does not.
        kept = self._kept(history, stand)
        lost = curves.median(curves.tail(validation_loss(history).values, 0.5, 2))
        return Symptom(
            self.name,
            "warning" if kept else "error",
            0.9,
            int(history.series("val_input_std").steps[0]),
            "",
            {
                "input_mean": curves.rounded(mean),
                "input_std": curves.rounded(spread),
                "val_input_mean": curves.rounded(own_mean),
                "val_input_std": curves.rounded(own_spread),
                **stand.evidence(),
            },
            f"In validation the model is given inputs on another scale (mean {own_mean:.3g}, deviation "
            f"{own_spread:.3g}) than in training ({mean:.3g}, {spread:.3g}), and "
            + (
                f"although {kept:.0%} of its answers are right its loss is {lost:.3g}, {stand.last:.3g} in training."
                if kept
                else "gets nothing right that it has learnt."
            ),
        )

    def _kept(self, history: History, stand: Standing) -> float:
        """The accuracy of validation where it is still far above chance; else 0."""
        right = curves.median(curves.tail(validation_accuracy(history).values, 0.5, 2))
        chance = chance_level(history)
        return right if right - chance >= self.ever * (1.0 - chance) and stand.last > 0 else 0.0

    def _in_vain(self, history: History, stand: Standing) -> bool:
        """Whether validation stays as it was, or as bad as without a model, while the training loss goes down."""
        if not stand.remaining < self.fitted and not (
            stand.improved and stand.last < self.fitted * stand.first
        ):
            return False
        loss = validation_loss(history)
        if len(loss) >= self.min_evaluations:
            worse = curves.median(curves.tail(loss.values, 0.5, 2)) > max(
                2.0 * stand.last, 0.9 * stand.baseline
            )
            return worse if math.isfinite(stand.baseline) else loss.values[-1] > loss.values[0]
        printed = dict(history.facts.get("printed_metrics") or {})
        known = [
            np.array([value for _, value in points])
            for name, points in printed.items()
            if _of_validation(name)
        ]
        known = [
            values for values in known if len(values) >= self.min_evaluations and np.isfinite(values).all()
        ]
        return bool(known) and all(np.ptp(one) <= self.flat * abs(float(np.median(one))) for one in known)

    def _reversed(self, history: History, stand: Standing) -> Symptom | None:
        found = reversal(history, stand)
        if found is None:
            return None
        return Symptom(
            self.name,
            "error",
            0.85,
            found.since,
            "",
            {
                "accuracy_in_training": round(found.training, 4),
                "val_accuracy": round(found.validation, 4),
                **stand.evidence(),
            },
            f"In validation only {found.validation:.0%} of the answers are right, never as many as by guessing, while "
            f"{found.training:.0%} are in training: yes means no in one of the two, or answers are not brought to yes "
            "and no before they are compared.",
            (
                "See that labels mean the same in training and in evaluation: `1 - y`, `y == 0`, or classes that were "
                "numbered apart.",
                "Compare what the loss takes for yes: logits above 0, probabilities above 0.5.",
            ),
        )

    def _guessing(self, history: History, stand: Standing) -> Symptom | None:
        correct = validation_accuracy(history)
        if len(correct) < self.min_evaluations:
            return None
        classes, chance = history.facts.get("classes"), chance_level(history)
        even = isinstance(classes, int) and chance * max(2, classes) <= 1.5
        if history.facts.get("task") not in ("binary", "multiclass") or not even:
            return None
        right = history.series("accuracy").finite()
        fresh = self._fresh(history, right, int(correct.steps[0])) - chance
        if not fresh >= self.learnt or stand.remaining > 1.0:
            return None
        usual, best = float(np.median(correct.values)) - chance, float(correct.values.max()) - chance
        learnt = max(fresh, curves.mean(curves.tail(right.values, 0.3, 3)) - chance)
        # A figure far below chance is of something else, as of whole sequences that are right.
        if (
            usual > self.of_that * fresh
            or best > self.ever * learnt
            or usual < (self.far_below - 1.0) * chance
        ):
            return None
        return Symptom(
            self.name,
            "error",
            0.75,
            int(correct.steps[0]),
            "",
            {
                "first_pass_accuracy": round(fresh + chance, 4),
                "val_accuracy": round(usual + chance, 4),
                "chance": round(chance, 4),
                **stand.evidence(),
            },
            f"The model is right about {fresh + chance:.0%} of samples that are new to it in training, and about "
            f"{usual + chance:.0%} in validation, where guessing gives {chance:.0%}: it is evaluated on other data, or "
            "in another state, than it is trained in.",
        )

    def _fresh(self, history: History, right: Series, evaluated: int) -> float:
        """The training accuracy late in the first pass over the data, in which every sample is new."""
        end = pass_length(history) or evaluated
        first = right.values[right.steps < end]
        return float(np.mean(first[-3:])) if len(first) >= 5 else math.nan


def _of_validation(name: str) -> bool:
    return name.startswith(("val", "test", "eval"))


@dataclass(frozen=True)
class DataLeakage(Detector):
    """Validation was as good as perfect, and other data of the same run show that it was too good to be true."""

    name: ClassVar[str] = "data-leakage"
    min_evaluations: int = 3
    perfect: float = 0.97
    drop: float = 0.25
    ratio: float = 0.5

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.steps and history.facts.get("target_among_inputs") is True and not _compressed(history):
            yield self._among_inputs(history, stand)
            return
        if stand.adversarial or stand.diverged:
            return
        yield from self._contradicted(history, stand)
        yield from self._better_than_training(history, stand)

    def _among_inputs(self, history: History, stand: Standing) -> Symptom:
        shapes = {f"{what}_shape": history.facts.get(f"{what}_shape") for what in ("input", "target")}
        return Symptom(
            self.name,
            "error",
            0.9,
            network.extent(history)[0],
            "",
            {**shapes, **stand.evidence()},
            "What is to be predicted is among the inputs: every value of a target is there at the same place in every "
            "sample, so that it has only to be handed on. Does a window reach into what it is to foresee?",
            ("Let inputs end where targets begin, and leave the columns of the targets out of the inputs.",),
        )

    def _contradicted(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Evaluations that were perfect all along and one, without a change in training, that is not at all."""
        correct = history.series("val_accuracy").finite()
        if len(correct) <= self.min_evaluations:
            return
        before, last = correct.values[:-1], float(correct.values[-1])
        usual = float(np.median(before[len(before) // 2 :]))
        if usual < self.perfect or last > usual - self.drop or before[-1] < usual - 0.05:
            return
        yield Symptom(
            self.name,
            "error",
            0.8,
            int(correct.steps[0]),
            "",
            {"val_accuracy": round(usual, 4), "accuracy_on_other_data": round(last, 4), **stand.evidence()},
            f"Validation accuracy was {usual:.0%} all along, but {last:.0%} on the data evaluated "
            "last: what should be "
            "predicted seems to be contained in the inputs of training and validation.",
        )

    def _better_than_training(self, history: History, stand: Standing) -> Iterator[Symptom]:
        validation = validation_loss(history)
        dropped = any("dropout" in kind.lower() for _, kind in mode_layers(history))
        dropped |= bool(history.facts.get("dropout_called"))
        mean = (history.facts.get("loss_args") or {}).get("reduction", "mean") == "mean"
        if len(validation) < self.min_evaluations or dropped or not mean or not math.isfinite(stand.baseline):
            return
        if several_losses(history):
            return  # validation may hold one of several losses
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
            {"val_loss_over_train_loss": curves.rounded(ratio), **stand.evidence()},
            f"Validation loss is only {ratio:.0%} of the training loss: see whether the target leaks "
            "into the inputs.",
        )


def _compressed(history: History) -> bool:
    """Whether a layer on the way is narrower than what is to be said: that is said again from a code, as is meant."""
    shape = history.facts.get("target_shape")
    if not isinstance(shape, list) or not all(isinstance(size, int) for size in shape):
        return False
    widths = [
        layer.parameters[0].shape[0]
        for layer in history.layers
        if layer.kind == "Linear" and layer.role != "output" and layer.parameters
    ]
    return min(widths, default=math.inf) < math.prod(shape[1:])
