"""Gradients that vanish or explode on their way through the layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from akeso.detectors import curves, cut, network
from akeso.detectors._base import Detector
from akeso.detectors.standing import Standing, standing
from akeso.diagnosis import Symptom
from akeso.history import Floats, History


@dataclass(frozen=True, slots=True)
class Depth:
    """How the relative gradient (gradient over weight) goes from the last layers to the first."""

    front: float
    back: float
    layers: int
    first: str

    @property
    def ratio(self) -> float:
        """The first layers' relative gradient over the last layers' one; ``nan`` when it cannot be told."""
        if not math.isfinite(self.front) or not self.back > 0:
            return math.nan
        return self.front / self.back

    @property
    def per_layer(self) -> float:
        """The same per layer: the factor by which one layer changes the gradient."""
        return self.ratio ** (1.0 / max(1, self.layers - 1)) if self.ratio > 0 else 0.0


def depth(history: History, window: network.Window) -> Depth:
    """Compares the first third of the layers with the last third."""
    weights, relative = network.over_depth(history, window)
    count = len(weights)
    if count < 2:
        return Depth(math.nan, math.nan, count, "")
    third = max(1, count // 3)
    return Depth(_middle(relative[:third]), _middle(relative[-third:]), count, weights[0].layer)


def _middle(values: Floats) -> float:
    """The median on a logarithmic scale, zeros counted as the smallest."""
    return float(np.exp(np.median(np.log(np.maximum(values, 1e-40)))))


@dataclass(frozen=True)
class VanishingGradient(Detector):
    """Early layers get a tiny share of the gradient, or late layers no longer see the sample."""

    name: ClassVar[str] = "vanishing-gradient"
    min_steps: int = 20
    min_layers: int = 3
    min_looks: int = 4
    ratio: float = 1e-3
    effect: float = 3e-3
    flat: float = 1e-3
    flat_from_start: float = 5e-3
    remaining: float = 0.9
    plateau: float = 0.4
    remaining_after_plateau: float = 0.3
    remaining_if_strong: float = 0.5

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.steps < self.min_steps or stand.broken:
            return
        nothing = self._nothing(history, stand)
        if nothing is not None:
            yield nothing
            return
        if cut.front(history, self.min_looks):
            return  # it does not vanish: something lets none through
        here = depth(history, network.recent(history, 0.5))
        then = depth(history, network.early(history))
        moved = effect(history, network.early(history), stand) * _shortened(history, network.early(history))
        decades = max(_decades(self.ratio, then.ratio), _decades(self.effect, moved))
        if then.layers < self.min_layers or not self._harmed(stand, decades):
            return
        sites, variation = self._variation(history, network.recent(history))
        _, at_first = self._variation(history, network.early(history))
        backward = here.ratio < self.ratio or decades > 0
        at_once = bool(len(at_first)) and at_first[-1] < self.flat_from_start
        forward = len(sites) >= self.min_layers and variation[-1] < (
            self.flat_from_start if at_once else self.flat
        )
        forward = forward and variation[-1] < 0.05 * float(np.max(variation))
        if not backward and not forward:
            return
        from_start = decades > 0 or at_once
        start, _ = network.extent(history)
        yield Symptom(
            self.name,
            "error",
            min(0.97, 0.7 + 0.08 * min(3.0, max(0.0, decades)) + (0.1 if forward else 0.0)),
            start if from_start else network.recent(history, 0.5).start,
            here.first or (sites[-1] if sites else ""),
            {
                "gradient_first_over_last": curves.rounded(here.ratio),
                "per_layer": curves.rounded(here.per_layer),
                "gradient_times_weight_over_loss": curves.rounded(moved),
                "layers": here.layers,
                "variation_between_samples_in_last_layer": curves.rounded(float(variation[-1]))
                if sites
                else None,
                **stand.evidence(),
            },
            self._sentence(
                here if here.ratio < self.ratio else then, moved, backward, sites, variation, stand
            ),
        )

    def _nothing(self, history: History, stand: Standing) -> Symptom | None:
        """No parameter gets any gradient, and has not for the second half of what was seen."""
        norms = history.series("grad_norm").finite()
        moved = np.flatnonzero(norms.values)
        still = norms.steps[moved[-1] + 1 :] if len(moved) else norms.steps
        left = abs(stand.last) > 1e-6 * max(1.0, abs(stand.first))
        if len(still) < self.min_looks or not left or stand.adversarial or stand.recent.falls:
            return None
        since = int(still[0])
        start, end = network.extent(history)
        if since - start > (end - start) / 2:
            return None
        return Symptom(
            self.name,
            "error",
            0.97,
            since,
            "",
            {"grad_norm": 0.0, "looks": len(still), **stand.evidence()},
            f"The gradient is exactly zero in every parameter since step {since}, and the loss is not: nothing is "
            "learned. What the model gives is cut off on its way to the loss (a rounding, a clamp, a ReLU at the "
            "output, dead units), or the gradient is cleared before the step.",
        )

    def _harmed(self, stand: Standing, decades: float) -> bool:
        """The clearer the mechanism, the less harm is needed beside it."""
        if stand.suffers(self.remaining) or stand.lost_time(self.plateau, self.remaining_after_plateau):
            return True
        return decades >= 1.0 and stand.suffers(self.remaining_if_strong)

    def _variation(self, history: History, window: network.Window) -> tuple[list[str], Floats]:
        """How much the output of each activation site varies between samples, in order of depth."""
        found = [(site, network.typical(history, "act_sample_std", site, window)) for site in _sites(history)]
        kept = [(site, value) for site, value in found if math.isfinite(value)]
        return [site for site, _ in kept], np.asarray([value for _, value in kept], np.float64)

    def _sentence(
        self,
        here: Depth,
        moved: float,
        backward: bool,
        sites: list[str],
        variation: Floats,
        stand: Standing,
    ) -> str:
        known = math.isfinite(stand.baseline)
        stands = "does not get away from a constant prediction" if known else "hardly falls"
        if backward and here.ratio >= self.ratio:
            return (
                f"The gradient vanishes in all {here.layers} layers: weights times gradient come to "
                f"{moved:.1g} of "
                "the loss, so that the signal must grow for long before anything is learned."
            )
        if backward:
            return (
                f"The gradient vanishes: the first of {here.layers} layers get {here.ratio:.1g} of what the "
                f"last ones get, relative to their weights, and the loss {stands}."
            )
        return (
            f"The signal vanishes: the output of {network.called(sites[-1])} hardly depends on the sample any more "
            f"(variation {variation[-1]:.1g}), and the loss {stands}."
        )


def effect(history: History, window: network.Window, stand: Standing) -> float:
    """Gradient norm times weight norm over the loss of a constant prediction.

    It says how many times the whole loss a small relative change of the weights would move, to first order,
    whatever the scale of the loss. A cure may show the loss in other units than those its gradients are in.
    """
    units = history.facts.get("loss_over_graded", 1.0)
    scale = stand.baseline / units if math.isfinite(stand.baseline) else math.nan
    matrices = network.weights(history) or network.tables(history)
    gradient = [network.typical(history, "grad_l2", weight.name, window) for weight in matrices]
    norm = [network.typical(history, "weight_l2", weight.name, window) for weight in matrices]
    products = [g * w for g, w in zip(gradient, norm, strict=True) if math.isfinite(g) and math.isfinite(w)]
    if not products or not scale > 0:
        return math.nan
    return float(np.median(products)) / scale


def exploded_at_start(history: History, ratio: float, limit: float) -> tuple[bool, Depth, float]:
    """Whether gradients were out of proportion before training could have changed anything."""
    start, _ = network.extent(history)
    window = network.Window(start, start)
    then = depth(history, window)
    strength = effect(history, window, standing(history))
    amplified = then.layers >= 3 and then.ratio > ratio
    return amplified or strength > limit, then, strength


@dataclass(frozen=True)
class ExplodingGradient(Detector):
    """Gradients are out of proportion from the first steps on, or grow without bound."""

    name: ClassVar[str] = "exploding-gradient"
    min_steps: int = 3
    ratio: float = 1e3
    effect: float = 1e3
    growth: float = 1e3
    remaining: float = 0.5

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        # A loss still above a constant prediction's is harm, whatever samples were learned by heart on the way.
        above = stand.over >= 0.5 and stand.remaining_loss >= 1.0
        suffers = stand.suffers(self.remaining)
        if stand.steps < self.min_steps or not (suffers or above):
            return
        start, _ = network.extent(history)
        at_start, then, strength = exploded_at_start(history, self.ratio, self.effect)
        if at_start:
            excess = max(then.ratio / self.ratio if then.ratio > 0 else 0.0, strength / self.effect)
            yield Symptom(
                self.name,
                "error",
                min(0.97, 0.75 + 0.07 * math.log10(max(1.0, excess))),
                start,
                then.first,
                {
                    "gradient_first_over_last": curves.rounded(then.ratio),
                    "gradient_times_weight_over_loss": curves.rounded(strength),
                    **stand.evidence(),
                },
                "The gradient explodes from the first step on: a change of the weights by one part in a "
                f"thousand would move the loss by {strength / 1e3:.1g} times what a constant prediction "
                "gives."
                if strength > self.effect
                else f"The gradient explodes: the first layers get {then.ratio:.1g} times that of the last ones.",
            )
            return
        if suffers:
            yield from self._growth(history, stand)

    def _growth(self, history: History, stand: Standing) -> Iterator[Symptom]:
        series = history.series("grad_norm_raw") or history.series("grad_norm")
        finite = series.finite()
        if len(finite) < (2 if stand.broken else 4):  # a run may be over within a few steps
            return
        before = curves.median(curves.head(finite.values, 0.1))
        blown = finite.values > self.growth * max(before, 1e-30)
        broken = ~np.isfinite(series.values)
        if not (blown.any() or (stand.broken and broken.any())) or before <= 0 or not stand.diverged:
            return
        peak = float(np.max(finite.values))
        if not blown.any() and peak < 30 * before:
            return
        step = int(finite.steps[np.argmax(blown)]) if blown.any() else int(series.steps[np.argmax(broken)])
        yield Symptom(
            self.name,
            "error",
            0.7,
            step,
            "",
            {
                "grad_norm_start": curves.rounded(before),
                "grad_norm_peak": curves.rounded(peak),
                **stand.evidence(),
            },
            f"The gradient norm grew from {before:.2g} to {peak:.2g} and the loss went with it.",
        )


def _shortened(history: History, window: network.Window) -> float:
    """How many times as long the gradients were before the script clipped them: what it took away has not vanished."""
    raw, applied = (network.typical(history, name, "", window) for name in ("grad_norm_raw", "grad_norm"))
    return max(1.0, raw / applied) if raw > 0 and applied > 0 else 1.0


def _decades(limit: float, value: float) -> float:
    """By how many powers of ten a value lies below its limit."""
    return math.log10(limit / max(value, 1e-30)) if math.isfinite(value) else -math.inf


def _sites(history: History) -> list[str]:
    return history.scopes("act_sample_std")
