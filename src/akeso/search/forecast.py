"""Where a running trial will end, learnt from the study's own finished trials, with a calibrated margin.

The forecast of the gain still to come after epoch ``t`` is a ridge regression on the curve so far, weighted
towards finished trials that stood where this one stands. Its error at that place is estimated from the same
trials with each left out in turn. How many such errors a trial must lie beyond the study's best quarter before
it is given up is calibrated in the manner of conformal prediction:

    Of a finished trial take the largest number of errors by which any of its epochs predicted an end outside
    the best quarter, if it ended inside it, and minus infinity otherwise. The threshold is the
    ``ceil((1 - rate) * (n + 1))``-th smallest of these ``n`` figures. If the finished trials and the new one
    are exchangeable, the new one ends in the best quarter *and* crosses the threshold at any of its epochs
    with probability at most ``rate``.

With fewer than ``1 / rate - 1`` finished trials no such order statistic exists. Until then the threshold is
the largest figure seen or Student's quantile for that few trials, whichever is larger: the distribution-free
bound is then ``1 / (n + 1)``, and ``rate`` holds for forecast errors that are not heavier than normal ones.
Trials that ran under a threshold are seen only when they did not cross it; for each of them
``rate / (1 - rate)`` unseen crossings are added, so that the threshold does not creep down by its own doing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from akeso.errors import BadInput
from akeso.history import Floats
from akeso.search.curves import Knowledge

#: Regressions use at most this many finished trials, so that the cost of a report stays bounded.
MOST_TRIALS = 200
_BANDWIDTH = 0.5
_FLOOR = 0.03


@dataclass(frozen=True, slots=True)
class Outlook:
    """The forecast for one trial after one epoch, in costs.

    ``likely`` is the forecast final cost, ``optimistic`` the same less one error, ``beyond`` the number of
    errors by which the forecast lies outside the best quarter, ``limit`` the number that is too many.
    """

    likely: float
    optimistic: float
    beyond: float
    limit: float


@dataclass(frozen=True, slots=True)
class _Place:
    """The finished trials after one epoch: features, gains to come, and what leaving one out missed."""

    x: Floats
    y: Floats
    spread: Floats
    weights: Floats
    fitted: Floats
    squares: Floats


def _near(here: Floats, there: Floats, spread: float) -> Floats:
    """How much each finished trial counts at each place: more the nearer it stood, a little everywhere."""
    return np.asarray(np.exp(-0.5 * ((here[:, None] - there[None]) / (_BANDWIDTH * spread)) ** 2) + _FLOOR)


class Forecast:
    """What the finished trials of a study say about one that has come to some epoch.

    >>> from akeso.search.curves import Curve, Knowledge
    >>> curves = [Curve(tuple(a + 1 / (t + 1) for t in range(9)), full=True) for a in (0.1, 0.2, 0.3, 0.5, 0.9)]
    >>> forecast = Forecast(Knowledge(curves, epochs=9), rate=0.02)
    >>> forecast.outlook(np.array([1.2, 0.7])).likely < forecast.outlook(np.array([1.8, 1.3])).likely
    True
    """

    def __init__(self, knowledge: Knowledge, *, rate: float = 0.02, top: float = 0.25) -> None:
        if not 0 < rate < 1 or not 0 < top < 1:
            raise BadInput(f"rate and top must lie between 0 and 1, but {rate=} and {top=}")
        self.rate, self.top = rate, top
        self.trials = len(knowledge)
        curves, guarded = knowledge.curves, knowledge.guarded
        if len(curves) > MOST_TRIALS:
            keep = np.linspace(0, len(curves) - 1, MOST_TRIALS).round().astype(int)
            curves, guarded = curves[keep], guarded[keep]
        self.goal = knowledge.threshold(top)
        self.epochs = knowledge.epochs
        self._places: list[_Place | None] = [None] * knowledge.epochs
        self._floor_limit: Floats | None = None
        self._scale_to(curves)
        self._curves = self._compress(curves)
        self._target = (
            float(self._compress(np.array([self.goal]))[0]) if math.isfinite(self.goal) else math.inf
        )
        self.limit = self._calibrate(curves, guarded) if len(curves) >= 3 else math.inf

    # Costs may span orders of magnitude where trials diverge. Near the good ones the scale is linear, beyond
    # the median finished trial logarithmic, so that a bad trial cannot bend the forecast of a good one.
    def _scale_to(self, curves: Floats) -> None:
        finals = curves[:, -1] if len(curves) else np.zeros(1)
        self._origin = float(np.min(finals))
        spread = float(np.median(finals)) - self._origin
        self._unit = spread if spread > 0 else max(float(np.std(curves)) if len(curves) else 1.0, 1e-12)

    def _compress(self, costs: Floats) -> Floats:
        z = (np.minimum(costs, 1e300) - self._origin) / self._unit
        return np.where(z <= 1, z, 1 + np.log(np.maximum(z, 1)))

    def _expand(self, z: float) -> float:
        return self._origin + self._unit * (z if z <= 1 else math.exp(min(z - 1, 700.0)))

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
            fitted = self._fit(x, x, y, weights, spread)
            place = self._places[t] = _Place(x, y, spread, weights, fitted, (y - fitted) ** 2)
        return place

    def _error(self, weights: Floats, squares: Floats, t: int) -> Floats:
        """What was missed near a place, for one more trial than was seen there."""
        total = weights.sum(1)
        effective = total**2 / (weights**2).sum(1)
        return np.asarray(np.sqrt(weights @ squares / total * (1 + 1 / effective)) + self._noise(t))

    def _left_out(self, t: int) -> tuple[Floats, Floats]:
        """The gain forecast for each finished trial from the others, and its error."""
        place = self._place(t)
        return place.fitted, self._error(place.weights, place.squares, t)

    def _gains(self, prefixes: Floats) -> tuple[Floats, Floats]:
        """The forecast gain still to come of each prefix, and its error."""
        t = prefixes.shape[1] - 1
        place, q = self._place(t), self._features(prefixes)
        weights = _near(q[:, 0], place.x[:, 0], place.spread[0])
        fitted = self._fit(q, place.x, place.y, weights, place.spread)
        return fitted, self._error(weights, place.squares, t)

    def _fit(self, q: Floats, x: Floats, y: Floats, weights: Floats, spread: Floats) -> Floats:
        total = weights.sum(1, keepdims=True)
        middle_x, middle_y = weights @ x / total, weights @ y / total[:, 0]
        centred = (x[None] - middle_x[:, None]) / spread
        gram = np.einsum("qn,qni,qnj->qij", weights, centred, centred) + np.eye(x.shape[1])
        moment = np.einsum("qn,qni,qn->qi", weights, centred, y[None] - middle_y[:, None])
        slope = np.linalg.solve(gram, moment[..., None])[..., 0]
        return np.asarray(middle_y + np.einsum("qi,qi->q", (q - middle_x) / spread, slope))

    def _noise(self, t: int) -> float:
        """An error that is never undercut: a hundredth of the study's spread, less towards the end."""
        return 0.01 * (self.epochs - 1 - t) / max(self.epochs - 1, 1) + 1e-9

    def _calibrate(self, curves: Floats, guarded: np.ndarray) -> float:
        figures = np.full(len(curves), -math.inf)
        good = curves[:, -1] <= self.goal
        if math.isfinite(self._target):
            for t in range(self.epochs - 1):
                gain, error = self._left_out(t)
                beyond = (self._curves[:, t] - gain - self._target) / error
                figures = np.where(good, np.maximum(figures, beyond), figures)
        unseen = float(guarded.sum()) * self.rate / (1 - self.rate)
        index = math.ceil((1 - self.rate) * (len(curves) + unseen + 1))
        if index <= len(curves):
            return float(max(np.sort(figures)[index - 1], 0.0))
        return float(max(figures.max(), _student(1 - self.rate, len(curves) - 1)))

    def outlook(self, costs: Floats) -> Outlook:
        """The forecast for a trial with these running costs so far."""
        prefix = self._compress(np.asarray(costs, np.float64)[None, : self.epochs])
        gain, error = self._gains(prefix)
        likely = float(prefix[0, -1] - gain[0])
        beyond = (likely - self._target) / float(error[0]) if math.isfinite(self._target) else -math.inf
        return Outlook(self._expand(likely), self._expand(likely - float(error[0])), beyond, self.limit)

    def floor(self, costs: Floats, *, share: int = 1) -> float:
        """A cost that the trial will not undercut at its end, at any of its epochs, but with probability
        ``rate / share``."""
        if self._floor_limit is None:
            figures = np.full(len(self._curves), -math.inf)
            for t in range(self.epochs - 1):
                gain, error = self._left_out(t)
                figures = np.maximum(figures, (self._curves[:, t] - gain - self._curves[:, -1]) / error)
            self._floor_limit = np.sort(figures)
        figures, rate = self._floor_limit, self.rate / share
        index = math.ceil((1 - rate) * (len(figures) + 1))
        if index <= len(figures):
            limit = max(float(figures[index - 1]), 0.0)
        else:
            limit = max(float(figures[-1]), _student(1 - rate, len(figures) - 1))
        prefix = self._compress(np.asarray(costs, np.float64)[None, : self.epochs])
        gain, error = self._gains(prefix)
        return self._expand(float(prefix[0, -1] - gain[0] - limit * error[0]))


def _student(probability: float, freedom: int) -> float:
    """Student's quantile: exact for one and two degrees of freedom, Cornish and Fisher's expansion beyond."""
    if freedom <= 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        a = 2 * probability - 1
        return a * math.sqrt(2 / (1 - a * a))
    from statistics import NormalDist

    z = NormalDist().inv_cdf(probability)
    n = freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
