"""Search spaces: what may be drawn, how Optuna suggests it, and how far apart two configurations are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Number:
    """A number from ``low`` (included) to ``high``, which an integer never reaches."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def draw(self, generator: np.random.Generator) -> float | int:
        if self.whole:
            return int(generator.integers(int(self.low), int(self.high)))
        if self.log:
            return float(math.exp(generator.uniform(math.log(self.low), math.log(self.high))))
        return float(generator.uniform(self.low, self.high))

    def suggest(self, trial: Any, name: str) -> float | int:
        if self.whole:
            return int(trial.suggest_int(name, int(self.low), int(self.high) - 1))
        return float(trial.suggest_float(name, self.low, self.high, log=self.log))

    def place(self, value: Any) -> list[float]:
        if self.log:
            return [math.log(value / self.low) / math.log(self.high / self.low)]
        return [(value - self.low) / (self.high - self.low)]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values without an order."""

    options: tuple[Any, ...]

    def draw(self, generator: np.random.Generator) -> Any:
        return self.options[int(generator.integers(len(self.options)))]

    def suggest(self, trial: Any, name: str) -> Any:
        return trial.suggest_categorical(name, list(self.options))

    def place(self, value: Any) -> list[float]:
        return [math.sqrt(0.5) * (value == option) for option in self.options]


Space = Mapping[str, Number | Choice]


def draw(space: Space, generator: np.random.Generator) -> dict[str, Any]:
    """One configuration at random."""
    return {name: domain.draw(generator) for name, domain in space.items()}


def suggest(space: Space, trial: Any) -> dict[str, Any]:
    """One configuration that an Optuna trial suggests."""
    return {name: domain.suggest(trial, name) for name, domain in space.items()}


def places(space: Space, params: Mapping[str, Any]) -> np.ndarray:
    """The configuration as a point; two different options of a choice are one unit apart."""
    return np.concatenate([domain.place(params[name]) for name, domain in space.items()])


def distributions(space: Space) -> dict[str, Any]:
    """The space as Optuna's distributions."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    made: dict[str, Any] = {}
    for name, domain in space.items():
        if isinstance(domain, Choice):
            made[name] = CategoricalDistribution(list(domain.options))
        elif domain.whole:
            made[name] = IntDistribution(int(domain.low), int(domain.high) - 1)
        else:
            made[name] = FloatDistribution(domain.low, domain.high, log=domain.log)
    return made
