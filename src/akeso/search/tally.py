"""What a stopping rule did in a simulated search, per indicator: when, rightly or wrongly, and what it saved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from akeso.search.recorded import RecordedStudy, RecordedTrial
from akeso.search.simulation import Ended, Simulated


@dataclass(frozen=True, slots=True)
class Row:
    """One indicator: how many trials it ended, when on average, how many wrongly, the seconds it saved."""

    indicator: str
    action: str
    trials: int
    epochs: float
    wrongly: int
    seconds_saved: float


@dataclass(frozen=True, slots=True)
class Tally:
    """The whole search: rows per indicator, and its totals."""

    rows: tuple[Row, ...]
    trials: int
    whole: int
    wrongly: int
    share_of_time: float
    best: float
    best_without: float

    @property
    def best_lost(self) -> float:
        """How much worse the best value is than without stopping; never negative."""
        return abs(self.best_without - self.best) if math.isfinite(self.best) else math.inf

    def to_dict(self) -> dict[str, object]:
        """The tally as plain JSON values."""
        return {
            "indicators": [{name: getattr(row, name) for name in Row.__slots__} for row in self.rows],
            "trials": self.trials,
            "whole": self.whole,
            "wrongly": self.wrongly,
            "share_of_time": self.share_of_time,
            "best": self.best,
            "best_without": self.best_without,
            "best_lost": self.best_lost,
        }


def finals_of(study: RecordedStudy) -> dict[int, float]:
    """What each recorded trial came to, by number; NaN when it crashed or never was finite."""
    return {trial.number: _final(study, trial) for trial in study.trials}


def _final(study: RecordedStudy, trial: RecordedTrial) -> float:
    finite = [value for value in trial.values if math.isfinite(value)]
    if (trial.crashed and len(trial.values) < study.epochs) or not finite:
        return math.nan
    if study.value_of == "last":
        return finite[-1]
    return max(finite) if study.maximize else min(finite)


def goal_of(study: RecordedStudy, top: float = 0.25) -> float:
    """The value at which the best ``top`` share of the recorded trials ends."""
    return goal_among(list(finals_of(study).values()), maximize=study.maximize, top=top)


def goal_among(values: Sequence[float], *, maximize: bool, top: float = 0.25) -> float:
    """The value at which the best ``top`` share of these ends; those that are not finite count as worst."""
    ordered = sorted((v for v in values if math.isfinite(v)), reverse=maximize)
    place = math.ceil(top * len(values)) - 1
    return ordered[min(max(place, 0), len(ordered) - 1)] if ordered else math.nan


def is_wrong(ended: Ended, goal: float, maximize: bool) -> bool:
    """Whether a trial of the best quarter was lost: stopped, or cut short with a value outside that quarter."""

    def inside(value: float) -> bool:
        return math.isfinite(value) and (value >= goal if maximize else value <= goal)

    return bool(ended.verdict) and inside(ended.would) and not inside(ended.value)


def tally(study: RecordedStudy, search: Simulated, *, top: float = 0.25) -> Tally:
    """What the rule of a simulated search did."""
    goal = goal_of(study, top)
    whole_seconds = {t.number: t.seconds[-1] if t.seconds else 0.0 for t in study.trials}
    groups: dict[tuple[str, str], list[Ended]] = {}
    for ended in search.ended:
        if ended.verdict:
            groups.setdefault((ended.verdict.indicator, ended.verdict.action), []).append(ended)
    rows = [
        Row(
            indicator,
            action,
            len(members),
            float(np.mean([e.epochs for e in members])),
            sum(is_wrong(e, goal, study.maximize) for e in members),
            sum(whole_seconds[e.number] - e.spent for e in members),
        )
        for (indicator, action), members in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]
    full = sum(whole_seconds[e.number] for e in search.ended)
    pick = max if study.maximize else min
    values = [e.value for e in search.ended if math.isfinite(e.value)]
    would = [e.would for e in search.ended if math.isfinite(e.would)]
    return Tally(
        tuple(rows),
        len(search.ended),
        sum(not e.verdict for e in search.ended),
        sum(is_wrong(e, goal, study.maximize) for e in search.ended),
        sum(e.spent for e in search.ended) / full if full > 0 else 1.0,
        pick(values) if values else math.nan,
        pick(would) if would else math.nan,
    )
