"""By which figure a script is judged: its own where one is named, else the best that was seen or printed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from akeso.history import History, Series

Curve = tuple[tuple[int, float], ...]

_HIGHER = frozenset(
    {
        "accuracy", "f1", "auc", "auprc", "precision", "recall", "dice", "iou", "bleu", "r2", "score", "mcc", "kappa",
        "psnr", "ssim", "ndcg", "mrr", "correlation", "rouge", "chrf", "hits", "map", "gini",
        "concordance", "reward",
    }
)  # fmt: skip
#: Figures of errors that are counted or measured apart from the loss: told without a word for held-out data, they are
#: still the script's own, and whatever is done to the loss does not change what they mean.
_ERRORS = frozenset({"error", "wer", "cer", "ser", "mae", "rmse", "mape", "smape", "wape"})
_HELD_OUT = ("val", "valid", "validation", "test", "eval", "dev")
#: Quantities that tell less than an accuracy does, or only half of it.
_PARTIAL = frozenset({"loss", "error", "accuracy", "precision", "recall", "score"})
#: Figures of what was found of a class: nothing of it, where a model says "no" to everything.
FOUND: Final = ("f1", "dice", "iou", "precision", "recall")
#: Evaluations, and how closely they have to go with the loss of the same, that tell which way a figure is good.
_ENOUGH, _PLAIN = 5, 0.8
#: What an accuracy is called that a script prints and that is another than the one that was seen. Runs that have not
#: evaluated often enough to tell have it under the same name.
_AS_PRINTED, _ONLY_IF_AGREED = "printed_accuracy", 9
#: Evaluations that tell whether two accuracies are one, and how far apart they are then at most.
_PAIRS, _ROUNDED = 3, 0.02
#: Readings that make one point of a curve, where there are three times as many.
_READINGS = 4


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a run: by step, and how much it says. A lower rank says more."""

    name: str
    higher_is_better: bool
    curve: Curve
    rank: int

    @property
    def last(self) -> float | None:
        """The last value."""
        return self.curve[-1][1] if self.curve else None

    @property
    def of_nothing(self) -> float | None:
        """Its value where nothing was learnt, as far as its name tells."""
        return 0.0 if self.name.rpartition("_")[2] in FOUND else None


def figures(
    history: History,
    own_losses: Curve,
    higher_is_better: bool | None,
    directions: Mapping[str, bool] | None = None,
) -> list[Figure]:
    """Every figure a run gives, the most telling first.

    ``own_losses`` are evaluation losses in the script's own measure, which a changed loss does not change;
    ``higher_is_better`` is what the user said of ``--metric``, ``directions`` whether more is better of figures whose
    names do not tell.
    """
    found = [Figure("metric", higher_is_better is not False, _curve(history.series("metric")), 0)]
    found.append(Figure("val_accuracy", True, _curve(history.series("val_accuracy")), 2))
    printed = dict(history.facts.get("printed_metrics") or {})
    # Who prints perplexity or F1 of held-out data, and no accuracy, wants that.
    own = not any(label.rpartition("_")[0] in _HELD_OUT and label.endswith("_accuracy") for label in printed)
    seen = _curve(history.series("val_accuracy"))
    for label, values in printed.items():
        split, _, quantity = str(label).rpartition("_")
        curve = tuple((int(step), float(value)) for step, value in values if math.isfinite(value))
        if split in _HELD_OUT:
            rank = 1 if own and quantity not in _PARTIAL else 3 if quantity in _HIGHER else 4
            found.append(Figure(str(label), quantity in _HIGHER, curve, rank))
            if quantity == "accuracy":
                found.append(
                    Figure(
                        f"{split}_{_AS_PRINTED}", True, curve, 1 if _apart(curve, seen) else _ONLY_IF_AGREED
                    )
                )
        elif not split and (quantity in _HIGHER or quantity in _ERRORS):
            found.append(Figure(str(label), quantity in _HIGHER, curve, 6))
    for label, higher in (directions or {}).items():
        found.append(Figure(label, higher, _unnamed(history).get(label, ()), 4))
    found.append(Figure("val_loss", False, own_losses or _curve(history.series("val_loss")), 5))
    found.append(Figure("train_accuracy", True, _smooth(history.series("accuracy")), 7))
    found.append(Figure("train_loss", False, _smooth(history.series("loss")), 8))
    # What is evaluated before the first step, as trainers do to see that it works, says nothing of the training.
    found = [replace(one, curve=_trained(one.curve)) if is_held_out(one.name) else one for one in found]
    return sorted((figure for figure in found if figure.curve), key=lambda figure: figure.rank)


def directions(history: History, own_losses: Curve) -> dict[str, bool]:
    """Of the figures whose names do not tell: whether more is better, where they plainly move with the held-out loss.

    The loss of the training says nothing of that: it falls as well where everything held out gets worse.
    """
    losses = dict(own_losses or _curve(history.series("val_loss")))
    found = {}
    for label, curve in _unnamed(history).items():
        pairs = [(losses[step], value) for step, value in _trained(curve) if step in losses]
        together = _rank_correlation(pairs) if len(pairs) >= _ENOUGH else 0.0
        if abs(together) >= _PLAIN:
            found[label] = together < 0
    return found


def unknown(history: History, known: Mapping[str, bool]) -> list[str]:
    """The held-out figures that are printed and of which it is not known whether more is better."""
    return [label for label in _unnamed(history) if label not in known]


def _unnamed(history: History) -> dict[str, Curve]:
    printed = dict(history.facts.get("printed_figures") or {})
    return {
        str(label): tuple((int(step), float(value)) for step, value in values if math.isfinite(value))
        for label, values in printed.items()
    }


def _apart(printed: Curve, seen: Curve) -> bool:
    """Whether an accuracy that a script prints is plainly not the share of right answers that was seen.

    One that is balanced over classes, or of a model's moving average, is what its author goes by.
    """
    # What is seen belongs to the step before it, what is printed to the one that comes next.
    known = {step + 1: value for step, value in seen} | dict(seen)
    gaps = [abs(value - known[step]) for step, value in printed if step in known]
    return len(gaps) >= _PAIRS and float(np.median(gaps)) > _ROUNDED


def _rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    ranks = [np.argsort(np.argsort(values)) for values in zip(*pairs, strict=True)]
    if any(len(set(values)) < 2 for values in zip(*pairs, strict=True)):
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def chosen(found: list[Figure], agreed: tuple[str, bool] | None) -> Figure | None:
    """The figure to judge by: the agreed one; where this run has none yet, the next that points the same way."""
    if agreed is None:
        return found[0] if found else None  # what is only agreed upon never stands alone
    name, higher = agreed
    for figure in found:
        if figure.name == name:
            return figure
    alike = [
        figure for figure in found if figure.higher_is_better == higher and 0 < figure.rank < _ONLY_IF_AGREED
    ]
    return alike[0] if alike else None


def agreed_on(known: Figure | None, found: list[Figure]) -> Figure | None:
    """The figure to judge all runs by, once another run has shown these: a more telling one takes the place of a known.

    An accuracy that the script prints is none the worse for one that was seen in some of the runs alone.
    """
    if known is None or not found or found[0].rank >= known.rank:
        return known or next(iter(found), None)
    printed = is_held_out(known.name) and known.name.endswith("_accuracy")
    kept = found[0].name == "val_accuracy" and printed and any(one.name == known.name for one in found)
    return known if kept else found[0]


def is_held_out(name: str) -> bool:
    """Whether a figure is of data the model was not trained on, as far as its name tells."""
    return name == "metric" or name.split("_")[0] in _HELD_OUT


def _trained(curve: Curve) -> Curve:
    return tuple(point for point in curve if point[0] > 0)


def _curve(series: Series) -> Curve:
    finite = series.finite()
    return tuple(zip(finite.steps.tolist(), finite.values.tolist(), strict=True))


def _smooth(series: Series) -> Curve:
    """Training figures are of single batches: means over tenths of the run, and over several readings."""
    finite = series.finite()
    # Of a figure that is not read in every step, one reading says little.
    length = max(1, len(finite) // 10, min(_READINGS, len(finite) // 3))
    points = []
    for start in range(len(finite) % length, len(finite), length):
        values = finite.values[start : start + length]
        points.append((int(finite.steps[start + length - 1]), float(values.mean())))
    return tuple(points)
