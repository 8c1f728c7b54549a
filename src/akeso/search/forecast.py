"""Where a running trial will end, learnt from the study's own finished trials, with a calibrated margin.

The forecast of the gain still to come after epoch ``t`` is a ridge regression on the curve so far, weighted
towards finished trials that stood where this one stands. Its error at that place is estimated from the same
trials with each left out in turn. What a curve does not say, the hyperparameters and training losses of a trial may:
by how many errors the forecasts of trials like it missed is added by a Gaussian process (:mod:`akeso.search.kin`),
which learns from the finished trials and from those that were given up, with the end foreseen for them then.

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

With fewer than ``2 / rate - 1`` finished trials no such order statistic exists; until then the threshold is
Student's quantile for that few trials at which the share ``rate / 2`` of all trials, thus ``rate / 2 / top`` of the
good ones, is lost by errors that are not heavier than normal, in two looks at each where it has kin. Trials that ran
under a threshold are seen only when they did not cross it; unseen crossings are added in proportion, so that it does
not creep down by its own doing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from akeso.errors import BadInput
from akeso.history import Floats
from akeso.search.curves import Knowledge, Scale
from akeso.search.kin import Kin
from akeso.search.traits import NOTHING, Hyperparameters, Losses, Traits

#: Regressions use at most this many finished trials, so that the cost of a report stays bounded.
MOST_TRIALS = 200
#: Fewer finished trials than this say nothing about others.
FEWEST = 2
#: A finished trial counts fully up to about one standard deviation from where this one stands, a little beyond.
_BANDWIDTH = 1.0
_FLOOR = 0.03
#: Fewer trials than this have no kin, and more are not asked.
_FEWEST_KIN, _MOST_KIN = 6, 200
#: A forecast that missed by more errors than this is no measure for others.
_MISSED = 4.0
#: A trial is looked at after each of its epochs. By curves alone these looks are so much alike that they count as one;
#: what its kin say changes more.
_LOOKS = 2
#: By how much the squared error grows at most where a trial is unlike all finished ones.
_UNLIKE = 3.0
#: What a trial must have gained since its first report to have moved at all, in units of the study's spread.
_MOVED = 0.1
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


@dataclass(frozen=True, slots=True)
class _Place:
    """The finished trials after one epoch: features, gains to come, and what leaving one out missed."""

    x: Floats
    y: Floats
    spread: Floats
    weights: Floats
    fitted: Floats
    leverage: Floats
    squares: Floats


@dataclass(frozen=True, slots=True)
class _Kinship:
    """What the kin of a trial say after one epoch, and how it is made comparable with them."""

    kin: Kin
    losses: Losses | None
    finished: np.ndarray


def _near(here: Floats, there: Floats, spread: float) -> Floats:
    """How much each finished trial counts at each place: more the nearer it stood, a little everywhere."""
    return np.asarray(np.exp(-0.5 * ((here[:, None] - there[None]) / (_BANDWIDTH * spread)) ** 2) + _FLOOR)


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
        curves, guarded, settled = knowledge.curves[keep], knowledge.guarded[keep], knowledge.settled[keep]
        self._traits = [knowledge.traits[i] for i in keep]
        foreseen = [curve for curve in knowledge.given_up if math.isfinite(curve.expected)]
        self._foreseen = [foreseen[i] for i in _spread(len(foreseen), _MOST_KIN)]
        everyone = [*self._traits, *(curve.traits for curve in self._foreseen)]
        self._params = Hyperparameters([traits.params for traits in everyone])
        self._points = self._params.points([traits.params for traits in everyone])
        self._with_losses = 2 * sum(bool(traits.losses) for traits in everyone) > len(everyone)
        # How far forecasts miss shows in the trials that ran to their end; of the others it was assumed.
        self._ran = ~settled if np.count_nonzero(~settled) >= FEWEST else np.ones(len(curves), bool)
        self._places: list[_Place | None] = [None] * knowledge.epochs
        self._kinships: dict[int, _Kinship | None] = {}
        self._misses: Floats | None = None
        self._scale = Scale(curves)
        self._curves = self._scale.compress(curves)
        self.ends = self._ends(knowledge) if len(curves) >= FEWEST else knowledge.finals
        self.goal = knowledge.edge(top, rate / 2, self.ends)
        self._target = float(self._scale.compress(np.array([self.goal]))[0])
        self._sure = student(_SURE, len(curves) - 2)
        self.limit = self._calibrate(guarded, rate / 2, top) if len(curves) >= FEWEST else math.inf

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
            looks = _LOOKS if any(self._comparable(traits, 0) for traits in self._traits) else 1
            return student(1 - rate / top / looks, count - 2)
        figures = np.full(count, -math.inf)
        good = self._curves[:, -1] <= self._target
        for t in range(self.epochs - 1):
            gain, error = self._left_out(t)
            beyond = (self._curves[:, t] - gain - self._target) / error
            figures = np.where(good, np.maximum(figures, beyond), figures)
        return float(max(np.sort(figures)[index - 1], 0.0))

    def _features(self, curves: Floats) -> Floats:
        """Where the curve stands, how it last moved, and how it moved over its second half."""
        t = curves.shape[1] - 1
        now = curves[:, t]
        return np.stack([now, curves[:, max(t - 1, 0)] - now, curves[:, t // 2] - now], axis=1)

    def _place(self, t: int) -> _Place:
        """What the finished trials looked like after epoch ``t``; worked out once."""
        place = self._places[t]
        if place is None:
            known = self._curves[:, : t + 1]
            x, y = self._features(known), known[:, t] - self._curves[:, -1]
            spread = np.maximum(np.std(x, axis=0), 1e-9)
            weights = _near(x[:, 0], x[:, 0], spread[0])
            np.fill_diagonal(weights, 0.0)
            fitted, leverage = self._fit(x, x, y, weights, spread)
            squares = (y - fitted) ** 2
            place = self._places[t] = _Place(x, y, spread, weights, fitted, leverage, squares)
        return place

    def _error(self, weights: Floats, squares: Floats, leverage: Floats, t: int) -> Floats:
        """What was missed near a place, for one more trial than was seen there; more where it is unlike them all."""
        weights, squares = weights[:, self._ran], squares[self._ran]
        total = weights.sum(1)
        effective = total**2 / (weights**2).sum(1)
        variance = weights @ squares / total * (1 + 1 / effective + leverage)
        return np.asarray(np.sqrt(variance) + self._noise(t))

    def _left_out(self, t: int) -> tuple[Floats, Floats]:
        """The gain forecast for each finished trial from the others, and its error."""
        place = self._place(t)
        gain, error = place.fitted, self._error(place.weights, place.squares, place.leverage, t)
        kinship = self._kinship(t)
        if kinship is None:
            return gain, error
        missed, factor = np.zeros(len(gain)), np.ones(len(gain))
        count = np.count_nonzero(kinship.finished)
        missed[kinship.finished] = kinship.kin.left_out[:count]
        factor[kinship.finished] = kinship.kin.left_out_error[:count]
        return gain + missed * error, factor * error

    def _gains(self, prefixes: Floats, traits: Sequence[Traits]) -> tuple[Floats, Floats]:
        """The forecast gain still to come of each prefix, and its error."""
        gain, error = self._of_curves(prefixes)
        t = prefixes.shape[1] - 1
        known = np.array([self._comparable(some, t) for some in traits])
        kinship = self._kinship(t) if known.any() else None
        if kinship is not None:
            some = [one for one, there in zip(traits, known, strict=True) if there]
            points = self._params.points([one.params for one in some])
            blocks = self._blocks(prefixes[known], points, some, kinship.losses)
            missed, factor = kinship.kin(blocks)
            gain[known] += missed * error[known]
            error[known] *= factor
        return gain, error

    def _of_curves(self, prefixes: Floats) -> tuple[Floats, Floats]:
        """The same by the curves alone."""
        t = prefixes.shape[1] - 1
        place, q = self._place(t), self._features(prefixes)
        weights = _near(q[:, 0], place.x[:, 0], place.spread[0])
        fitted, leverage = self._fit(q, place.x, place.y, weights, place.spread)
        return fitted, self._error(weights, place.squares, leverage, t)

    def _comparable(self, traits: Traits, t: int) -> bool:
        """Whether as much is known of a trial after epoch ``t`` as of most others."""
        if self._params and not traits.params:
            return False
        return len(traits.losses) > t if self._with_losses else bool(self._params)

    def _blocks(
        self, prefixes: Floats, points: Floats, traits: Sequence[Traits], losses: Losses | None
    ) -> list[Floats]:
        """What makes trials alike: where their curves stand, their hyperparameters, their losses."""
        t = prefixes.shape[1] - 1
        curve = self._features(prefixes) / self._place(t).spread
        fell = np.zeros((len(curve), 0))
        if losses is not None:
            fell = losses.points(np.array([some.losses[: t + 1] for some in traits]))
        return [curve, points, fell]

    def _kinship(self, t: int) -> _Kinship | None:
        """What trials missed their forecasts by after epoch ``t``, as far as their curves are concerned.

        Those that were given up later count too, with the end that they were expected to come to.
        """
        if t in self._kinships:
            return self._kinships[t]
        self._kinships[t] = None
        finished = np.array([self._comparable(traits, t) for traits in self._traits], bool)
        later = np.array([len(c.costs) > t and self._comparable(c.traits, t) for c in self._foreseen], bool)
        known = np.append(finished, later)
        if np.count_nonzero(known) < _FEWEST_KIN:
            return None
        place = self._place(t)
        error = self._error(place.weights, place.squares, place.leverage, t)
        missed = ((place.y - place.fitted) / error)[finished]
        prefixes, believed = self._curves[finished, : t + 1], self._ran[finished]
        others = [curve for curve, there in zip(self._foreseen, later, strict=True) if there]
        if others:
            ahead = self._scale.compress(np.array([curve.costs[: t + 1] for curve in others]))
            ends = self._scale.compress(np.array([curve.expected for curve in others]))
            gain, error = self._of_curves(ahead)
            missed = np.append(missed, (ahead[:, -1] - ends - gain) / error)
            prefixes = np.concatenate([prefixes, ahead])
            believed = np.append(believed, np.zeros(len(others), bool))
        everyone = [*self._traits, *(curve.traits for curve in self._foreseen)]
        traits = [everyone[i] for i in np.flatnonzero(known)]
        losses = Losses(np.array([some.losses[: t + 1] for some in traits])) if self._with_losses else None
        blocks = self._blocks(prefixes, self._points[known], traits, losses)
        kin = Kin(blocks, np.clip(missed, -_MISSED, _MISSED), believed)
        self._kinships[t] = _Kinship(kin, losses, finished)
        return self._kinships[t]

    def _fit(self, q: Floats, x: Floats, y: Floats, weights: Floats, spread: Floats) -> tuple[Floats, Floats]:
        """The gains at each place, and how far it lies from what they were learnt from.

        No trial is foreseen to end worse than it stands and than any that finished: what a straight line says of a
        curve unlike all others may be absurd.
        """
        total = weights.sum(1, keepdims=True)
        middle_x, middle_y = weights @ x / total, weights @ y / total[:, 0]
        centred = (x[None] - middle_x[:, None]) / spread
        gram = np.einsum("qn,qni,qnj->qij", weights, centred, centred) + np.eye(x.shape[1])
        moment = np.einsum("qn,qni,qn->qi", weights, centred, y[None] - middle_y[:, None])
        away = (q - middle_x) / spread
        solved = np.linalg.solve(gram, np.stack([moment, away], axis=-1))
        gain = middle_y + np.einsum("qi,qi->q", away, solved[..., 0])
        worst = np.maximum(q[:, 0], float(self._curves[:, -1].max()))
        leverage = np.einsum("qi,qi->q", away, solved[..., 1])
        return np.maximum(gain, q[:, 0] - worst), np.minimum(leverage, _UNLIKE)

    def _noise(self, t: int) -> float:
        """An error that is never undercut: a hundredth of the study's spread, less towards the end."""
        return 0.01 * (self.epochs - 1 - t) / max(self.epochs - 1, 1) + 1e-9

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
        lost = now - float(prefix.min())  # what it had already may come back
        gain = max(now - low, moved * math.log2(self.epochs / done), lost)
        optimistic = self._scale.expand(low)
        return Outlook(self._scale.expand(likely), optimistic, (likely - self._target) / error, gain, moved)

    def company(self, costs: Floats, traits: Traits) -> int:
        """How many trials that ran to their end were like this one, in its training losses too; 0 where unknown."""
        prefix = self._compressed(costs)
        t = prefix.shape[1] - 1
        kinship = self._kinship(t) if self._with_losses and self._comparable(traits, t) else None
        if kinship is None:
            return 0
        points = self._params.points([traits.params])
        return int(kinship.kin.company(self._blocks(prefix, points, [traits], kinship.losses))[0])

    def moved(self, costs: Floats) -> bool:
        """Whether the trial has come nearer to the best of the study by more than a tenth of its spread."""
        place = self._compressed(costs)[0]
        return bool(place[0] - place[-1] > _MOVED)

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
        return int(np.sum(ran[:, 0] - ran[:, min(epochs, self.epochs) - 1] <= _MOVED))

    def floor(self, costs: Floats, traits: Traits = NOTHING, *, rate: float) -> float:
        """A cost that the trial undercuts at its end with probability at most ``rate``.

        It holds over all epochs together, for trials exchangeable with the finished ones, when there are at
        least ``1 / rate - 1`` of these; with fewer, for errors not heavier than normal.
        """
        if self._misses is None:
            misses = np.full(len(self._curves), -math.inf)
            for t in range(self.epochs - 1):
                gain, error = self._left_out(t)
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
