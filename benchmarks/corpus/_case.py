"""What a case of the corpus is: a training sick in one known way, with its cured twin, or a healthy one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from benchmarks.corpus._parts import Parts
from benchmarks.corpus.styles import STYLES

Variant = Literal["sick", "fixed", "healthy"]


@dataclass(frozen=True, slots=True)
class Case:
    """One training of the corpus.

    ``problem`` is the root of a sick case and ``None`` in a healthy one; ``also`` holds other names that
    describe the same root truly. A case that can be put as a recipe has ``make(fixed) -> Parts`` and is
    trained in the way that ``style`` names; any other has ``train(fixed, seed) -> metric`` of its own.
    ``expect`` is the metric that a healthy case has to reach.
    """

    name: str
    problem: str | None
    also: tuple[str, ...]
    dataset: str
    family: str
    style: str
    make: Callable[[bool], Parts] | None = None
    train: Callable[[bool, int], float] | None = None
    metric: str = "accuracy"
    higher_is_better: bool = True
    expect: float | None = None

    @property
    def sick(self) -> bool:
        return self.problem is not None

    @property
    def is_recipe(self) -> bool:
        """Whether the case can be taken apart."""
        return self.make is not None

    def names(self) -> frozenset[str]:
        """All names that describe the root truly."""
        return frozenset((self.problem, *self.also)) if self.problem else frozenset()

    def parts(self, variant: Variant | None = None, seed: int = 0) -> Parts:
        """The training taken apart; the seed is set so that what is drawn at random is the same each time."""
        if self.make is None:
            raise ValueError(f"case {self.name!r} is a whole training loop and has no parts; use run()")
        torch.manual_seed(seed)
        return self.make(self._fixed(variant))

    def run(self, variant: Variant | None = None, seed: int = 0) -> float:
        """Train in this process as the case's user would; returns the validation metric."""
        if self.make is None:
            assert self.train is not None
            torch.manual_seed(seed)
            return float(self.train(self._fixed(variant), seed))
        return float(STYLES[self.style](self.parts(variant, seed), seed))

    def _fixed(self, variant: Variant | None) -> bool:
        allowed = ("sick", "fixed") if self.sick else ("healthy",)
        if variant is not None and variant not in allowed:
            raise ValueError(f"case {self.name!r} has the variants {allowed}, but got {variant=}")
        return variant == "fixed"


#: Drawn once, before any rule was tuned, so that every problem has cases in both halves.
_SALT = "akeso-1202:"


def held_out(name: str) -> bool:
    """Whether a case belongs to the half on which nothing may be tuned."""
    return hashlib.sha256((_SALT + name).encode()).digest()[0] % 2 == 1


_CASES: dict[str, Case] = {}


def _register(case: Case) -> None:
    if case.name in _CASES:
        raise ValueError(f"two cases are called {case.name!r}")
    _CASES[case.name] = case


def sick(
    name: str,
    problem: str,
    *,
    dataset: str,
    family: str = "dense",
    style: str = "loader",
    also: tuple[str, ...] = (),
) -> Callable[[Callable[[bool], Parts]], Callable[[bool], Parts]]:
    """Register a sick recipe: the decorated function gives its parts, cured when ``fixed`` is true."""

    def add(make: Callable[[bool], Parts]) -> Callable[[bool], Parts]:
        _register(Case(name, problem, also, dataset, family, style, make=make))
        return make

    return add


def sick_loop(
    name: str,
    problem: str,
    *,
    dataset: str,
    family: str = "dense",
    also: tuple[str, ...] = (),
    metric: str = "accuracy",
    higher_is_better: bool = True,
) -> Callable[[Callable[[bool, int], float]], Callable[[bool, int], float]]:
    """Register a sick training that is a whole loop: ``train(fixed, seed) -> metric``."""

    def add(train: Callable[[bool, int], float]) -> Callable[[bool, int], float]:
        _register(
            Case(
                name,
                problem,
                also,
                dataset,
                family,
                "own loop",
                train=train,
                metric=metric,
                higher_is_better=higher_is_better,
            )
        )
        return train

    return add


def healthy(
    name: str,
    *,
    dataset: str,
    expect: float,
    family: str = "dense",
    style: str = "loader",
    metric: str = "accuracy",
) -> Callable[[Callable[[], Parts]], Callable[[], Parts]]:
    """Register a healthy recipe."""

    def add(make: Callable[[], Parts]) -> Callable[[], Parts]:
        case = Case(
            name, None, (), dataset, family, style, make=lambda fixed: make(), metric=metric, expect=expect
        )
        _register(case)
        return make

    return add


def healthy_loop(
    name: str,
    *,
    dataset: str,
    expect: float,
    family: str = "dense",
    metric: str = "accuracy",
    higher_is_better: bool = True,
) -> Callable[[Callable[[int], float]], Callable[[int], float]]:
    """Register a healthy training that is a whole loop: ``train(seed) -> metric``."""

    def add(train: Callable[[int], float]) -> Callable[[int], float]:
        _register(
            Case(
                name,
                None,
                (),
                dataset,
                family,
                "own loop",
                train=lambda fixed, seed: train(seed),
                metric=metric,
                higher_is_better=higher_is_better,
                expect=expect,
            )
        )
        return train

    return add


def registered() -> dict[str, Case]:
    """The cases registered so far, by name."""
    return dict(_CASES)
