"""A Gaussian process over what the curves of trials do not say, but their kin do.

Trials are alike by several things at once: by where their curves stand, by their hyperparameters, by their training
losses. How much each of these counts is chosen from a few views by the likelihood of what was seen; one of them sees
the curve alone, and the noise may be so large that nothing is said at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from akeso.history import Floats
from akeso.search.traits import squared_distances

#: How far apart two trials may be and still be alike, by curve, hyperparameters and losses.
_VIEWS = (
    (2.0, 1.4, 0.7),
    (2.0, 1.4, math.inf),
    (2.0, math.inf, 0.7),
    (2.0, 2.8, 1.4),
    (4.0, 1.4, 0.5),
    (1.0, math.inf, math.inf),
)
#: In which view a trial has company, and from where on another one is: more alike than not.
_CLOSE, _ALIKE = _VIEWS[0], 0.5
_NOISES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
#: View and noise are chosen on no more trials than these.
_CHOSEN_ON = 80
#: How much trials count that are not alike at all, where errors are averaged.
_FLOOR = 0.03


class Kin:
    """What trials missed their forecasts by, learnt from trials that are like them.

    ``blocks`` are features of the known trials, one array each for curve, hyperparameters and losses, the latter two
    without columns where nothing is known; ``missed`` what their forecasts missed, in units of their errors.
    ``believed`` says of each whether its error counts when errors are averaged.
    """

    def __init__(self, blocks: Sequence[Floats], missed: Floats, believed: np.ndarray) -> None:
        self._blocks = list(blocks)
        squares = [squared_distances(block, block) for block in blocks]
        some = np.linspace(0, len(missed) - 1, min(len(missed), _CHOSEN_ON)).round().astype(int)
        views = list(dict.fromkeys(tuple(map(self._seen, view, blocks)) for view in _VIEWS))
        few = [block[np.ix_(some, some)] for block in squares]
        found = [_likeliest(_alike(few, view), missed[some]) for view in views]
        best = max(range(len(views)), key=lambda at: found[at][0])
        self._view, self._noise = views[best], found[best][1]
        alike = _alike(squares, self._view)
        self._inverse = np.linalg.inv(alike + self._noise * np.eye(len(missed)))
        self._weights = self._inverse @ missed
        self._scale = max(float(missed @ self._weights) / len(missed), 1e-12)
        precision = np.diag(self._inverse)
        self.left_out = missed - self._weights / precision
        deviation = np.sqrt(self._scale / precision)
        self._squares = ((missed - self.left_out) / deviation) ** 2
        self._believed = believed
        np.fill_diagonal(alike, -_FLOOR)  # a trial says nothing about its own error
        self.left_out_error = deviation * self._calibrated(alike)

    @staticmethod
    def _seen(width: float, block: Floats) -> float:
        return width if block.shape[1] else math.inf

    def _calibrated(self, alike: Floats) -> Floats:
        """By how much errors among those alike were larger or smaller than they should have been."""
        weights = (alike + _FLOOR)[:, self._believed]
        return np.asarray(np.sqrt((weights @ self._squares[self._believed] + 1) / (weights.sum(1) + 1)))

    def __call__(self, blocks: Sequence[Floats]) -> tuple[Floats, Floats]:
        """What trials with these features will miss their forecasts by, and the error of that."""
        squares = [squared_distances(there, known) for there, known in zip(blocks, self._blocks, strict=True)]
        alike = _alike(squares, self._view)
        known = np.einsum("qi,ij,qj->q", alike, self._inverse, alike)
        variance = self._scale * np.maximum(1 + self._noise - known, self._noise)
        return alike @ self._weights, np.sqrt(variance) * self._calibrated(alike)

    def company(self, blocks: Sequence[Floats]) -> np.ndarray:
        """Which of the known trials are like each of these in everything that is known of them."""
        squares = [squared_distances(there, known) for there, known in zip(blocks, self._blocks, strict=True)]
        return np.asarray(_alike(squares, _CLOSE) > _ALIKE)


def _alike(squares: Sequence[Floats], view: Sequence[float]) -> Floats:
    """How alike trials are, from 0 to 1: a Matern kernel over the distances in a view."""
    far = np.sqrt(5 * sum(square / width**2 for square, width in zip(squares, view, strict=True)))
    return np.asarray((1 + far + far**2 / 3) * np.exp(-far))


def _likeliest(alike: Floats, missed: Floats) -> tuple[float, float]:
    """The likelihood of what was missed under the likeliest noise, and that noise."""
    count, noises = len(missed), np.array(_NOISES)
    # One small factor for each noise, all at once: threads of a linear algebra library have nothing to gain here. What
    # was missed stands in a last row and column, and comes out of the factor as its last row, whitened.
    bordered = np.empty((len(noises), count + 1, count + 1))
    bordered[:, :count, :count] = alike + noises[:, None, None] * np.eye(count)
    bordered[:, count, :count] = bordered[:, :count, count] = missed
    bordered[:, count, count] = 1 + missed @ missed / noises  # large enough for a factor to exist
    factors = np.linalg.cholesky(bordered)
    scales = np.maximum((factors[:, count, :count] ** 2).mean(1), 1e-12)
    spread = 2 * np.log(np.diagonal(factors, axis1=1, axis2=2)[:, :count]).sum(1)
    likelihoods = -0.5 * (count * np.log(scales) + spread)
    at = int(likelihoods.argmax())
    return float(likelihoods[at]), _NOISES[at]
