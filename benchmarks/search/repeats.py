"""What a comparison of searches is made of: its repeats, and the rows of the table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
        """Trials of the best quarter of their search that were lost, as a share of all its trials."""
        return sum(r.false for r in self.repeats) / max(1, sum(r.ended for r in self.repeats))

    @property
    def false_stops(self) -> float:
        """The part of them that was stopped as hopeless."""
        return sum(r.false_stops for r in self.repeats) / max(1, sum(r.ended for r in self.repeats))


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


def averaged(lines: list[Line], rule: str) -> float:
    """Time saved by the averages of repeats, averaged over tasks and samplers."""
    mine = [line.averaged.mean for line in lines if line.rule == rule]
    return float(np.mean(mine)) if mine else math.nan


def average(lines: list[Line], rule: str) -> tuple[float, float, float]:
    """TSBA, Top10HR and false stops of a rule, averaged over tasks and samplers."""
    mine = [line for line in lines if line.rule == rule]
    if not mine:
        return math.nan, math.nan, math.nan
    return (
        float(np.mean([line.tsba.mean for line in mine])),
        float(np.mean([line.hit_ratio.mean for line in mine])),
        float(np.mean([line.false for line in mine])),
    )
