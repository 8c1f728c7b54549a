"""Hidden activations of scripts that have no model class: layers and functions called one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from akeso.remedies.edit import Edit
from akeso.script.prescribed.functions import ACTIVATIONS, activation
from akeso.script.prescribed.part import Handler, Part
from akeso.script.prescribed.places import caller


class Outside(Part):
    """Exchanges activations called outside any model, at the lines a survey found to be hidden."""

    def handlers(self) -> dict[str, Handler]:
        """Every activation, where there is something to exchange."""
        if not self.operation.hidden or self._edits() == (None, None):
            return {}
        return dict.fromkeys(ACTIVATIONS, self._activate)

    def _edits(self) -> tuple[Edit | None, Edit | None]:
        substitution = self.ledger.one("substitute-activation", "hidden")
        return substitution, self.ledger.one("insert-normalisation")

    def _activate(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", "")
        if self.operation.inside_model or (name, caller(2)) not in self.operation.hidden:
            return func(*args, **kwargs)
        substitution, norm = self._edits()
        entering: Tensor = args[0] if args else kwargs["input"]
        if norm is not None:
            entering = _layer_normalised(entering)
            self.ledger.mark(norm)
            self.ledger.note("layers outside a model class are normalised without learned scale")
        old = substitution.values.get("from") if substitution is not None else None
        if substitution is None or old not in (None, "", ACTIVATIONS[name]):
            return func(entering, *args[1:], **{k: v for k, v in kwargs.items() if k != "input"})
        self.ledger.mark(substitution)
        result = activation(str(substitution.values["to"]))(entering)
        return args[0].copy_(result) if name.endswith("_") else result


def _layer_normalised(value: Tensor) -> Tensor:
    dims = value.shape[1:] if value.dim() > 1 else value.shape
    return nn.functional.layer_norm(value, dims)
