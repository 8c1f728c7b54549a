"""What the labels say: sorted, one-sided or senseless."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors._base import Detector
from akeso.detectors.reversal import reversal
from akeso.detectors.standing import (
    Standing,
    chance_level,
    standing,
    top_share,
    validation_accuracy,
    validation_loss,
)
from akeso.detectors.steps import travel
from akeso.diagnosis import Symptom
from akeso.history import Floats, History

#: Held-out samples that are taken for granted where their number is not known, and the share of chance below which an
#: accuracy is not of single answers.
_HELD_OUT, _FAR_BELOW = 100, 0.3
#: Figures that are 0 where what is rare is never answered, and how often one must have been.
_OF_THE_RARE: Final = {
    "f1": "F1",
    "recall": "recall",
    "precision": "precision",
    "mcc": "MCC",
    "kappa": "kappa",
}
_NOUGHTS: Final = 3
#: Evaluations from which on one that stands out may be luck.
_MANY: Final = 6


def sorted_by_class(history: History) -> bool:
    """Whether batches hold one class each, and not always the same: all of them together are far from even."""
    share = top_share(history)
    whole = history.series("baseline_loss").finite().values
    known = history.facts.get("loss") == "cross_entropy" and len(whole) >= 6
    batch = curves.median(history.series("batch_size").values)
    if not known or not batch >= 8 or dict(history.facts.get("loss_args") or {}).get("weight"):
        return False
    if not share > 0.9:
        return _in_turns(history, float(whole[-1]), batch)
    # What a constant prediction loses on all that was seen is the entropy of the classes; were the largest of
    # them as large as it is in a batch, that could not be more than this.
    classes = max(2, int(history.facts.get("classes") or 2))
    rest = 1.0 - share
    most = -share * math.log(share) + (rest * math.log((classes - 1) / rest) if rest > 0 else 0.0)
    return curves.median(curves.tail(whole, 0.5, 3)) > 2.0 * most + 0.3


def _in_turns(history: History, entropy: float, batch: float) -> bool:
    """Whether large batches hold the same few classes each, while all together hold many, and that is forgotten again.

    So many classes as there are in a batch cannot have a greater entropy than this.
    """
    inside = curves.median(history.series("target_classes").finite().values)
    correct = history.series("val_accuracy").finite().values
    if not inside > 1 or batch < 8 * inside or not entropy > 1.2 * math.log(inside) + 0.3:
        return False
    return len(correct) >= 3 and float(correct[-1]) < 0.7 * float(correct.max())


@dataclass(frozen=True)
class ClassImbalance(Detector):
    """One class makes up nearly everything, and the model answers with nothing else."""

    name: ClassVar[str] = "class-imbalance"
    min_steps: int = 50
    top_share: float = 0.8
    collapsed: float = 0.98
    remaining: float = 0.96
    shortfall: float = 0.3
    on_its_way: float = 0.2
    turned: float = 1.25
    hardly: float = 0.5
    rare_seen: float = 8.0

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.steps < self.min_steps or stand.adversarial or stand.broken:
            return
        if sorted_by_class(history):
            return
        turned = self._turned(history, stand)
        if turned is not None:
            yield turned
            return
        top = top_share(history)
        said = history.series("prediction_top_share").finite()
        if not network.up_to_date(history, "prediction_top_share"):
            return
        recent = curves.mean(curves.tail(said.values, 0.3, 5))
        correct = curves.median(curves.tail(validation_accuracy(history).values, 0.3, 2))
        # What falls as fast as this is on its way, whatever the answers are so far.
        falls = stand.recent.falls and -stand.recent.change >= self.on_its_way * stand.last
        harmed = (stand.suffers(self.remaining) and not falls) or correct < top - self.shortfall
        nought = _at_nought(history, stand)
        if not top >= self.top_share or not recent >= self.collapsed or not (harmed or nought):
            return
        if curves.mean(curves.tail(history.series("accuracy").finite().values, 0.3, 5)) < 0.5:
            return  # it answers with one class, but with another one
        step = curves.first_step_where(said, np.asarray(said.values >= self.collapsed - 0.05, float))
        yield Symptom(
            self.name,
            "error" if harmed else "warning",
            min(0.9, 0.5 + 0.4 * top),
            step,
            "",
            {"target_top_share": round(top, 4), "prediction_top_share": round(recent, 4), **stand.evidence()},
            f"{top:.0%} of the samples belong to one class, and the model answers with it in "
            f"{recent:.0%} of all cases" + (f": the script's own {nought} is 0." if nought else "."),
        )

    def _turned(self, history: History, stand: Standing) -> Symptom | None:
        """Weights in the loss that grow with the frequency of a class, where the others are hardly ever answered."""
        tilt = curves.median(curves.tail(history.series("weight_tilt").finite().values, 0.5, 3))
        said = history.series("prediction_top_share").finite()
        if not tilt >= self.turned or not network.up_to_date(history, "prediction_top_share"):
            return None
        recent = curves.tail(said.values, 0.5, 5)
        rare, answered = 1.0 - top_share(history), 1.0 - curves.mean(recent)
        seen = rare * len(recent) * curves.median(history.series("batch_size").values)
        right = curves.mean(curves.tail(history.series("accuracy").finite().values, 0.5, 5))
        most = right >= 0.8 * (1.0 - rare)  # what is answered so often is what is most frequent
        if not seen >= self.rare_seen or not answered < self.hardly * rare or not most:
            return None
        return Symptom(
            self.name,
            "error",
            0.85,
            network.extent(history)[0],
            "",
            {
                "weight_of_targets_over_classes": curves.rounded(tilt),
                "target_top_share": round(1.0 - rare, 4),
                "prediction_top_share": round(1.0 - answered, 4),
                **stand.evidence(),
            },
            f"The weights in the loss are the wrong way round: what is frequent weighs more than what is rare. All but "
            f"the most frequent answer make up {rare:.1%} of the targets and only {answered:.1%} of the predictions.",
            (
                "Let the weight of a class fall with its frequency: `pos_weight` is negatives / positives, `weight` "
                "one over the count of each class.",
            ),
        )


def _without_luck(correct: Floats) -> float:
    """The best of several accuracies; of many, one may have been luck, unless it is where they have come to."""
    best = int(correct.argmax())
    lucky = len(correct) >= _MANY and best < len(correct) - 2
    return float(np.delete(correct, best).max()) if lucky else float(correct[best])


def _at_nought(history: History, stand: Standing) -> str:
    """The figure for what is rare, if any, that the script prints and that has stayed at nought: it is to be found.

    Such a loss may be below that of a constant prediction, and fall: chances are told apart, and none is ever a yes.
    """
    if stand.over < 0.5:
        return ""
    for name, points in dict(history.facts.get("printed_metrics") or {}).items():
        late = [value for step, value in points if 2 * step >= history.steps]
        if name.rpartition("_")[2] in _OF_THE_RARE and len(late) >= _NOUGHTS and not any(late):
            return _OF_THE_RARE[name.rpartition("_")[2]]
    return ""


def _without_signal(history: History) -> str:
    """What is said of a loss that stays where it would be without a model."""
    if history.facts.get("triplets"):
        return (
            "The loss over triplets stays at its margin: answers lie no nearer to those they belong to than to the "
            "others. Positive and negative samples may be the wrong way round, or so hard to tell apart that all "
            "answers fall together."
        )
    if network.through_time(history):
        return (
            "The labels carry no signal the model can find: the loss stays that of a constant prediction. Or what "
            "tells lies so many moments back that its gradient is lost on the way."
        )
    return (
        "The labels carry no signal the model can find: it trains as it should, but the loss stays that of a constant "
        "prediction."
    )


@dataclass(frozen=True)
class UnlearnableLabels(Detector):
    """Nothing can be learned although everything in the network looks well, or only samples are memorised."""

    name: ClassVar[str] = "unlearnable-labels"
    min_steps: int = 60
    min_share: float = 0.6
    remaining: float = 0.96
    travel: float = 0.3
    memorised: float = 0.8
    too_much: float = 1.5
    validation: float = 0.98
    min_evaluations: int = 3

    def detect(self, history: History) -> Iterator[Symptom]:
        stand = standing(history)
        if stand.steps < self.min_steps or stand.adversarial or stand.diverged:
            return
        if history.facts.get("task") == "autoencoder":
            return  # what is to be said is what was given
        if stand.remaining_loss > self.too_much:
            return  # it is worse than a constant on what it trains on: that is not for want of signal
        if not (math.isfinite(stand.share) and stand.share >= self.min_share):
            return
        if reversal(history, stand) is not None:
            return  # they carry one, the wrong way round
        yield from self._stuck(history, stand)

    def _stuck(self, history: History, stand: Standing) -> Iterator[Symptom]:
        way = travel(history, stand)
        if not way >= self.travel:
            return
        known, best, step = self._validation(history, stand)
        if known:
            if not best:
                return
            evidence = {"best_validation_over_constant": best}
            tokens = history.facts.get("task") == "language-model"
            sentence = (
                # That text says something of its own tokens goes without saying; such models stand there for long.
                (
                    "Nothing is learnt but how frequent each token is"
                    if tokens
                    else "The labels carry no signal"
                )
                + ": on validation the model was never better than a constant prediction"
                + (
                    ", while it learns its training samples by heart."
                    if self._by_heart(history, stand)
                    else "."
                )
            )
        elif (said := self._printed(history, stand)) is not None:
            evidence, step = {"best_printed_accuracy": said[0]}, said[1]
            sentence = (
                "The labels carry no signal the model can find: the accuracy that is printed was never better than "
                f"chance, and {stand.remaining_loss:.0%} of a constant prediction's loss is left in training. Do "
                "targets belong to the samples beside them?"
            )
        else:
            if not stand.remaining >= self.remaining or stand.recent.falls or stand.beats_constant:
                return
            evidence, step = {}, network.extent(history)[0]
            sentence = _without_signal(history)
        yield Symptom(
            self.name,
            "error",
            0.75 if known else 0.6,
            step,
            "",
            {"whole_run_over_weight": curves.rounded(way), **evidence, **stand.evidence()},
            sentence,
        )

    def _by_heart(self, history: History, stand: Standing) -> bool:
        """Whether the training loss came down well, in units that are known, or the training answers got right.

        Where a script weighs samples itself, as in a focal loss, its loss is small for that alone.
        """
        measured = bool(history.series("loss_over_call").finite())
        left = stand.remaining if measured else stand.remaining_error
        return left < self.memorised

    def _printed(self, history: History, stand: Standing) -> tuple[float, int] | None:
        """The best accuracy that the script prints, and since when, where all of them are at chance.

        A figure far below chance is of something else, as of whole sequences that are right; a training loss that came
        down well shows that something is learnt, whatever the figure is of.
        """
        classes, chance = history.facts.get("classes"), chance_level(history)
        even = isinstance(classes, int) and classes > 1 and chance * classes <= 1.5
        if history.facts.get("task") not in ("binary", "multiclass") or not even:
            return None
        if not stand.remaining_loss >= self.memorised:
            return None
        start, _ = network.extent(history)
        printed = dict(history.facts.get("printed_metrics") or {})
        curves_of = [printed.get(name) or [] for name in ("accuracy", "val_accuracy", "test_accuracy")]
        # What gets better from time to time is no luck, however little it is yet.
        held_out = next((curve for curve in curves_of[1:] if curve), curves_of[0])
        if curves.trend(np.asarray([float(value) for _, value in held_out], np.float64)).rises:
            return None
        points = [(int(step), float(value)) for curve in curves_of for step, value in curve if step >= start]
        if len(points) <= self.min_evaluations:
            return None
        values = np.asarray([value for _, value in points])
        luck = 3.0 * math.sqrt(chance * (1.0 - chance) / _HELD_OUT)
        if not float(values.max()) <= chance + luck or not float(np.median(values)) >= _FAR_BELOW * chance:
            return None
        return float(f"{values.max():.3g}"), min(step for step, _ in points)

    def _validation(self, history: History, stand: Standing) -> tuple[bool, float, int]:
        """Whether validation can tell, and if it was never good: its best loss over a constant's, and since when."""
        validation = validation_loss(history)
        correct = history.series("val_accuracy").finite()
        gain, luck = 0.0, 0.0
        if correct and math.isfinite(stand.chance) and stand.chance < 0.999:
            size = history.facts.get("val_size")
            count = size if isinstance(size, int) and size > 0 else _HELD_OUT
            luck = 3.0 * math.sqrt(stand.chance * (1.0 - stand.chance) / count)
            gain = curves.median(curves.tail(correct.values, 0.35, 2)) - stand.chance - luck
        if len(validation) < self.min_evaluations or not math.isfinite(stand.baseline):
            even = stand.chance * max(2, int(history.facts.get("classes") or 2)) <= 1.5
            if luck == 0.0 or len(correct) <= self.min_evaluations or not even:
                return False, 0.0, 0
            # Without a loss the accuracy has to tell: it never got beyond luck, while the training loss came down.
            # (Where one class is large, much can be learnt before any answer changes.)
            never = _without_luck(correct.values) <= stand.chance + luck and stand.overall.falls
            return never, 1.0 if never else 0.0, int(correct.steps[0])
        best = float(validation.values.min()) / stand.baseline
        # Values may be predictable by a few percent, less than is known of their variance: such a signal shows in
        # validation that got better after its first time, by more than the later figures differ by. Coming down to
        # where a constant prediction stands is no signal yet, where it has come to an end.
        late = validation.values[len(validation) // 2 :]
        before = min(float(validation.values[0]), stand.baseline) - curves.spread(late)
        flat = float(np.median(late)) >= before and not curves.trend(late).falls
        learnt = stand.remaining < self.memorised or flat
        weak = history.facts.get("task") == "regression" and not learnt
        bad = best >= self.validation and gain <= 0.0 and not weak
        return True, float(f"{best:.3g}") if bad else 0.0, int(validation.steps[0])
