"""Whether weights look as they are drawn: then nothing has trained them before."""

from __future__ import annotations

import math
from collections.abc import Iterable

from akeso.history import History


def fresh(history: History, name: str) -> bool:
    """Whether a weight matrix looks as torch initialises it: untrained, so hardly frozen on purpose."""
    for parameter in history.parameters:
        if parameter.name == name and len(parameter.shape) >= 2:
            size, fan_in = math.prod(parameter.shape), math.prod(parameter.shape[1:])
            default = 1.0 / math.sqrt(3.0 * fan_in)
            return abs(parameter.init_std / default - 1.0) < 2.0 / math.sqrt(size) + 0.005
    return False


def as_drawn(history: History, names: Iterable[str]) -> bool:
    """Whether weights, all but a few, are 0 or as large as a usual scheme draws them: nothing has trained them."""
    wanted = set(names)
    given = [one for one in history.parameters if one.name in wanted and len(one.shape) >= 2]
    drawn = sum(
        one.init_std == 0
        or any(
            abs(one.init_std / std - 1.0) < 2.0 / math.sqrt(math.prod(one.shape)) + 0.005
            for std in _usual(one.shape)
        )
        for one in given
    )
    return len(given) >= 2 and drawn >= 0.8 * len(given)


def _usual(shape: tuple[int, ...]) -> tuple[float, ...]:
    """The deviations that weights of a shape are drawn with: torch's own, Glorot, He, and those of language models."""
    inside = math.prod(shape[2:])
    inputs, outputs = shape[1] * inside, shape[0] * inside
    return (
        1.0 / math.sqrt(3.0 * inputs),
        math.sqrt(2.0 / (inputs + outputs)),
        math.sqrt(2.0 / inputs),
        math.sqrt(2.0 / outputs),
        1.0 / math.sqrt(inputs),
        0.02,
        1.0,
    )
