"""Mistakes in the training loop itself, and going back to before a spike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from akeso.detectors.stages import last_stage
from akeso.detectors.untrained import frozen_as_drawn
from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.remedies._base import Remedy
from akeso.remedies.chart import chart
from akeso.remedies.edit import Edit, Prescription

#: What is said of running averages that models are evaluated with and that are still as they began.
_AVERAGES = "averages"
#: Why parameters are not trained that get gradients all the same.
_LEFT_OUT = ("not-in-optimizer", "unregistered")
#: Why nothing comes of it where all are in an optimizer.
_TRAINED = ("left-behind", "no-slope", "rounded-away")


class ZeroGrad(Remedy):
    """Gradients cleared before each backward pass."""

    name = "add-zero-grad"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        yield Prescription([Edit("add-zero-grad")])


class DelayZeroGrad(Remedy):
    """Gradients kept for the step, where there was a backward pass in every step and none had any gradient left."""

    name = "delay-zero-grad"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        trained = sum(parameter.trainable for parameter in history.parameters)
        silent = [one.evidence for one in diagnoses if one.evidence.get("reason") == "no-grad"]
        if any(evidence.get("count") == trained for evidence in silent):
            yield Prescription([Edit("delay-zero-grad")])


class Mode(Remedy):
    """Training mode while training, evaluation mode while evaluating."""

    name = "set-mode"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if not any(found.evidence.get("reason") == _AVERAGES for found in diagnoses):
            yield Prescription([Edit("set-mode", "", {"to": "by-phase"})])


class Averages(Remedy):
    """Running averages that take in what is seen, where those to evaluate with are still as they began."""

    name = "set-averaging"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if any(found.evidence.get("reason") == _AVERAGES for found in diagnoses):
            yield Prescription([Edit("set-averaging", "", {"to": 0.1})])


class KeepAttached(Remedy):
    """What the model cuts off from the graph stays part of it, where parameters get no gradient at all."""

    name = "keep-attached"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if any(found.evidence.get("reason") == "no-grad" for found in diagnoses):
            yield Prescription([Edit("keep-attached")])


class TrainEverything(Remedy):
    """Missing parameters handed to the optimizer, frozen ones made trainable.

    What gets gradients and is in no optimizer is all there is to add. What is frozen beside it is frozen on purpose: it
    is let go second, and only where nothing seems to have been loaded into it.
    """

    name = "add-to-optimizer"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if any(found.evidence.get("reason") in _TRAINED for found in diagnoses):
            return  # a copy is brought up to date by the script; what has no slope, or is rounded away, has its steps
        frozen = any(not parameter.trainable for parameter in history.parameters)
        missing = any(parameter.trainable and not parameter.in_optimizer for parameter in history.parameters)
        add, free = Edit("add-to-optimizer", "all"), Edit("unfreeze", "all")
        if any(found.evidence.get("reason") in _LEFT_OUT for found in diagnoses):
            late = {"stage": "last"} if last_stage(history)[1] else {}
            yield Prescription([Edit("add-to-optimizer", "all", late)])
            if not late and frozen_as_drawn(history):
                yield Prescription([free, add])
            return
        if frozen and missing:
            yield Prescription([free, add])
        if missing or not frozen:
            yield Prescription([add])
        if frozen:
            yield Prescription([free, add])


class TurnRecurrence(Remedy):
    """A recurrent layer told that samples come first, or that they do not, where it was seen to run along them."""

    name = "turn-recurrence"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        for found in diagnoses:
            if found.problem == "wrong-axis" and found.layer:
                yield Prescription([Edit("turn-recurrence", found.layer)])


class TurnPictures(Remedy):
    """The axis of colours moved, where pictures were seen whose axes were only called something else."""

    name = "turn-pictures"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if any("input_interleaved" in found.evidence for found in diagnoses):
            yield Prescription([Edit("turn-pictures")])


class GuardFunctions(Remedy):
    """Roots, logarithms and divisions kept off zero, where their slope is infinite.

    What first grew and then overflowed is not of this kind. With ``named`` only where one of them was seen to be given
    such a value.
    """

    name = "guard-functions"

    def __init__(self, named: bool = False) -> None:
        self.named = named

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if any(found.problem == "exploding-gradient" for found in diagnoses):
            return
        broken = [found for found in diagnoses if found.problem == "non-finite"]
        if broken and (not self.named or any(found.evidence.get("function") for found in broken)):
            yield Prescription([Edit("guard-functions")])


class RollBack(Remedy):
    """Back to before a spike of the loss, past the batches that brought it, at half the rate."""

    name = "roll-back"
    margin = 20

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        steps = [
            found.step
            for found in diagnoses
            if found.problem in ("loss-spike", "non-finite", "oscillating-loss")
        ]
        facts = chart(history)
        if steps and min(steps) > max(3 * self.margin, facts.planned // 10):
            values = {"step": min(steps) - self.margin, "skip": 2 * self.margin, "factor": 0.5}
            yield Prescription([Edit("roll-back", "", values)])
