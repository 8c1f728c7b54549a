"""Steps that are too short, and weights that are pulled to zero."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.drawn import as_drawn
from akeso.detectors.standing import Standing, standing, validation_loss
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
from akeso.diagnosis import Symptom
from akeso.history import History, Series

#: Optimizers that add decay to the gradient; with others it goes its own way.
_COUPLED = ("SGD", "Adam", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Adamax", "ASGD")


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
        # A rate that is still there and weights that rest mean a minimum, however poor: no fault of the rate.
        gone = not last_rate(history) >= self.decayed * rate(history)
        resting = gone and (at_rest(history) or (way < self.way and self._gone_early(history, stand)))
        # Where nothing moves any more, the loss alone says that there was more to learn.
        if not stand.suffers(self.remaining) and not (resting and stand.remaining_loss >= self.remaining):
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

    def _unmoved(self, history: History, stand: Standing) -> bool:
        """Whether a loss of which no more is known went down by next to nothing, ever on at the same pace."""
        low = adaptive(history) and times_usual(history, rate(history)) <= self.usual_if_unmoved
        if math.isfinite(stand.baseline) or not low or stand.over < 0.5 or not stand.overall.falls:
            return False
        means = curves.block_means(history.series("loss").finite().values, 9)
        early, late = means[0] - means[len(means) // 2], means[len(means) // 2] - means[-1]
        return bool(0 < means[0] - means[-1] < self.unmoved * means[0] and late > 0.3 * max(0.0, early))

    def _leaves_alone(self, history: History, stand: Standing) -> Symptom:
        times = 1.0 / times_usual(history, rate(history))
        return Symptom(
            self.name,
            "warning",
            0.7,
            network.extent(history)[0],
            "",
            {
                "learning_rate": curves.rounded(rate(history)),
                "usual_over_given": curves.rounded(times),
                **stand.evidence(),
            },
            f"The learning rate is too low: {rate(history):.3g} is {times:.0f} times less than "
            f"{optimizer_name(history)} usually gets, and in {stand.length} steps the loss has gone from "
            f"{stand.first:.4g} to no more than {stand.last:.4g}, on a straight line.",
        )

    def _below_usual(self, history: History, stand: Standing) -> Symptom:
        times = 1.0 / times_usual(history, rate(history))
        return Symptom(
            self.name,
            "warning" if stand.remaining < 0.5 else "error",
            min(0.95, 0.6 + 0.1 * math.log10(times)),
            network.extent(history)[0],
            "",
            {
                "learning_rate": curves.rounded(rate(history)),
                "usual_over_given": curves.rounded(times),
                **stand.evidence(),
            },
            f"The learning rate is too low: {rate(history):.3g} is {times:.0f} times less than "
            f"{optimizer_name(history)} usually gets for weights that are not trained yet, and "
            f"{stand.remaining_loss:.0%} of a constant prediction's loss is left after {stand.length} steps.",
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
        if not unseen and not falls_at_end(loss.until(until).values):
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
            + ("not all data had been seen" if unseen else "the loss was still falling")
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


@dataclass(frozen=True)
class OverRegularised(Detector):
    """A penalty pulls the weights to zero faster than the data can teach them anything."""

    name: ClassVar[str] = "over-regularised"
    min_steps: int = 50
    pull: float = 0.7
    alive: float = 1e-4
    shrunk: float = 0.3
    dropout: float = 0.85
    learned: float = 0.9
    remaining: float = 0.7
    remaining_at_least: float = 0.5
    balance: float = 0.4
    worth: float = 0.5
    remaining_in_balance: float = 0.25

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        left = max(
            (x for x in (stand.remaining_loss, stand.remaining_error) if math.isfinite(x)), default=1.0
        )
        harmed = stand.suffers(self.remaining_at_least) and left >= self.remaining
        if stand.steps < self.min_steps or stand.diverged:
            return
        if not harmed:
            yield from self._in_balance(history, stand)
            return
        decay = max((float(o.get("weight_decay") or 0.0) for o in _optimizers(history)), default=0.0)
        pull = self._pull(history, decay, network.early(history, 0.2, 30))
        kept = self._kept(history)
        dropped = _dropout(history)
        # Where there is no gradient to speak of, any decay is the stronger force, and the cause is another one.
        alive = decay >= self.alive * pull
        by_decay = decay > 0 and pull >= self.pull and alive and kept < 0.9
        by_penalty = kept <= self.shrunk and (alive or not decay)
        under_way = stand.learned(self.learned) and stand.recent.falls and not stand.finished
        by_dropout = dropped >= self.dropout and not under_way
        if not (by_decay or by_penalty or by_dropout):
            return
        start, _ = network.extent(history)
        if by_dropout and not (by_decay or by_penalty):
            sentence = f"Dropout of {dropped:.0%} leaves too little of the signal to learn from."
        else:
            sentence = (
                f"Regularisation drowns the signal: the weights have shrunk to {kept:.0%} of their size"
            )
            sentence += f" under weight decay {decay:g}." if decay else "."
        yield Symptom(
            self.name,
            "error",
            min(0.95, 0.65 + (0.15 if by_decay else 0.0) + (0.15 if kept < self.shrunk else 0.0)),
            start,
            "",
            {
                "weight_decay": decay,
                "decay_over_gradient": curves.rounded(pull),
                "weights_kept": curves.rounded(kept),
                "dropout": dropped or None,
                **stand.evidence(),
            },
            sentence,
        )

    def _in_balance(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Whether the loss came down and stays where decay holds the weights against the gradients of all data.

        Gradients that are no more than decay cancels out point the same way in every batch: there is something to
        learn. By how much the loss would fall if the weights grew is, to first order, the decay times their squares.
        """
        decay = max(
            (float(o.get("weight_decay") or 0.0) for o in _optimizers(history) if o.get("name") in _COUPLED),
            default=0.0,
        )
        falls = stand.recent.falls and stand.recent.change < -0.1 * stand.last
        if not decay > 0 or stand.adversarial or falls or stand.over < 0.5:
            return
        checked = curves.median(validation_loss(history).values[-2:])
        if not stand.remaining_loss >= self.remaining_in_balance or checked > 1.5 * stand.last:
            return  # learnt well enough, or by heart
        pull = self._pull(history, decay, network.recent(history, 0.3, 15))
        sizes = [
            history.series("weight_l2", weight.name).finite().values for weight in network.weights(history)
        ]
        worth = decay * sum(curves.median(size[-3:]) ** 2 for size in sizes if len(size)) / stand.last
        if not pull >= self.balance or not worth >= self.worth:
            return
        yield Symptom(
            self.name,
            "warning",
            0.8,
            network.recent(history, 0.5).start,
            "",
            {
                "weight_decay": decay,
                "decay_over_gradient": curves.rounded(pull),
                "gain_by_growth_over_loss": curves.rounded(worth),
                **stand.evidence(),
            },
            f"Weight decay {decay:g} holds the weights back: it cancels the gradients, and the loss stays at "
            f"{stand.remaining_loss:.0%} of a constant prediction's.",
        )

    def _pull(self, history: History, decay: float, window: network.Window) -> float:
        """Weight decay times weight over gradient: above 1 the penalty is the stronger force."""
        found = []
        for weight in network.weights(history):
            relative = network.relative_gradient(history, weight.name, window=window)
            if math.isfinite(relative):
                found.append(decay / max(relative, 1e-30))
        return float(np.median(found)) if found else math.nan

    def _kept(self, history: History) -> float:
        """The size of the weights now over that at the start."""
        found = []
        for weight in network.weights(history):
            norm = history.series("weight_l2", weight.name).finite()
            if len(norm) >= 3 and norm.values[0] > 0:
                # Looks lie ever farther apart: of three, the first may be from long before.
                late = norm.values[-3:][norm.steps[-3:] >= norm.steps[-1] / 2]
                found.append(curves.median(late) / float(norm.values[0]))
        return float(np.median(found)) if found else math.nan


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


def _optimizers(history: History) -> list[dict[str, Any]]:
    found = history.facts.get("optimizers") or []
    return [entry for entry in found if isinstance(entry, dict)]


def _dropout(history: History) -> float:
    found = history.facts.get("dropout")
    if isinstance(found, dict):
        return max((float(value) for value in found.values() if isinstance(value, (int, float))), default=0.0)
    return float(found) if isinstance(found, (int, float)) else 0.0
