"""Inputs cleaned and scaled where they enter the model, by what the training batches say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from akeso.script.prescribed.ledger import Ledger
from akeso.script.prescribed.part import Part, first_float
from akeso.script.prescribed.statistics import Moments
from torch import Tensor, nn

if TYPE_CHECKING:
    from akeso.script.prescribed.operation import Operation


class Inputs(Part):
    """Standardises the first argument of the model the data enters first, in training and evaluation alike.

    Statistics come from training passes alone and are refined over the first of them.
    """

    remedies: ClassVar = {"scale-inputs": "no model was seen that takes its data as a first argument"}

    def __init__(self, operation: Operation, ledger: Ledger) -> None:
        super().__init__(operation, ledger)
        self._model: nn.Module | None = None
        self._moments: Moments | None = None

    def on_input(self, model: nn.Module, args: tuple[Any, ...], *, training: bool) -> tuple[Any, ...]:
        """Scale what enters."""
        edit = self.ledger.one("scale-inputs")
        if edit is None or (self._model is not None and type(model) is not type(self._model)):
            return args
        value = first_float(args)
        if value is None:
            whole = bool(args) and isinstance(args[0], Tensor)
            self.ledger.object_to(
                edit,
                "the model's input is whole numbers, such as word ids"
                if whole
                else self.remedies[edit.remedy],
            )
            return args
        if value.requires_grad or value.dim() < 2:
            return args
        self._model = model
        if self._moments is None:
            # Channels of images and features of everything else have statistics of their own.
            kept = 1 if value.dim() > 3 else value.dim() - 1
            over = tuple(d for d in range(value.dim()) if d != kept)
            self._moments = Moments(over, limit=edit.values.get("outliers", "clip") == "clip")
        moments = self._moments
        if training and not moments.settled:
            moments.add(value)
        if not moments.samples:
            return args
        self.ledger.mark(edit)
        mean, spread = moments.mean(), moments.spread()
        self.ledger.facts["input_scale"] = (
            {
                "mean": [round(float(x), 6) for x in mean.reshape(-1)[:16]],
                "std": [round(float(x), 6) for x in spread.reshape(-1)[:16]],
            }
            if moments.settled or "input_scale" not in self.ledger.facts
            else self.ledger.facts["input_scale"]
        )
        clean = torch.where(torch.isfinite(value), value, mean.to(value))
        scaled = (moments.limited(clean) - mean.to(value)) / spread.to(value)
        return (scaled.to(value.dtype), *args[1:])
