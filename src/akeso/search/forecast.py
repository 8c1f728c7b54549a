"""Where a running trial will end, learnt from the study's own finished trials, with a calibrated margin.

The gain still to come after an epoch is foreseen from the curve so far (:mod:`akeso.search.regression`) and from what
is known of the trial beside it (:mod:`akeso.search.kinship`), each forecast with its error.

A trial is given up when it is hardly likely to belong to the best quarter of the study. Two things are uncertain:

*Where the best quarter ends.* Of ``n`` trials that have ended and a new one, ``B`` belong to the best quarter of all
that will ever be, a binomial number. The new one belongs to it if it ends before the ``B``-th best of the others.

*Where the trial ends.* Its forecast has an error that is known from so many trials that ran to their end: Student's
distribution.

The chance is the probability of the one before the other. Of a trial that has some chance, the chance after the next
epoch is the same on average; so the share of all trials that are lost to the best quarter is the mean chance at which
they are given up. Chances come down in steps, from above the least one to somewhere between it and nothing, half of it
on average: with a least chance of one and a half times the ``rate``, three quarters of the ``rate`` would be lost if
all trials were given up, and the rest is room for errors of the errors.

That holds for errors that are not heavier than normal. Where trials ran to their end without a threshold, as in shadow,
it is calibrated in the manner of conformal prediction:

    Of a finished trial that ended inside the edge of the best quarter take the lowest chance that it had at any of its
    epochs, of any other one infinity. The least chance is the ``ceil((1 - rate / 2) * (n + 1))``-th largest of these
    ``n`` figures. If the finished trials and the new one are exchangeable, the new one ends inside the edge *and*
    falls below it at any of its epochs with probability at most ``rate / 2``. The edge is drawn so far out that a new
    trial belongs to the best quarter and yet ends beyond it with probability at most ``rate / 2``, whatever the
    costs are like (:meth:`akeso.search.curves.Knowledge.edge`).

That takes ``2 / rate - 1`` finished trials. Those that ran under a threshold are seen only when they did not cross it;
unseen crossings are added in proportion, so that it does not creep by its own doing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from akeso.errors import BadInput
from akeso.history import Floats
from akeso.search.curves import Curve, Knowledge, Scale, chances
from akeso.search.kinship import MOVED, GivenUp, Kinship, has_moved
from akeso.search.regression import FEWEST, Regression
from akeso.search.student import quantile, share_below
from akeso.search.traits import NOTHING, Traits

#: Forecasts learn from at most this many finished trials, and as many that were given up, so that the cost of a report
#: stays bounded.
MOST_TRIALS = 200
#: The least chance over the rate of trials that may be lost.
_ROOM = 1.5
#: Places that bound the best quarter with less probability than this are left out.
_NEVER = 1e-9
#: How sure it must be that an end is not undercut before a trial ends early with its value.
_SURE = 0.95


@dataclass(frozen=True, slots=True)
class Outlook:
    """The forecast for one trial after one epoch, in costs.

    ``likely`` is the forecast final cost, ``optimistic`` what is hardly undercut, ``chance`` how likely the trial
    belongs to the best quarter of the study. ``gain`` is what is still to come at most, in units of the study's
    spread; ``moved`` what came since half of the trial's epochs.
    """

    likely: float
    optimistic: float
    chance: float
    gain: float
    moved: float


class Forecast:
    """What the finished trials of a study say about one that has come to some epoch.

    >>> from akeso.search.curves import Curve, Knowledge
    >>> curves = [Curve(tuple(a + 1 / (t + 1) for t in range(9)), full=True) for a in (0.1, 0.2, 0.3, 0.5, 0.9)]
    >>> forecast = Forecast(Knowledge(curves, epochs=9))
    >>> forecast.outlook(np.array([1.2, 0.7])).likely < forecast.outlook(np.array([1.8, 1.3])).likely
    True
    """

    def __init__(self, knowledge: Knowledge, *, rate: float = 0.02, top: float = 0.25) -> None:
        if not 0 < rate < 1 or not 0 < top < 1:
            raise BadInput(f"rate and top must lie between 0 and 1, but {rate=} and {top=}")
        self._knowledge = knowledge
        self.trials, self.epochs = len(knowledge.curves), knowledge.epochs
        keep = _spread(self.trials, MOST_TRIALS)
        curves, guarded, seen = knowledge.curves[keep], knowledge.guarded[keep], knowledge.seen[keep]
        self._scale = Scale(curves)
        self._curves = self._scale.compress(curves)
        before = np.array([knowledge.silent(knowledge.traits[i]) for i in keep], int)
        by_curves = Regression(self._curves, seen, before)
        self._ran, self._noise = by_curves.ran, by_curves.noise
        self._freedom = int(np.count_nonzero(self._ran)) - 2  # of the trials that errors are learnt from
        foreseen = [curve for curve in knowledge.given_up if math.isfinite(curve.expected)]
        given_up = [self._given_up(foreseen[i]) for i in _spread(len(foreseen), MOST_TRIALS)]
        self._gains = Kinship(by_curves, [knowledge.traits[i] for i in keep], given_up)
        self._misses: Floats | None = None
        self.ends = self._ends(knowledge) if len(curves) >= FEWEST else knowledge.finals
        self.goal = knowledge.edge(top, rate / 2, self.ends)
        self._target = float(self._scale.compress(np.array([self.goal]))[0])
        self._sure = quantile(_SURE, len(curves) - 2)
        self._places, self._weights = self._quarter(knowledge.ended, top)
        self.least = self._calibrate(guarded, rate) if len(curves) >= FEWEST else 0.0

    def _given_up(self, curve: Curve) -> GivenUp:
        costs = self._scale.compress(np.array(curve.costs))
        end = float(self._scale.compress(np.array([curve.expected]))[0])
        return GivenUp(costs, end, curve.traits, self._knowledge.silent(curve.traits))

    def _ends(self, knowledge: Knowledge) -> Floats:
        """What every ended trial came to, or would have by its forecast where it was given up, best first.

        Left out, the given up ones would make the study look better than it is: the few that were finished would
        be its best quarter, and ever more would be given up for not coming up to them.
        """
        ends = knowledge.finals[np.isfinite(knowledge.finals)].tolist()
        ends += [curve.expected for curve in knowledge.given_up if math.isfinite(curve.expected)]
        others = [curve for curve in knowledge.given_up if not math.isfinite(curve.expected)]
        for length in {len(curve.costs) for curve in others}:
            some = [curve for curve in others if len(curve.costs) == length]
            prefixes = self._scale.compress(np.array([curve.costs for curve in some]))
            gain, _ = self._gains(prefixes, [curve.traits for curve in some])
            ends += [self._scale.expand(float(end)) for end in prefixes[:, -1] - gain]
        return np.sort([*ends, *[math.inf] * (knowledge.ended - len(ends))])

    def _quarter(self, ended: int, top: float) -> tuple[Floats, Floats]:
        """The ends that may bound the best share, and how likely each of them does.

        Of the ended trials and a new one so many belong to the best share of all: the new one does if it comes before
        the ended trial in that place.
        """
        places = np.full(ended + 1, math.inf)
        known = np.isfinite(self.ends)
        places[: len(known)][known] = self._scale.compress(self.ends[known])
        likely = chances(ended + 1, top)[1:]
        some = likely > _NEVER
        return places[some], likely[some]

    def _chance(self, end: Floats, error: Floats) -> Floats:
        """The chance that trials whose ends are foreseen so belong to the best share of the study."""
        away = (self._places - end[:, None]) / error[:, None]
        return np.asarray(share_below(away, self._freedom) @ self._weights)

    def _calibrate(self, guarded: np.ndarray, rate: float) -> float:
        """The chance below which a trial is given up."""
        count, half = len(self._curves), rate / 2
        unseen = float(guarded.sum()) * half / (1 - half)
        index = math.ceil((1 - half) * (count + unseen + 1))
        if index > count:
            return _ROOM * rate
        lowest = np.full(count, math.inf)
        good = self._curves[:, -1] <= self._target
        for t in range(self.epochs - 1):
            gain, error = self._gains.left_out(t)
            lowest = np.where(
                good, np.minimum(lowest, self._chance(self._curves[:, t] - gain, error)), lowest
            )
        return float(min(np.sort(lowest)[::-1][index - 1], 0.5))

    def _ahead(self, prefix: Floats, traits: Traits) -> tuple[float, float]:
        gain, error = self._gains(prefix, [traits])
        return float(prefix[0, -1] - gain[0]), float(error[0])

    def _compressed(self, costs: Floats) -> Floats:
        return self._scale.compress(np.asarray(costs, np.float64)[None, : self.epochs])

    def outlook(self, costs: Floats, traits: Traits = NOTHING) -> Outlook:
        """The forecast for a trial with these running costs so far, and what else is known of it.

        What is still to come at most is the largest of three bounds: what the finished trials gained from there,
        with a margin for its error, what the trial gains by its own pace, as much with every doubling of its epochs as
        with the last one, and what it has lost again since its best report.
        """
        prefix = self._compressed(costs)
        now, done = float(prefix[0, -1]), prefix.shape[1]
        likely, error = self._ahead(prefix, traits)
        moved = float(prefix[0, (done - 1) // 2]) - now
        low = likely - self._sure * error
        # An error that nobody saw is no reason to go on: one that ends early keeps its value.
        hardly = likely - self._sure * max(error - self._noise(done - 1), 0.0)
        lost = now - float(prefix.min())  # what it had already may come back
        gain = max(now - low, moved * math.log2(self.epochs / done), lost)
        expand = self._scale.expand
        # What is said and remembered is no worse than it stands and than any trial ended.
        said = min(likely, max(now, float(self._curves[:, -1].max())))
        chance = float(self._chance(np.array([likely]), np.array([error]))[0])
        return Outlook(expand(said), expand(hardly), chance, gain, moved)

    def company(self, costs: Floats, traits: Traits, age: float) -> int:
        """How many trials were like this one, in its training losses too, and say what becomes of it; 0 where unknown.

        They ran to their end, or stood still for at least ``age`` epochs before they were given up.
        """
        return self._gains.company(self._compressed(costs), traits, age)

    def moved(self, costs: Floats) -> bool:
        """Whether the trial has come nearer to the best of the study by more than a tenth of its spread."""
        return has_moved(self._compressed(costs)[0])

    def wakes(self, costs: Floats) -> bool:
        """Whether the trial falls as fast as never before, and would come among the best at half of that pace."""
        return self._at_its_pace(costs) <= self._target

    def at_its_pace(self, costs: Floats) -> float:
        """The cost that a trial which falls as fast as never before comes to at half of that pace; else infinite."""
        end = self._at_its_pace(costs)
        return self._scale.expand(end) if math.isfinite(end) else math.inf

    def _at_its_pace(self, costs: Floats) -> float:
        place = self._compressed(costs)[0]
        falls = -np.diff(place)
        late = max(2, len(place) // 4)
        if len(place) < 4 or int(falls.argmax()) < len(falls) - late:
            return math.inf
        rest = (self.epochs - len(place)) / 2
        return float(place[-1] - rest * falls[-late:].max())

    def sleepers(self, epochs: int) -> int:
        """How many trials that ran to their end had not moved after so many epochs."""
        ran = self._curves[self._ran]
        return int(np.sum(ran[:, 0] - ran[:, min(epochs, self.epochs) - 1] <= MOVED))

    def floor(self, costs: Floats, traits: Traits = NOTHING, *, rate: float) -> float:
        """A cost that the trial undercuts at its end with probability at most ``rate``.

        It holds over all epochs together, for trials exchangeable with the finished ones, when there are at
        least ``1 / rate - 1`` of these; with fewer, for errors not heavier than normal.
        """
        if self._misses is None:
            misses = np.full(len(self._curves), -math.inf)
            for t in range(self.epochs - 1):
                gain, error = self._gains.left_out(t)
                misses = np.maximum(misses, (self._curves[:, t] - gain - self._curves[:, -1]) / error)
            self._misses = np.sort(misses)
        index = math.ceil((1 - rate) * (len(self._misses) + 1))
        if index <= len(self._misses):
            limit = max(float(self._misses[index - 1]), 0.0)
        else:
            limit = max(float(self._misses[-1]), quantile(1 - rate, len(self._misses) - 1))
        likely, error_here = self._ahead(self._compressed(costs), traits)
        return self._scale.expand(likely - limit * error_here)


def _spread(count: int, most: int) -> list[int]:
    """So many of ``count`` places at most, spread evenly."""
    return [round(at) for at in np.linspace(0, count - 1, min(count, most)).tolist()]
