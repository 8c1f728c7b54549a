"""Whether the loss is made for the targets it is given."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.aims import misses_its_aim
from akeso.detectors.measures import directions_alone
from akeso.detectors.standing import Standing, standing
from akeso.detectors.task import ONE_SIDED, VALUE_LOSSES, Finding, Fit, fit
from akeso.diagnosis import Symptom
from akeso.history import History

_OF_THE_MEDIAN: Final = frozenset({"l1_loss", "smooth_l1_loss", "huber_loss"})
_CLASS_LOSSES: Final = frozenset({"cross_entropy", "nll_loss"})
_BINARY_LOSSES: Final = frozenset({"binary_cross_entropy", "binary_cross_entropy_with_logits"})
#: Losses that multiply the output by the target: no is -1 to them, and 0 says nothing.
_SIGNED_LOSSES: Final = frozenset({"soft_margin_loss"})


@dataclass(frozen=True)
class ImproperLoss(Detector):
    """The loss is not made for these targets."""

    name: ClassVar[str] = "improper-loss"
    min_steps: int = 3
    harm_steps: int = 15
    indices: float = 0.15
    uneven_indices: float = 0.5
    one_hot: float = 0.6
    one_hot_at_end: float = 0.5
    many: int = 10
    smoothing: float = 0.5
    ignored: float = 0.5
    drop: float = 0.25
    most_classes: int = 50
    tolerance: float = 1e-3
    skewed: float = 0.3
    apart: float = 0.2
    collapsed: float = 0.05
    too_long: float = 0.1

    def detect(self, history: History) -> Iterator[Symptom]:
        stand, known = standing(history), fit(history)
        yield from self._unsigned(history)
        yield from self._unaligned(history)
        if (
            stand.steps >= self.min_steps
            and (astray := misses_its_aim(history, stand, self.name)) is not None
        ):
            yield astray
            return
        if known is None or stand.steps < self.min_steps or stand.adversarial:
            return
        found = self._classes(known, stand) or self._binary(known, stand) or self._values(known, stand)
        found = found or self._smoothed(history, known) or self._left_out(history, known)
        found = found or self._sign(history, known, stand) or self._own(history, known, stand)
        found = (
            found or directions_alone(history) or self._counts(history, known) or self._middle(history, known)
        )
        if found is not None:
            yield known.symptom(self.name, found, history, stand)

    def _unsigned(self, history: History) -> Iterator[Symptom]:
        """A loss over pairs that is told with 0, to which it pays no heed, what -1 would say."""
        name = history.facts.get("pair_loss")
        low, high = (history.series(f"target_{end}").finite() for end in ("min", "max"))
        if not isinstance(name, str) or len(low) < self.min_steps:
            return
        if float(low.values.min()) != 0.0 or float(high.values.max()) != 1.0:
            return
        yield Symptom(
            self.name,
            "error",
            0.9,
            int(low.steps[0]),
            "",
            {"loss": name, "target_min": 0.0, "target_max": 1.0},
            f"`{name}` expects targets of 1 and -1 but is given 1 and 0: pairs that do not belong together are not "
            "told apart.",
            (f"Give `{name}` the target `2 * target - 1`: -1 for pairs that do not belong together.",),
        )

    def _unaligned(self, history: History) -> Iterator[Symptom]:
        """Labels that no alignment can give: the blank among them, or more of them than there are steps."""
        blank, long = (
            curves.median(history.series(name).finite().values) for name in ("label_blank", "label_too_long")
        )
        start, _ = network.extent(history)
        if blank > 0:
            yield Symptom(
                self.name,
                "error",
                0.95,
                start,
                "",
                {"loss": "ctc_loss", "share_of_labels": curves.rounded(blank)},
                f"{blank:.0%} of the labels are the blank of `ctc_loss`, which stands for no label: where it is to be "
                "read, nothing can be.",
                (
                    "Keep one class for the blank alone: number the labels from 1 on and leave `blank=0`, or make it "
                    "the one after the last.",
                    "Give the number of labels of each sample without its padding as `target_lengths`.",
                ),
            )
        elif long >= self.too_long:
            yield Symptom(
                self.name,
                "error",
                0.9,
                start,
                "",
                {"loss": "ctc_loss", "share_of_samples": curves.rounded(long)},
                f"{long:.0%} of the samples have more labels than steps to align them with: their `ctc_loss` is "
                "infinite, and nothing is learnt from them.",
                (
                    "Shorten the sequence less before it is read out: fewer strides and poolings.",
                    "See that `input_lengths` counts the steps of the output, `target_lengths` the labels.",
                ),
            )

    def _counts(self, history: History, known: Fit) -> Finding | None:
        """A loss for logarithms of rates that is given the rates."""
        logarithms = dict(history.facts.get("loss_args") or {}).get("log_input") is True
        if known.loss != "poisson_nll_loss" or not logarithms or known.activation not in ONE_SIDED:
            return None
        return (
            f"`poisson_nll_loss` takes the output for the logarithm of a rate, but it goes through a "
            f"{known.activation}, which makes it a rate: say `log_input=False`, or leave the {known.activation} out.",
            0.9,
            True,
        )

    def _middle(self, history: History, known: Fit) -> Finding | None:
        """A loss that asks for the median, where that is the least value there is, and the answers have come to it."""
        if known.loss not in _OF_THE_MEDIAN or known.kind != "values":
            return None
        recent, least, mean = network.recent(history, 0.3), known.target_low, known.target_mean
        answer, between = (
            network.typical(history, signal, "", recent) for signal in ("output_mean", "output_sample_std")
        )
        skewed = self.apart * known.target_std < mean - least < self.skewed * (known.target_high - least)
        if not skewed or not max(abs(answer - least), between) < self.collapsed * known.target_std:
            return None
        return (
            f"`{known.loss}` asks for the median of the targets, and more than half of them are {least:g}: that is all "
            f"that is ever answered, while their mean is {mean:.3g}.",
            0.85,
            True,
        )

    def _sign(self, history: History, known: Fit, stand: Standing) -> Finding | None:
        """A loss that cannot be negative by itself is from the start, and what it measures does not get better."""
        alone = not isinstance(history.facts.get("loss_terms"), int)
        never = known.loss in VALUE_LOSSES | _BINARY_LOSSES | {"cross_entropy"}
        # What becomes negative on the way has other terms beside it, an entropy or what an action was worth.
        always = (
            stand.last < 0 and float(np.max(history.series("loss").finite().values[:5], initial=-1.0)) < 0
        )
        if not alone or not never or not always or stand.remaining_error < 0.9:
            return None
        return (
            f"`{known.loss}` is minimised with the wrong sign: the worse the answers, the lower.",
            0.93,
            True,
        )

    def _own(self, history: History, known: Fit, stand: Standing) -> Finding | None:
        """A loss written by hand that falls while the accuracy stays where guessing would be."""
        correct = history.series("val_accuracy").finite().values
        matrices = network.weights(history)
        if known.loss != "custom" or len(correct) < 3 or not matrices or not stand.improved:
            return None
        units = matrices[-1].shape[0]
        chance = 1.0 / max(2, units)
        size = history.facts.get("val_size")
        luck = 3.0 * math.sqrt(chance * (1 - chance) / size) if isinstance(size, int) and size > 0 else 0.05
        drop = (stand.first - stand.last) / max(abs(stand.first), 1e-12)
        best = float(correct.max())
        if units > self.most_classes or drop < self.drop or best > chance + max(luck, 0.05):
            return None
        return (
            f"The loss falls but the accuracy never exceeds {best:.0%}, what guessing gives: this loss "
            "rewards something else than right answers (a wrong sign?).",
            0.85,
            True,
        )

    def _classes(self, known: Fit, stand: Standing) -> Finding | None:
        if known.loss not in _CLASS_LOSSES:
            return None
        if known.units == 1:
            return (
                f"`{known.loss}` over a single output unit is always 0: there is nothing to choose from.",
                0.97,
                True,
            )
        if known.kind == "values":
            return (
                f"`{known.loss}` is given values as targets that are no classes and no probabilities.",
                0.92,
                True,
            )
        if known.kind == "binary" and stand.steps >= self.harm_steps and stand.suffers(0.5):
            return (
                "`cross_entropy` assumes one class per sample, but several labels hold at once.",
                0.7,
                False,
            )
        return None

    def _smoothed(self, history: History, known: Fit) -> Finding | None:
        """Whether smoothing leaves the right class hardly more than the others."""
        smoothing = dict(history.facts.get("loss_args") or {}).get("label_smoothing")
        if known.loss != "cross_entropy" or not isinstance(smoothing, (int, float)):
            return None
        if not smoothing >= self.smoothing:
            return None
        return (
            f"Label smoothing of {smoothing:g} spreads most of every target over all {known.units} classes: "
            "0.1 is usual, and more than half drowns the right answer.",
            0.93,
            True,
        )

    def _left_out(self, history: History, known: Fit) -> Finding | None:
        """Whether the loss leaves out a class that is as frequent as others, in samples with one label each.

        In sequences and pictures the class left out is padding or background.
        """
        ignored = curves.median(history.series("target_ignored").finite().values)
        shapes = [history.facts.get(f"{what}_shape") for what in ("target", "output", "input")]
        target, output, given = (shape if isinstance(shape, list) else [] for shape in shapes)
        one_each = len(target) == 1 and len(output) == 2 and len(given) > 1 and given[0] >= target[0]
        if not one_each or known.units < 2 or not ignored * known.units >= self.ignored:
            return None
        index = dict(history.facts.get("loss_args") or {}).get("ignore_index")
        return (
            f"`ignore_index={index}` leaves class {index} out of the loss, {ignored:.0%} of the samples: it is never "
            "learned. Take the argument away if the class is to be told from the others.",
            0.85,
            False,
        )

    def _binary(self, known: Fit, stand: Standing) -> Finding | None:
        if known.loss in _SIGNED_LOSSES and known.kind in ("binary", "one-hot"):
            if abs(known.target_low) > self.tolerance or not known.target_high > 0:
                return None
            return (
                f"`{known.loss}` needs targets of -1 and 1, but they are 0 and 1: it learns nothing from "
                "those that are 0, and answering yes to everything makes it smallest.",
                0.95,
                True,
            )
        if known.loss not in _BINARY_LOSSES:
            return None
        if known.target_high > 1.0 + self.tolerance or known.target_low < -self.tolerance:
            return (
                f"`{known.loss}` needs targets between 0 and 1, but they lie between "
                f"{known.target_low:.3g} and "
                f"{known.target_high:.3g}.",
                0.96,
                True,
            )
        harmed = stand.steps >= self.harm_steps and (
            stand.suffers(self.one_hot) or self._far_from_done(stand)
        )
        if known.kind == "one-hot" and known.units >= self.many and harmed:
            return (
                f"`{known.loss}` asks for each of {known.units} classes by itself, though only one of them holds: "
                "nearly all of it comes from those that do not. Use `cross_entropy`.",
                0.7,
                False,
            )
        return None

    def _far_from_done(self, stand: Standing) -> bool:
        return stand.finished and stand.recent.falls and stand.remaining_loss >= self.one_hot_at_end

    def _values(self, known: Fit, stand: Standing) -> Finding | None:
        if known.loss not in VALUE_LOSSES or stand.steps < self.harm_steps:
            return None
        if known.units == 1 and known.kind == "values" and known.distinct >= 3:
            whole = known.target_low == 0 and known.distinct == round(known.target_high) + 1
            middle, even = known.target_high / 2, math.sqrt((known.distinct**2 - 1) / 12)
            uniform = (
                abs(known.target_mean - middle) < 0.15 * middle and abs(known.target_std / even - 1) < 0.2
            )
            if whole and stand.suffers(self.indices if uniform else self.uneven_indices):
                return (
                    f"`{known.loss}` treats the {known.distinct} class numbers as quantities: use one "
                    "output unit per class and `cross_entropy`.",
                    0.85 if uniform else 0.7,
                    False,
                )
        harmed = stand.suffers(self.one_hot) or self._far_from_done(stand)
        if known.kind == "one-hot" and known.units > 2 and harmed:
            if known.loss == "l1_loss":
                return "`l1_loss` on one-hot targets is smallest for answering nothing at all.", 0.88, False
            return (
                f"`{known.loss}` on one-hot targets has hardly any gradient far from the answer.",
                # The more classes, the smaller the share of a squared error that the right one has.
                min(0.7, 0.5 + 0.1 * math.log10(known.units)),
                False,
            )
        return None
