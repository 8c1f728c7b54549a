"""Single values far off from all others, in inputs and targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors.standing import Standing
from akeso.detectors.steps import pass_length
from akeso.history import Floats, History, Series

#: What was found, the figures that show it, and how many times beyond the limit it is.
Finding: TypeAlias = tuple[str, dict[str, Any], float]
#: Batches, at the start, in which inputs are looked at, and batches that must hold outliers of a single feature or of
#: the targets: one of them may be an accident.
_BATCHES, _REPEATED = 20, 3
#: Interquartile ranges off from which on a value that several samples share is no quantity.
CODE = 50.0
#: The interquartile range of normal values with a standard deviation of 1.
_IQR_OF_STD = 1.349


def in_inputs(
    history: History, limit: float, code_limit: float, rare: float, large: float
) -> Iterator[Finding]:
    """Values of the inputs far off from all others; a normalisation is no help, its averages are made of them.

    Where most values are nearly the same, as in dark pictures, the bright ones are far off but many: what is an outlier
    is rare as well, ``rare`` standard deviations off. The very same far value in batch after batch is a code, not a
    quantity: ``code_limit`` applies to it in place of ``limit`` where it is ``large``.
    """
    far, extremes = [], []
    for step in history.series("input_outlier").finite().steps[:_BATCHES].tolist():
        here = network.Window(step, step)
        low, high, mean, std, off = (
            network.typical(history, signal, "", here)
            for signal in ("input_min", "input_max", "input_mean", "input_std", "input_outlier")
        )
        extreme = high if high - mean > mean - low else low
        if std > 0 and abs(extreme - mean) >= rare * std:
            far.append(off)
            extremes.append(extreme)
    code = max(set(extremes), key=extremes.count) if extremes else 0.0
    repeated = max(3, len(far) // 2) <= extremes.count(code) and abs(code) > large
    least = code_limit if repeated else limit
    if far and max(far) > least:
        text = f"there are outliers {max(far):.2g} interquartile ranges off"
        figures = {"input_outlier": curves.rounded(max(far))}
        if repeated:
            text += f", always {code:g}: a code for missing values?"
            figures["input_code"] = code
        yield text, figures, max(far) / least
        return
    yield from _in_features(history, limit)


def _in_features(history: History, limit: float) -> Iterator[Finding]:
    """Rare values far off within their own feature: standardised, a code for missing values is no longer large.

    What it leaves of all other values is next to nothing: their differences are a few thousandths of a deviation.
    """
    far = history.series("input_feature_outlier").finite().values[:_BATCHES]
    code = _code(history)
    if code is not None:
        value, beyond = code
        off = float(np.median(beyond))
        yield (
            f"there are values {off:.2g} interquartile ranges off within their own feature, always {value:.4g}: a code "
            "for missing values?",
            {
                "input_feature_outlier": curves.rounded(off),
                "input_code": curves.rounded(value),
                "batches_with_far_values": round(len(beyond) / len(far), 3),
            },
            off / CODE,
        )
        return
    beyond = far[far > limit]
    if len(beyond) >= _REPEATED:
        off = float(np.median(beyond))
        yield (
            f"there are values {off:.2g} interquartile ranges off within their own feature, which leave the others "
            "hardly any differences (codes for missing values?)",
            {
                "input_feature_outlier": curves.rounded(off),
                "batches_with_far_values": round(len(beyond) / len(far), 3),
            },
            off / limit,
        )


def _code(history: History) -> tuple[float, Floats] | None:
    """The one value that several samples have in place of their own, and how far off it was in every batch that has it.

    Quantities are never exactly the same so far off. A sample that comes by again is: where no two of a batch are
    alike, batches must be of the first pass through the data.
    """
    whole = history.series("input_feature_outlier").finite()
    off = Series(whole.steps[:_BATCHES], whole.values[:_BATCHES])
    value, alike = (
        curves.at_steps(history.series(signal), off)
        for signal in ("input_feature_far", "input_feature_alike")
    )
    if not len(off) or len(value) != len(off) or len(alike) != len(off):
        return None
    beyond = off.values > CODE
    shared = beyond & (alike >= 2)
    often = bool(shared.sum() >= 2)
    kinds, counts = np.unique(
        value[shared if often else beyond & (off.steps < pass_length(history))], return_counts=True
    )
    if not len(kinds) or not (often or counts.max() >= _REPEATED):
        return None
    return float(kinds[counts.argmax()]), off.values[beyond]


def in_targets(history: History, limit: float) -> Iterator[Finding]:
    """Rare targets far off from all others: whatever batch holds one has a loss and a gradient of its own."""
    far = history.series("target_outlier").finite().values
    beyond = far[far > limit]
    if len(beyond) >= _REPEATED:
        off = float(np.median(beyond))
        yield (
            f"there are targets {off:.2g} interquartile ranges off from the others (wrong units, or mistakes?)",
            {
                "target_outlier": curves.rounded(off),
                "batches_with_outliers": round(len(beyond) / len(far), 3),
            },
            off / limit,
        )


def drown(history: History, stand: Standing, remaining: float) -> bool:
    """Whether a squared error is large against what a constant prediction gives for all targets but the outliers.

    Against a constant prediction for all targets it is not: outliers make up nearly all of that.
    """
    if history.facts.get("loss") != "mse_loss" or not stand.baseline > 0:
        return False
    middle = curves.median(history.series("target_iqr").finite().values) / _IQR_OF_STD
    whole = curves.mean(history.series("target_std").finite().values ** 2)
    typical = curves.median(curves.tail(history.series("loss").finite().values, 0.3, 10))
    return bool(middle > 0 and whole > 0 and typical / stand.baseline >= remaining * middle**2 / whole)
