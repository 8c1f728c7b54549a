"""Where a running trial will end, learnt from the study's own finished trials, with a calibrated margin.

The gain still to come after an epoch is foreseen from the curve so far (:mod:`akeso.search.regression`) and from what
is known of the trial beside it (:mod:`akeso.search.kinship`), each forecast with its error.

A trial is given up when the forecast lies too many errors outside the best quarter of the study. Two things can go
wrong, and each is given half of the ``rate`` of false stops:

*The edge of the best quarter* is known only from the trials that have ended. It is drawn so far out that a new
trial belongs to the best quarter and yet ends beyond it with probability at most ``rate / 2``, whatever the costs
are like (:meth:`akeso.search.curves.Knowledge.edge`).

*The forecast* errs. How many errors it must lie outside is calibrated in the manner of conformal prediction:

    Of a finished trial that ended inside the edge take the largest number of errors by which any of its epochs
    predicted an end outside, of any other one minus infinity. The threshold is the
    ``ceil((1 - rate / 2) * (n + 1))``-th smallest of these ``n`` figures. If the finished trials and the new one
    are exchangeable, the new one ends inside the edge *and* crosses the threshold at any of its epochs with
    probability at most ``rate / 2``.

With fewer than ``2 / rate - 1`` finished trials no such order statistic exists. Until then the threshold is Student's
quantile, for as many trials as ran to their end and show how far forecasts miss, at which the share ``rate / 2`` of all
trials, thus ``rate / 2 / top`` of the good ones, is lost by errors that are not heavier than normal, in two looks at
each where it has kin. Trials that ran under a threshold are seen only when they did not cross it; unseen crossings are
added in proportion, so that it does not creep down by its own doing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from akeso.errors import BadInput
from akeso.history import Floats
from akeso.search.curves import Curve, Knowledge, Scale
from akeso.search.kinship import MOVED, GivenUp, Kinship, has_moved
from akeso.search.regression import FEWEST, Regression
from akeso.search.traits import NOTHING, Traits

#: Forecasts learn from at most this many finished trials, and as many that were given up, so that the cost of a report
#: stays bounded.
MOST_TRIALS = 200
#: A trial is looked at after each of its epochs. By curves alone these looks are so much alike that they count as one;
#: what its kin say changes more.
_LOOKS = 2
#: How sure it must be that an end is not undercut before a trial ends early with its value.
_SURE = 0.95


@dataclass(frozen=True, slots=True)
class Outlook:
    """The forecast for one trial after one epoch, in costs.

    ``likely`` is the forecast final cost, ``optimistic`` what is hardly undercut, ``beyond`` the number of
    errors by which the forecast lies outside the best quarter. ``gain`` is what is still to come at most, in
    units of the study's spread; ``moved`` what came since half of the trial's epochs.
    """

    likely: float
    optimistic: float
    beyond: float
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
        self.trials, self.epochs = len(knowledge.curves), knowledge.epochs
        keep = _spread(self.trials, MOST_TRIALS)
        curves, guarded, seen = knowledge.curves[keep], knowledge.guarded[keep], knowledge.seen[keep]
        self._scale = Scale(curves)
        self._curves = self._scale.compress(curves)
        by_curves = Regression(self._curves, seen)
        self._ran, self._noise = by_curves.ran, by_curves.noise
        self._freedom = int(np.count_nonzero(self._ran)) - 2  # of the trials that errors are learnt from
        foreseen = [curve for curve in knowledge.given_up if math.isfinite(curve.expected)]
        given_up = [self._given_up(foreseen[i]) for i in _spread(len(foreseen), MOST_TRIALS)]
        self._gains = Kinship(by_curves, [knowledge.traits[i] for i in keep], given_up)
        self._misses: Floats | None = None
        self.ends = self._ends(knowledge) if len(curves) >= FEWEST else knowledge.finals
        self.goal = knowledge.edge(top, rate / 2, self.ends)
        self._target = float(self._scale.compress(np.array([self.goal]))[0])
        self._sure = student(_SURE, len(curves) - 2)
        self.limit = self._calibrate(guarded, rate / 2, top) if len(curves) >= FEWEST else math.inf

    def _given_up(self, curve: Curve) -> GivenUp:
        costs = self._scale.compress(np.array(curve.costs))
        return GivenUp(costs, float(self._scale.compress(np.array([curve.expected]))[0]), curve.traits)

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

    def _calibrate(self, guarded: np.ndarray, rate: float, top: float) -> float:
        count = len(self._curves)
        unseen = float(guarded.sum()) * rate / (1 - rate)
        index = math.ceil((1 - rate) * (count + unseen + 1))
        if index > count:
            looks = _LOOKS if self._gains.known else 1
            return student(1 - rate / top / looks, self._freedom)
        figures = np.full(count, -math.inf)
        good = self._curves[:, -1] <= self._target
        for t in range(self.epochs - 1):
            gain, error = self._gains.left_out(t)
            beyond = (self._curves[:, t] - gain - self._target) / error
            figures = np.where(good, np.maximum(figures, beyond), figures)
        return float(max(np.sort(figures)[index - 1], 0.0))

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
        return Outlook(expand(said), expand(hardly), (likely - self._target) / error, gain, moved)

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
        place = self._compressed(costs)[0]
        falls = -np.diff(place)
        late = max(2, len(place) // 4)
        if len(place) < 4 or int(falls.argmax()) < len(falls) - late:
            return False
        rest = (self.epochs - len(place)) / 2
        return bool(place[-1] - rest * falls[-late:].max() <= self._target)

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
            limit = max(float(self._misses[-1]), student(1 - rate, len(self._misses) - 1))
        likely, error_here = self._ahead(self._compressed(costs), traits)
        return self._scale.expand(likely - limit * error_here)


def _spread(count: int, most: int) -> list[int]:
    """So many of ``count`` places at most, spread evenly."""
    return [round(at) for at in np.linspace(0, count - 1, min(count, most)).tolist()]


def student(probability: float, freedom: int) -> float:
    """Student's quantile: exact for one and two degrees of freedom, Cornish and Fisher's expansion beyond."""
    if freedom <= 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        a = 2 * probability - 1
        return a * math.sqrt(2 / (1 - a * a))
    z = NormalDist().inv_cdf(probability)
    n = freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
