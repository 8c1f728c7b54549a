"""Another optimizer, learning rate, momentum or weight decay: at the construction of an optimizer."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import torch
from torch import nn
from torch.optim import Optimizer

from akeso.remedies.edit import Edit
from akeso.script.prescribed.part import Part
from akeso.torch import groups

_NO_OPTIMIZER = "the script makes no torch optimizer"


class Optimizers(Part):
    """Changes every optimizer as soon as the script has made it, so that schedulers see the new rates."""

    remedies: ClassVar = dict.fromkeys(
        ("substitute-optimizer", "set-learning-rate", "set-weight-decay"), _NO_OPTIMIZER
    )

    def on_optimizer(self, optimizer: Optimizer) -> None:
        """Change class and rates."""
        facts = self.ledger.facts.setdefault("optimizers", [])
        decay = groups.leading(optimizer).get("weight_decay") if optimizer.param_groups else None
        facts.append(
            {"name": type(optimizer).__name__, "lr": groups.rate(optimizer), "weight_decay": _plain(decay)}
        )
        if own := [name for name in ("lr", "weight_decay") if _differs(optimizer, name)]:
            facts[-1]["own"] = own
        edit = self.ledger.one("substitute-optimizer")
        if edit is not None:
            self._exchange(optimizer, edit)
        edit = self.ledger.one("set-learning-rate")
        if edit is not None:
            self._set_rate(optimizer, edit)
        edit = self.ledger.one("set-weight-decay")
        if edit is not None:
            self._set_decay(optimizer, edit)

    def _set_rate(self, optimizer: Optimizer, edit: Edit) -> None:
        if "lr" not in optimizer.defaults:
            self.ledger.object_to(edit, f"{type(optimizer).__name__} has no learning rate")
            return
        old = groups.rate(optimizer)
        factor = float(edit.values["factor"]) if "factor" in edit.values else None
        if factor is None:
            # Groups with rates of their own keep their proportion.
            factor = float(edit.values["to"]) / old if old else 0.0
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor if old else float(edit.values.get("to", 0.0))
        optimizer.defaults["lr"] = groups.leading(optimizer)["lr"]
        self.ledger.mark(edit)

    def _set_decay(self, optimizer: Optimizer, edit: Edit) -> None:
        if not any(group.get("weight_decay") for group in optimizer.param_groups):
            self.ledger.object_to(edit, "the optimizer has no weight decay")
            return
        for group in optimizer.param_groups:
            if group.get("weight_decay"):
                group["weight_decay"] = float(edit.values["to"])
        self.ledger.mark(edit)

    def _exchange(self, optimizer: Optimizer, edit: Edit) -> None:
        name = str(edit.values["to"])
        new: Any = getattr(torch.optim, name, None)
        if not (isinstance(new, type) and issubclass(new, Optimizer)):
            self.ledger.object_to(edit, f"torch.optim has no {name}")
            return
        if type(optimizer) is new and not edit.values.get("momentum") and "lr" not in edit.values:
            self.ledger.object_to(edit, f"the optimizer is {name} already")
            return
        accepted = inspect.signature(new.__init__).parameters
        options = {k: v for k, v in edit.values.items() if k not in ("to", "from") and k in accepted}
        old_rate = groups.rate(optimizer)
        if "lr" not in options and old_rate is not None:
            options["lr"] = old_rate
        with self.operation.quietly():
            _become(optimizer, new, options, old_rate)
        self.ledger.mark(edit)


def _become(
    optimizer: Optimizer, new: type[Optimizer], options: dict[str, Any], old_rate: float | None
) -> None:
    """Turn an optimizer into one of another class, in place: whoever holds it holds the new one.

    Its class is derived from both where that can be, so that the script's ``isinstance`` stays true.
    """
    old = type(optimizer)
    model: Any = new([nn.Parameter(torch.zeros(1))], **options)
    kin = issubclass(new, old) or issubclass(old, new)  # a class cannot be derived from both of these
    kind = new if kin else type(new.__name__, (new, old), {"__module__": new.__module__})
    rates = [group.get("lr") for group in optimizer.param_groups]
    decays = [group.get("weight_decay", 0.0) for group in optimizer.param_groups]
    optimizer.__class__ = kind
    for name, value in vars(model).items():
        if name not in ("state", "param_groups", "defaults") and not name.startswith("_optimizer"):
            optimizer.__dict__.setdefault(name, value)
    optimizer.defaults = dict(model.defaults)
    for group, rate, decay in zip(optimizer.param_groups, rates, decays, strict=True):
        kept = group["params"]
        names = group.get("param_names")
        group.clear()
        group.update(model.defaults)
        group["params"] = kept
        if names is not None:
            group["param_names"] = names
        if rate is not None and old_rate:
            group["lr"] = options["lr"] * rate / old_rate
        if "weight_decay" not in options and "weight_decay" in group:
            group["weight_decay"] = decay
    optimizer._patch_step_function()


def _differs(optimizer: Optimizer, name: str) -> bool:
    """Whether groups have an option of their own, which another default would leave as it is."""
    default = optimizer.defaults.get(name)
    given = [group.get(name) for group in optimizer.param_groups]
    return any(isinstance(value, int | float) and value != default for value in given)


def _plain(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
