"""How much a stopping rule is worth: Top10HR, TSBA, and their confidence intervals.

All of these are pure functions of what a search produced. A search is a sequence of results, each a moment
(seconds since the search began) and the value that a trial ended with at that moment. Trials that were
stopped as hopeless produce no result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from akeso.errors import BadInput
from akeso.history import Floats


@dataclass(frozen=True, slots=True)
class Result:
    """One trial that ended with a value."""

    seconds: float
    value: float


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the bounds of its confidence interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.1%} [{self.low:.1%}, {self.high:.1%}]"


def _better(value: float, other: float, maximize: bool) -> bool:
    return value > other if maximize else value < other


def _finite(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if math.isfinite(result.value)]


def top_hit_ratio(
    method: Sequence[Result], baseline: Sequence[Result], *, maximize: bool, top: int = 10
) -> float:
    """The share of the method's trials among the ``top`` best of both searches together.

    Ties at the edge are shared out in proportion, so that two equal searches get exactly one half. With fewer
    than ``top`` results in all, the share is of those there are; with none it is one half.

    >>> good, poor = [Result(1.0, 0.9)] * 10, [Result(1.0, 0.5)] * 10
    >>> top_hit_ratio(good, poor, maximize=True), top_hit_ratio(good, good, maximize=True)
    (1.0, 0.5)
    """
    if top < 1:
        raise BadInput(f"top must be at least 1, but {top=}; pass the number of best trials to count")
    sign = -1.0 if maximize else 1.0
    ours = np.sort([sign * result.value for result in _finite(method)])
    theirs = np.sort([sign * result.value for result in _finite(baseline)])
    pooled = np.sort(np.concatenate([ours, theirs]))
    count = min(top, len(pooled))
    if count == 0:
        return 0.5
    edge = pooled[count - 1]
    above, at_edge = int(np.sum(ours < edge)), int(np.sum(ours == edge))
    places = count - int(np.sum(pooled < edge))
    return float((above + places * at_edge / int(np.sum(pooled == edge))) / count)


def time_of_best(results: Sequence[Result], *, maximize: bool) -> tuple[float, float] | None:
    """When a search first had its best value, and that value; None without any result."""
    best: Result | None = None
    for result in sorted(_finite(results), key=lambda result: result.seconds):
        if best is None or _better(result.value, best.value, maximize):
            best = result
    return None if best is None else (best.seconds, best.value)


def time_to_reach(results: Sequence[Result], value: float, *, maximize: bool) -> float | None:
    """When a search first had ``value`` or better; None when it never had."""
    moments = [r.seconds for r in _finite(results) if not _better(value, r.value, maximize)]
    return min(moments, default=None)


def time_saved(
    method: Sequence[Result], baseline: Sequence[Result], *, maximize: bool, horizon: float
) -> tuple[float, float] | None:
    """``(T_j, T_i)``: when the baseline had its best, and when the method had that value.

    A method that never reached it is counted at the ``horizon``, the moment up to which it was followed: this
    understates the loss only when the method would have needed longer still. None without a baseline result.
    """
    reached = time_of_best(baseline, maximize=maximize)
    if reached is None:
        return None
    moment, value = reached
    ours = time_to_reach(method, value, maximize=maximize)
    return moment, max(horizon, moment) if ours is None else ours


def tsba(pairs: Sequence[tuple[float, float]]) -> float:
    """Time saved for baseline accuracy over repeats, each given as ``(T_j, T_i)``.

    It is the ratio of total times, ``sum(T_j - T_i) / sum(T_j)``: the mean of the single ratios would be ruled
    by the repeats in which the baseline happened to be lucky with its first trial.

    >>> tsba([(10.0, 5.0), (20.0, 10.0)])
    0.5
    """
    total = sum(baseline for baseline, _ in pairs)
    if not pairs or total <= 0:
        return math.nan
    return 1.0 - sum(method for _, method in pairs) / total


def average_best(searches: Sequence[Sequence[Result]], moments: Floats, *, maximize: bool) -> Floats:
    """The mean over repeats of the best value that each had by every one of some moments.

    A repeat without a result so far stands at the worst value that any of them began with.
    """
    firsts = [
        min(_finite(search), key=lambda result: result.seconds).value
        for search in searches
        if _finite(search)
    ]
    if not firsts:
        return np.full(len(moments), math.nan)
    begin = min(firsts) if maximize else max(firsts)
    pick = np.maximum if maximize else np.minimum
    total = np.zeros(len(moments))
    for search in searches:
        results = sorted(_finite(search), key=lambda result: result.seconds)
        best = pick.accumulate([begin, *(result.value for result in results)])
        total += best[np.searchsorted([result.seconds for result in results], moments, side="right")]
    return np.asarray(total / len(searches))


def average_time_saved(
    pairs: Sequence[tuple[Sequence[Result], Sequence[Result]]],
    *,
    maximize: bool,
    budget: float,
    horizon: float,
) -> tuple[float, float] | None:
    """``(T_j, T_i)`` of the averages over repeats, each given as the results of the method and of the baseline.

    ``T_j`` is when the average best value of the baselines reached what it is at the end of the ``budget``, ``T_i``
    when that of the methods did, at most the ``horizon``. A search held against others of its kind comes to nearly
    nothing saved, and one on a machine ``k`` times as fast to ``1 - 1 / k``. Of single pairs neither is true where the
    two go ways of their own, for what one of them reached by luck the other reaches late.

    >>> slow = [[Result(1.0, 0.5), Result(4.0, 0.7)], [Result(1.0, 0.4), Result(2.0, 0.8)]]
    >>> fast = [[Result(r.seconds / 2, r.value) for r in search] for search in slow]
    >>> average_time_saved(list(zip(fast, slow)), maximize=True, budget=5.0, horizon=10.0)
    (4.0, 2.0)
    """
    methods, baselines = [method for method, _ in pairs], [baseline for _, baseline in pairs]
    moments = np.unique([r.seconds for searches in (methods, baselines) for one in searches for r in one])
    within = moments[moments <= budget]
    if not len(within) or not any(baselines):
        return None
    sign = 1.0 if maximize else -1.0
    theirs = sign * average_best(baselines, within, maximize=maximize)
    ours = (
        sign * average_best(methods, moments, maximize=maximize)
        if any(methods)
        else np.full(len(moments), -math.inf)
    )
    slack = 1e-12 * max(1.0, abs(float(theirs[-1])))
    reached = np.flatnonzero(ours >= theirs[-1] - slack)
    late = float(moments[reached[0]]) if len(reached) else math.inf
    return float(within[np.argmax(theirs >= theirs[-1] - slack)]), min(late, horizon)


def bootstrap(
    items: Sequence[object],
    statistic: Callable[[Sequence[object]], float],
    *,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Interval:
    """A statistic over repeats with its percentile bootstrap interval."""
    if not 0 < level < 1:
        raise BadInput(f"level must lie between 0 and 1, but {level=}")
    if not items:
        return Interval(math.nan, math.nan, math.nan)
    generator = np.random.default_rng(seed)
    picks = generator.integers(0, len(items), (draws, len(items)))
    values = [statistic([items[i] for i in row]) for row in picks]
    tail = (1 - level) / 2
    low, high = np.nanquantile(values, [tail, 1 - tail])
    return Interval(float(statistic(items)), float(low), float(high))


def mean_interval(values: Sequence[float], *, level: float = 0.95, seed: int = 0) -> Interval:
    """The mean over repeats with its bootstrap interval."""
    return bootstrap(values, lambda xs: float(np.mean(np.asarray(xs, float))), level=level, seed=seed)


def tsba_interval(pairs: Sequence[tuple[float, float]], *, level: float = 0.95, seed: int = 0) -> Interval:
    """:func:`tsba` with its bootstrap interval, repeats drawn as pairs."""
    return bootstrap(pairs, lambda xs: tsba(xs), level=level, seed=seed)  # type: ignore[arg-type]
