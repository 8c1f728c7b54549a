"""What the samplers of a simulated search have in common: they rank the recorded trials that were not taken yet.

A simulated search cannot ask for any configuration, only for one that was recorded. Samplers begin with trials that
were drawn at random; then they may also take those that were recorded because such a sampler had suggested them.

Stopped trials enter with the value they stood at, as a pessimistic estimate of what they would have come to; those
that never reported with the worst value seen. Samplers that are informed are shown the end that the rule foresaw, where
it says one, also of trials that ended early with their value: for Optuna, :class:`akeso.search.InformedSampler` does
that.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from akeso.search.recorded import RecordedStudy
from akeso.search.simulation import Ended
from benchmarks.search.space import Space, places

Array = NDArray[np.float64]
_STARTUP = 10


class Ranked(ABC):
    """A chooser that begins at random and then takes the trial with the highest score."""

    _informed = True
    _startup = _STARTUP

    def __init__(
        self, study: RecordedStudy, space: Space, seed: int, drawn: Sequence[int], planned: int
    ) -> None:
        self._order = [int(n) for n in np.random.default_rng(seed).permutation(drawn)]
        random = frozenset(self._order)
        self._order += [trial.number for trial in study.trials if trial.number not in random]
        self._beginning = len(random)
        self._draw = np.random.default_rng([seed, 1])
        self._space = space
        self._params = {t.number: t.params for t in study.trials}
        self._row = {trial.number: row for row, trial in enumerate(study.trials)}
        self._points = np.stack([places(space, t.params) for t in study.trials])
        self._sign = -1.0 if study.maximize else 1.0

    def __call__(self, ended: Sequence[Ended], taken: frozenset[int]) -> int | None:
        values = np.array([self._cost(e) for e in ended])
        known = np.isfinite(values)
        if len(ended) < self._startup or known.sum() < 4:
            return next((number for number in self._order[: self._beginning] if number not in taken), None)
        free = [number for number in self._order if number not in taken]
        if not free:
            return None
        values = np.where(known, values, values[known].max())
        stopped = np.array([not math.isfinite(e.value) for e in ended])
        return self._pick(free, [e.number for e in ended], values, stopped)

    def _cost(self, ended: Ended) -> float:
        expected = ended.verdict.expected(maximize=self._sign < 0) if self._informed else math.nan
        if math.isfinite(ended.value):
            cost = self._sign * ended.value
            return min(cost, expected) if math.isfinite(expected) else cost
        return expected if math.isfinite(expected) else self._sign * ended.last

    def _rows(self, numbers: Sequence[int]) -> NDArray[np.intp]:
        return np.array([self._row[number] for number in numbers], np.intp)

    @abstractmethod
    def _pick(self, free: list[int], seen: list[int], costs: Array, stopped: NDArray[np.bool_]) -> int:
        """The most promising of the free trials."""
