"""What is being learned: the task, and what one batch says of its targets and of the answers to them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from akeso.detectors.task import REACH
from akeso.torch.accounts import ABSOLUTE_LOSSES, PROBABILITY_LOSSES
from akeso.torch.inputs import columns_of
from akeso.torch.losses import LossCall
from akeso.torch.mailbox import Tag

Items = list[tuple[Tag, torch.Tensor]]
#: Classes up to which whole histograms of the targets are kept.
_HISTOGRAM = 1024
#: Predictions and targets that are counted per batch.
_COUNTED = 4096
#: Entries of a prediction that are looked at.
_ENTRIES = 1 << 21
#: A share of fewer answers than these says nothing by itself.
FEW = 8
_CLASS_LOSSES = ("cross_entropy", "nll_loss", "multi_margin_loss")
#: Those whose targets may be shares that the classes have in a sample.
_SHARED_LOSSES = ("cross_entropy", "kl_div")
_SIGNED_LOSSES = ("soft_margin_loss", "multilabel_soft_margin_loss")
_VALUE_LOSSES = ("mse_loss", *ABSOLUTE_LOSSES)
#: Columns of the targets whose spread is followed.
_COLUMNS = 256
#: Answers of one batch of which it is seen how sure they are.
_SURE = 64
#: Target values of one batch that are kept for medians.
_PART = 256


def facts_of(call: LossCall, model_input: torch.Tensor | None) -> dict[str, Any]:
    """What one training batch says about the task. Reads values: called on the first batches only."""
    prediction, target = call.prediction, call.target
    facts: dict[str, Any] = {
        "loss": call.name,
        "loss_args": dict(call.arguments),
        "output_shape": list(prediction.shape),
        "target_shape": list(target.shape),
        "target_dtype": str(target.dtype).removeprefix("torch."),
    }
    kind, distinct = _target_kind(call, model_input)
    facts["target_kind"] = kind
    facts["target_is_integer"] = distinct is not None
    if distinct is not None:
        facts["target_distinct"] = distinct
    units = prediction.shape[1] if prediction.dim() > 1 else 1
    facts["classes"] = int(units)
    facts["task"] = _task(call, kind, int(units), model_input)
    return facts


def _target_kind(call: LossCall, model_input: torch.Tensor | None) -> tuple[str, int | None]:
    target = call.target
    if not target.is_floating_point() and call.name in _CLASS_LOSSES:
        return "indices", None
    if model_input is not None and _same(target, model_input):
        return "same-as-input", None
    sample = target.reshape(-1)[:8192]
    if not target.is_floating_point():
        sample = sample.float()
    if not bool(torch.isfinite(sample).all()):
        return "values", None
    integers = bool((sample == sample.round()).all())
    distinct = int(torch.unique(sample).numel()) if integers else None
    within = bool(((sample >= 0) & (sample <= 1)).all())
    if integers and within:
        if target.dim() > 1 and target.shape[1] > 1:
            rows = target[:1024].reshape(min(len(target), 1024), target.shape[1], -1).float().sum(1)
            return ("one-hot" if bool((rows == 1).all()) else "binary"), distinct
        return "binary", distinct
    if within and target.dim() > 1 and target.shape[1] > 1:
        rows = target[:1024].reshape(min(len(target), 1024), target.shape[1], -1).float().sum(1)
        if bool(((rows - 1).abs() < 1e-3).all()):
            return "probabilities", None
    return "values", distinct


def _same(target: torch.Tensor, model_input: torch.Tensor) -> bool:
    """Whether the target is the input itself, in whatever shape."""
    if target.numel() != model_input.numel() or target.numel() < 2 or target.device != model_input.device:
        return False
    if target.data_ptr() == model_input.data_ptr():
        return True
    return bool(torch.equal(target.reshape(-1)[:4096].float(), model_input.reshape(-1)[:4096].float()))


def _task(call: LossCall, kind: str, units: int, model_input: torch.Tensor | None) -> str:
    if kind == "same-as-input":
        return "autoencoder"
    tokens = model_input is not None and not model_input.is_floating_point()
    if kind == "indices":
        per_token = (
            tokens
            and model_input is not None
            and call.target.numel() >= model_input.numel() > len(model_input)
        )
        if per_token and units > 2:
            return "language-model"
        return "binary" if units == 2 else "multiclass"
    if kind in ("one-hot", "probabilities"):
        return "binary" if units == 2 and kind == "one-hot" else "multiclass"
    if kind == "binary":
        return "binary" if units == 1 else "multilabel"
    if call.name in PROBABILITY_LOSSES:
        if _beyond_probabilities(call.target):
            return "regression"
        return "multilabel" if units > 1 else "binary"
    return "regression" if call.name in _VALUE_LOSSES or call.name.endswith("nll_loss") else "unknown"


def _beyond_probabilities(target: torch.Tensor) -> bool:
    """Whether targets are measured values rather than shares or labels, whatever loss they are given to."""
    sample = target.reshape(-1)[:8192].float()
    whole = (sample == sample.round()).all()
    return bool(((sample < 0) | (sample > 1)).any() & ~whole & torch.isfinite(sample).all())


def hits(call: LossCall, target_kind: str) -> tuple[torch.Tensor, int | torch.Tensor, torch.Tensor] | None:
    """Right predictions, number of predictions and predicted classes; ``None`` where that makes no sense.

    Reads no values, so that nothing waits for the device.
    """
    prediction, target = call.prediction, call.target
    if call.name in _CLASS_LOSSES and prediction.dim() > 1:
        predicted = prediction.argmax(1)
        wanted = (
            target.argmax(1) if target.is_floating_point() and target.shape == prediction.shape else target
        )
        if predicted.shape != wanted.shape:
            return None
        counted = wanted != call.ignore_index
        return ((predicted == wanted) & counted).sum(), counted.sum(), predicted
    if prediction.shape != target.shape:
        if prediction.numel() != target.numel():
            return None
        target = target.reshape(prediction.shape)
    if target_kind in ("one-hot", "probabilities") and prediction.dim() > 1 and prediction.shape[1] > 1:
        predicted = prediction.argmax(1)
        right = predicted == target.argmax(1)
        return right.sum(), right.numel(), predicted
    if target_kind == "binary":
        edge = 0.0 if call.name.endswith("logits") or call.name in _SIGNED_LOSSES else 0.5
        predicted = prediction > edge
        right = predicted == (target > 0.5)
        return right.sum(), right.numel(), predicted
    return None


def _part_of(call: LossCall) -> LossCall:
    """The call on fewer samples where predictions are huge, as over a vocabulary: a copy of them would not fit."""
    prediction, target = call.prediction, call.target
    if (
        prediction.numel() <= _ENTRIES
        or prediction.dim() < 2
        or target.dim() == 0
        or len(target) != len(prediction)
    ):
        return call
    stride = min(len(prediction), math.ceil(prediction.numel() / _ENTRIES))
    return replace(call, prediction=prediction[::stride], target=target[::stride])


def counts_of(classes: torch.Tensor, length: int) -> torch.Tensor:
    """How often each class occurs. ``bincount`` would wait for the device; this does not."""
    flat = classes.reshape(-1)
    if flat.numel() > _COUNTED:
        flat = flat[:: math.ceil(flat.numel() / _COUNTED)]
    return (flat.unsqueeze(1) == torch.arange(length, device=flat.device)).sum(0)


def _followed(target: torch.Tensor) -> torch.Tensor:
    """The columns of a batch of values; of many, some from all over: the first of an image are nothing but its rim."""
    columns = target.reshape(len(target), -1)
    count = columns.shape[1]
    if count > _COLUMNS:
        columns = columns[:, torch.arange(_COLUMNS, device=columns.device) * count // _COLUMNS]
    return columns.double()


def batch_items(call: LossCall, *, target_kind: str, histogram: int) -> Items:
    """The readings of one training batch: ranges, spread, accuracy, targets."""
    items: Items = []
    call = _part_of(call)
    prediction = call.prediction.float() if call.prediction.is_floating_point() else call.prediction
    if prediction.numel() > 1:
        low, high = torch.aminmax(prediction)
        var, mean = torch.var_mean(prediction, correction=0)
        items += [("output_min", low), ("output_max", high), ("output_var", var), ("output_mean", mean)]
        if prediction.dim() > 0 and len(prediction) > 1:
            items.append(("output_between", prediction.var(0, correction=0).mean()))
        if call.arguments.get("normalised"):
            shares = prediction - prediction.mean(1, keepdim=True) + 1.0 / prediction.shape[1]
            low, high = torch.aminmax(shares)
            items += [("output_share_min", low), ("output_share_max", high)]
        if call.name == "cross_entropy" and prediction.dim() == 2:
            items.append(("output_confidence", prediction[:_SURE].softmax(1).amax(1).mean()))
        if call.name == "nll_loss" and prediction.dim() > 1:
            items.append(("output_mass_error", (prediction.exp().sum(1) - 1).abs().mean()))
    target = call.target
    if target.is_floating_point():
        part = target.float()
        items.append(("target_nonfinite", (~torch.isfinite(part)).float().mean()))
        if part.numel() > 1:
            low, high = torch.aminmax(part)
            var, mean = torch.var_mean(part, correction=0)
            items += [("target_min", low), ("target_max", high), ("target_var", var), ("target_mean", mean)]
            columns = _followed(part if part.dim() else part.reshape(1, 1))
            items += [
                ("target_rows", torch.tensor(len(columns))),
                ("target_sum", columns.sum(0)), ("target_squares", (columns * columns).sum(0)),
            ]  # fmt: skip
            one_of = call.name in _SHARED_LOSSES and part.dim() == 2
            if call.name in PROBABILITY_LOSSES or one_of:
                items.append(("target_doubt", _doubt(columns, one_of=one_of)))
            if call.name in _VALUE_LOSSES:
                items += columns_of("target", part)
                items += _beyond(call, prediction, part)
            if call.name in ABSOLUTE_LOSSES and part.numel() == columns.numel():
                rows = max(1, min(16, _PART // columns.shape[1]))
                items += [
                    ("target_part", columns[:rows].reshape(-1)),
                    ("target_bend", torch.tensor(_bend(call))),
                ]
    tilt = _tilt(call)
    if tilt is not None:
        items.append(("weight_tilt", tilt))
    if histogram and not target.is_floating_point():
        items.append(("target_counts", counts_of(target, histogram)))
    found = hits(call, target_kind)
    if found is not None:
        right, total, predicted = found
        items.append(("right", right))
        items.append(("total", total if isinstance(total, torch.Tensor) else torch.tensor(total)))
        length = 2 if predicted.dtype == torch.bool else histogram or int(call.prediction.shape[1])
        if 2 <= length <= _HISTOGRAM and predicted.numel():
            counts = counts_of(predicted.to(torch.int64), length)
            if predicted.numel() < FEW:
                items.append(("predicted_counts", counts))
            else:
                items.append(("predicted_most", counts.max() / counts.sum()))
    return items


def _beyond(call: LossCall, prediction: torch.Tensor, target: torch.Tensor) -> Items:
    """The share of the squared error that the nearest answers leave which the last activation can give."""
    if call.activation not in REACH or prediction.shape != target.shape:
        return []
    low, high = REACH[call.activation]
    unreached = (target - target.clamp(low, high)).square().sum()
    return [("target_beyond", unreached / (target - prediction).square().sum())]


def _tilt(call: LossCall) -> torch.Tensor | None:
    """The mean weight of the targets over that of the classes: above 1 where what is frequent weighs more."""
    if call.class_weight is None:
        return None
    weight, target = call.class_weight.float(), call.target
    if call.name == "binary_cross_entropy_with_logits":
        each: torch.Tensor = (1.0 + (weight - 1.0) * (target > 0.5)) / (0.5 * (1.0 + weight))
        return each.mean()
    if target.is_floating_point() or weight.dim() != 1:
        return None
    given = weight[target.clamp(0, len(weight) - 1)] * (target != call.ignore_index)
    mean: torch.Tensor = weight.sum() / (weight > 0).sum()
    return given.sum() / (given > 0).sum() / mean


def views_items(views: tuple[torch.Tensor, torch.Tensor] | None) -> Items:
    """How alike in direction outputs for different samples are, on the side where they are least and most so."""
    if views is None or len(views[0]) < FEW:
        return []
    both = (torch.nn.functional.normalize(view[:_SURE].float(), dim=1) for view in views)
    alike = torch.stack([(one * one.roll(1, 0)).sum(1).mean() for one in both])
    return [("views_alike_least", alike.min()), ("views_alike_most", alike.max())]


def terms_of(call: LossCall) -> int:
    """How many losses were summed or averaged: one per target, of which soft ones fill a row each."""
    soft = call.name in _CLASS_LOSSES and call.target.is_floating_point() and call.target.dim() > 1
    return call.target.numel() // max(1, int(call.target.shape[1])) if soft else call.target.numel()


def histogram_size(call: LossCall) -> int:
    """Length of the target histogram to keep, 0 where a histogram makes no sense."""
    if call.target.is_floating_point() or call.name not in _CLASS_LOSSES or call.prediction.dim() < 2:
        return 0
    units = int(call.prediction.shape[1])
    return units if units <= _HISTOGRAM else 0


def spread_items(call: LossCall) -> tuple[int, torch.Tensor, torch.Tensor] | None:
    """Rows of the targets, their sums and sums of squares per column; ``None`` where a loss is not for values."""
    target = call.target
    if call.name not in _VALUE_LOSSES or not target.is_floating_point() or target.numel() < 2:
        return None
    columns = _followed(target)
    return len(columns), columns.sum(0), (columns * columns).sum(0)


def power_of(loss: str) -> int:
    """How a loss for values grows when all values are given in a larger unit: with it, or with its square."""
    return 2 if loss == "mse_loss" else 1


def _doubt(columns: torch.Tensor, *, one_of: bool) -> torch.Tensor:
    """The entropy of targets that are shares: of one answer among the columns, or of each column's yes or no."""
    shares = columns.clamp(0.0, 1.0)
    if one_of:
        entropy: torch.Tensor = torch.special.entr(shares).sum(1).mean()
        return entropy
    each: torch.Tensor = torch.special.entr(shares) + torch.special.entr(1.0 - shares)
    return each.mean()


def _bend(call: LossCall) -> float:
    """The distance up to which a loss is a square."""
    given = call.arguments.get(ABSOLUTE_LOSSES[call.name])
    return float(given) if isinstance(given, (int, float)) else 1.0
