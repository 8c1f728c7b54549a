"""Regression targets standardised inside the loss; the model's outputs come back in the original units."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from akeso.errors import Refused
from akeso.remedies.edit import Edit
from akeso.script.prescribed.ledger import Ledger
from akeso.script.prescribed.targets_of import known_targets

if TYPE_CHECKING:
    from akeso.script.prescribed.operation import Operation

VALUE_LOSSES = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})


class Targets:
    """Scales what the model gives to the targets' units, and what the loss compares to standard units."""

    def __init__(self, operation: Operation, ledger: Ledger) -> None:
        self.operation = operation
        self.ledger = ledger
        self._last: nn.Module | None = None
        self._plain = False
        self._model: nn.Module | None = None
        self._mean: Tensor | None = None
        self._spread: Tensor | None = None

    def on_output(self, model: nn.Module, output: Any) -> Any:
        """Give the output in the targets' units."""
        self._last, self._plain = model, isinstance(output, Tensor)
        if self._mean is None or self._spread is None or type(model) is not type(self._model):
            return output
        return self._restored(output) if isinstance(output, Tensor) else output

    def _restored(self, output: Tensor) -> Tensor:
        assert self._mean is not None
        assert self._spread is not None
        return output * self._spread.to(output) + self._mean.to(output)

    def standard_loss(
        self,
        edit: Edit,
        function: Callable[..., Tensor],
        arguments: dict[str, Any],
        prediction: Tensor,
        target: Tensor,
    ) -> Tensor:
        """The loss with its gradient in standard units and its value in the original ones, which the watch sees."""
        if self._mean is None:
            self._fit(edit, prediction, target)
            prediction = self._restored(prediction)
        assert self._mean is not None
        assert self._spread is not None
        mean, spread = self._mean.to(prediction), self._spread.to(prediction)
        own = function(**{**arguments, "input": prediction, "target": target}).detach()
        standard = {**arguments, "input": (prediction - mean) / spread, "target": (target - mean) / spread}
        with torch._C.DisableTorchFunction():  # unseen, and with gradients
            hidden = function(**standard)
        self._tell_units(own, hidden.detach())
        return own + (hidden - hidden.detach())

    def _tell_units(self, own: Tensor, standard: Tensor) -> None:
        """Note once how many units of the loss that is shown make one of that whose gradients are."""
        if "loss_over_graded" in self.ledger.facts or own.numel() != 1:
            return
        shown, graded = float(own), float(standard)
        if graded > 0 and math.isfinite(shown / graded):
            self.ledger.facts["loss_over_graded"] = shown / graded

    def _fit(self, edit: Edit, prediction: Tensor, target: Tensor) -> None:
        if self.operation.inside_model or not self._plain:
            raise Refused(
                "the model gives more than its answers, so that they could not be put back in their units"
            )
        if self._last is None or prediction.numel() != target.numel():
            raise Refused("prediction and target differ in shape, so that units cannot be told apart")
        everything = known_targets(self.operation.current_loader, target)
        sample = target if everything is None else everything
        flat = sample.detach().float().reshape(-1, prediction.shape[-1] if prediction.dim() > 1 else 1)
        flat = flat[torch.isfinite(flat).all(1)]
        spread = flat.std(0)
        self._mean = flat.mean(0)
        self._spread = torch.where(torch.isfinite(spread) & (spread > 1e-12), spread, torch.ones_like(spread))
        if prediction.dim() < 2:
            self._mean, self._spread = self._mean.squeeze(0), self._spread.squeeze(0)
        self._model = self._last
        self.ledger.facts["target_scale"] = {
            "mean": self._mean.reshape(-1).tolist(),
            "std": self._spread.reshape(-1).tolist(),
        }
        self.ledger.mark(edit)
