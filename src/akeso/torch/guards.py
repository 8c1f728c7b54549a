"""Functions whose slope is infinite at the edge of their range, kept off that edge.

The square root of zero is zero, but its slope there is not finite: a distance between equal points, a norm of
nothing, the logarithm of a probability of zero break the gradient of all weights before them. Kept a hair away from
the edge the value hardly changes, and whatever lies on the edge passes no gradient on, as a clamp does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from akeso.torch.surgery.modes import Mode

#: How far from the edge: small against anything that is measured, large enough for a slope that is finite.
_HAIR = 1e-12
_EDGE = 1.0 - 1e-6

#: Functions of values from zero on, and of values between minus one and one.
FROM_ZERO = frozenset({"sqrt", "rsqrt", "log", "log2", "log10"})
WITHIN_ONE = frozenset({"acos", "asin", "arccos", "arcsin", "atanh", "arctanh"})
POWERS = frozenset({"pow", "__pow__", "float_power"})
QUOTIENTS = frozenset({"div", "true_divide", "divide", "__truediv__", "__div__"})
GUARDED = FROM_ZERO | WITHIN_ONE | POWERS | QUOTIENTS | {"std"}


def guarded(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call one of these functions with its argument kept off the edge."""
    name = getattr(func, "__name__", "")
    entered = args[0] if args else kwargs.get("input")
    if name in QUOTIENTS:
        return _divided(func, args, kwargs)
    if not isinstance(entered, Tensor) or not entered.is_floating_point():
        return func(*args, **kwargs)
    if name == "std":
        return torch.var(*args, **kwargs).clamp(min=_HAIR).sqrt()
    if name in FROM_ZERO:
        inside = entered.clamp(min=_HAIR)
    elif name in WITHIN_ONE:
        inside = entered.clamp(-_EDGE, _EDGE)
    else:
        power = args[1] if len(args) > 1 else kwargs.get("exponent")
        if not isinstance(power, int | float) or power > 1 or float(power).is_integer():
            return func(*args, **kwargs)  # no root: of negative values, too
        inside = entered.clamp(min=_HAIR)
    if args:
        return func(inside, *args[1:], **kwargs)
    return func(**{**kwargs, "input": inside})


def _divided(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A division whose divisor may come to nothing."""
    divisor = args[1] if len(args) > 1 else kwargs.get("other")
    if not isinstance(divisor, Tensor) or not divisor.is_floating_point():
        return func(*args, **kwargs)
    small = divisor.detach().abs() < _HAIR
    safe = torch.where(small, torch.full_like(divisor, _HAIR), divisor)
    if len(args) > 1:
        return func(args[0], safe, *args[2:], **kwargs)
    return func(*args, **{**kwargs, "other": safe})


def guard() -> Mode:
    """While this is entered, the functions above are guarded."""
    return Mode(
        lambda func, args, kwargs: (
            guarded(func, args, kwargs) if getattr(func, "__name__", "") in GUARDED else func(*args, **kwargs)
        )
    )
