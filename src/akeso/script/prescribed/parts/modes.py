"""Training mode while training, evaluation mode while evaluating."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from akeso.script.prescribed.part import Part
from akeso.script.prescribed.places import caller


class Modes(Part):
    """Sets the mode by whether gradients are on, at every call of a model."""

    remedies: ClassVar = {"set-mode": "no call of a model was seen"}

    def on_input(self, model: nn.Module, args: tuple[Any, ...], *, training: bool) -> tuple[Any, ...]:
        """Put the model into the mode that fits."""
        import torch

        edit = self.ledger.one("set-mode")
        if edit is not None:
            wanted = torch.is_grad_enabled()
            if edit.values.get("to", "by-phase") == "by-phase" or edit.values["to"] == (
                "train" if wanted else "eval"
            ):
                model.train(wanted)
                self.ledger.mark(edit)
                self.ledger.place(f"called when {'trained' if wanted else 'evaluated'}", caller(2))
        return args
