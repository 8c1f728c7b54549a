"""SMAC as a sampler that chooses among recorded trials: its own random forest, acquisition and defaults.

Needs the package ``smac``. What its facade for hyperparameters does by default is done here: a beginning at random of
ten trials for each hyperparameter, though of no more than a quarter of the search; a forest over the logarithm of
scaled costs; the eight configurations of most expected improvement before the forest is fitted again, one in five of
them drawn at random.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akeso.search.recorded import RecordedStudy
from benchmarks.search.ranked import Array, Ranked
from benchmarks.search.space import Choice, Number, Space

#: SMAC's defaults.
_EACH, _SHARE = 10, 0.25
_TREES, _RETRAINED_AFTER, _AT_RANDOM, _PERCENTILE = 10, 8, 0.2, 5
#: More than there are trials, so that it says nothing; room for its own default of a million takes a second to make.
_LEAVES = 4096


class Smac(Ranked):
    """SMAC's random forest and expected improvement over the whole rest of the pool."""

    def __init__(
        self, study: RecordedStudy, space: Space, seed: int, drawn: Sequence[int], planned: int
    ) -> None:
        try:
            from ConfigSpace import Configuration, ConfigurationSpace
            from smac.acquisition.function import EI
            from smac.model.random_forest import RandomForest
        except ModuleNotFoundError as error:
            raise SystemExit(
                f"the sampler smac needs a package that is not there ({error}); pip install smac"
            ) from None
        logging.getLogger("smac").setLevel(logging.ERROR)
        super().__init__(study, space, seed, drawn, planned)
        self._startup = max(4, min(_EACH * len(space), int(_SHARE * planned)))
        domains = ConfigurationSpace(
            {name: _domain(name, domain) for name, domain in space.items()}, seed=seed
        )
        self._forest = RandomForest(
            domains, n_trees=_TREES, ratio_features=1.0, min_samples_split=2, min_samples_leaf=1,
            max_depth=2**20, max_leaf_nodes=_LEAVES, log_y=True, seed=seed,
        )  # fmt: skip
        self._improvement = EI(log=True)
        self._encoded = np.stack(
            [Configuration(domains, values=dict(t.params)).get_array() for t in study.trials]
        )
        self._ahead: list[int] = []
        self._since = 0

    def _pick(self, free: list[int], seen: list[int], costs: Array, stopped: NDArray[np.bool_]) -> int:
        if not self._ahead or self._since == _RETRAINED_AFTER:
            self._fit(free, seen, costs)
        self._since += 1
        open_to = set(free)
        if self._draw.random() < _AT_RANDOM:
            drawn = [number for number in self._order[: self._beginning] if number in open_to]
            if drawn:
                return drawn[0]
        self._ahead = [number for number in self._ahead if number in open_to]
        return self._ahead.pop(0) if self._ahead else free[0]

    def _fit(self, free: list[int], seen: list[int], costs: Array) -> None:
        self._since = 0
        x = self._encoded[self._rows(seen)]
        self._forest.train(x, _scaled(costs))
        best = float(self._forest.predict_marginalized(x)[0].min())
        self._improvement.update(model=self._forest, eta=best, num_data=len(seen))
        scores = self._improvement._compute(self._encoded[self._rows(free)])[:, 0]
        order = np.lexsort((self._draw.random(len(free)), -scores))
        self._ahead = [free[int(at)] for at in order[:_RETRAINED_AFTER]]


def _scaled(costs: Array) -> Array:
    """Costs between the best and the worst, as logarithms; the best stays as far from zero as the best twentieth."""
    best, worst = float(costs.min()), float(costs.max())
    low = best - (float(np.percentile(costs, _PERCENTILE)) - best) - 1e-10
    return np.asarray(np.log((costs - low) / max(worst - low, 1e-300)))


def _domain(name: str, domain: Number | Choice) -> Any:
    from ConfigSpace import Categorical, Float, Integer

    if isinstance(domain, Choice):
        return Categorical(name, domain.options)
    if domain.whole:
        return Integer(name, (int(domain.low), int(domain.high) - 1))
    return Float(name, (domain.low, domain.high), log=domain.log)
