"""Steps that are too short, from the start or since a schedule or clipping made them so."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.drawn import as_drawn
from akeso.detectors.standing import Standing, standing
from akeso.detectors.steps import (
    adaptive,
    at_rest,
    falls_at_end,
    last_rate,
    optimizer_name,
    pass_length,
    rate,
    rates,
    times_usual,
    travel,
)
from akeso.diagnosis import Severity, Symptom
from akeso.history import History, Series


@dataclass(frozen=True)
class LearningRateTooLow(Detector):
    """Even all steps together can hardly change the weights, and the loss is still far up."""

    name: ClassVar[str] = "learning-rate-too-low"
    min_steps: int = 30
    min_share: float = 0.1
    travel: float = 0.05
    remaining: float = 0.6
    decayed: float = 0.01
    way: float = 0.5
    early: float = 0.4
    spent: float = 0.95
    rest: float = 1e-6
    rest_of_start: float = 2e-3
    remaining_at_rest: float = 0.1
    usual: float = 0.01
    remaining_below_usual: float = 0.3
    usual_if_unmoved: float = 0.1
    unmoved: float = 0.01
    constant: float = 0.95
    looks: int = 5
    kept: float = 0.1
    own_size: float = 1.0

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        known = math.isfinite(stand.share) and stand.share >= self.min_share
        if stand.steps < self.min_steps or not known or stand.adversarial or stand.diverged:
            return
        way = travel(history, stand)
        if self._unmoved(history, stand):
            yield self._leaves_alone(history, stand)
            return
        if far_below_usual(history, stand, self.usual, self.remaining_below_usual):
            yield self._below_usual(history, stand)
            return
        throttled = self._throttled(history, stand)
        if throttled is not None and way >= self.travel:
            yield throttled
            return
        # A rate that is still there and weights that rest mean a minimum, however poor: no fault of the rate.
        # Where the script moves its weights by itself, no rate is known.
        gone = bool(rates(history)) and not last_rate(history) >= self.decayed * rate(history)
        resting = gone and (at_rest(history) or (way < self.way and self._gone_early(history, stand)))
        # Where nothing moves any more, the loss alone says that there was more to learn.
        held = self._held(history, stand, way)
        harmed = stand.suffers(self.remaining) or (resting and stand.remaining_loss >= self.remaining)
        if not harmed and not held:
            yield from self._taken_away(history, stand)
            return
        if not resting and not 0 < way < self.travel:
            yield from self._taken_away(history, stand)
            return
        start, _ = network.extent(history)
        if resting:
            repeated = at_rest(history)
            yield Symptom(
                self.name,
                "error",
                0.85 if repeated else 0.75,
                self._gone_since(history, start),
                "",
                {
                    "learning_rate": curves.rounded(rate(history)),
                    "learning_rate_last": curves.rounded(last_rate(history)),
                    **stand.evidence(),
                },
                "The weights have come to rest"
                + (": validation gives the very same loss again and again, " if repeated else " ")
                + f"while the loss is still high, and the learning rate has fallen to {last_rate(history):.1g}"
                + (
                    ": its schedule seems to be stepped with every batch."
                    if self._full_until(history, start) - start < pass_length(history)
                    else "."
                ),
            )
            return
        yield Symptom(
            self.name,
            "warning" if stand.improved and stand.remaining < 0.8 else "error",
            min(0.95, 0.65 + 0.15 * math.log10(self.travel / way) + (0.05 if stand.overall.falls else 0.0)),
            start,
            "",
            {
                "whole_run_over_weight": curves.rounded(way),
                "learning_rate": curves.rounded(rate(history)),
                "learning_rate_last": curves.rounded(last_rate(history)),
                **stand.evidence(),
            },
            f"The learning rate is too low: all {stand.length} steps together can change the weights by "
            f"{way:.1%} of their size at most"
            + _clipped(history)
            + (
                f"; it has fallen to {last_rate(history):.1g} by step {history.steps}."
                if last_rate(history) < self.decayed * rate(history)
                else "."
            ),
        )

    def _held(self, history: History, stand: Standing, way: float) -> bool:
        """Whether clipping leaves next to nothing of the gradients, and the run has brought nothing for it."""
        over = stand.over >= 0.5 and not stand.improved and not stand.recent.falls
        return (
            over
            and 0 < way < self.travel
            and bool(_clipped(history))
            and stand.remaining >= self.remaining_at_rest
        )

    def _throttled(self, history: History, stand: Standing) -> Symptom | None:
        """Whether clipping takes nearly everything of nearly every step, and nothing was learnt beyond a constant.

        A limit is a guard against the few that are too long. To plain SGD one far below what gradients usually are is
        a rate as many times lower; an optimizer that divides by what is usual does not mind.
        """
        raw, applied = (history.series(name).finite() for name in ("grad_norm_raw", "grad_norm"))
        optimizers = list(history.facts.get("optimizers") or ())
        plain = bool(optimizers) and all(one.get("name") == "SGD" for one in optimizers)
        if not plain or stand.over < 0.5 or not stand.remaining >= self.constant or stand.beats_constant:
            return None
        kept = curves.at_steps(applied, raw) / np.maximum(raw.values, 1e-30)
        way = travel(history, stand, 0.5)
        if (
            len(kept) < self.looks
            or not float(np.quantile(kept, 0.75)) <= self.kept
            or not way < self.own_size
        ):
            return None
        limit, usual = (
            curves.median(history.series(n).finite().values) for n in ("clip_limit", "grad_norm_raw")
        )
        return Symptom(
            self.name,
            "error",
            0.85,
            network.extent(history)[0],
            "",
            {
                "clip_limit": curves.rounded(limit),
                "usual_norm": curves.rounded(usual),
                "whole_run_over_weight": curves.rounded(way),
                **stand.evidence(),
            },
            f"Clipping to {limit:g} leaves {float(np.median(kept)):.1g} of the gradients in nearly every step, and the "
            f"loss stays that of a constant prediction: all {stand.length} steps together can change most weights by "
            f"{way:.0%} of their size at most.",
            (
                f"Raise the limit above the norm that gradients usually have, {usual:.2g} here: it is to cut the few "
                "that are far longer.",
            ),
        )

    def _unmoved(self, history: History, stand: Standing) -> bool:
        """Whether a loss of which no more is known went down by next to nothing, ever on at the same pace."""
        low = adaptive(history) and times_usual(history, rate(history)) <= self.usual_if_unmoved
        if math.isfinite(stand.baseline) or not low or stand.over < 0.5 or not stand.overall.falls:
            return False
        means = curves.block_means(history.series("loss").finite().values, 9)
        early, late = means[0] - means[len(means) // 2], means[len(means) // 2] - means[-1]
        return bool(0 < means[0] - means[-1] < self.unmoved * means[0] and late > 0.3 * max(0.0, early))

    def _leaves_alone(self, history: History, stand: Standing) -> Symptom:
        return self._against_usual(
            history,
            stand,
            "warning",
            0.7,
            f", and in {stand.length} steps the loss has gone from {stand.first:.4g} to no more than "
            f"{stand.last:.4g}, on a straight line.",
        )

    def _below_usual(self, history: History, stand: Standing) -> Symptom:
        times = 1.0 / times_usual(history, rate(history))
        return self._against_usual(
            history,
            stand,
            "warning" if stand.remaining < 0.5 else "error",
            min(0.95, 0.6 + 0.1 * math.log10(times)),
            f" for weights that are not trained yet, and {stand.remaining_loss:.0%} of a constant prediction's loss "
            f"is left after {stand.length} steps.",
        )

    def _against_usual(
        self, history: History, stand: Standing, severity: Severity, confidence: float, rest: str
    ) -> Symptom:
        """A rate that is held against the usual one, and the ``rest`` of what is said of it."""
        times = 1.0 / times_usual(history, rate(history))
        return Symptom(
            self.name,
            severity,
            confidence,
            network.extent(history)[0],
            "",
            {
                "learning_rate": curves.rounded(rate(history)),
                "usual_over_given": curves.rounded(times),
                **stand.evidence(),
            },
            f"The learning rate is too low: {rate(history):.3g} is {times:.0f} times less than "
            f"{optimizer_name(history)} usually gets{rest}",
        )

    def _taken_away(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """A schedule that stops the weights early in the run, at full pace: there was more to come.

        A schedule that waits for a plateau, or for the end, leaves no fall behind. One that begins to take the rate
        away before the data were gone through once counts steps where it should count epochs.
        """
        if not stand.suffers(self.remaining_at_rest) or not last_rate(history) < self.decayed * rate(history):
            return
        now = network.updates(history, network.recent(history, 0.3, 20))
        then = network.updates(history, network.early(history))
        rest = max(self.rest, self.rest_of_start * float(np.median(then)) if len(then) else 0.0)
        if not len(now) or float(np.median(now)) > rest or not self._gone_early(history, stand):
            return
        start, _ = network.extent(history)
        until = self._full_until(history, start)
        loss, gone = history.series("loss").finite(), self._gone_since(history, start)
        unseen = until - start < pass_length(history) and curves.trend(loss.until(gone).values).falls
        drawn = as_drawn(history, (weight.name for weight in network.weights(history)))
        nothing = drawn and not stand.improved  # it had no time to begin
        falls = falls_at_end(loss.until(until).values)
        if not (unseen or falls or nothing):
            return
        yield Symptom(
            self.name,
            "error" if stand.suffers(self.remaining) else "warning",
            0.75,
            gone,
            "",
            {
                "learning_rate": curves.rounded(rate(history)),
                "learning_rate_last": curves.rounded(last_rate(history)),
                "full_rate_until": until,
                **stand.evidence(),
            },
            "The learning rate is taken away too early: "
            + (
                "not all data had been seen"
                if unseen
                else "the loss was still falling"
                if falls
                else "nothing had been learnt yet"
            )
            + f" in step {until}, when the rate began to go down to {last_rate(history):.1g}, and the weights do not "
            "move any more.",
        )

    def _full_until(self, history: History, start: int) -> int:
        """The last step seen with at least half of the highest rate."""
        last = [
            int(one.steps[one.values >= 0.5 * float(one.values.max())][-1]) for one in rates(history) if one
        ]
        return max(last, default=start)

    def _gone_since(self, history: History, start: int) -> int:
        """The first step seen at which the rate had fallen to next to nothing for good."""
        least = self.decayed * rate(history)
        ends = [
            curves.first_step_where(one, np.asarray(one.values < least, float))
            for one in rates(history)
            if one
        ]
        return max(ends, default=start)

    def _gone_early(self, history: History, stand: Standing) -> bool:
        """Whether most of the run went by without a rate worth speaking of, and brought nothing."""
        start, end = network.extent(history)
        if stand.recent.falls:
            return False
        gone = min(
            [self._gone_since(history, start), *(self._spent(one, end) for one in rates(history) if one)]
        )
        return gone - start < self.early * stand.length

    def _spent(self, one: Series, end: int) -> int:
        """The step by which nearly all of the way that the rate allows lay behind."""
        spans = np.diff(one.steps, append=max(end, int(one.steps[-1])) + 1)
        way = np.cumsum(one.values * spans)
        return int(one.steps[int(np.argmax(way >= self.spent * way[-1]))])


def far_below_usual(history: History, stand: Standing, times: float, remaining: float) -> bool:
    """Whether weights as they were drawn are moved by an adaptive optimizer at less than ``times`` its usual rate.

    Where it is the rate, the loss falls all the same, ever so slowly; what was trained before needs no more than that.
    """
    if not adaptive(history) or not times_usual(history, rate(history)) < times or stand.over < 0.5:
        return False
    learns = stand.overall.falls and stand.remaining_loss >= remaining
    return learns and as_drawn(history, (weight.name for weight in network.weights(history)))


def _clipped(history: History) -> str:
    """What clipping has to do with steps that are too short."""
    names = ("grad_norm_raw", "grad_norm", "clip_limit", "loss_scale")
    raw, applied, limit, scale = (curves.median(history.series(name).finite().values) for name in names)
    if not raw > 100 * applied:
        return ""
    if scale > 1 and 0.5 < applied * scale / limit < 2.0:
        return (
            f", since the gradients are clipped to {limit:g} while they are multiplied by the loss scale "
            f"({scale:g}): call `scaler.unscale_(optimizer)` first"
        )
    return f", since clipping to {limit:g} leaves {applied / raw:.1g} of the gradients"
