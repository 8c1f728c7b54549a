"""A step that is looked at: what is read of it on its way, and how the numbers become readings when they arrive."""

from __future__ import annotations

from typing import Any

import torch

from akeso.torch import activations, gradients, groups, inputs, nonfinite
from akeso.torch.activations import Sites
from akeso.torch.alarms import Alarms
from akeso.torch.batch import BatchReader
from akeso.torch.evaluating import Evaluations
from akeso.torch.gradients import StepReadings
from akeso.torch.mailbox import Delivery, Mailbox, Tag
from akeso.torch.naming import Names
from akeso.torch.passes import Passes
from akeso.torch.record import Record

#: Marks what says whether a function near the loss was given a value at the edge of what it is defined for.
_EDGE = "edge"


class SampledStep:
    """Gathers the numbers of one sampled step after the other and posts each step's in one piece."""

    def __init__(
        self,
        record: Record,
        mailbox: Mailbox,
        names: Names,
        sites: Sites,
        batches: BatchReader,
        evaluations: Evaluations,
        alarms: Alarms,
        *,
        statistics: bool,
    ) -> None:
        self._record, self._mailbox, self._names, self._sites = record, mailbox, names, sites
        self._batches, self._evaluations, self._alarms = batches, evaluations, alarms
        self._statistics = statistics
        self._items: list[tuple[Tag, torch.Tensor]] = []
        self._facts: dict[str, float] = {}
        self._readings: StepReadings | None = None
        self.scaled: tuple[Any, Any, Any] | None = None
        """The last loss that was scaled: as it was, as it became, and the scaler."""
        self.clip: tuple[float, torch.Tensor | None] | None = None
        """The limit to which the gradients of this step were clipped, and their norm before."""

    def batch(self, passes: Passes, loss: torch.Tensor, step: int) -> None:
        """Read what went in and came out, once the loss is known."""
        items, facts = self._batches.read(passes, loss, step)
        self._items += items
        self._items += self._sites.take()
        self._facts.update(facts)
        if self._alarms.calm:
            found = nonfinite.edges(loss)
            self._items += [((_EDGE, number, name), at) for number, (name, at) in enumerate(found)]

    def before(self, optimizer: torch.optim.Optimizer, *, closure: bool) -> None:
        """Read weights and gradients as the optimizer is about to use them."""
        named = [
            (self._names.parameter(parameter), parameter)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.requires_grad and parameter.numel()
        ]
        if named:
            applied = getattr(optimizer, "gradients", None)
            self._readings = StepReadings(named, statistics=self._statistics, applied=applied)
            self._readings.before()
            if not closure:
                self._readings.gradients()

    def after(self, optimizer: torch.optim.Optimizer, index: int, step: int, *, closure: bool) -> None:
        """Read what the optimizer has done, and post everything that is known of the step."""
        sizes: dict[str, int] = {}
        if self._readings is not None:
            if closure:
                self._readings.gradients()
            self._readings.after()
            self._items += self._readings.items
            sizes = self._readings.zero_sizes
            self._readings = None
        extra = self._facts
        if self.clip is not None:
            extra["clip_limit"], norm = self.clip
            if norm is not None:
                self._items.append(("grad_norm_raw", norm.detach().float()))
        scale = getattr(self.scaled[2], "_scale", None) if self.scaled is not None else None
        if isinstance(scale, torch.Tensor):
            self._items.append(("loss_scale", scale.reshape(())))
        rate = groups.rate(optimizer)
        rates = {} if rate is None else {str(index): rate}
        items, self._items, self._facts, self.clip = self._items, [], {}, None

        def receive(delivery: Delivery) -> None:
            self._receive(step, rates, extra, sizes, delivery)

        self._mailbox.post(items, receive)

    def _receive(
        self,
        step: int,
        rates: dict[str, float],
        extra: dict[str, float],
        sizes: dict[str, int],
        delivery: Delivery,
    ) -> None:
        edges = [tag[2] for tag, at in delivery.items() if isinstance(tag, tuple) and tag[0] == _EDGE and at]
        pairs = {tag: value for tag, value in delivery.items() if isinstance(tag, tuple) and tag[0] != _EDGE}
        plain: Delivery = {tag: value for tag, value in delivery.items() if isinstance(tag, str)}
        readings = gradients.readings_of(
            {tag: v for tag, v in pairs.items() if not tag[0].startswith("act_")}, sizes
        )
        readings.update(
            activations.readings_of({tag: v for tag, v in pairs.items() if tag[0].startswith("act_")})
        )
        whole = {**self._batches.readings_of(plain, extra), **inputs.readings_of(plain)}
        for name in ("grad_norm_raw", "loss_scale"):
            if name in plain:
                whole[name] = plain[name]
        if "marks" in plain:
            self._evaluations.learn(plain["marks"])
        for signal, value in whole.items():
            readings.setdefault(signal, {})[""] = value
        if rates:
            readings["lr"] = rates
        self._record.readings(step, readings)
        if self._sites.kinds:
            self._record.fact("activations", dict(self._sites.kinds))
        self._alarms.readings(step, readings, edges)
