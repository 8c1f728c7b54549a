"""Which kind of function was given a value at the edge of its range, where its slope is infinite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from torch import Tensor

from akeso.torch.guards import FROM_ZERO, POWERS, QUOTIENTS, WITHIN_ONE

#: Nearer than this to an edge is on it.
_NEAR: Final = 1e-12


def edge_met(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """ "root", "bounded", "quotient" or "std" where a call of such a function is on its edge; else nothing."""
    name = getattr(func, "__name__", "")
    if name in QUOTIENTS:
        divisor = args[1] if len(args) > 1 else kwargs.get("other")
        return "quotient" if _any(divisor, lambda value: value.abs() < _NEAR) else ""
    entered = args[0] if args else kwargs.get("input")
    if name in FROM_ZERO or name in POWERS:
        return "root" if _any(entered, lambda value: value < _NEAR) else ""
    if name in WITHIN_ONE:
        return "bounded" if _any(entered, lambda value: value.abs() >= 1.0) else ""
    if name == "std":
        return "std" if _any(func(*args, **kwargs), lambda value: value.square() < _NEAR) else ""
    return ""


def _any(value: Any, test: Callable[[Tensor], Tensor]) -> bool:
    known = isinstance(value, Tensor) and value.is_floating_point()
    return known and bool(test(value.detach()).any())
