"""The learning curves of a study: what its finished trials teach about one that is still running.

Everything here is a cost, lower is better; values of a study that maximises are negated on the way in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from akeso.errors import BadInput
from akeso.history import Floats
from akeso.search.traits import NOTHING, Traits

#: What a trial is worth after some epochs: its last reported value, or its best one.
ValueOf = Literal["last", "best"]


def running_costs(values: Sequence[float], *, maximize: bool, value_of: ValueOf = "last") -> Floats:
    """What the trial was worth after each report, as costs; a value that is not finite counts as infinite.

    >>> running_costs([0.5, 0.7, 0.6], maximize=True, value_of="best").tolist()
    [-0.5, -0.7, -0.7]
    """
    costs = np.asarray(values, np.float64) * (-1.0 if maximize else 1.0)
    costs = np.where(np.isfinite(costs), costs, np.inf)
    return np.minimum.accumulate(costs) if value_of == "best" and len(costs) else costs


def costs_so_far(values: Sequence[float], *, maximize: bool, value_of: ValueOf) -> Floats:
    """The running costs of a trial under way: infinite at the end when it has just reported what is not finite.

    That its best value is still there does not mend it.

    >>> costs_so_far([0.5, float("nan")], maximize=False, value_of="best").tolist()
    [0.5, inf]
    """
    costs = running_costs(values, maximize=maximize, value_of=value_of)
    if len(values) and not math.isfinite(values[-1]):
        costs[-1] = math.inf
    return costs


@dataclass(frozen=True, slots=True)
class Curve:
    """The running costs of one ended trial, and how it ended.

    ``full`` trials went through all planned epochs, so their last cost is what such a trial comes to. Others
    ended early; their last cost is a pessimistic one. ``guarded`` trials ran while a threshold could have
    stopped them, which matters for calibration: those that would have crossed it are not there to be seen.
    ``settled`` trials ended early because nothing more was to be gained: they are taken as if they had come to
    their expected end, for else a study whose trials settle early would never learn from them. ``expected`` is the
    cost that a trial was expected to end with when it was given up or settled; NaN where nobody said. One that is not
    ``feasible`` comes after all that are, as in Optuna, whatever it costs.
    """

    costs: tuple[float, ...]
    full: bool
    stopped: bool = False
    guarded: bool = False
    settled: bool = False
    expected: float = math.nan
    traits: Traits = NOTHING
    feasible: bool = True

    @property
    def final(self) -> float:
        """The cost the trial ended with; infinite when it was stopped, never reported, or is not feasible."""
        return math.inf if self.stopped or not self.costs or not self.feasible else self.costs[-1]


def _carried_on(curve: Curve, epochs: int) -> Curve:
    if not curve.settled or not curve.costs or len(curve.costs) >= epochs:
        return curve
    last = curve.costs[-1]
    end = min(curve.expected, last) if math.isfinite(curve.expected) else last
    rest = (last,) * (epochs - len(curve.costs) - 1)
    return replace(curve, costs=(*curve.costs, *rest, end), full=True)


def since(costs: Floats, silent: int) -> Floats:
    """The running costs of a trial with so many reports that say nothing taken for the first one that does.

    >>> since(np.array([9.0, 9.0, 0.5, 0.4]), 2).tolist()
    [0.5, 0.5, 0.5, 0.4]
    """
    if not 0 < silent < len(costs):
        return costs
    return np.concatenate([np.full(silent, costs[silent]), costs[silent:]])


class Knowledge:
    """The ended trials of one study, as arrays.

    ``curves`` holds the full ones, a row each; ``finals`` what every ended trial came to, stopped ones as
    infinite; ``given_up`` the stopped ones that had reported. ``guarded``, ``feasible``, ``traits`` and ``seen``, the
    epochs that it ran, say it of each row. A trial reported fewer or more often than planned is no model for others and
    left out.
    """

    __slots__ = ("curves", "ended", "epochs", "feasible", "finals", "given_up", "guarded", "seen", "traits")

    def __init__(self, ended: Iterable[Curve], epochs: int) -> None:
        if epochs < 1:
            raise BadInput(f"epochs must be at least 1, but {epochs=}; pass the number of planned reports")
        everything = tuple(ended)
        models = [
            (_carried_on(curve, epochs), len(curve.costs))
            for curve in everything
            if (curve.full or curve.settled) and all(map(math.isfinite, curve.costs))
        ]
        models = [(curve, ran) for curve, ran in models if curve.full and len(curve.costs) == epochs]
        whole = [curve for curve, _ in models]
        self.epochs = epochs
        self.ended = len(everything)
        settled = [since(np.array(c.costs, np.float64), self.silent(c.traits)) for c in whole]
        self.curves: Floats = np.array(settled, np.float64).reshape(len(whole), epochs)
        self.guarded = np.array([c.guarded for c in whole], bool)
        self.feasible = np.array([c.feasible for c in whole], bool)
        self.seen = np.array([ran for _, ran in models], int)
        self.finals: Floats = np.sort([c.final for c in everything])
        self.traits = [c.traits for c in whole]
        self.given_up = [
            replace(c, costs=tuple(since(np.array(c.costs[:epochs]), self.silent(c.traits)).tolist()))
            for c in everything
            if c.stopped and c.feasible and c.costs and all(map(math.isfinite, c.costs))
        ]

    def __len__(self) -> int:
        return len(self.curves)

    def silent(self, traits: Traits) -> int:
        """How many reports of a trial say nothing: those before its statistics had settled, half of all at most.

        What has not settled by then hardly will, and its end is of a model of that kind, too.
        """
        return min(traits.unsettled, self.epochs // 2)

    def edge(self, share: float, rate: float, ends: Floats | None = None) -> float:
        """A cost that hardly any trial of the best ``share`` ends beyond; infinite before any has ended well.

        The best share is meant of all trials that the study will ever see, of which the ended ones are a sample;
        ``ends`` are what they came to, where more is known of it than ``finals`` say.
        Whatever the costs are like: a trial exchangeable with them belongs to the best share and yet ends worse
        than this with probability at most ``rate``.
        """
        return _at(self.finals if ends is None else ends, _place(self.ended, share, rate, outside=True))

    def core(self, share: float, rate: float, ends: Floats | None = None) -> float:
        """A cost so good that hardly any trial outside the best ``share`` reaches it, in the sense of ``edge``."""
        place = _place(self.ended, share, rate, outside=False)
        return _at(self.finals if ends is None else ends, place) if place else -math.inf

    def best(self, count: int) -> float:
        """The cost of the ``count``-th best trial; infinite when fewer ended with a value."""
        return float(self.finals[count - 1]) if 1 <= count <= len(self.finals) else math.inf


def _at(ends: Floats, place: int) -> float:
    """The cost in that place of the sorted ends, or the worst of those that are known."""
    known = int(np.isfinite(ends).sum())
    return float(ends[min(place, known) - 1]) if known else math.inf


@lru_cache(maxsize=256)
def chances(count: int, share: float) -> Floats:
    """The chances that 0, 1, ... ``count`` of so many trials belong to the best share of all."""
    at = np.arange(count + 1)
    logs = np.cumsum(np.log(np.maximum(at, 1)))
    return np.asarray(
        np.exp(logs[count] - logs - logs[::-1] + at * math.log(share) + (count - at) * math.log1p(-share))
    )


@lru_cache(maxsize=256)
def _place(count: int, share: float, rate: float, *, outside: bool) -> int:
    """Which of ``count`` ended trials bounds the best ``share``.

    Let B be the number of ``count + 1`` trials that belong to the best share. A new trial belongs to them and
    has at least k better ones among the others with probability ``E max(B - k, 0) / (count + 1)``; it does not
    belong to them and has fewer than k with ``E max(k - B, 0) / (count + 1)``. The first place k for which the
    former is at most ``rate``, or the last for which the latter is.
    """
    n = count + 1
    at, likely = np.arange(n + 1), chances(n, share)
    if outside:
        # E max(B - k, 0) is the sum of P(B >= i) over i > k.
        reached = np.cumsum(likely[::-1])[::-1]
        places, risk = at[1:n], np.cumsum(reached[::-1])[::-1][2:] / n
    else:
        # E max(k - B, 0) is the sum of P(B <= i) over i < k.
        places, risk = at[:n], np.append(0.0, np.cumsum(np.cumsum(likely)))[:n] / n
    fitting = places[risk <= rate]
    if outside:
        return int(fitting[0]) if len(fitting) else count
    return int(fitting[-1])  # place 0, which no trial takes, carries no risk


def overtaken(ends: Floats, cost: float, end: float) -> float:
    """Which share of the trials with these sorted ``ends`` is overtaken by one that comes from ``cost`` to ``end``.

    Between two ends a part of a trial is overtaken, and beyond the best one trials are taken to lie as close together
    as in the best tenth: in a young study there is hardly ever a whole one on the way, however far it is.

    >>> overtaken(np.array([0.1, 0.2, 0.3, 0.5]), 0.4, 0.2)
    0.3
    """
    known = ends[np.isfinite(ends)]
    if len(known) < 2:
        return 1.0
    places, ranks = np.unique(known, return_index=True)  # equal ends share the better rank
    # How densely the best lie: at least up to the first that is worse than the best.
    last = max(int(np.searchsorted(ranks, math.ceil(len(known) / 10) - 1)), 1)
    density = float(ranks[last]) / max(float(places[last] - places[0]), 1e-300) if last < len(places) else 0.0

    def rank(at: float) -> float:
        return float(np.interp(at, places, ranks)) - max(float(places[0]) - at, 0.0) * density

    return max(rank(cost) - rank(end), 0.0) / (len(ends) + 1)


#: No cost counts as larger than this, and none as better than the best by more units than that: squares stay finite.
_LARGEST, _FURTHEST = 1e300, 1e100


def _deviation(values: Floats) -> float:
    largest = float(np.max(np.abs(values)))
    return float(np.std(values)) if largest < 1e100 else largest * float(np.std(values / largest))


class Scale:
    """A monotone scale for costs that may span orders of magnitude where trials diverge.

    Near the good trials it is linear, beyond the median finished one logarithmic, so that a bad trial cannot
    bend what is learnt from the good ones.
    """

    def __init__(self, curves: Floats) -> None:
        curves = np.clip(curves, -_LARGEST, _LARGEST)
        finals = curves[:, -1] if len(curves) else np.zeros(1)
        self._origin = float(np.min(finals))
        spread = float(np.median(finals)) - self._origin
        self._unit = spread if spread > 0 else max(_deviation(curves) if len(curves) else 1.0, 1e-12)

    def compress(self, costs: Floats) -> Floats:
        """Costs on the scale."""
        with np.errstate(over="ignore"):  # a tiny unit and a huge cost: it is far away, and stays finite
            z = (np.clip(costs, -_LARGEST, _LARGEST) - self._origin) / self._unit
        z = np.clip(z, -_FURTHEST, _LARGEST)
        return np.asarray(np.where(z <= 1, z, 1 + np.log(np.maximum(z, 1))))

    def expand(self, place: float) -> float:
        """A place on the scale as a cost."""
        return self._origin + self._unit * (place if place <= 1 else math.exp(min(place - 1, 700.0)))


def stalled(costs: Floats, window: int, tolerance: float) -> bool:
    """Whether the best cost of the last ``window`` reports is no better than the best before them.

    ``tolerance`` is the gain that would not count as one.
    """
    if len(costs) <= window:
        return False
    before, recent = float(np.min(costs[:-window])), float(np.min(costs[-window:]))
    return math.isfinite(before) and recent >= before - tolerance


def jitter(costs: Floats) -> float:
    """The size of a curve's own fluctuation: the median distance of a report from the mean of its neighbours.

    For independent errors of deviation s that distance has deviation s * sqrt(3/2); a smooth curve has none.
    """
    if len(costs) < 3:
        return 0.0
    away = costs[1:-1] - (costs[:-2] + costs[2:]) / 2
    return float(np.median(np.abs(away)) / 0.6745 / math.sqrt(1.5))
