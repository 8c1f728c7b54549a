"""What happens around a step: clipping, warm-up, a range test, gradients cleared in time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from akeso.remedies.edit import Edit
from akeso.script.prescribed.ledger import Ledger
from akeso.script.prescribed.part import Part
from akeso.script.prescribed.patching import patched
from akeso.script.prescribed.places import caller
from akeso.torch import groups

if TYPE_CHECKING:
    from akeso.script.prescribed.operation import Operation

_REMEDIES = ("clip-gradient", "warm-up", "hold-learning-rate", "find-learning-rate", "add-zero-grad")
#: Those that set the rate of a step and give it back.
_RATES = ("warm-up", "hold-learning-rate", "find-learning-rate")
_NO_STEP = "the script's optimizer never stepped"


class Updates(Part):
    """Acts before and after every optimizer step."""

    remedies: ClassVar = dict.fromkeys(_REMEDIES, _NO_STEP) | {
        "delay-zero-grad": "no gradients are cleared between a backward pass and its step"
    }

    def __init__(self, operation: Operation, ledger: Ledger) -> None:
        super().__init__(operation, ledger)
        self._taken: dict[int, int] = {}
        self._rates: list[float] = []
        self._highest: dict[int, list[float]] = {}
        self._stale: list[Tensor] = []

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Entered while the operation is: what the script clears itself is left, where that is to wait for the step."""
        edit = self.ledger.one("delay-zero-grad")
        if edit is None:
            yield
            return
        with (
            patched(Optimizer, "zero_grad", lambda original, owner, *_, **__: self._kept(edit, _held(owner))),
            patched(
                nn.Module, "zero_grad", lambda original, owner, *_, **__: self._kept(edit, owner.parameters())
            ),
        ):
            yield

    def _kept(self, edit: Edit, parameters: Iterable[Tensor]) -> None:
        """Keep gradients that there are: those of the last step are cleared before the next pass."""
        if not self._stale and any(parameter.grad is not None for parameter in parameters):
            self.ledger.mark(edit)
            self.ledger.place("cleared before the step", caller(2))

    def before_step(self, optimizer: Optimizer) -> None:
        """Clip, and set the rate of this very step."""
        parameters = [parameter for parameter in _held(optimizer) if parameter.grad is not None]
        edit = self.ledger.one("clip-gradient")
        if edit is not None and parameters:
            limit = float(edit.values.get("limit", 1.0))
            if edit.values.get("kind", "norm") == "value":
                nn.utils.clip_grad_value_(parameters, limit)
            else:
                nn.utils.clip_grad_norm_(parameters, limit)
            self.ledger.mark(edit)
        step = self._taken.get(id(optimizer), 0)
        self._rates = [group.get("lr", 0.0) for group in optimizer.param_groups]
        held = self.ledger.one("hold-learning-rate")
        if held is not None:
            for group, rate in zip(optimizer.param_groups, self._held(optimizer), strict=False):
                group["lr"] = rate
            self.ledger.mark(held)
        warm_up = self.ledger.one("warm-up")
        search = self.ledger.one("find-learning-rate")
        if warm_up is not None:
            length = max(1, int(warm_up.values.get("steps", 100)))
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * min(1.0, (step + 1) / length)
            self.ledger.mark(warm_up)
        if search is not None:
            low, high = float(search.values.get("low", 1e-6)), float(search.values.get("high", 1.0))
            share = step / max(1, int(search.values.get("steps", 100)) - 1)
            for group in optimizer.param_groups:
                group["lr"] = low * math.exp(share * math.log(high / low))
            self.ledger.mark(search)

    def _held(self, optimizer: Optimizer) -> list[float]:
        """The rates to hold: those that a schedule starts from or rises to, or the one prescribed."""
        given = [group.get("initial_lr", 0.0) for group in optimizer.param_groups]
        before = self._highest.get(id(optimizer), given)
        top = self._highest[id(optimizer)] = [max(pair) for pair in zip(before, self._rates, strict=False)]
        wanted = self._prescribed()
        leading = groups.leading(optimizer)
        of = next(
            (rate for group, rate in zip(optimizer.param_groups, top, strict=False) if group is leading), 0
        )
        # Groups with rates of their own keep their proportion.
        return top if wanted is None or not of else [rate * wanted / of for rate in top]

    def _prescribed(self) -> float | None:
        """The rate that the prescription asks for, where it does."""
        rate, other = self.ledger.one("set-learning-rate"), self.ledger.one("substitute-optimizer")
        wanted = rate.values.get("to") if rate is not None else None
        if wanted is None and other is not None:
            wanted = other.values.get("lr")
        return None if wanted is None else float(wanted)

    def after_step(self, optimizer: Optimizer) -> None:
        """Give the rate back, so that schedulers go on from their own."""
        self._taken[id(optimizer)] = self._taken.get(id(optimizer), 0) + 1
        if any(self.ledger.one(name) is not None for name in _RATES):
            for group, rate in zip(optimizer.param_groups, self._rates, strict=False):
                group["lr"] = rate
        added, delayed = self.ledger.one("add-zero-grad"), self.ledger.one("delay-zero-grad")
        self.ledger.mark(added)
        if added is not None or delayed is not None:
            self._stale += _held(optimizer)

    def on_input(self, model: nn.Module, args: tuple[Any, ...], *, training: bool) -> tuple[Any, ...]:
        """Clear gradients when the next pass begins: until then the script may still read them."""
        if self._stale and torch.is_grad_enabled():
            for parameter in self._stale:
                parameter.grad = None
            self._stale = []
        return args


def _held(optimizer: Optimizer) -> list[Tensor]:
    """What an optimizer was given."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
