"""Losses of Keras as the calls of torch that compute the same."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import torch

from akeso.torch.losses import LossCall, function_before, output_activation

#: What torch calls those that differ in nothing but their name.
_SAME: Final = {
    "mean_squared_error": "mse_loss",
    "mean_absolute_error": "l1_loss",
    "huber": "huber_loss",
    "poisson": "poisson_nll_loss",
    "kl_divergence": "kl_div",
}
_CLASSES: Final = ("categorical_crossentropy", "sparse_categorical_crossentropy")
_LABELS: Final = "binary_crossentropy"
_KNOWN: Final = frozenset({*_SAME, *_CLASSES, _LABELS})


def name_of(loss: Any) -> str:
    """The function behind a loss object of Keras; nothing for one that somebody else wrote."""
    function = getattr(loss, "fn", None)
    name = getattr(function, "__name__", "")
    own = str(getattr(function, "__module__", "")).startswith("keras.")
    return name if own and name in _KNOWN else ""


def call_of(loss: Any, target: Any, prediction: Any, value: Any, *, weighted: bool) -> LossCall | None:
    """The call of torch behind a loss that Keras has computed; ``None`` where there is none."""
    if not isinstance(prediction, torch.Tensor) or prediction.dim() == 0 or prediction.is_meta:
        return None
    name, settings = name_of(loss), dict(getattr(loss, "_fn_kwargs", {}))
    wanted = torch.as_tensor(target, device=prediction.device)
    reduction = "sum" if loss.reduction == "sum" else "none" if loss.reduction in (None, "none") else "mean"
    arguments: dict[str, Any] = {"reduction": reduction, "called": name}
    if settings.get("label_smoothing"):
        arguments["label_smoothing"] = settings["label_smoothing"]
    if settings.get("delta") is not None:
        arguments["delta"] = settings["delta"]
    if weighted:
        arguments["weight"] = True
    call = LossCall(
        _SAME.get(name, ""),
        prediction.detach(),
        wanted.detach(),
        value.detach() if isinstance(value, torch.Tensor) else None,
        reduction,
        arguments,
        activation=output_activation(prediction),
        before=function_before(prediction.grad_fn),
    )
    if name in _CLASSES:
        return _classes(call, settings, sparse=name.startswith("sparse"))
    call = replace(call, target=_level(call.target, call.prediction).to(call.prediction.dtype))
    if name == _LABELS:
        logits = bool(settings.get("from_logits"))
        return replace(call, name=f"binary_cross_entropy{'_with_logits' if logits else ''}")
    if name == "poisson":
        return replace(call, arguments={**arguments, "log_input": False})
    if name == "kl_divergence":
        return replace(call, prediction=call.prediction.clamp(_epsilon(), 1.0).log())
    return call


def _classes(call: LossCall, settings: Mapping[str, Any], *, sparse: bool) -> LossCall:
    """Over classes torch wants logits, the classes in the second dimension; logarithms of shares are as good."""
    scores, target, axis = call.prediction, call.target, settings.get("axis", -1)
    if not settings.get("from_logits"):
        edge = _epsilon()
        scores = (scores / scores.sum(axis, keepdim=True)).clamp(edge, 1.0 - edge).log()
        call.arguments["expects"] = "probabilities"  # type: ignore[index]
    if sparse:
        if target.dim() == scores.dim() and target.shape[axis] == 1:
            target = target.squeeze(axis)
        target = target.long()
    elif target.dim() > 1:
        target = target.movedim(axis, 1).float()
    ignored = settings.get("ignore_class")
    return replace(
        call,
        name="cross_entropy",
        prediction=scores.movedim(axis, 1) if scores.dim() > 1 else scores.unsqueeze(0),
        target=target,
        ignore_index=-100 if ignored is None else int(ignored),
    )


def _level(target: torch.Tensor, prediction: torch.Tensor) -> torch.Tensor:
    """The target in the shape of the prediction, as Keras brings it there itself."""
    if target.shape != prediction.shape and target.numel() == prediction.numel():
        return target.reshape(prediction.shape)
    return target


def _epsilon() -> float:
    return float(sys.modules["keras"].config.epsilon())
