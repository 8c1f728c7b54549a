"""Steps that are too long: the loss cannot come down, is lost again or held up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.gradients import depth, exploded_at_start
from akeso.detectors.settling import overheated
from akeso.detectors.standing import Standing, standing
from akeso.detectors.steps import (
    Relapse,
    adaptive,
    last_rate,
    longest_update,
    of_their_size,
    optimizer_name,
    rate,
    rate_at,
    relapse,
    times_usual,
)
from akeso.diagnosis import Symptom
from akeso.history import History


@dataclass(frozen=True)
class LearningRateTooHigh(Detector):
    """Steps change the weights so much that the loss cannot come down."""

    name: ClassVar[str] = "learning-rate-too-high"
    min_steps: int = 10
    update: float = 0.1
    jump: float = 1.0
    remaining: float = 0.7
    remaining_if_strong: float = 0.5
    above: float = 1.5
    times: float = 20.0
    remaining_if_hot: float = 0.1
    times_if_driven: float = 30.0
    times_if_stifled: float = 10.0
    flowing: float = 1e-2
    stifled: float = 1e-3
    remaining_if_driven: float = 0.6
    layers: int = 3
    growth: float = 4.0
    learned: float = 0.95
    wait: float = 0.5
    gradient_ratio: float = 1e3
    gradient_effect: float = 1e3
    had_learned: float = 0.6
    lost: float = 0.15
    wasted: float = 0.4

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.steps < self.min_steps or stand.adversarial:
            return
        if exploded_at_start(history, self.gradient_ratio, self.gradient_effect)[0]:
            return
        longest, since = longest_update(history)
        lost = relapse(history, stand, self.had_learned, self.lost)
        if lost is not None:
            yield self._relapsed(history, stand, lost, longest)
            return
        yield from (
            list(self._overshot(history, stand, longest, since))
            or list(self._overheated(history, stand))
            or self._driven(history, stand)
        )

    def _overshot(self, history: History, stand: Standing, longest: float, since: int) -> Iterator[Symptom]:
        """Whether long steps or a loss that shot up keep the loss where a constant prediction would be."""
        # A loss still above a constant prediction's is harm, whatever samples were learned by heart on the way.
        above = stand.over >= self.wait and stand.remaining_loss >= self.above and not stand.recent.falls
        if not (stand.suffers(self.remaining_if_strong) or above):
            return
        rise, risen, wasted = self._rise(history, stand)
        long_steps = longest >= self.update
        if not (stand.suffers(self.remaining) or above) and not longest >= 2.0 * self.update:
            return
        overshot = rise >= self.jump and (longest >= self.update / 10 or not math.isfinite(longest))
        # A loss that nobody knows, a reward perhaps, has no start worth measuring by: it must still be up there.
        overshot = overshot and (math.isfinite(stand.baseline) or stand.diverged)
        if not long_steps and not overshot:
            return
        if not overshot and stand.coming_down(self.wait):
            return
        # A wild start is forgotten, unless coming down from it has taken up most of the run.
        mostly = stand.finished and wasted >= self.wasted
        if stand.learned(self.learned) and not mostly and not self._still(history, stand):
            return
        confidence = 0.6 + (0.15 if long_steps else 0.0) + (0.15 if overshot else 0.0)
        confidence += 0.05 if stand.diverged else 0.0
        yield Symptom(
            self.name,
            "error",
            min(0.95, confidence),
            since if long_steps else risen,
            "",
            {
                "update_over_weight": curves.rounded(longest),
                "learning_rate": curves.rounded(rate(history)),
                "loss_rise_over_start": curves.rounded(rise),
                **stand.evidence(),
            },
            "The learning rate is too high: "
            + (f"a step changes the weights by {of_their_size(longest)}" if math.isfinite(longest) else "")
            + (", and " if math.isfinite(longest) else "")
            + (f"the loss rose to {1 + rise:.3g} times its start." if overshot else "the loss stays high."),
        )

    def _overheated(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Whether a loss that is lower already stays where steps far longer than usual hold it."""
        found = overheated(history, stand, self.times, self.remaining_if_hot)
        if found is not None:
            although = (
                f", although the model has {found.parameters_per_sample:.0f} parameters for every sample."
                if found.lost is None
                else f": it was down at {found.lost.best:.3g} and went up again from step {found.lost.since} on."
            )
            yield Symptom(
                self.name,
                "warning",
                min(0.8, 0.6 + 0.1 * math.log10(found.times)),
                network.recent(history, 0.5).start,
                "",
                {
                    "learning_rate": curves.rounded(last_rate(history)),
                    "times_usual": curves.rounded(found.times),
                    "parameters_per_sample": curves.rounded(found.parameters_per_sample),
                    "passes": curves.rounded(found.passes),
                    **stand.evidence(),
                },
                f"The learning rate is too high: {last_rate(history):.3g} is {found.times:.0f} times what "
                f"{found.optimizer} usually gets, and after {found.passes:.0f} passes over the data the loss no "
                f"longer falls{although}",
            )

    def _driven(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Whether steps far longer than usual drive the layers of a network about for most of the run, to little avail.

        Adaptive optimizers move every weight by about their rate, whatever the gradient: there the rate alone tells
        how far. What a schedule makes of the end does not undo it.
        """
        harmed = math.isfinite(stand.remaining) and stand.suffers(self.remaining_if_driven)
        window = network.recent(history, 0.7)
        held = rate_at(history, window.start)
        times = times_usual(history, held)
        if not harmed or stand.over < self.wait or not adaptive(history):
            return
        stifled = times >= self.times_if_stifled and self._stifled(history)
        if not stifled and not times >= self.times_if_driven:
            return
        steps, growth = network.updates(history, window), network.growth(history)
        if not network.weights(history):
            steps = network.updates(history, window, tables=True)  # a model made of nothing else
        # One layer finds its minimum at nearly any rate.
        if not len(steps) or (len(steps) < self.layers and times < 10.0 * self.times_if_driven):
            return
        # Weights that were driven far out are hardly moved by the same steps any more, nor are those behind them.
        grown = len(growth) >= self.layers and float(np.median(growth)) >= self.growth
        if not stifled and not grown and not float(np.median(steps)) >= self.update / 10:
            return
        yield Symptom(
            self.name,
            "error" if stand.suffers(self.remaining) else "warning",
            min(0.8, 0.6 + 0.1 * math.log10(times)),
            network.extent(history)[0],
            "",
            {
                "learning_rate": curves.rounded(held),
                "times_usual": curves.rounded(times),
                "update_over_weight": curves.rounded(float(np.median(steps))),
                "weights_grown_to": curves.rounded(float(np.median(growth))) if grown else None,
                **stand.evidence(),
            },
            f"The learning rate is too high: {held:.3g} is {times:.0f} times what "
            f"{optimizer_name(history)} usually gets, "
            + (
                "hardly any gradient reaches the first layers any more"
                if stifled
                else f"the weights have grown to {float(np.median(growth)):.3g} times their size"
                if grown
                else f"a step changes the weights by {of_their_size(float(np.median(steps)))}"
            )
            + ", and little is learnt.",
        )

    def _stifled(self, history: History) -> bool:
        """Whether the first layers got their share of the gradient when training began, and get none now."""
        then, now = depth(history, network.early(history)), depth(history, network.recent(history, 0.5))
        return then.layers >= self.layers and then.ratio >= self.flowing and now.ratio < self.stifled

    def _relapsed(self, history: History, stand: Standing, lost: Relapse, longest: float) -> Symptom:
        momentum = max(
            (float(one.get("momentum") or 0) for one in history.facts.get("optimizers") or ()), default=0
        )
        return Symptom(
            self.name,
            "error",
            0.7 + (0.1 if stand.remaining_loss >= 1.0 else 0.0),
            lost.since,
            "",
            {
                "loss_best": float(f"{lost.best:.4g}"),
                "lost_of_constant": curves.rounded(lost.share),
                "update_over_weight": curves.rounded(longest),
                "learning_rate": curves.rounded(rate(history)),
                "momentum": momentum or None,
                **stand.evidence(),
            },
            f"The learning rate is too high: the loss was down at {lost.best:.3g} and has gone up to "
            f"{stand.last:.3g} again since step {lost.since}"
            + (
                f"; a momentum of {momentum:g} makes each step {1 / (1 - momentum):.0f} times as long."
                if 0.95 < momentum < 1
                else "."
            ),
        )

    def _still(self, history: History, stand: Standing) -> bool:
        """Whether a run that did learn is held up by its long steps now."""
        now = network.updates(history, network.recent(history, 0.3, 20))
        return not stand.recent.falls and len(now) > 0 and float(np.median(now)) >= self.update

    def _rise(self, history: History, stand: Standing) -> tuple[float, int, float]:
        """How far the loss rose above its start, in units of the larger of start and constant prediction.

        With the step in which it did, and the share of the run that it spent up there.
        """
        loss = history.series("loss").finite()
        if len(loss) < 5 or not math.isfinite(stand.first):
            return 0.0, 0, 0.0
        if stand.first < 0 or 0.1 < float(np.mean(loss.values < 0)) < 0.9:
            # Rewards, likelihoods and critics have any sign: their start is no measure of anything.
            return 0.0, 0, 0.0
        unit = max(abs(stand.first), stand.reference if math.isfinite(stand.reference) else 0.0, 1e-12)
        smooth = loss.values
        if len(smooth) >= 15:
            smooth = np.median(
                np.lib.stride_tricks.sliding_window_view(np.pad(smooth, 1, mode="edge"), 3), axis=1
            )
        above = smooth - stand.first - 4.0 * stand.noise
        peak = int(np.argmax(above))
        over = np.flatnonzero(above >= 0.5 * unit)
        risen = int(loss.steps[over[0] if len(over) else peak])
        return max(0.0, float(above[peak])) / unit, risen, len(over) / len(above)
