"""Steps that are too long or too short, and weights that are pulled to zero."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.gradients import exploded_at_start
from akeso.detectors.settling import overheated
from akeso.detectors.standing import Standing, standing
from akeso.detectors.steps import (
    Relapse,
    at_rest,
    falls_at_end,
    last_rate,
    longest_update,
    pass_length,
    rate,
    rates,
    relapse,
    travel,
)
from akeso.diagnosis import Symptom
from akeso.history import History, Series


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
    learned: float = 0.95
    wait: float = 0.5
    gradient_ratio: float = 1e3
    gradient_effect: float = 1e3
    had_learned: float = 0.6
    lost: float = 0.15

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
        yield from list(self._overshot(history, stand, longest, since)) or self._overheated(history, stand)

    def _overshot(self, history: History, stand: Standing, longest: float, since: int) -> Iterator[Symptom]:
        """Whether long steps or a loss that shot up keep the loss where a constant prediction would be."""
        # A loss still above a constant prediction's is harm, whatever samples were learned by heart on the way.
        above = stand.over >= self.wait and stand.remaining_loss >= self.above and not stand.recent.falls
        if not (stand.suffers(self.remaining_if_strong) or above):
            return
        rise, risen = self._rise(history, stand)
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
        if stand.learned(self.learned) and not self._still(history, stand):
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
            + (f"a step changes the weights by {longest:.1%} of their size" if math.isfinite(longest) else "")
            + (", and " if math.isfinite(longest) else "")
            + (f"the loss rose to {1 + rise:.3g} times its start." if overshot else "the loss stays high."),
        )

    def _overheated(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Whether a loss that is lower already stays where steps far longer than usual hold it."""
        found = overheated(history, stand, self.times, self.remaining_if_hot)
        if found is not None:
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
                f"{found.optimizer} usually gets, and after {found.passes:.0f} passes over the data the loss no longer "
                f"falls, although the model has {found.parameters_per_sample:.0f} parameters for every sample.",
            )

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
        """Whether a run that did learn is held up by its long steps now; a wild start is long forgotten."""
        now = network.updates(history, network.recent(history, 0.3, 20))
        return not stand.recent.falls and len(now) > 0 and float(np.median(now)) >= self.update

    def _rise(self, history: History, stand: Standing) -> tuple[float, int]:
        """How far the loss rose above its start, in units of the larger of start and constant prediction."""
        loss = history.series("loss").finite()
        if len(loss) < 5 or not math.isfinite(stand.first):
            return 0.0, 0
        if stand.first < 0 or 0.1 < float(np.mean(loss.values < 0)) < 0.9:
            # Rewards, likelihoods and critics have any sign: their start is no measure of anything.
            return 0.0, 0
        unit = max(abs(stand.first), stand.baseline if math.isfinite(stand.baseline) else 0.0, 1e-12)
        smooth = loss.values
        if len(smooth) >= 15:
            smooth = np.median(
                np.lib.stride_tricks.sliding_window_view(np.pad(smooth, 1, mode="edge"), 3), axis=1
            )
        above = smooth - stand.first - 4.0 * stand.noise
        peak = int(np.argmax(above))
        over = np.flatnonzero(above >= 0.5 * unit)
        return max(0.0, float(above[peak])) / unit, int(loss.steps[over[0] if len(over) else peak])


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

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        known = math.isfinite(stand.share) and stand.share >= self.min_share
        if stand.steps < self.min_steps or not known or stand.adversarial or stand.diverged:
            return
        way = travel(history, stand)
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
                    **stand.evidence(),
                },
                "The weights have come to rest"
                + (": validation gives the very same loss again and again, " if repeated else " ")
                + f"while the loss is still high, and the learning rate has fallen to {last_rate(history):.1g}.",
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
            + (
                f"; it has fallen to {last_rate(history):.1g} by step {history.steps}."
                if last_rate(history) < self.decayed * rate(history)
                else "."
            ),
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
        until = max(
            (
                int(one.steps[one.values >= 0.5 * float(one.values.max())][-1])
                for one in rates(history)
                if one
            ),
            default=start,
        )
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
    shrunk: float = 0.3
    dropout: float = 0.85
    learned: float = 0.9
    remaining: float = 0.7
    remaining_at_least: float = 0.5

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        left = max(
            (x for x in (stand.remaining_loss, stand.remaining_error) if math.isfinite(x)), default=1.0
        )
        harmed = stand.suffers(self.remaining_at_least) and left >= self.remaining
        if stand.steps < self.min_steps or stand.diverged or not harmed:
            return
        decay = max((float(o.get("weight_decay") or 0.0) for o in _optimizers(history)), default=0.0)
        pull = self._pull(history, decay)
        kept = self._kept(history)
        dropped = _dropout(history)
        by_decay = decay > 0 and pull >= self.pull and kept < 0.9
        by_penalty = kept <= self.shrunk
        by_dropout = dropped >= self.dropout and not (stand.learned(self.learned) and stand.recent.falls)
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

    def _pull(self, history: History, decay: float) -> float:
        """Weight decay times weight over gradient: above 1 the penalty is the stronger force."""
        window = network.early(history, 0.2, 30)
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
                found.append(curves.median(norm.values[-3:]) / float(norm.values[0]))
        return float(np.median(found)) if found else math.nan


def _optimizers(history: History) -> list[dict[str, Any]]:
    found = history.facts.get("optimizers") or []
    return [entry for entry in found if isinstance(entry, dict)]


def _dropout(history: History) -> float:
    found = history.facts.get("dropout")
    if isinstance(found, dict):
        return max((float(value) for value in found.values() if isinstance(value, (int, float))), default=0.0)
    return float(found) if isinstance(found, (int, float)) else 0.0
