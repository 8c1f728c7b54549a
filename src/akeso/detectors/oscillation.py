"""Losses that swing or are thrown about instead of settling."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.settling import calm, flutter, jumps, restless, signs_of_batches, swapped_betas
from akeso.detectors.standing import Standing, standing
from akeso.detectors.steps import longest_update
from akeso.diagnosis import Symptom
from akeso.history import Floats, History


@dataclass(frozen=True)
class OscillatingLoss(Detector):
    """The loss swings widely, often beyond what a constant prediction would give, and does not settle."""

    name: ClassVar[str] = "oscillating-loss"
    min_steps: int = 40
    min_share: float = 0.25
    swing: float = 0.3
    against_batch: float = 3.0
    wasted: float = 0.1
    remaining: float = 0.3
    flutter: float = 0.05
    against_sampling: float = 5.0
    min_evaluations: int = 8
    jump: float = 1.5
    update: float = 0.01
    long: float = 0.1
    remaining_if_long: float = 0.1
    around_zero: float = 0.1

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.steps < self.min_steps or stand.adversarial or stand.broken:
            return
        if not (math.isfinite(stand.share) and stand.share >= self.min_share):
            return
        yield from self._swapped(history, stand)
        yield from self._by_signs(history, stand)
        yield from self._unsettled(history, stand)
        yield from self._thrown_about(history, stand)
        yield from self._restless(history, stand)
        loss = history.series("loss").finite()
        late = curves.tail(loss.values, 0.5, 20)
        swing = self._swing(late)
        level = float(np.mean(np.abs(late)))
        if level <= 0 or (stand.recent.falls and stand.recent.change < -0.3 * level):
            return
        known = math.isfinite(stand.baseline)
        if not known and min(float(np.mean(late > 0)), float(np.mean(late < 0))) > self.around_zero:
            return  # around zero neither the level nor the start says how large a swing is
        batch = curves.median(history.series("batch_size").values)
        by_chance = level / math.sqrt(max(1.0, batch)) if math.isfinite(batch) else level / 4.0
        reference = max(stand.first, stand.baseline) if known else stand.first
        wasted = float(np.mean(late > 1.1 * reference))
        left = level / (stand.baseline if known else max(abs(stand.first), 1e-12))
        # A level above both start and constant prediction is no accident of small batches.
        worse = level > 1.5 * max(abs(stand.first), stand.baseline)
        if swing < self.swing * level or (swing < self.against_batch * by_chance and not worse):
            return
        if wasted < self.wasted or left < self.remaining or calm(history, stand, self.remaining):
            return
        longest, _ = longest_update(history)
        start = int(loss.steps[len(loss) - len(late)])
        yield Symptom(
            self.name,
            "error" if left >= 0.7 else "warning",
            min(0.9, 0.6 + 0.1 * math.log2(swing / (self.swing * level)) + 0.2 * min(1.0, wasted)),
            start,
            "",
            {
                "swing_over_level": curves.rounded(swing / level),
                "swing_over_batch_noise": curves.rounded(swing / by_chance),
                f"steps_worse_than_{'constant' if known else 'first'}": round(wasted, 3),
                "update_over_weight": curves.rounded(longest),
                **stand.evidence(),
            },
            f"The loss swings by {swing / level:.0%} of its level without settling; {wasted:.0%} of "
            f"the late steps are worse than {'a constant prediction' if known else 'the first one'}.",
        )

    def _swapped(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Whether the betas of an Adam are in the wrong order, and the loss stays where it is."""
        betas = swapped_betas(history, stand)
        if betas is not None:
            first, second = betas
            yield Symptom(
                self.name,
                "error" if stand.suffers(self.remaining) else "warning",
                0.9,
                network.extent(history)[0],
                "",
                {"betas": [first, second], **stand.evidence()},
                f"The betas of the optimizer look swapped: with ({first:g}, {second:g}) a step follows directions of "
                "long ago, and the loss goes back and forth. Usual is (0.9, 0.999).",
            )

    def _by_signs(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Whether an optimizer for whole data sets is led astray by batches."""
        batches = signs_of_batches(history, stand, self.remaining_if_long)
        if batches:
            yield Symptom(
                self.name,
                "warning",
                0.8,
                network.recent(history, 0.5).start,
                "",
                {"batches_per_pass": int(batches), **stand.evidence()},
                f"Rprop goes by the signs of whole gradients, but gets those of {batches:.0f} batches in turn, which "
                "differ by chance: the loss no longer falls. Adam or SGD are made for batches.",
            )

    def _unsettled(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Whether validation jumps from one time to the next by far more than its size explains."""
        correct = history.series("val_accuracy").finite()
        size = history.facts.get("val_size")
        late = correct.values[len(correct) // 2 :]
        if len(correct) < self.min_evaluations or not isinstance(size, int) or size < 20:
            return
        middle = float(np.clip(np.median(late), 0.01, 0.99))
        typical, without_worst = jumps(late)
        sampling = math.sqrt(middle * (1.0 - middle) / size)
        if without_worst < self.flutter or typical < self.against_sampling * sampling:
            return
        if curves.trend(late).rises or not float(np.min(np.diff(late))) < -self.flutter:
            return  # it goes up in large steps, and not down again
        yield Symptom(
            self.name,
            "warning",
            min(0.85, 0.6 + 0.1 * math.log2(typical / self.flutter)),
            int(correct.steps[len(correct) // 2]),
            "",
            {
                "val_accuracy_least": round(float(late.min()), 4),
                "val_accuracy_most": round(float(late.max()), 4),
                "jump_over_sampling_error": curves.rounded(typical / sampling),
                **stand.evidence(),
            },
            f"Training does not settle: validation accuracy jumps between {late.min():.1%} and {late.max():.1%} from "
            "one time to the next. The steps are too long, or too noisy for such small batches.",
        )

    def _thrown_about(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Whether long steps keep a loss that is low already from staying anywhere."""
        found = flutter(history, stand, self.jump, self.update, self.min_evaluations)
        if found is None:
            return
        yield Symptom(
            self.name,
            "warning",
            min(0.85, 0.65 + 0.1 * math.log2(found.factor / self.jump)),
            found.since,
            "",
            {
                "val_loss_least": float(f"{found.least:.4g}"),
                "val_loss_most": float(f"{found.most:.4g}"),
                "typical_jump": curves.rounded(found.factor),
                "update_over_weight": curves.rounded(found.update),
                **stand.evidence(),
            },
            f"Training does not settle: validation loss jumps between {found.least:.3g} and {found.most:.3g}, usually "
            f"by a factor of {found.factor:.2g} from one time to the next, while each step changes the weights by "
            f"{found.update:.1%}. The steps are too long.",
        )

    def _restless(self, history: History, stand: Standing) -> Iterator[Symptom]:
        """Whether steps are so long to the very end that the loss cannot go lower, however evenly it lies."""
        changed = restless(history, stand, self.long, self.remaining_if_long)
        if changed:
            yield Symptom(
                self.name,
                "warning",
                min(0.85, 0.7 + 0.1 * math.log2(changed / self.long)),
                network.recent(history).start,
                "",
                {"update_over_weight": curves.rounded(changed), **stand.evidence()},
                f"Training does not settle: to the end each step changes the weights by {changed:.0%} of their size, "
                "and the loss no longer falls. The steps are too long.",
            )

    def _swing(self, late: Floats) -> float:
        """The standard deviation around a straight line; spikes count, a few of them do not."""
        x = np.arange(len(late), dtype=np.float64)
        slope, offset = np.polyfit(x, late, 1)
        residual = late - (slope * x + offset)
        low, high = np.quantile(residual, [0.05, 0.95])
        return float((high - low) / 3.29)
