"""What the loss curve itself shows: slowness, the end of progress."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from akeso.detectors import curves, network, settling, terms
from akeso.detectors._base import Detector
from akeso.detectors.standing import ADDED, Standing, standing, validation_loss
from akeso.detectors.steps import divisor, travel
from akeso.diagnosis import Symptom
from akeso.history import Floats, History

_OUTWEIGHED: Final = (
    " What is added to it has gone to nothing instead: that outweighs the rest, as a sum does beside a mean."
)
#: A fall over the second half of a run that is told of, as a share of a constant prediction's loss.
_WORTH_SAYING = 0.005


@dataclass(frozen=True)
class SlowConvergence(Detector):
    """The loss falls on a line that leads nowhere in the steps there are, or does not fall at all."""

    name: ClassVar[str] = "slow-convergence"
    min_steps: int = 60
    min_steps_if_over: int = 20
    passes: float = 5.0
    min_share: float = 0.5
    remaining: float = 0.75
    remaining_in_validation: float = 0.6
    remaining_at_end: float = 0.4
    divided: float = 20.0
    remaining_if_divided: float = 0.5
    travel: float = 0.5
    ever_more: float = 1.5
    wrong_answers: float = 0.5
    lost: float = 1.25
    deep: int = 10
    remaining_if_deep: float = 0.3
    remaining_of_values_if_deep: float = 0.5
    remaining_in_validation_if_deep: float = 0.4
    wrong_answers_if_deep: float = 0.35
    remaining_if_stuck: float = 0.45

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.adversarial or stand.diverged:
            return
        whole = not _mixed(history)  # what is added to a loss has no constant prediction to be measured by
        if whole and self._under_way(history, stand):
            yield self._too_early(history, stand)
            return
        if stand.steps < self.min_steps:
            if whole:
                yield from self._cut_short(history, stand)
            return
        if not (math.isfinite(stand.share) and stand.share >= self.min_share):
            return
        if (crowd := terms.drowned(history, stand)) is not None:
            yield self._crowded_out(history, stand, crowd)
            return
        way = travel(history, stand)
        divided = divisor(history) >= self.divided and way < self.travel
        if divided and math.isfinite(stand.remaining) and stand.suffers(self.remaining_if_divided):
            yield self._divided(history, stand)
            return
        if not math.isfinite(stand.remaining) or not stand.suffers(self.remaining):
            return
        held_out = validation_loss(history).values
        # Coming down to where a constant prediction stands is no progress yet.
        below = curves.trend(np.minimum(held_out, stand.baseline), 20)
        # Without any noise every fall shows, also one that is none to speak of.
        falls = stand.recent.falls and not (
            stand.finished and -stand.recent.change < _WORTH_SAYING * stand.baseline
        )
        outweighed = _outweighed(history)
        stuck = stand.remaining >= 0.97 and (
            outweighed or not (falls or stand.beats_constant or below.falls or self._weak(history, stand))
        )
        trained = history.series("loss").finite().values
        # Batches are noisy and a validation set is the same every time: it shows a slow fall more clearly.
        creeping = (stand.recent.falls and self._straight(trained)) or (
            curves.trend(held_out, 20).falls and self._straight(held_out)
        )
        creeping = creeping and way < self.travel
        if not stuck and not creeping:
            return
        start, _ = network.extent(history)
        yield Symptom(
            self.name,
            "error" if stuck else "warning",
            0.6 if stuck else 0.7,
            start,
            "",
            {
                "left_of_constant_prediction": curves.rounded(stand.remaining),
                "whole_run_over_weight": curves.rounded(way),
                **stand.evidence(),
            },
            f"Training gets nowhere: after {stand.steps} steps "
            + (
                f"{stand.remaining:.0%} of a constant prediction's loss is left"
                if stand.remaining < 1.005
                else "the loss is above that of a constant prediction"
            )
            + (
                f", and it falls too slowly: all of them together can change the weights by {way:.1%} of their size at "
                "most."
                if creeping
                else ", and it no longer falls."
            )
            + (" No activation function was seen between its layers." if network.unbent(history) else "")
            + (_OUTWEIGHED if stuck and outweighed else ""),
        )

    def _crowded_out(self, history: History, stand: Standing, crowd: terms.Drowned) -> Symptom:
        return Symptom(
            self.name,
            "error",
            0.85,
            network.extent(history)[0],
            "",
            {**crowd.evidence(), **stand.evidence()},
            f"One of several losses gets nowhere: {crowd.sentence()}.",
            (
                "Bring the losses to one scale: standardise the targets of the large one.",
                "Weigh the losses, so that the gradients of all are of a like size.",
            ),
        )

    def _divided(self, history: History, stand: Standing) -> Symptom:
        by = divisor(history)
        return Symptom(
            self.name,
            "error",
            0.85,
            network.extent(history)[0],
            "",
            {"loss_divided_by": curves.rounded(by), **stand.evidence()},
            f"Training gets nowhere: the loss is a mean already and is divided by {by:.4g} once more, which makes the "
            "steps of SGD as many times shorter.",
        )

    def _cut_short(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Few steps, as with all data in one batch: over while the loss still fell as fast as ever.

        A short run that is well slows down with most of the loss gone; one that only tries something out does
        not go through its data again and again.
        """
        left, way = stand.remaining_loss, travel(history, stand)
        if not stand.finished or stand.steps < self.min_steps_if_over or self._passes(history) < self.passes:
            return
        if not (math.isfinite(left) and left >= self.remaining and way < self.travel):
            return
        held_out = validation_loss(history).values
        trained = history.series("loss").finite().values
        # What would be left after as many steps again, at the pace of the second half.
        gain = -2.0 * stand.recent.change / stand.baseline
        pace = 0.3 if left - gain >= self.remaining else 0.8
        if not stand.recent.falls or not self._straight(trained, pace):
            return
        if len(held_out) and not (curves.trend(held_out).falls and self._straight(held_out, pace)):
            return
        yield self._too_early(history, stand)

    def _under_way(self, history: History, stand: Standing) -> bool:
        """Whether the run is over while validation still got better as fast as ever, and was not good yet."""
        held_out = validation_loss(history).values
        if not stand.finished or stand.steps < self.min_steps_if_over or self._passes(history) < self.passes:
            return False
        if len(held_out) < 5:
            return self._unchecked(history, stand)
        if self._laboured(history, stand):
            return True
        if not float(held_out[-1]) >= self.remaining_in_validation * stand.baseline:
            return False
        if not stand.remaining_loss >= self.remaining_at_end:
            return False
        trained = history.series("loss").finite().values
        if not stand.recent.falls or not curves.trend(held_out).falls:
            return False
        if travel(history, stand) < self.travel:
            return self._straight(held_out, 0.8) and self._straight(trained)
        if stand.remaining_error < self.wrong_answers:
            return False  # answers get right long before a loss says so
        # Steps that are long enough must bring ever more, counted from where a constant prediction stands.
        learnt = [np.minimum(values, stand.baseline) for values in (held_out, trained)]
        return all(self._straight(values, self.ever_more) for values in learnt)

    def _unchecked(self, history: History, stand: Standing) -> bool:
        """The same where nothing was validated: short steps on a straight line leave no room for another reading."""
        left = min(stand.remaining_loss, *(validation_loss(history).values[-1:] / stand.baseline), math.inf)
        if not left >= self.remaining_in_validation or not stand.recent.falls:
            return False
        trained = history.series("loss").finite().values
        return travel(history, stand) < self.travel and self._straight(trained, 0.8)

    def _laboured(self, history: History, stand: Standing) -> bool:
        """Whether a deep stack with neither norms nor shortcuts is far from done: its depth alone makes it slow."""
        if network.plain_depth(history) < self.deep:
            return False
        held_out = float(validation_loss(history).values[-1]) / stand.baseline
        steady = stand.recent.falls and self._straight(history.series("loss").finite().values)
        if not math.isfinite(stand.remaining_error):
            # Without answers that are right or wrong, the loss has to say it all.
            least = self.remaining_of_values_if_deep
            return (
                steady and stand.remaining_loss >= least and held_out >= self.remaining_in_validation_if_deep
            )
        if steady and stand.remaining_loss >= self.remaining_if_deep:
            return (
                stand.remaining_error >= self.wrong_answers_if_deep
                and held_out >= self.remaining_in_validation_if_deep
            )
        # What has the room to learn its samples by heart, and sees them again and again, does so if it can.
        room = stand.recent.falls or settling.parameters_per_sample(history) >= settling.ROOM
        return (
            room
            and stand.remaining_loss >= self.remaining_at_end
            and min(stand.remaining_error, held_out) >= self.remaining_if_stuck
        )

    def _too_early(self, history: History, stand: Standing) -> Symptom:
        held_out = validation_loss(history).values
        left = float(held_out[-1]) / stand.baseline if len(held_out) else stand.remaining_loss
        start, _ = network.extent(history)
        layers = network.plain_depth(history)
        return Symptom(
            self.name,
            "warning",
            0.65,
            start,
            "",
            {
                "left_of_constant_prediction": curves.rounded(left),
                "whole_run_over_weight": curves.rounded(travel(history, stand)),
                "steps": stand.steps,
                **stand.evidence(),
            },
            f"Training ends too early: after {'only ' if stand.steps < self.min_steps else ''}{stand.steps} steps "
            f"{left:.0%} of a constant prediction's loss is left{self._how_it_fell(history, stand)}."
            + (f" {layers} layers without a norm learn slowly." if layers >= self.deep else ""),
        )

    def _how_it_fell(self, history: History, stand: Standing) -> str:
        """What the end of the run looked like; coming down to where a constant prediction stands is no fall yet."""
        held_out, trained = (
            np.minimum(values, stand.baseline)
            for values in (validation_loss(history).values, history.series("loss").finite().values)
        )
        ends = [curves.trend(values[len(values) // 2 :]) for values in (trained, held_out)]
        if not any(end.falls and -end.change > _WORTH_SAYING * stand.baseline for end in ends):
            return ""
        return ", and it still fell" + (" as fast as ever" if self._straight(trained) else "")

    def _passes(self, history: History) -> float:
        """How many times the run has gone through its data."""
        size, batch = history.facts.get("dataset_size"), curves.median(history.series("batch_size").values)
        if isinstance(size, int) and size > 0 and math.isfinite(batch):
            return history.steps * batch / size
        return float(max(len(history.events_of("epoch")), len(history.series("val_loss").finite())))

    def _weak(self, history: History, stand: Standing) -> bool:
        """Whether values are predicted with some variation: there may be no more to learn than that."""
        if history.facts.get("task") != "regression" or stand.remaining >= 1.1:
            return False
        if curves.median(curves.tail(validation_loss(history).values, 0.3, 3)) > self.lost * stand.baseline:
            return False
        said = curves.median(curves.tail(history.series("output_sample_std").finite().values, 0.3, 3))
        wanted = curves.median(history.series("target_std").finite().values)
        return 0.1 * wanted < said < wanted

    def _straight(self, values: Floats, pace: float = 0.3) -> bool:
        """Whether the second half brought about as much as the first: nothing has been learned quickly."""
        means = curves.block_means(values, 9)
        if len(means) < 5:
            return False
        middle = len(means) // 2
        before, after = means[0] - means[middle], means[middle] - means[-1]
        return bool(after > pace * max(0.0, before))


def _mixed(history: History) -> bool:
    """Whether something is added to what the loss function gives, as the second half of a bound or a penalty."""
    ratios = history.series("loss_over_call").finite().values
    return len(ratios) >= 3 and float(ratios.max()) > ADDED * float(ratios.min()) > 0


def _outweighed(history: History) -> bool:
    """Whether the second half of a bound was there at first and is as good as gone."""
    ratios = history.series("loss_over_call").finite().values
    return _mixed(history) and float(ratios[0]) > ADDED > 1.0 + abs(float(ratios[-1]) - 1.0)


@dataclass(frozen=True)
class NoMoreGain(Detector):
    """Nothing gets better any more; harmless, but the rest of the run can be spared."""

    name: ClassVar[str] = "no-more-gain"
    min_steps: int = 100
    min_share: float = 0.5
    window: float = 0.3

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.steps < self.min_steps or stand.adversarial or stand.diverged or not stand.improved:
            return
        if not (math.isfinite(stand.share) and stand.share >= self.min_share):
            return
        loss = history.series("loss").finite()
        late = curves.tail(loss.values, self.window, 30)
        before = loss.values[: len(loss) - len(late)]
        trend = curves.trend(late)
        if not len(before) or trend.falls or self._gained(before, late):
            return
        yield Symptom(
            self.name,
            "info",
            0.7,
            int(loss.steps[len(before)]),
            "",
            {"best_before": float(f"{stand.best:.4g}"), **stand.evidence()},
            f"The loss has not got better in the last {len(late)} steps.",
        )

    def _gained(self, before: Floats, late: Floats) -> bool:
        """Whether the loss is lower than in as many steps before; their best moments were luck."""
        earlier = before[-len(late) :]
        error = curves.noise(late) * math.sqrt(1.0 / len(earlier) + 1.0 / len(late))
        return float(np.mean(late)) < float(np.mean(earlier)) - error
