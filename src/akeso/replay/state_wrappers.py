"""Wrappers that trainers put around optimizers and schedulers, and what lies inside of them.

Accelerate, Lightning Fabric and others hand back an object that passes everything on to the real one. The
state is that of the real one, and so are the hooks. A wrapper with state of its own is no such wrapper and is
taken as it stands.
"""

from __future__ import annotations

from typing import Any

import torch

from akeso.errors import BadInput
from akeso.replay.state_digest import exact_digest

_OPTIMIZERS = ("optimizer", "_optimizer")
_SCHEDULERS = ("scheduler", "_scheduler")


def unwrap(value: Any) -> Any:
    """Return the optimizer or scheduler inside of wrappers that only pass things on, or the value itself."""
    seen: set[int] = set()
    while id(value) not in seen:
        seen.add(id(value))
        inner = _inner(value)
        if inner is not None:
            value = inner
    return value


def hooked(value: torch.optim.Optimizer) -> torch.optim.Optimizer | None:
    """Return the optimizer whose hooks run at a step: itself, or the one inside where it never had its own."""
    inner: Any = value
    while isinstance(inner, torch.optim.Optimizer):
        if hasattr(inner, "_optimizer_step_pre_hooks"):
            return inner
        inner = _part(inner, _OPTIMIZERS)
    return None


def _inner(value: Any) -> Any | None:
    # A scheduler holds its optimizer too, but does not stand for it.
    if isinstance(value, torch.nn.Module | torch.optim.lr_scheduler.LRScheduler):
        return None
    optimizer = _part(value, _OPTIMIZERS)
    if isinstance(optimizer, torch.optim.Optimizer) and _same_optimizer(value, optimizer):
        return optimizer
    scheduler = _part(value, _SCHEDULERS)
    if isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler) and _same_state(value, scheduler):
        return scheduler
    return None


def _part(value: Any, names: tuple[str, ...]) -> Any | None:
    # Read from __dict__: a wrapper that passes attributes on would answer for what it wraps.
    own = getattr(value, "__dict__", {})
    return next((own[name] for name in names if own.get(name) is not None), None)


def _same_optimizer(outer: Any, inner: torch.optim.Optimizer) -> bool:
    groups, state = getattr(outer, "param_groups", None), getattr(outer, "state", None)
    return groups is inner.param_groups and state is inner.state


def _same_state(outer: Any, inner: Any) -> bool:
    if not callable(getattr(outer, "state_dict", None)):
        return False
    try:
        return exact_digest(outer.state_dict()) == exact_digest(inner.state_dict())
    except BadInput:
        return False
