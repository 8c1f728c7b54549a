"""Whether weights look as they are drawn: then nothing has trained them before."""

from __future__ import annotations

import math
from collections.abc import Iterable

from akeso.history import History, Parameter


def fresh(history: History, name: str) -> bool:
    """Whether a weight matrix looks as torch initialises it: untrained, so hardly frozen on purpose."""
    return any(one.name == name and _near(one, _by_default(one.shape)) for one in history.parameters)


def all_fresh(history: History, names: Iterable[str]) -> bool:
    """Whether weight matrices all look as one library initialises its layers: torch, or Keras after Glorot."""
    wanted = set(names)
    given = [one for one in history.parameters if one.name in wanted]
    return any(all(_near(one, std(one.shape)) for one in given) for std in (_by_default, _glorot))


def _near(parameter: Parameter, std: float) -> bool:
    """Whether a weight matrix scatters like numbers that were drawn with a deviation."""
    size = math.prod(parameter.shape)
    return len(parameter.shape) >= 2 and abs(parameter.init_std / std - 1.0) < 2.0 / math.sqrt(size) + 0.005


def _by_default(shape: tuple[int, ...]) -> float:
    return 1.0 / math.sqrt(3.0 * math.prod(shape[1:]))


def _glorot(shape: tuple[int, ...]) -> float:
    return math.sqrt(2.0 / (sum(shape[:2]) * math.prod(shape[2:])))


def as_drawn(history: History, names: Iterable[str]) -> bool:
    """Whether weights, all but a few, are 0 or as large as a usual scheme draws them: nothing has trained them."""
    wanted = set(names)
    given = [one for one in history.parameters if one.name in wanted and len(one.shape) >= 2]
    drawn = sum(one.init_std == 0 or any(_near(one, std) for std in _usual(one.shape)) for one in given)
    return len(given) >= 2 and drawn >= 0.8 * len(given)


def _usual(shape: tuple[int, ...]) -> tuple[float, ...]:
    """The deviations that weights of a shape are drawn with: torch's own, Glorot, He, and those of language models."""
    inside = math.prod(shape[2:])
    inputs, outputs = shape[1] * inside, shape[0] * inside
    return (
        _by_default(shape),
        _glorot(shape),
        math.sqrt(2.0 / inputs),
        math.sqrt(2.0 / outputs),
        1.0 / math.sqrt(inputs),
        0.02,
        1.0,
    )
