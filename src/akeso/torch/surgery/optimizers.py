"""Changes to optimizers and what they are given."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from akeso.detectors.steps import USUAL_RATE
from akeso.errors import BadInput
from akeso.torch.groups import leading


def optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """The optimizer with this name, in any case.

    >>> optimizer_class("adamw").__name__
    'AdamW'
    """
    for known, value in vars(torch.optim).items():
        if (
            known.lower() == name.lower()
            and isinstance(value, type)
            and issubclass(value, torch.optim.Optimizer)
        ):
            return value
    raise BadInput(f"torch.optim has no optimizer {name!r}; use a name such as 'Adam' or 'SGD'.")


def build_optimizer(
    name: str, parameters: Iterable[Any], lr: float | None = None, options: Mapping[str, Any] | None = None
) -> torch.optim.Optimizer:
    """A fresh optimizer; without ``lr`` at its usual rate."""
    kind = optimizer_class(name)
    rate = lr if lr is not None else USUAL_RATE.get(kind.__name__.lower(), 1e-3)
    return kind(parameters, lr=rate, **dict(options or {}))  # type: ignore[call-arg]


def successor(
    old: torch.optim.Optimizer, name: str, lr: float | None = None, options: Mapping[str, Any] | None = None
) -> torch.optim.Optimizer:
    """Another optimizer over the parameter groups of an old one; weight decay is kept where both know it."""
    kind = optimizer_class(name)
    chosen = dict(options or {})
    accepted = inspect.signature(kind).parameters
    if "weight_decay" in accepted and "weight_decay" not in chosen and "weight_decay" in old.defaults:
        chosen["weight_decay"] = old.defaults["weight_decay"]
    groups = [{"params": list(group["params"])} for group in old.param_groups]
    return build_optimizer(name, groups, lr, chosen)


def scale_rates(
    optimizer: torch.optim.Optimizer, *, to: float | None = None, factor: float | None = None
) -> None:
    """Set the rate of the leading group, the others in proportion; schedulers made later start from it."""
    first = float(leading(optimizer)["lr"])
    ratio = factor if factor is not None else (to / first if to is not None and first > 0 else 1.0)
    for group in optimizer.param_groups:
        new = float(group["lr"]) * ratio if first > 0 else float(to or 0.0)
        group["lr"] = new
        if "initial_lr" in group:
            group["initial_lr"] = float(group["initial_lr"]) * ratio
    optimizer.defaults["lr"] = float(leading(optimizer)["lr"])


def adopt(
    optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter], *, decay: bool = False
) -> int:
    """Add parameters that the optimizer does not have yet; norms and gains are not decayed."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    new = [p for p in parameters if id(p) not in held and p.requires_grad]
    if new:
        group: dict[str, Any] = {"params": new}
        if not decay and "weight_decay" in optimizer.param_groups[0]:
            group["weight_decay"] = 0.0
        optimizer.add_param_group(group)
    return len(new)


def clip(parameters: Iterable[nn.Parameter], kind: str, limit: float) -> None:
    """Bound gradients by their norm or by value, before a step."""
    if kind == "value":
        nn.utils.clip_grad_value_(list(parameters), limit)
    elif kind == "norm":
        nn.utils.clip_grad_norm_(list(parameters), limit)
    else:
        raise BadInput(f"kind must be 'norm' or 'value', but got {kind!r}.")
