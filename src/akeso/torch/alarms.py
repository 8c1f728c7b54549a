"""Values that are not finite: said at the step at which they appear, with the first module."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from akeso.torch.naming import Names
from akeso.torch.nonfinite import Origin, locate
from akeso.torch.quiet import quiet
from akeso.torch.record import Record

#: Signals that show it, and what of: in the order in which one makes the next.
_SIGNS = (("act_nonfinite", "activation"), ("grad_l2", "gradient"), ("weight_l2", "weight"))


class Alarms:
    """Puts the first non-finite value of each kind on record."""

    def __init__(self, record: Record, names: Names, on_alarm: Callable[[], None]) -> None:
        self._record, self._names, self._on_alarm = record, names, on_alarm
        self._said: set[str] = set()

    def loss(self, value: float, step: int, tensor: torch.Tensor | None = None) -> None:
        """The loss is not finite; with its tensor, the origin is looked for in its graph."""
        if "loss" in self._said:
            return
        self._said.add("loss")
        origin = Origin("loss", "")
        if tensor is not None:
            with quiet():
                origin = locate(tensor, self._names)
        self._record.event(
            step, "non-finite", origin.module,
            what=origin.what, module=origin.module, operation=origin.operation, edge=origin.edge,
            value="nan" if math.isnan(value) else "inf", loss=True,
        )  # fmt: skip
        self._on_alarm()

    @property
    def calm(self) -> bool:
        """Whether loss and gradients were finite until now."""
        return not self._said & {"loss", "gradient"}

    def readings(
        self, step: int, readings: Mapping[str, Mapping[str, float]], edges: Sequence[str] = ()
    ) -> None:
        """Look through the readings of a sampled step; ``edges`` are functions that had no finite slope in it."""
        for signal, what in _SIGNS:
            if what in self._said:
                continue
            bad = [
                scope
                for scope, value in readings.get(signal, {}).items()
                if (value > 0 if signal == "act_nonfinite" else not math.isfinite(value))
            ]
            if not bad:
                continue
            self._said.add(what)
            # gradients run backwards: the last layer that has one is where it began
            scope = bad[-1] if what == "gradient" else bad[0]
            module = scope if what == "activation" else scope.rpartition(".")[0] or scope
            edge = edges[0] if edges and what == "gradient" else ""
            self._record.event(
                step, "non-finite", module, what=what, module=module, edge=edge, value="nan", loss=False
            )
            self._on_alarm()
