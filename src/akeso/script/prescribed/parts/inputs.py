"""Inputs cleaned and scaled where they enter the model, by what the training batches say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from akeso.errors import Refused
from akeso.script.prescribed.ledger import Ledger
from akeso.script.prescribed.part import Part
from akeso.torch.quiet import quiet
from akeso.torch.surgery.inputs import InputScaler, fit_scaler

if TYPE_CHECKING:
    from akeso.script.prescribed.operation import Operation

_ENOUGH = 8192  # samples after which the figures are not refined any more
_NO_DATA = "no model was seen that takes its data as a first argument"


class Inputs(Part):
    """Scales the first argument of the model the data enters first, in training and evaluation alike.

    The figures come from training batches alone: fitted on the first one and again whenever their number has
    doubled, so that they settle within the first pass.
    """

    remedies: ClassVar = {"scale-inputs": _NO_DATA}

    def __init__(self, operation: Operation, ledger: Ledger) -> None:
        super().__init__(operation, ledger)
        self._kind: type[nn.Module] | None = None
        self._scaler: InputScaler | None = None
        self._batches: list[Tensor] = []
        self._fitted_on = 0

    def on_input(self, model: nn.Module, args: tuple[Any, ...], *, training: bool) -> tuple[Any, ...]:
        """Scale what enters."""
        edit = self.ledger.one("scale-inputs")
        if (
            edit is None
            or self._kind not in (None, type(model))
            or not args
            or not isinstance(args[0], Tensor)
        ):
            return args
        value = args[0]
        if value.requires_grad:  # it comes out of another model
            return args
        try:
            if training:
                self._learn(value, only_clean=edit.values.get("kind") == "none")
        except Refused as refusal:
            self.ledger.object_to(edit, str(refusal))
            return args
        if self._scaler is None:
            return args
        self._kind = type(model)
        self.ledger.mark(edit)
        return (self._scaler.to(value.device).forward(value), *args[1:])

    def _learn(self, value: Tensor, *, only_clean: bool) -> None:
        known = sum(map(len, self._batches))
        if known >= _ENOUGH:
            return
        self._batches.append(value.detach().clone())
        known += len(value)
        if known < 2 * self._fitted_on and known < _ENOUGH:
            return
        with quiet():
            known_batches = torch.cat(self._batches) if self._alike() else value
            self._scaler, notes = fit_scaler(known_batches, only_clean=only_clean)
        self._fitted_on = known
        self.ledger.facts["input_scale"] = {
            "mean": [float(x) for x in self._scaler.centre.reshape(-1)[:1024]],
            "std": [float(x) for x in self._scaler.scale.reshape(-1)[:1024]],
            "dirty": any("not finite" in note or "far out" in note for note in notes),
            "found": notes,
            **_cleaning(self._scaler, notes),
            "dims": value.dim(),
            "whole_numbers": not value.is_floating_point(),
        }

    def _alike(self) -> bool:
        return len({batch.shape[1:] for batch in self._batches}) == 1


def _cleaning(scaler: InputScaler, notes: list[str]) -> dict[str, Any]:
    """What else is done to inputs, as far as there was anything to do: what is put in for missing ones, and limits."""
    missing = any("not finite" in note for note in notes)
    far = any("far out" in note for note in notes)
    figures = {"fill": scaler.fill if missing else None, "low": scaler.low if far else None,
               "high": scaler.high if far else None}  # fmt: skip
    known = {
        name: part.reshape(-1)[:1024].tolist() if part is not None else [] for name, part in figures.items()
    }
    codes = [row.reshape(-1)[:1024].tolist() for row in scaler.codes if not bool(row.isnan().all())]
    return {**known, "axis": scaler.axis, "codes": codes}
