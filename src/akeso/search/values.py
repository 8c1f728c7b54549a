"""Reported values: what counts as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from akeso.errors import BadInput


def as_number(value: Any, what: str = "health.report") -> float:
    """A number, a NumPy scalar or a tensor of one element as a float; anything else is an error that says so."""
    if isinstance(value, str | bytes) or value is None:
        raise BadInput(
            f"{what} takes a number, but got {value!r} of type {type(value).__name__}; pass a float"
        )
    if np.ma.is_masked(value):
        return math.nan  # a mean of nothing, which NumPy would give out as 0
    size = getattr(value, "numel", None)
    count = size() if callable(size) else getattr(value, "size", 1)
    if isinstance(count, int) and count != 1:
        shape = tuple(getattr(value, "shape", ()))
        raise BadInput(
            f"{what} takes one number per objective, but got {count} of shape {shape}; "
            "reduce them first, for example with .mean()"
        )
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except OverflowError:  # a whole number beyond all floats
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(
            f"{what} takes a number, but got {value!r} of type {type(value).__name__}; pass a float"
        ) from error


def as_count(value: Any, what: str) -> int:
    """A whole number of at least 1, NumPy's too; anything else is an error that says so."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise BadInput(f"{what} must be a whole number of at least 1, but got {value!r}")
    return int(value)


def as_numbers(value: Any, objectives: int | None) -> tuple[float, ...]:
    """One number per objective of the study; as many as there are where it is not known how many it has."""
    if objectives is None:
        several = isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) > 1
        objectives = len(value) if several else 1
    if objectives == 1:
        if isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) == 1:
            value = value[0]
        return (as_number(value),)
    if hasattr(value, "tolist"):  # an array or a tensor
        value = value.tolist()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or len(value) != objectives:
        raise BadInput(
            f"this study has {objectives} objectives, so health.report takes a list of {objectives} numbers, "
            f"but got {value!r}"
        )
    return tuple(as_number(item) for item in value)


def all_finite(values: Sequence[float]) -> bool:
    """Whether every value is finite."""
    return all(math.isfinite(value) for value in values)
