"""Where the configurations of trials come from: drawn at random, or suggested by Optuna's samplers.

A pool of random trials is thin where samplers that learn look: of 1,000 trials ten are among the best percent, and a
search with TPE would train a hundred others like them. What such samplers suggest in the middle of searches that
nobody ends fills the pool there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from akeso.search.recorded import RecordedTrial
from benchmarks.search.space import Space, distributions, draw

#: The samplers that learn, in turns; a search begins with so many random trials that are known already.
LEARNING = ("tpe", "gp")
BEGINNING = 40


def made_sampler(name: str, seed: int) -> Any:
    """Optuna's own; workers of one study do not all suggest the same."""
    import optuna

    made = {
        "random": lambda: optuna.samplers.RandomSampler(seed=seed),
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed, constant_liar=True),
        "gp": lambda: optuna.samplers.GPSampler(seed=seed),
    }
    if name not in made:
        raise SystemExit(f"live searches sample with {', '.join(made)}, but --samplers names {name!r}")
    return made[name]()


class Source(Protocol):
    """Gives the configuration of every trial by its number, and is told how it ended."""

    def configuration(self, number: int) -> dict[str, Any]: ...

    def ended(self, trial: RecordedTrial) -> None: ...


@dataclass(frozen=True)
class Drawn:
    """Every trial at random, the same whoever draws it."""

    space: Space
    name: str

    def configuration(self, number: int) -> dict[str, Any]:
        return draw(self.space, np.random.default_rng([number, len(self.name)]))

    def ended(self, trial: RecordedTrial) -> None:
        pass


@dataclass
class Suggested:
    """What a worker that trains ``first``, ``first + step``, ... is suggested in one search after the other.

    ``known`` are random trials, ``done`` those that this recording has made before; each search makes ``each`` more.
    One that is to look where long searches do begins with so many of those that were suggested ``earlier``, too.
    """

    space: Space
    maximize: bool
    known: Sequence[RecordedTrial]
    first: int
    step: int
    each: int
    done: Sequence[RecordedTrial] = ()
    earlier: Sequence[RecordedTrial] = ()
    deeper: int = BEGINNING
    _part: int = field(default=-1, init=False)
    _study: Any = field(default=None, init=False)
    _asked: Any = field(default=None, init=False)

    def configuration(self, number: int) -> dict[str, Any]:
        part = self._part_of(number)
        if part != self._part:
            self._begin(part)
        self._asked = self._study.ask(distributions(self.space))
        return dict(self._asked.params)

    def ended(self, trial: RecordedTrial) -> None:
        import optuna

        value = self._value(trial)
        failed = optuna.trial.TrialState.FAIL
        self._study.tell(self._asked, value, state=failed if value is None else None)

    def _part_of(self, number: int) -> int:
        return (number - self.first) // self.step // self.each

    def _begin(self, part: int) -> None:
        import optuna

        seed = np.random.default_rng([self.first, part])
        sampler = made_sampler(LEARNING[(self.first + part) % len(LEARNING)], int(seed.integers(1 << 30)))
        self._part = part
        self._study = optuna.create_study(
            direction="maximize" if self.maximize else "minimize", sampler=sampler
        )
        chosen = [
            trials[int(i)]
            for trials, most in ((self.known, BEGINNING), (self.earlier, self.deeper))
            for i in seed.permutation(len(trials))[:most]
        ]
        mine = [
            t
            for t in self.done
            if (t.number - self.first) % self.step == 0 and self._part_of(t.number) == part
        ]
        for trial in [*chosen, *mine]:
            value = self._value(trial)
            if value is not None:
                self._study.add_trial(
                    optuna.trial.create_trial(
                        params=dict(trial.params), distributions=distributions(self.space), value=value
                    )
                )

    def _value(self, trial: RecordedTrial) -> float | None:
        finite = [value for value in trial.values if math.isfinite(value)]
        return (max if self.maximize else min)(finite) if finite else None
