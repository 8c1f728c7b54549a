"""What a comparison of searches is made of: its repeats, and the rows of the table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from akeso.search.measures import (
    Interval,
    Result,
    average_time_saved,
    bootstrap,
    mean_interval,
    tsba,
)

#: The method is followed for so many times the budget to see when it reaches the baseline's best.
HORIZON = 2.0


@dataclass(frozen=True, slots=True)
class Searches:
    """What a repeat is made of: the results of both searches, of ours as far as it is followed."""

    ours: tuple[Result, ...]
    theirs: tuple[Result, ...]
    budget: float
    maximize: bool


@dataclass(frozen=True, slots=True)
class Repeat:
    """One repeat of one rule against the plain sampler."""

    hit_ratio: float
    ceiling: float
    times: tuple[float, float] | None
    trials: int
    trials_without: int
    whole: int
    ended: int
    false: int
    false_stops: int
    searches: Searches | None = None


def repeat_of(said: dict[str, Any]) -> Repeat:
    """The repeat that was written as plain JSON values."""
    known = said.get("searches")
    searches = None
    if known is not None:
        ours, theirs = (tuple(Result(**one) for one in known[side]) for side in ("ours", "theirs"))
        searches = Searches(ours, theirs, known["budget"], known["maximize"])
    times = None if said["times"] is None else tuple(said["times"])
    return Repeat(**{**said, "searches": searches, "times": times})


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table."""

    task: str
    sampler: str
    rule: str
    repeats: tuple[Repeat, ...]

    @property
    def hit_ratio(self) -> Interval:
        return mean_interval([r.hit_ratio for r in self.repeats])

    @property
    def ceiling(self) -> float:
        """The Top10HR of a rule that knew all recorded trials at once."""
        return float(np.mean([r.ceiling for r in self.repeats]))

    @property
    def tsba(self) -> Interval:
        pairs = [r.times for r in self.repeats if r.times is not None]
        return bootstrap(pairs, lambda xs: tsba(xs))  # type: ignore[arg-type]

    @property
    def averaged(self) -> Interval:
        """Time saved until the average of the repeats has what the average of the plain searches came to."""
        known = [r.searches for r in self.repeats if r.searches is not None]
        return bootstrap(known, _saved_on_average, draws=200)  # type: ignore[arg-type]

    @property
    def more_trials(self) -> float:
        return sum(r.trials for r in self.repeats) / max(1, sum(r.trials_without for r in self.repeats))

    @property
    def whole(self) -> float:
        return float(np.mean([r.whole for r in self.repeats]))

    @property
    def false(self) -> float:
        """Trials of the best quarter of their search that were lost, as a share of all its trials.

        NaN where nobody knows what they would have come to.
        """
        return self._share(sum(r.false for r in self.repeats))

    @property
    def false_stops(self) -> float:
        """The part of them that was stopped as hopeless."""
        return self._share(sum(r.false_stops for r in self.repeats))

    def _share(self, count: int) -> float:
        ended = sum(r.ended for r in self.repeats)
        return count / ended if ended else math.nan


def _saved_on_average(searches: Sequence[Searches]) -> float:
    if not searches:
        return math.nan
    one = searches[0]
    times = average_time_saved(
        [(each.ours, each.theirs) for each in searches],
        maximize=one.maximize,
        budget=one.budget,
        horizon=HORIZON * one.budget,
    )
    return tsba([times]) if times is not None else math.nan


@dataclass(frozen=True, slots=True)
class Average:
    """What a rule comes to, averaged over tasks and samplers."""

    saved: Interval
    saved_of_pairs: Interval
    hit_ratio: Interval
    more_trials: float
    false: float

    def __str__(self) -> str:
        return (
            f"TSBA {self.saved} (of single pairs {self.saved_of_pairs}), Top10HR {self.hit_ratio}, "
            f"{self.more_trials:.2f} times the trials, "
            + (f"false stops {self.false:.2%}" if math.isfinite(self.false) else "false stops not known")
        )


def average(lines: Sequence[Line], rule: str, *, draws: int = 200) -> Average:
    """The averages of a rule over its rows, with intervals of repeats that are drawn anew in every row."""
    mine = [line for line in lines if line.rule == rule]
    if not mine:
        unknown = Interval(math.nan, math.nan, math.nan)
        return Average(unknown, unknown, unknown, math.nan, math.nan)
    rows = [[line, *_drawn(line, draws)] for line in mine]

    def over(statistic: Callable[[Line], float]) -> Interval:
        means = np.mean([[statistic(one) for one in row] for row in rows], axis=0)
        low, high = np.nanquantile(means[1:], [0.025, 0.975])
        return Interval(float(means[0]), float(low), float(high))

    return Average(
        over(_averaged_of),
        over(_paired_of),
        over(lambda line: float(np.mean([r.hit_ratio for r in line.repeats]))),
        float(np.mean([line.more_trials for line in mine])),
        float(np.mean([line.false for line in mine])),
    )


def _drawn(line: Line, draws: int) -> list[Line]:
    """The row with its repeats drawn anew, so many times."""
    generator = np.random.default_rng(0)
    count = len(line.repeats)
    return [
        replace(line, repeats=tuple(line.repeats[int(i)] for i in generator.integers(0, count, count)))
        for _ in range(draws)
    ]


def _averaged_of(line: Line) -> float:
    return _saved_on_average([r.searches for r in line.repeats if r.searches is not None])


def _paired_of(line: Line) -> float:
    return tsba([r.times for r in line.repeats if r.times is not None])
