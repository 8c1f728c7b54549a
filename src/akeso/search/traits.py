"""What is known of a trial beside the values it reported, and how alike two trials are by it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from akeso.history import Floats

#: Two values of a choice are one unit apart; a number's lowest and highest rank as well.
_APART = math.sqrt(0.5)
#: Distances between points no further from zero than this may be had from products, which is fast.
_NEAR_ZERO = 1e3


@dataclass(frozen=True, slots=True)
class Traits:
    """The hyperparameters of a trial, and its mean training loss before each report, as far as they are known.

    The first ``unsettled`` reports say nothing of what was learnt: the statistics that the model is evaluated with had
    not left their start by then.
    """

    params: Mapping[str, Any] = field(default_factory=dict)
    losses: tuple[float, ...] = ()
    unsettled: int = 0

    @classmethod
    def of(cls, params: Mapping[str, Any], losses: Sequence[float], unsettled: int = 0) -> Traits:
        """Those of a trial whose losses may be unknown: none of them is finite then."""
        return cls(params, tuple(losses) if any(map(math.isfinite, losses)) else (), unsettled)

    def until(self, reports: int) -> Traits:
        """As they were known after so many reports."""
        return Traits(self.params, self.losses[:reports], self.unsettled)


NOTHING = Traits()


class Hyperparameters:
    """Configurations as points, by what was seen of them: no search space has to be known.

    A number is placed by its rank among those that were seen, which does for every scale it may have been drawn
    on. Anything else is a choice. What a configuration lacks is a choice of its own. Distances are in units of the
    median one.
    """

    def __init__(self, seen: Sequence[Mapping[str, Any]]) -> None:
        self._numbers: dict[str, Floats] = {}
        self._choices: dict[str, list[str]] = {}
        for name in dict.fromkeys(name for params in seen for name in params):
            values = [params[name] for params in seen if name in params]
            if all(map(_is_number, values)):
                self._numbers[name] = np.sort(np.array(values, np.float64))
            if name not in self._numbers or len(values) < len(seen):
                self._choices[name] = list(dict.fromkeys(map(self._option, [p.get(name) for p in seen])))
        self._unit = 1.0
        points = self.points(seen)
        if len(seen) > 1 and points.shape[1]:
            apart = np.sqrt(squared_distances(points, points)[np.triu_indices(len(seen), 1)])
            self._unit = float(np.median(apart)) or 1.0

    def __bool__(self) -> bool:
        return bool(self._numbers or self._choices)

    def points(self, configurations: Sequence[Mapping[str, Any]]) -> Floats:
        """A row for each configuration."""
        columns: list[Floats] = []
        for name, known in self._numbers.items():
            values = [params.get(name) for params in configurations]
            there = np.array([float(v) if _is_number(v) else math.nan for v in values])  # type: ignore[arg-type]
            columns.append(np.where(np.isnan(there), 0.5, ranks(there, known)))
        for name, options in self._choices.items():
            given = [self._option(params.get(name)) for params in configurations]
            columns += [np.array([_APART * (value == option) for value in given]) for option in options]
        points = np.array(columns, np.float64).reshape(len(columns), len(configurations))
        return np.asarray(points.T / self._unit)

    @staticmethod
    def _option(value: Any) -> str:
        return "a number" if _is_number(value) else repr(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def ranks(values: Floats, known: Floats) -> Floats:
    """The share of the known values, which are sorted, that each value exceeds; those it equals count half."""
    places = np.searchsorted(known, values, "left") + np.searchsorted(known, values, "right")
    return np.asarray(places / (2 * max(len(known), 1)))


class Losses:
    """Training losses after one report as points: ranks of where they stand, and of what they fell by.

    Ranks show the little by which a training that is about to wake differs from one that never will, and are the
    same for losses of every scale.
    """

    def __init__(self, seen: Floats) -> None:
        self._known = [np.sort(column) for column in self._columns(seen)]

    def points(self, losses: Floats) -> Floats:
        """A row for each row of losses."""
        columns = zip(self._columns(losses), self._known, strict=True)
        return np.stack([2 * ranks(column, known) for column, known in columns], axis=1)

    @staticmethod
    def _columns(losses: Floats) -> list[Floats]:
        losses = np.nan_to_num(losses, nan=1e300, posinf=1e300, neginf=-1e300)
        now = losses[:, -1]
        return [now] if losses.shape[1] == 1 else [now, losses[:, -2] - now, losses[:, 0] - now]


def squared_distances(a: Floats, b: Floats) -> Floats:
    """Between every row of one and every row of the other."""
    if max(np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0)) < _NEAR_ZERO:
        return np.asarray(np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T, 0.0))
    # Far from zero that loses all digits of small distances, and a Gaussian process over what is left breaks down.
    total = np.zeros((len(a), len(b)))
    for here, there in zip(a.T, b.T, strict=True):
        total += (here[:, None] - there[None]) ** 2
    return total
