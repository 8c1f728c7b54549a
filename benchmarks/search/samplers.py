"""Samplers that choose among the recorded trials of a pool: random, TPE, GP, and SMAC where it is installed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtr

from akeso.search.recorded import RecordedStudy
from akeso.search.simulation import Chooser, in_order
from akeso.search.traits import squared_distances
from benchmarks.search.forest import Smac
from benchmarks.search.ranked import Array, Ranked
from benchmarks.search.space import Choice, Space

CANDIDATES = 24
#: The variance of a value that two trials with the same configuration differ by, in units of that of all values.
NOISE = 0.1


def random_order(
    study: RecordedStudy, space: Space, seed: int, drawn: Sequence[int], planned: int
) -> Chooser:
    """Trials in random order."""
    return in_order([int(n) for n in np.random.default_rng(seed).permutation(drawn)])


class Tpe(Ranked):
    """Tree-structured Parzen estimator: the candidate most like the good trials and least like the others."""

    _informed = False  # Optuna's sorts stopped trials behind all others by itself

    def __init__(
        self, study: RecordedStudy, space: Space, seed: int, drawn: Sequence[int], planned: int
    ) -> None:
        super().__init__(study, space, seed, drawn, planned)
        self._columns = {
            name: np.array(
                [
                    domain.options.index(t.params[name])
                    if isinstance(domain, Choice)
                    else domain.place(t.params[name])[0]
                    for t in study.trials
                ]
            )
            for name, domain in space.items()
        }

    def _pick(self, free: list[int], seen: list[int], costs: Array, stopped: NDArray[np.bool_]) -> int:
        # Completed trials come before stopped ones, as with Optuna: a stopped one cannot be the best.
        order = np.lexsort((costs, stopped))
        good = set(order[: min(math.ceil(0.1 * len(seen)), 25)].tolist())
        above = [seen[i] for i in range(len(seen)) if i not in good]
        below = [seen[i] for i in good]
        pool = [free[int(i)] for i in self._draw.permutation(len(free))[:CANDIDATES]]
        # Drawing candidates near the good trials is what TPE does; here: the pool's nearest to each good one.
        at = self._points[self._rows(free)]
        for number in below:
            distance = np.sum((at - self._points[self._row[number]]) ** 2, axis=1)
            pool += [free[i] for i in np.argsort(distance)[:3]]
        pool = list(dict.fromkeys(pool))
        scores = self._density(pool, below) - self._density(pool, above)
        return pool[int(np.argmax(scores))]

    def _density(self, at: list[int], around: list[int]) -> Array:
        total = np.zeros(len(at))
        there, here = self._rows(around), self._rows(at)
        width = max(0.08, 0.6 * len(around) ** -0.4)
        for name, domain in self._space.items():
            x, c = self._columns[name][here], self._columns[name][there]
            if isinstance(domain, Choice):
                counts = 1.0 / len(domain.options) + np.bincount(c, minlength=len(domain.options))
                total += np.log(counts[x] / counts.sum())
                continue
            kernel = np.exp(-0.5 * ((x[:, None] - c[None]) / width) ** 2) / (width * math.sqrt(2 * math.pi))
            total += np.log((kernel.sum(1) + 1.0) / (len(around) + 1.0))
        return total


class Gp(Ranked):
    """Gaussian process with a Matern 5/2 kernel and expected improvement over the whole rest of the pool."""

    _scale = 1.0
    _fitted_at = -1

    def _pick(self, free: list[int], seen: list[int], costs: Array, stopped: NDArray[np.bool_]) -> int:
        # Ranks instead of values: diverged trials must not flatten all others.
        ranks = np.argsort(np.argsort(costs)) / max(1, len(costs) - 1)
        y = (ranks - ranks.mean()) / max(float(ranks.std()), 1e-9)
        if self._fitted_at < 0 or len(seen) >= 1.25 * self._fitted_at:
            self._fitted_at = len(seen)
            x = self._points[self._rows(seen)]
            self._scale = max((0.5, 1.0, 2.0, 4.0), key=lambda scale: _likelihood(x, y, scale))
            self._process = _Process(self._points, self._scale)
        self._process.see(self._rows(seen))
        mean, spread = (moment[self._rows(free)] for moment in self._process.moments(y))
        gap = (float(y[~stopped].min() if np.any(~stopped) else y.min()) - mean) / spread
        improvement = spread * (gap * ndtr(gap) + np.exp(-0.5 * gap**2) / math.sqrt(2 * math.pi))
        return free[int(np.argmax(improvement))]


class _Process:
    """What a Gaussian process says of all points of a pool, a seen one after the other.

    ``_across`` is the covariance of the seen points with all, solved for the Cholesky factor of their own: a point
    more is a row more of both.
    """

    def __init__(self, points: Array, scale: float) -> None:
        self._points, self._scale = points, scale
        self._seen: list[int] = []
        self._factor = np.zeros((64, 64))
        self._across = np.zeros((64, len(points)))
        self._left = np.ones(len(points))

    def see(self, rows: NDArray[np.intp]) -> None:
        """Take in those of the points that were not seen yet; the others have to be the same as before."""
        for row in rows[len(self._seen) :]:
            n = len(self._seen)
            if n == len(self._factor):
                self._factor = np.pad(self._factor, ((0, n), (0, n)))
                self._across = np.pad(self._across, ((0, n), (0, 0)))
            covariance = _matern(self._points[row][None], self._points, self._scale)[0]
            solved = self._across[:n, row].copy()
            last = math.sqrt(1.0 + NOISE - solved @ solved)
            self._factor[n, :n], self._factor[n, n] = solved, last
            self._across[n] = (covariance - solved @ self._across[:n]) / last
            self._left -= self._across[n] ** 2
            self._seen.append(int(row))

    def moments(self, y: Array) -> tuple[Array, Array]:
        """Mean and deviation at every point, where the seen ones had these values."""
        n = len(self._seen)
        weights = solve_triangular(self._factor[:n, :n], y, lower=True)
        return weights @ self._across[:n], np.sqrt(np.maximum(self._left, 1e-9))


def _matern(a: Array, b: Array, scale: float) -> Array:
    r = np.sqrt(5 * squared_distances(a, b)) / scale
    return np.asarray((1 + r + r**2 / 3) * np.exp(-r))


def _likelihood(x: Array, y: Array, scale: float) -> float:
    cholesky = np.linalg.cholesky(_matern(x, x, scale) + NOISE * np.eye(len(x)))
    solved = solve_triangular(cholesky, y, lower=True)
    return float(-0.5 * solved @ solved - np.log(np.diag(cholesky)).sum())


#: From the trials to choose from, their space, a seed, the numbers of those that were drawn at random, and how many
#: trials a plain search is to have.
SAMPLERS: dict[str, Callable[[RecordedStudy, Space, int, Sequence[int], int], Chooser]] = {
    "random": random_order,
    "tpe": Tpe,
    "gp": Gp,
    "smac": Smac,
}
