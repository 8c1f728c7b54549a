"""Robust statistics of noisy curves: levels, noise, trends.

Training curves are noisy, heavy-tailed and unevenly sampled. Everything here works on medians, on means of
blocks, or on ranks, and returns ``nan`` or zero where there is too little to say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from akeso.history import Floats, Series

#: A median absolute deviation times this is a standard deviation for normal noise.
MAD_TO_STD = 1.4826


def median(values: Floats) -> float:
    """The median of the finite values; ``nan`` when there are none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else math.nan


def mean(values: Floats) -> float:
    """The mean of the finite values; ``nan`` when there are none."""
    finite = values[np.isfinite(values)]
    return float(np.mean(finite)) if len(finite) else math.nan


def noise(values: Floats) -> float:
    """The step-to-step fluctuation: a robust standard deviation that trends do not inflate."""
    finite = values[np.isfinite(values)]
    if len(finite) < 3:
        return 0.0
    jumps = np.diff(finite)
    return float(MAD_TO_STD * np.median(np.abs(jumps - np.median(jumps))) / math.sqrt(2.0))


def spread(values: Floats) -> float:
    """A robust standard deviation around the median."""
    finite = values[np.isfinite(values)]
    if len(finite) < 2:
        return 0.0
    return float(MAD_TO_STD * np.median(np.abs(finite - np.median(finite))))


def level(values: Floats) -> float:
    """The mean with outliers pulled in: batch losses are skewed, so that their median lies below their mean."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return math.nan
    middle, width = float(np.median(finite)), 5.0 * spread(finite)
    return float(np.mean(np.clip(finite, middle - width, middle + width)))


def tail(values: Floats, share: float, at_least: int = 5) -> Floats:
    """The last ``share`` of the values, but at least ``at_least`` of them."""
    count = max(at_least, round(len(values) * share))
    return values[-count:]


def head(values: Floats, share: float, at_least: int = 3) -> Floats:
    """The first ``share`` of the values, but at least ``at_least`` of them."""
    count = max(at_least, round(len(values) * share))
    return values[:count]


def block_means(values: Floats, blocks: int) -> Floats:
    """Means over ``blocks`` equal consecutive parts (fewer when there are fewer values)."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return finite
    edges = np.linspace(0, len(finite), min(blocks, len(finite)) + 1).astype(int)
    sums = np.add.reduceat(finite, edges[:-1])
    return np.asarray(sums / np.diff(edges), np.float64)


@dataclass(frozen=True, slots=True)
class Trend:
    """The monotone trend of a curve.

    ``z`` is the Mann-Kendall statistic over block means (negative: falling; beyond ±3 is no accident);
    ``change`` is the Theil-Sen slope times the length: how far the curve went.
    """

    z: float
    change: float

    @property
    def falls(self) -> bool:
        """Whether the curve clearly falls."""
        return self.z < -2.5

    @property
    def rises(self) -> bool:
        """Whether the curve clearly rises."""
        return self.z > 2.5


def trend(values: Floats, blocks: int = 20) -> Trend:
    """The trend of a curve, judged on block means so that batch noise is averaged away."""
    means = block_means(values, blocks)
    count = len(means)
    if count < 5:
        return Trend(0.0, 0.0)
    later, earlier = np.triu_indices(count, 1)[::-1]
    differences = means[later] - means[earlier]
    score = float(np.sum(np.sign(differences)))
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18.0)
    z = (score - math.copysign(1.0, score)) / deviation if score else 0.0
    slope = float(np.median(differences / (later - earlier)))
    return Trend(z, slope * (count - 1))


def at_steps(series: Series, steps: Series) -> Floats:
    """The values of ``series`` nearest before or at the steps of another series."""
    if not series or not steps:
        return np.empty(0, np.float64)
    index = np.clip(np.searchsorted(series.steps, steps.steps, side="right") - 1, 0, len(series) - 1)
    return series.values[index]


def geometric(values: Floats) -> float:
    """The median of the positive finite values on a logarithmic scale; 0 when none is positive."""
    positive = values[np.isfinite(values) & (values > 0)]
    if not len(positive):
        return 0.0
    return float(np.exp(np.median(np.log(positive))))


def first_step_where(series: Series, holds: Floats) -> int:
    """The step since which a condition holds up to the end; the last step when it does not hold there."""
    mask = holds.astype(bool)
    if not len(mask) or not mask[-1]:
        return int(series.steps[-1]) if series else 0
    breaks = np.flatnonzero(~mask)
    start = int(breaks[-1]) + 1 if len(breaks) else 0
    return int(series.steps[start])


def rounded(value: float) -> float | None:
    """A figure to show: three digits, or nothing where it is not known."""
    return float(f"{value:.3g}") if math.isfinite(value) else None
