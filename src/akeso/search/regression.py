"""What the curve of a trial alone says about the gain still to come.

After each epoch a ridge regression on the finished trials, weighted towards those that stood where this one stands.
Its error at that place is estimated from the same trials with each left out in turn. Curves are costs on the study's
:class:`~akeso.search.curves.Scale`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from akeso.history import Floats

#: Fewer finished trials than this say nothing about others.
FEWEST = 2
#: A finished trial counts fully up to about one standard deviation from where this one stands, a little beyond.
_BANDWIDTH = 1.0
_FLOOR = 0.03
#: By how much the squared error grows at most where a trial is unlike all finished ones.
_UNLIKE = 3.0


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


class Regression:
    """The gain to come and its error, learnt from ``curves``, a row for each finished trial.

    How far forecasts miss shows in the trials that ``ran`` to their end; the end of the others was foreseen. These say
    nothing after the epochs that were ``seen`` of them, and none says anything ``before`` so many reports.
    """

    def __init__(self, curves: Floats, seen: np.ndarray, before: np.ndarray) -> None:
        self.curves = curves
        self.epochs: int = curves.shape[1]
        enough = np.count_nonzero(seen == self.epochs) >= FEWEST
        self._seen = seen if enough else np.full(len(curves), self.epochs)
        self._before = before
        self.ran = self._seen == self.epochs
        self._places: list[_Place | None] = [None] * self.epochs

    def __call__(self, prefixes: Floats) -> tuple[Floats, Floats]:
        """The gain forecast for each trial that has come so far, and its error."""
        t = prefixes.shape[1] - 1
        place, q = self._place(t), _features(prefixes)
        weights = _near(q[:, 0], place.x[:, 0], place.spread[0]) * self.there(t)
        fitted, leverage = self._fit(q, place.x, place.y, weights, place.spread)
        return fitted, self._error(weights, place.squares, leverage, t)

    def there(self, t: int) -> np.ndarray:
        """Which of the finished trials were still running in epoch ``t``, and said something by then."""
        running = self._seen > t
        telling = running & (self._before <= t)
        return telling if np.count_nonzero(telling & self.ran) >= FEWEST else running

    def left_out(self, t: int) -> tuple[Floats, Floats]:
        """The gain forecast for each finished trial from the others after epoch ``t``, and its error."""
        place = self._place(t)
        return place.fitted, self._error(place.weights, place.squares, place.leverage, t)

    def standing(self, prefixes: Floats) -> Floats:
        """Where curves stand and how they moved, in units of what the finished trials differed by."""
        return _features(prefixes) / self._place(prefixes.shape[1] - 1).spread

    def _place(self, t: int) -> _Place:
        """What the finished trials looked like after epoch ``t``; worked out once."""
        place = self._places[t]
        if place is None:
            known = self.curves[:, : t + 1]
            x, y = _features(known), known[:, t] - self.curves[:, -1]
            spread = np.maximum(np.std(x[self.there(t)], axis=0), 1e-9)
            weights = _near(x[:, 0], x[:, 0], spread[0]) * self.there(t)
            np.fill_diagonal(weights, 0.0)
            fitted, leverage = self._fit(x, x, y, weights, spread)
            squares = (y - fitted) ** 2
            place = self._places[t] = _Place(x, y, spread, weights, fitted, leverage, squares)
        return place

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
        worst = np.maximum(q[:, 0], float(self.curves[:, -1].max()))
        leverage = np.einsum("qi,qi->q", away, solved[..., 1])
        return np.maximum(gain, q[:, 0] - worst), np.minimum(leverage, _UNLIKE)

    def _error(self, weights: Floats, squares: Floats, leverage: Floats, t: int) -> Floats:
        """What was missed near a place, for one more trial than was seen there; more where it is unlike them all."""
        weights, squares = weights[:, self.ran], squares[self.ran]
        total = weights.sum(1)
        effective = total**2 / (weights**2).sum(1)
        variance = weights @ squares / total * (1 + 1 / effective + leverage)
        return np.asarray(np.sqrt(variance) + self.noise(t))

    def noise(self, t: int) -> float:
        """An error that is never undercut: a hundredth of the study's spread, less towards the end."""
        return 0.01 * (self.epochs - 1 - t) / max(self.epochs - 1, 1) + 1e-9


def _features(curves: Floats) -> Floats:
    """Where the curve stands, how it last moved, and how it moved over its second half."""
    t = curves.shape[1] - 1
    now = curves[:, t]
    return np.stack([now, curves[:, max(t - 1, 0)] - now, curves[:, t // 2] - now], axis=1)


def _near(here: Floats, there: Floats, spread: float) -> Floats:
    """How much each finished trial counts at each place: more the nearer it stood, a little everywhere."""
    return np.asarray(np.exp(-0.5 * ((here[:, None] - there[None]) / (_BANDWIDTH * spread)) ** 2) + _FLOOR)
