"""Definite mistakes: what was seen is the proof."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.axes import shape_of
from akeso.detectors.standing import standing, validation_accuracy, validation_loss
from akeso.diagnosis import Severity, Symptom
from akeso.history import Event, History

#: What is said of functions that were given a value at the edge of what they are defined for …
_EDGES: Final = {
    "log": ": `log` was given 0; use `log_softmax` or `logsigmoid`, or add a small epsilon",
    "log2": ": `log2` was given 0; add a small epsilon",
    "log10": ": `log10` was given 0; add a small epsilon",
    "sqrt": ": `sqrt` was given 0, where its slope is infinite; add a small epsilon inside",
    "pow": ": a root (`pow`) was taken of 0, where its slope is infinite; add a small epsilon inside",
    "std": ": `std` of values that are all the same has no slope; add a small epsilon",
    "div": ": something was divided by 0",
    "acos": ": `acos` was given 1 or -1, where its slope is infinite",
    "asin": ": `asin` was given 1 or -1, where its slope is infinite",
}
#: … and of those whose result was the first that was not finite.
_OVERFLOWS: Final = {
    "exp": ": `exp` of a value too large for its type",
    "log": ": `log` of 0 or less",
    "sqrt": ": `sqrt` of a negative value",
    "div": ": a division by 0",
    "pow": ": `pow` of a value too large, or a root of a negative one",
}


@dataclass(frozen=True)
class NonFinite(Detector):
    """NaN or infinity in loss, gradients or weights."""

    name: ClassVar[str] = "non-finite"

    def detect(self, history: History) -> Iterator[Symptom]:
        loss = history.series("loss")
        bad = ~np.isfinite(loss.values)
        events = [event for event in history.events_of("non-finite") if self._counts(history, event)]
        if not bad.any() and not events:
            return
        step = min([int(loss.steps[np.argmax(bad)])] if bad.any() else [events[0].step])
        first = min(events, key=lambda event: event.step) if events else None
        if first is not None:
            step = min(step, first.step)
        recovered = (
            len(loss) > 5 and not bad[-5:].any() and not any(e.data.get("what") == "weight" for e in events)
        )
        severity: Severity = "warning" if recovered else "error"
        what = str(first.data.get("what", "loss")) if first is not None else "loss"
        module = str(first.data.get("module") or first.scope) if first is not None else ""
        where = f", first in {network.called(module)}" if module else ""
        edge, operation = (
            str(first.data.get(key) or "") if first is not None else "" for key in ("edge", "operation")
        )
        cause = _EDGES.get(edge, "") or _OVERFLOWS.get(operation, "")
        yield Symptom(
            self.name,
            severity,
            0.99 if not recovered else 0.8,
            step,
            module,
            {
                "what": what,
                "function": edge or operation or None,
                "steps": int(bad.sum()),
                "recovered": recovered,
            },
            f"The {what} became NaN or infinite in step {step}{where}{cause}.",
        )

    def _counts(self, history: History, event: Event) -> bool:
        """Overflowing gradients are how a loss scaler finds its scale; masks may hold infinities that harm no loss."""
        what = event.data.get("what")
        if what in ("loss", "weight") or (what == "activation" and event.data.get("loss")):
            return True
        if what == "gradient":
            return not history.series("loss_scale")
        return False


@dataclass(frozen=True)
class ShapeBroadcast(Detector):
    """Outputs and targets of different shape were combined into something larger than either."""

    name: ClassVar[str] = "shape-broadcast"

    def detect(self, history: History) -> Iterator[Symptom]:
        for event in history.events_of("broadcast"):
            output, target = shape_of(event, "output"), shape_of(event, "target")
            result = shape_of(event, "result")
            square = any(
                len(one) == 2 and one == result and set(one) == {math.prod(other)}
                for one, other in ((target, output), (output, target))
            )
            if math.prod(result) <= max(math.prod(output), math.prod(target)) and not square:
                continue
            yield Symptom(
                self.name,
                "error",
                0.97,
                event.step,
                "",
                {"output": list(output), "target": list(target), "compared": list(result)},
                f"The loss compares outputs of shape {list(output)} with targets of shape {list(target)} as "
                f"{list(result)}: every prediction with every target.",
            )
            return


@dataclass(frozen=True)
class MissingZeroGrad(Detector):
    """Gradients of earlier steps are added to those of the next."""

    name: ClassVar[str] = "missing-zero-grad"
    count: int = 3

    def detect(self, history: History) -> Iterator[Symptom]:
        events = history.events_of("stale-gradient")
        seen = max([len(events), *(int(event.data.get("count", 1)) for event in events)], default=0)
        if seen < self.count:
            return
        stand = standing(history)
        norm = history.series("grad_norm").finite().values
        if len(norm) and not norm.any():
            return  # what is left from step to step is nothing: it is cleared, perhaps at the wrong moment
        growth = (
            curves.median(curves.tail(norm, 0.2)) / max(curves.median(norm[:2]), 1e-30)
            if len(norm) > 4
            else 1.0
        )
        yield Symptom(
            self.name,
            "error" if stand.suffers(0.5) else "warning",
            0.95,
            events[0].step,
            "",
            {
                "steps_with_old_gradients": seen,
                "grad_norm_growth": curves.rounded(growth),
                **stand.evidence(),
            },
            "Gradients are never cleared: every step adds the gradients of all earlier ones.",
        )


@dataclass(frozen=True)
class WrongMode(Detector):
    """Evaluated in training mode or trained in evaluation mode, where that makes a difference."""

    name: ClassVar[str] = "wrong-mode"
    share: float = 0.5
    often: float = 0.05
    left: float = 0.37
    behind: float = 0.2
    half: float = 0.5

    def detect(self, history: History) -> Iterator[Symptom]:
        sensitive = mode_layers(history)
        if not sensitive:
            return
        evaluations = [event for event in history.events_of("evaluation") if event.scope != "training-data"]
        figures = [event for event in evaluations if _figures(event)]
        # Answers may be tallied in training as well, where a model labels its own data: then it happens all the time.
        if len(evaluations) - len(figures) > self.often * history.steps:
            evaluations = figures
        wrong = [event for event in evaluations if event.data.get("training_mode") is True]
        if wrong and len(wrong) >= self.share * len(evaluations):
            yield self._symptom(
                "warning",
                wrong[0].step,
                sensitive,
                {"evaluations_in_training_mode": len(wrong), "evaluations": len(evaluations)},
                f"The model is evaluated in training mode, so {sensitive[0][0]} ({sensitive[0][1]}) "
                "still acts as in "
                f"training.",
            )
        fixed = history.facts.get("fixed_statistics")
        at_rest = [event for event in evaluations if event.data.get("training_mode") is False]
        if at_rest and isinstance(fixed, (list, tuple)) and fixed:
            more = f" and {len(fixed) - 1} more" if len(fixed) > 1 else ""
            yield Symptom(
                self.name, "error", 0.93, at_rest[0].step, str(fixed[0]),
                {"reason": "averages", "layers_without_averages": len(fixed)},
                f"Batch normalisation ({fixed[0]}{more}) never takes in what it sees, for its momentum is 0: in "
                "evaluation mode it normalises by a mean of 0 and a variance of 1, with which nothing was trained.",
                ("Leave the momentum of batch normalisation at 0.1; of running averages it says how much is new.",),
            )  # fmt: skip
        if at_rest:
            yield from self._lagging(history, at_rest[0].step)
        trained = [
            event for event in history.events_of("training-mode") if event.data.get("training") is False
        ]
        if trained:
            yield self._symptom(
                "warning",
                trained[0].step,
                sensitive,
                {"evaluation_mode_since": trained[0].step},
                f"The model is trained in evaluation mode, so {sensitive[0][0]} ({sensitive[0][1]}) "
                "does not do its "
                f"work.",
            )

    def _lagging(self, history: History, step: int) -> Iterator[Symptom]:
        """Running averages that look back over more steps than the run has: most of them is what they began with."""
        slow, stand = history.facts.get("slow_statistics"), standing(history)
        if not isinstance(slow, dict) or not slow or not math.isfinite(stand.share) or stand.over < self.half:
            return
        name = min(slow, key=lambda layer: float(slow[layer]))
        momentum = float(slow[name])
        left = (1.0 - momentum) ** stand.length
        correct, lost = validation_accuracy(history).values[-2:], validation_loss(history).values[-2:]
        behind = len(correct) and float(np.max(correct)) < stand.accuracy - self.behind
        behind = behind or (len(lost) and float(np.min(lost)) > (1.0 + self.behind) * stand.last)
        if left < self.left or not behind:
            return
        more = f" and {len(slow) - 1} more" if len(slow) > 1 else ""
        yield Symptom(
            self.name,
            "error",
            0.9,
            step,
            name,
            {"reason": "averages", "momentum": momentum, "steps": stand.length, "left": curves.rounded(left)},
            f"Batch normalisation ({name}{more}) has a momentum of {momentum:g}: its running averages look back "
            f"over {1 / momentum:.0f} steps, and the run has {stand.length}: {left:.0%} of what the model is evaluated "
            "with is still the mean of 0 and the variance of 1 that they began with.",
            (
                "Leave the momentum of batch normalisation at 0.1; of running averages it says how much is new, where "
                "in TensorFlow it says how much is kept.",
            ),
        )

    def _symptom(
        self,
        severity: Severity,
        step: int,
        layers: list[tuple[str, str]],
        evidence: dict[str, Any],
        sentence: str,
    ) -> Symptom:
        return Symptom(self.name, severity, 0.9, step, layers[0][0], evidence, sentence)


def _figures(event: Event) -> bool:
    """Whether an evaluation gave a loss or an accuracy."""
    return event.data.get("loss") is not None or event.data.get("accuracy") is not None


def mode_layers(history: History) -> list[tuple[str, str]]:
    """The layers that behave differently in training and evaluation; dropout of nothing does not."""
    found = []
    dropped = history.facts.get("dropout")
    rates = dropped if isinstance(dropped, dict) else {}
    for layer in history.layers:
        kind = f"{layer.role} {layer.kind}".lower()
        if rates.get(layer.name) == 0:
            continue
        if "batchnorm" in kind or "batch_norm" in kind or "dropout" in kind:
            found.append((layer.name, layer.kind or layer.role))
    named = history.facts.get("mode_sensitive")
    if not found and not rates and isinstance(named, (list, tuple)):
        found = [("the model", str(kind)) for kind in named]
    return found
