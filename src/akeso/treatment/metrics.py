"""Held-out metrics by name, by function, or by what the task calls for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from akeso.errors import BadInput

MetricFunction = Callable[[Tensor, Tensor], float]

#: Metrics by name, and whether more is better.
NAMED: dict[str, bool] = {
    "accuracy": True,
    "balanced_accuracy": True,
    "f1": True,
    "r2": True,
    "mse": False,
    "rmse": False,
    "mae": False,
    "loss": False,
}

#: Losses that ask yes or no: whatever two numbers their targets are stand for that.
_YES_OR_NO = ("binary_cross_entropy", "binary_cross_entropy_with_logits")


@dataclass(frozen=True, slots=True)
class Metric:
    """How outputs are judged on held-out data.

    ``threshold`` divides the classes of a single output unit: 0 for logits, one half for probabilities.
    """

    name: str
    higher_is_better: bool
    function: MetricFunction | None = None
    threshold: float = 0.5

    def __call__(self, output: Tensor, target: Tensor, loss: Any = None) -> float:
        if self.function is not None:
            return float(self.function(output, target))
        if self.name == "loss":
            return float(loss(output, target))
        return _judge(self.name, output.detach().float(), target, self.threshold)


def resolve(
    metric: str | MetricFunction | None,
    higher: bool | None,
    threshold: float | None,
    task: str,
    loss: str,
    output: str,
) -> Metric:
    """The metric that was asked for, or the one the task calls for."""
    limit = threshold if threshold is not None else threshold_of(loss, output)
    if callable(metric):
        name = getattr(metric, "__name__", type(metric).__name__)
        name = name if name.isidentifier() else "metric"  # a lambda has none of its own
        return Metric(name, True if higher is None else higher, metric, limit)
    if metric is None:
        metric = {"regression": "r2", "autoencoder": "mse", "unknown": "loss"}.get(task, "accuracy")
    name = metric.removeprefix("val_")
    if name not in NAMED:
        raise BadInput(f"metric must be a function or one of {', '.join(NAMED)}, but got {metric!r}.")
    return Metric(name, NAMED[name] if higher is None else higher, None, limit)


def threshold_of(loss: str, output: str) -> float:
    """Where a single output unit says yes."""
    if loss == "binary_cross_entropy_with_logits":
        return 0.0
    if output in ("sigmoid", "softmax") or loss in (
        "binary_cross_entropy",
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
    ):
        return 0.5
    return 0.0 if output in ("none", "tanh") else 0.5


def infer_task(output: Any, target: Any, loss: str) -> str:
    """What kind of prediction is made, from one batch."""
    if not isinstance(output, Tensor) or not isinstance(target, Tensor):
        return "unknown"
    whole = not target.is_floating_point() or bool((target == target.round()).all())
    if output.dim() == target.dim() + 1 and not target.is_floating_point():
        return "multiclass" if output.shape[1] > 1 else "binary"
    single = output.numel() == len(output)
    if target.numel() == len(target):
        values = set(torch.unique(target[:4096]).tolist()) if whole else set()
        if single and values and len(values) <= 2 and (values <= {0.0, 1.0, -1.0} or loss in _YES_OR_NO):
            return "binary"
        if (
            not single
            and whole
            and output.dim() == 2
            and float(target.min()) >= 0
            and float(target.max()) < output.shape[1]
        ):
            return "multiclass"
        return "regression" if single else "unknown"
    if target.shape == output.shape:
        if whole and target.dim() == 2 and set(torch.unique(target).tolist()) <= {0.0, 1.0}:
            return "multiclass" if bool((target.sum(1) == 1).all()) else "multilabel"
        if whole and loss in _YES_OR_NO and len(torch.unique(target)) == 2:
            return "multilabel"
        return "regression"
    return "unknown"


def _judge(name: str, output: Tensor, target: Tensor, threshold: float) -> float:
    if name in ("accuracy", "balanced_accuracy", "f1"):
        predicted, truth = decided(output, target, threshold)
        if name == "accuracy":
            return float((predicted == truth).float().mean())
        return _by_class(predicted, truth, recall_only=name == "balanced_accuracy")
    truth = target.to(output).reshape(output.shape) if target.numel() == output.numel() else target.to(output)
    error = output - truth
    if name == "mae":
        return float(error.abs().mean())
    square = float((error**2).mean())
    if name != "r2":
        return square if name == "mse" else square**0.5
    spread = float(truth.var(unbiased=False))
    value = 1 - square / spread if spread > 0 else -1.0
    return max(-1.0, value) if value == value else -1.0


def chance(metric: Metric, target: Tensor) -> float | None:
    """The metric of the best constant prediction, for metrics where that is clear."""
    if metric.function is not None or metric.name not in ("accuracy", "balanced_accuracy", "r2"):
        return None
    if metric.name == "r2":
        return 0.0
    if target.dim() > 1 and target.shape[1] > 1:
        if not bool((target.sum(1) == 1).all()):
            return None
        target = target.argmax(1)
    kinds, counts = torch.unique(target, return_counts=True)
    return float(counts.max() / counts.sum()) if metric.name == "accuracy" else 1.0 / len(kinds)


def decided(output: Tensor, target: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Predicted and true classes side by side."""
    finite = torch.isfinite(output).reshape(len(output), -1).all(1)
    if output.numel() == len(output):
        predicted = (output.reshape(-1) > threshold).long()
        truth = (target.reshape(-1) > _middle(target)).long()
    elif target.shape == output.shape:
        one = bool((target.reshape(len(target), -1).sum(1) == 1).all())
        predicted = output.argmax(-1) if one else (output > threshold).long()
        truth = target.argmax(-1) if one else (target > _middle(target)).long()
    else:
        classes = 1 if output.dim() == target.dim() + 1 and output.shape[2:] == target.shape[1:] else -1
        predicted = output.argmax(classes if output.dim() > target.dim() else -1)
        truth = target.reshape(predicted.shape).long()
    # What is not a number is no answer, whatever argmax makes of it.
    return torch.where(finite.reshape(-1, *[1] * (predicted.dim() - 1)), predicted, -1), truth


def _middle(target: Tensor) -> float:
    """What divides yes from no, whichever numbers stand for them."""
    return (min(0.0, float(target.min())) + max(1.0, float(target.max()))) / 2


def _by_class(predicted: Tensor, truth: Tensor, *, recall_only: bool) -> float:
    scores = []
    for kind in torch.unique(truth).tolist():
        hit = float(((predicted == kind) & (truth == kind)).sum())
        recall = hit / max(1.0, float((truth == kind).sum()))
        precision = hit / max(1.0, float((predicted == kind).sum()))
        both = precision + recall
        scores.append(recall if recall_only else 2 * precision * recall / both if both else 0.0)
    return sum(scores) / max(1, len(scores))
