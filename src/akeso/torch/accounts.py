"""What the targets and answers of many batches say together: shares of classes, spread, a constant's loss."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

PROBABILITY_LOSSES = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
#: Losses that grow with the distance rather than with its square, and the argument up to which they bend.
ABSOLUTE_LOSSES = {"l1_loss": "", "smooth_l1_loss": "beta", "huber_loss": "delta"}
#: Answers in small batches that are taken together.
_TOGETHER = 32
#: Target values that are kept for medians, and the samples they must stand for.
_KEPT, _ENOUGH = 4096, 8


class LatestCounts:
    """How often each class occurred in the last few small batches together.

    >>> latest = LatestCounts()
    >>> [latest.top_share([0.0, 1.0]) for _ in range(31)] == [None] * 31
    True
    >>> latest.top_share([1.0, 0.0])
    0.96875
    """

    def __init__(self) -> None:
        self._kept: deque[list[float]] = deque()

    def top_share(self, counts: list[float]) -> float | None:
        """The share of the most frequent class with this batch; None before there are enough."""
        if self._kept and len(self._kept[-1]) != len(counts):  # another task
            self._kept.clear()
        self._kept.append(counts)
        total = sum(map(sum, self._kept))
        while total - sum(self._kept[0]) >= _TOGETHER:
            total -= sum(self._kept.popleft())
        return max(map(sum, zip(*self._kept, strict=True))) / total if total >= _TOGETHER else None


class TargetAccount:
    """What the targets of all sampled batches say together: class shares, spread, a constant's loss."""

    def __init__(self) -> None:
        self.counts: list[float] = []
        self._sum: list[float] = []
        self._squares: list[float] = []
        self._rows = 0.0
        self._values: list[float] = []
        self._bend = 1.0
        self._doubt = self._doubted = 0.0

    def add(self, delivery: dict[Any, Any]) -> None:
        """Take in what :func:`akeso.torch.task.batch_items` sent."""
        counts = delivery.get("target_counts")
        if counts is not None:
            if len(self.counts) != len(counts):  # the first, or those of another task
                self.counts = [0.0] * len(counts)
            self.counts = [a + b for a, b in zip(self.counts, counts, strict=True)]
        sums = delivery.get("target_sum")
        if sums is not None and all(map(math.isfinite, sums)):
            if len(self._sum) != len(sums):
                self._sum, self._squares, self._rows = [0.0] * len(sums), [0.0] * len(sums), 0.0
                self._values = []
            self._sum = [a + b for a, b in zip(self._sum, sums, strict=True)]
            self._squares = [a + b for a, b in zip(self._squares, delivery["target_squares"], strict=True)]
            self._rows += delivery["target_rows"]
            if "target_doubt" in delivery and math.isfinite(delivery["target_doubt"]):
                self._doubt += delivery["target_doubt"]
                self._doubted += 1
            if "target_part" in delivery:
                kept = _KEPT // len(sums) * len(sums)
                self._values = (self._values + list(delivery["target_part"]))[-kept:]
                self._bend = delivery["target_bend"]

    def floor(self, loss: str, smoothing: float = 0.0) -> float:
        """Mean loss of the best prediction there is: targets that are no plain yes or no leave some in any case."""
        if loss in ("cross_entropy", "nll_loss") and self.counts and smoothing > 0:
            others = smoothing / len(self.counts)
            own = 1.0 - smoothing + others
            return -(own * math.log(own) + (len(self.counts) - 1) * others * math.log(others))
        if loss == "kl_div":
            return 0.0  # what the targets leave is taken off already
        return self._doubt / self._doubted if self._doubted else 0.0

    def spread(self) -> float:
        """Standard deviation of the targets, root mean square over columns; 0 where none were seen."""
        return spread_of(self._rows, self._sum, self._squares)

    @property
    def top_share(self) -> float | None:
        """Share of the most frequent class."""
        total = sum(self.counts)
        return max(self.counts) / total if total else None

    def baseline(self, loss: str, smoothing: float = 0.0, weights: Sequence[float] = ()) -> float | None:
        """Mean loss of the best constant prediction under ``loss``."""
        if loss in ("cross_entropy", "nll_loss") and self.counts:
            counts = self.counts
            if len(weights) == len(counts):
                counts = [count * weight for count, weight in zip(counts, weights, strict=True)]
            total = sum(counts)
            if not total:
                return None
            shares = [(1 - smoothing) * count / total + smoothing / len(counts) for count in counts]
            return -sum(share * math.log(share) for share in shares if share > 0)
        if not self._rows:
            return None
        means = [s / self._rows for s in self._sum]
        if loss == "cross_entropy":
            return _soft_entropy(means, smoothing, weights)
        if loss == "kl_div":
            whole = _soft_entropy(means, 0.0, ()) if self._doubted else None
            # Told as a mean over all values, as the function is by default.
            return None if whole is None else max(0.0, whole - self._doubt / self._doubted) / len(means)
        if loss in PROBABILITY_LOSSES:
            if any(mean < 0 or mean > 1 for mean in means):
                return None
            heavy = list(weights) if len(weights) == len(means) else list(weights)[:1] * len(means)
            return sum(
                _entropy(*pair) for pair in zip(means, heavy or [1.0] * len(means), strict=True)
            ) / len(means)
        if loss == "mse_loss":
            return sum(
                max(q / self._rows - m * m, 0.0) for q, m in zip(self._squares, means, strict=True)
            ) / len(means)
        if loss in ABSOLUTE_LOSSES and len(self._values) >= _ENOUGH * len(means):
            columns = [self._values[index :: len(means)] for index in range(len(means))]
            return sum(_around_the_middle(loss, column, self._bend) for column in columns) / len(means)
        return None


def spread_of(rows: float, sums: Sequence[float], squares: Sequence[float]) -> float:
    """Standard deviation behind sums and sums of squares per column, root mean square over columns."""
    if rows < 2 or not sums or not all(map(math.isfinite, (*sums, *squares))):
        return 0.0
    variances = [max(q / rows - (s / rows) ** 2, 0.0) for s, q in zip(sums, squares, strict=True)]
    return math.sqrt(sum(variances) / len(variances))


def _around_the_middle(loss: str, values: Sequence[float], bend: float) -> float:
    """Mean loss of answering the median, or the mean where most of the loss is a square and that is better."""
    if loss == "l1_loss" or not bend > 0:
        bend = 0.0
    answers = (sorted(values)[len(values) // 2], sum(values) / len(values))
    found = min(sum(_bent(abs(value - answer), bend) for value in values) for answer in answers) / len(values)
    return found * (bend if loss == "huber_loss" and bend else 1.0)


def _bent(gap: float, bend: float) -> float:
    """The distance itself, and below ``bend`` its square: what ``smooth_l1_loss`` gives."""
    return 0.5 * gap * gap / bend if gap < bend else gap - 0.5 * bend


def _soft_entropy(means: Sequence[float], smoothing: float, weights: Sequence[float]) -> float | None:
    """What the best constant answer loses against rows of class probabilities with these means."""
    if min(means) < 0 or abs(sum(means) - 1.0) > 1e-3:
        return None  # more than one row to a sample, or no probabilities
    heavy = weights if len(weights) == len(means) else [1.0] * len(means)
    parts = [
        weight * ((1 - smoothing) * mean + smoothing / len(means))
        for weight, mean in zip(heavy, means, strict=True)
    ]
    return -sum(part * math.log(part / sum(parts)) for part in parts if part > 0)


def _entropy(share: float, weight: float = 1.0) -> float:
    """What the best constant answer to a yes-or-no question loses, positive answers weighing so much."""
    parts = (weight * share, 1 - share)
    return -sum(part * math.log(part / sum(parts)) for part in parts if part > 0)
