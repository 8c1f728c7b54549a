"""Where akeso listens to Keras on its torch backend: what it compares, and what its optimizers do."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

import torch

from akeso.torch.keras.losses import name_of

#: Modules of Keras that are listened to.
_OPTIMIZER: Final = "keras.src.optimizers.base_optimizer"
_PARALLEL: Final = "keras.src.backend.torch.optimizers.torch_parallel_optimizer"
_SCALING: Final = "keras.src.optimizers.loss_scale_optimizer"
_LOSS: Final = "keras.src.losses.loss"
_TRAINER: Final = "keras.src.trainers.trainer"


class Taps(Protocol):
    """What the taps of torch offer to those of Keras."""

    def tell(self, where: str, *args: Any) -> None:
        """Call a method of every listener."""

    def replace(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        """Wrap a function until nobody listens any more."""

    def stepping(self, optimizer: Any, *, closure: bool) -> None:
        """An optimizer is about to step."""


def backend(*, arrived: bool = False) -> str:
    """What Keras runs on; nothing where it is not there, or not whole yet, unless it is known to have ``arrived``."""
    keras = sys.modules.get("keras")
    if keras is None or (getattr(keras.__spec__, "_initializing", False) and not arrived):
        return ""
    return str(keras.config.backend())


def _own_values(optimizer: Any) -> list[torch.Tensor]:
    """What an optimizer of the torch backend trains."""
    return [variable._value for variable in optimizer._trainable_variables]


def _own_rate(optimizer: Any) -> float:
    """A learning rate, be it a number, a variable or a tensor."""
    value = getattr(optimizer.learning_rate, "_value", optimizer.learning_rate)
    return float(value.item() if isinstance(value, torch.Tensor) else value)


class StandIn:
    """An optimizer of Keras, shown as torch's show themselves: parameters in groups, with their settings.

    ``values`` gives what it trains, and ``rate`` its learning rate, where that is not to be had from it as it is.
    """

    framework = "keras"

    def __init__(
        self,
        optimizer: Any,
        values: Callable[[Any], list[torch.Tensor]] = _own_values,
        rate: Callable[[Any], float] = _own_rate,
    ) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._values, self._rate = values, rate
        self.kind = type(optimizer).__name__
        self.gradients: dict[int, torch.Tensor] = {}
        """What is being applied, by the parameter that it is applied to."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The one group there is, as it is now."""
        optimizer = self._optimizer()
        if optimizer is None:
            return []
        group: dict[str, Any] = {
            "params": self._values(optimizer),
            "lr": self._rate(optimizer),
        }
        for ours, theirs in (("momentum", "momentum"), ("weight_decay", "weight_decay"), ("eps", "epsilon")):
            found = getattr(optimizer, theirs, None)
            if isinstance(found, int | float):
                group[ours] = found
        betas = tuple(getattr(optimizer, name, None) for name in ("beta_1", "beta_2"))
        if all(isinstance(beta, float) for beta in betas):
            group["betas"] = betas
        return [group]

    def applying(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """These gradients are about to be applied, clipped and unscaled as they are."""
        self.gradients = {
            id(variable._value): gradient
            for variable, gradient in zip(variables, gradients, strict=True)
            if isinstance(gradient, torch.Tensor)
        }


class KerasTaps:
    """Puts the taps in, and knows every optimizer by its stand-in."""

    def __init__(self, taps: Taps) -> None:
        self._taps = taps
        self._known: weakref.WeakKeyDictionary[Any, StandIn] = weakref.WeakKeyDictionary()

    def install(self) -> None:
        """Listen, until the taps of torch are taken out."""
        import_module(_PARALLEL)  # Keras itself does so when it makes its first optimizer
        modules, replace = sys.modules, self._taps.replace
        for module, name in ((_OPTIMIZER, "BaseOptimizer"), (_PARALLEL, "TorchParallelOptimizer")):
            replace(getattr(modules[module], name), "_backend_update_step", self._wrap_update)
        for module, name in ((_OPTIMIZER, "BaseOptimizer"), (_SCALING, "LossScaleOptimizer")):
            replace(getattr(modules[module], name), "scale_loss", self._wrap_scale)
        replace(modules[_LOSS].Loss, "__call__", self._wrap_loss)
        replace(modules[_TRAINER].Trainer, "compute_metrics", self._wrap_metrics)

    def _stand_in(self, optimizer: Any) -> StandIn:
        found = self._known.get(optimizer)
        if found is None:
            found = self._known[optimizer] = StandIn(optimizer)
        return found

    def _wrap_update(self, original: Any) -> Any:
        @functools.wraps(original)
        def update(optimizer: Any, gradients: Any, variables: Any, rate: Any) -> Any:
            stand = self._stand_in(optimizer)
            stand.applying(gradients, variables)
            self._taps.stepping(stand, closure=False)
            stand.gradients = {}
            result = original(optimizer, gradients, variables, rate)
            self._taps.tell("after_step", stand, False)
            return result

        return update

    def _wrap_scale(self, original: Any) -> Any:
        @functools.wraps(original)
        def scale_loss(optimizer: Any, loss: Any) -> Any:
            scaled = original(optimizer, loss)
            if scaled is not loss:
                self._taps.tell("loss_scaled", loss, scaled, optimizer)
            return scaled

        return scale_loss

    def _wrap_loss(self, original: Any) -> Any:
        @functools.wraps(original)
        def __call__(loss: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            if not name_of(loss):
                return original(loss, y_true, y_pred, sample_weight)
            self._taps.tell("aside", True)
            try:
                value = original(loss, y_true, y_pred, sample_weight)
            finally:
                self._taps.tell("aside", False)
            self._taps.tell("compared", loss, y_true, y_pred, value, sample_weight is not None)
            return value

        return __call__

    def _wrap_metrics(self, original: Any) -> Any:
        @functools.wraps(original)
        def compute_metrics(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            self._taps.tell("aside", True)
            try:
                return original(trainer, *args, **kwargs)
            finally:
                self._taps.tell("aside", False)

        return compute_metrics
