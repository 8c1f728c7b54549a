"""Definite mistakes: what was seen is the proof."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.standing import standing
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
            output, target = _shape(event, "output"), _shape(event, "target")
            result = _shape(event, "result")
            if math.prod(result) <= max(math.prod(output), math.prod(target)):
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


def _shape(event: Event, name: str) -> tuple[int, ...]:
    found = event.data.get(name) or ()
    return tuple(int(length) for length in found)


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
class ParametersNotTrained(Detector):
    """Parameters that are meant to learn do not change although others do."""

    name: ClassVar[str] = "parameters-not-trained"
    min_steps: int = 5
    remaining: float = 0.4
    gradient: float = 1e-6
    looks: int = 4
    dead: float = 0.9

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.steps < self.min_steps:
            return
        groups: dict[str, list[Event]] = {}
        for event in history.events_of("detached"):
            groups.setdefault(str(event.data.get("reason", "no-grad")), []).append(event)
        suffers = stand.suffers(self.remaining)
        for reason, events in groups.items():
            names = [event.scope for event in events]
            used = [name for name in names if reason != "unused" and _used(history, name)]
            severity: Severity = "info"
            if used and suffers:
                severity = "error"
            elif (
                reason in ("unregistered", "made-anew")
                or (reason == "not-in-optimizer" and _as_drawn(history, used))
                or any(
                    _fresh(history, name) and not (reason == "no-grad" and _at_the_end(history, name, names))
                    for name in used
                )
            ):
                severity = "warning"
            shown = used or names
            yield Symptom(
                self.name,
                severity,
                {"no-grad": 0.93, "not-in-optimizer": 0.88, "unregistered": 0.95, "made-anew": 0.95}.get(
                    reason, 0.6
                )
                if used
                else 0.6,
                min(event.step for event in events),
                shown[0].rpartition(".")[0] or shown[0],
                {"reason": reason, "parameters": shown[:8], "count": len(shown), **stand.evidence()},
                _sentence("unused" if not used else reason, shown),
                ("Make the layer once, in `__init__`, and keep it as an attribute of the model.",)
                if reason == "made-anew"
                else (),
            )
        if not groups:
            found = [*self._still(history, suffers), *(() if suffers else self._cut_off(history))]
            yield from found or self._frozen_as_drawn(history)

    def _cut_off(self, history: History) -> Iterator[Symptom]:
        """Weights as they were drawn whose gradient is exactly 0 in every look, while later layers learn.

        Something on the way to the loss has no slope, as rounding and comparing have not. Units that are dead give no
        gradient either; that, and what else stands in the way of a training that gets nowhere, others report.
        """
        looks = {
            weight.name: history.series("grad_l2", weight.name).finite()
            for weight in network.weights(history)
        }
        silent = [name for name, seen in looks.items() if len(seen) >= self.looks and not seen.values.any()]
        learning = [name for name, seen in looks.items() if len(seen) >= self.looks and seen.values.all()]
        if not silent or not learning or not network.up_to_date(history, "grad_l2", silent[0]):
            return
        dead = network.recent(history, 0.5)
        sites = network.sites(history, "act_dead", "relu", "threshold")
        if any(network.typical(history, "act_dead", site, dead) > self.dead for site in sites):
            return
        cut = [
            name
            for name in silent
            if _used(history, name) and _fresh(history, name) and not _at_the_end(history, name, silent)
        ]
        if not cut:
            return
        yield Symptom(
            self.name,
            "warning",
            0.85,
            network.extent(history)[0],
            cut[0].rpartition(".")[0],
            {"parameters": cut[:8], "count": len(cut), "looks": len(looks[cut[0]])},
            f"{cut[0]}"
            + (f" and {len(cut) - 1} more get" if len(cut) > 1 else " gets")
            + " a gradient of exactly 0 in every step that was looked at, while later layers learn: something between "
            "them lets no gradient through.",
            (
                "Look for what has no slope on the way to the loss: `round`, `sign`, `argmax`, comparisons, integers.",
                "Pass the gradient straight through: `x + (rounded - x).detach()`.",
            ),
        )

    def _frozen_as_drawn(self, history: History) -> Iterator[Symptom]:
        """A remark where weights are frozen that look as torch draws them: nothing was trained or loaded before."""
        frozen = [
            one.name
            for one in history.parameters
            if not one.trainable and len(one.shape) >= 2 and not history.series("grad_l2", one.name)
        ]
        frozen = [name for name in frozen if _used(history, name)]
        if len(frozen) < 2 or not all(_fresh(history, name) for name in frozen):
            return
        yield Symptom(
            self.name,
            "info",
            0.7,
            network.extent(history)[0],
            frozen[0].rpartition(".")[0],
            {"parameters": frozen[:8], "count": len(frozen)},
            f"{frozen[0]} and {len(frozen) - 1} more are frozen and look as they were drawn: nothing seems to have "
            "been loaded into them or trained before.",
            ("Load the weights before freezing them, or set requires_grad to True again.",),
        )

    def _still(self, history: History, suffers: bool) -> Iterator[Symptom]:
        """Parameters that have gradients but are never moved."""
        start, end = network.extent(history)
        window = network.Window(start, end)
        moved = {
            weight.name: network.updates_of(history, weight.name, window)
            for weight in network.weights(history)
        }
        still = [name for name, values in moved.items() if len(values) >= 5 and not values.any()]
        moving = [name for name, values in moved.items() if len(values) >= 5 and values.any()]
        if not still or not suffers or (moving and len(still) * 10 < len(moved)):
            return
        if not all(network.relative_gradient(history, name, window=window) > self.gradient for name in still):
            return  # no gradient to speak of: dead or vanished, which others report
        yield Symptom(
            self.name,
            "error",
            0.9,
            start,
            still[0].rpartition(".")[0],
            {"parameters": still[:8], "count": len(still)},
            f"{still[0]} gets gradients but is never changed ({len(still)} of {len(moved)} weight matrices).",
        )


def _used(history: History, name: str) -> bool:
    """Whether the forward pass goes through the parameter's module; an unused head is no mistake."""
    module = name.rpartition(".")[0]
    return all(layer.visible for layer in history.layers if layer.name == module)


def _at_the_end(history: History, name: str, silent: list[str]) -> bool:
    """Whether a layer without gradients is the last one of a part of the model whose others have some.

    What it gives may not be wanted: the classifier of a network whose hidden layer is taken, say.
    """
    module = name.rpartition(".")[0]
    part = module.rpartition(".")[0]
    order = next((layer.order for layer in history.layers if layer.name == module), math.inf)
    others = [
        layer.order
        for layer in history.layers
        if layer.visible
        and (not part or layer.name.startswith(f"{part}."))
        and any(one.trainable and one.name not in silent for one in layer.parameters)
    ]
    return bool(others) and max(others) < order


def _fresh(history: History, name: str) -> bool:
    """Whether a weight matrix looks as torch initialises it: untrained, so hardly frozen on purpose."""
    for parameter in history.parameters:
        if parameter.name == name and len(parameter.shape) >= 2:
            size, fan_in = math.prod(parameter.shape), math.prod(parameter.shape[1:])
            default = 1.0 / math.sqrt(3.0 * fan_in)
            return abs(parameter.init_std / default - 1.0) < 2.0 / math.sqrt(size) + 0.005
    return False


def _as_drawn(history: History, names: list[str]) -> bool:
    """Whether weights, all but a few, are as large as one of the usual schemes draws them: nothing has trained them."""
    given = [one for one in history.parameters if one.name in set(names) and len(one.shape) >= 2]
    drawn = sum(
        any(
            abs(one.init_std / std - 1.0) < 2.0 / math.sqrt(math.prod(one.shape)) + 0.005
            for std in _usual(one.shape)
        )
        for one in given
    )
    return len(given) >= 2 and drawn >= 0.8 * len(given)


def _usual(shape: tuple[int, ...]) -> tuple[float, ...]:
    """The deviations that weights of a shape are drawn with: torch's own, Glorot, He, and those of language models."""
    inside = math.prod(shape[2:])
    inputs, outputs = shape[1] * inside, shape[0] * inside
    return (
        1.0 / math.sqrt(3.0 * inputs),
        math.sqrt(2.0 / (inputs + outputs)),
        math.sqrt(2.0 / inputs),
        math.sqrt(2.0 / outputs),
        1.0 / math.sqrt(inputs),
        0.02,
        1.0,
    )


#: By reason, of one parameter and of several.
_REASONS = {
    "no-grad": (
        "should learn but never gets a gradient: it is cut off from the loss.",
        "should learn but never get a gradient: they are cut off from the loss.",
    ),
    "not-in-optimizer": (
        "gets gradients but is in no optimizer, so it never changes.",
        "get gradients but are in no optimizer, so they never change.",
    ),
    "unregistered": (
        "is used but is in no optimizer: its module is kept in a plain list or dict, where the model does not see it.",
        "are used but are in no optimizer: their modules are kept in a plain list or dict, where the model does "
        "not see them.",
    ),
    "made-anew": (
        "is made anew in every pass: it holds other random numbers each time and never learns.",
        "are made anew in every pass: they hold other random numbers each time and never learn.",
    ),
    "unused": (
        "is not used in any pass that is trained on.",
        "are not used in any pass that is trained on.",
    ),
}


def _sentence(reason: str, names: list[str]) -> str:
    one, several = _REASONS[reason]
    return f"{names[0]} and {len(names) - 1} more {several}" if len(names) > 1 else f"{names[0]} {one}"


@dataclass(frozen=True)
class WrongMode(Detector):
    """Evaluated in training mode or trained in evaluation mode, where that makes a difference."""

    name: ClassVar[str] = "wrong-mode"
    share: float = 0.5

    def detect(self, history: History) -> Iterator[Symptom]:
        sensitive = mode_layers(history)
        if not sensitive:
            return
        evaluations = [event for event in history.events_of("evaluation") if event.scope != "training-data"]
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
                self.name, "error", 0.93, at_rest[0].step, str(fixed[0]), {"layers_without_averages": len(fixed)},
                f"Batch normalisation ({fixed[0]}{more}) never takes in what it sees, for its momentum is 0: in "
                "evaluation mode it normalises by a mean of 0 and a variance of 1, with which nothing was trained.",
                ("Leave the momentum of batch normalisation at 0.1; of running averages it says how much is new.",),
            )  # fmt: skip
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

    def _symptom(
        self,
        severity: Severity,
        step: int,
        layers: list[tuple[str, str]],
        evidence: dict[str, Any],
        sentence: str,
    ) -> Symptom:
        return Symptom(self.name, severity, 0.9, step, layers[0][0], evidence, sentence)


def mode_layers(history: History) -> list[tuple[str, str]]:
    """The layers that behave differently in training and evaluation."""
    found = []
    for layer in history.layers:
        kind = f"{layer.role} {layer.kind}".lower()
        if "batchnorm" in kind or "batch_norm" in kind or "dropout" in kind:
            found.append((layer.name, layer.kind or layer.role))
    named = history.facts.get("mode_sensitive")
    if not found and isinstance(named, (list, tuple)):
        found = [("the model", str(kind)) for kind in named]
    return found
