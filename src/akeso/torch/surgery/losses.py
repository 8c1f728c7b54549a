"""Other losses, given the outputs and targets that the program has."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from akeso.errors import BadInput, Refused

Loss = Callable[..., Tensor]

_TINY = 1e-7
_VALUES: dict[str, Loss] = {
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": F.huber_loss,
}
TASK_LOSSES = ("cross_entropy", "binary_cross_entropy_with_logits", *_VALUES)


@dataclass(frozen=True, eq=False)
class TaskLoss:
    """A loss that takes outputs and targets in whatever form the program has them.

    ``on`` says what the outputs are: "logits", "probabilities" or "log-probabilities". Targets may be class
    indices (also as floats, also with a dimension of one), one-hot rows, 0 and 1, or values.
    """

    name: str
    on: str = "logits"
    weight: Tensor | None = None

    def __post_init__(self) -> None:
        if self.name not in TASK_LOSSES:
            raise BadInput(f"The loss must be one of {', '.join(TASK_LOSSES)}, but got {self.name!r}.")

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        if self.name in _VALUES:
            output, target = same_shape(output, target.to(output.dtype))
            return _VALUES[self.name](output, target)
        if self.name == "cross_entropy" and output.dim() > 1 and output.shape[1] > 1:
            return self._classes(output, target)
        return self._yes_or_no(output, target)

    def _classes(self, output: Tensor, target: Tensor) -> Tensor:
        logs = output if self.on != "probabilities" else torch.log(output.clamp_min(_TINY))
        weight = None if self.weight is None else self.weight.to(output)
        return F.cross_entropy(logs, class_targets(output, target), weight=weight)

    def _yes_or_no(self, output: Tensor, target: Tensor) -> Tensor:
        output, target = same_shape(output, target.to(output.dtype))
        target = ((target + 1) / 2 if bool((target < 0).any()) else target).clamp(0, 1)
        if self.on == "logits":
            weight = None if self.weight is None else (self.weight[-1] / self.weight[0]).to(output)
            return F.binary_cross_entropy_with_logits(output, target, pos_weight=weight)
        chance = output.exp() if self.on == "log-probabilities" else output
        return F.binary_cross_entropy(chance.clamp(_TINY, 1 - _TINY), target)


def class_targets(output: Tensor, target: Tensor) -> Tensor:
    """Targets as class indices, or as class probabilities where they are that."""
    if target.shape == output.shape and target.is_floating_point():
        return target
    if target.dim() == output.dim() and target.shape[1] == 1:
        target = target.squeeze(1)
    return target.long()


def same_shape(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Output and target of one sample beside each other instead of every one against every other."""
    if output.shape == target.shape:
        return output, target
    if output.numel() != target.numel():
        raise Refused(f"outputs {tuple(output.shape)} and targets {tuple(target.shape)} do not pair up")
    return output, target.reshape(output.shape)


@dataclass(frozen=True, eq=False)
class Reconciled:
    """The program's loss on outputs and targets of the same shape."""

    loss: Loss

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        if output.shape != target.shape and output.numel() == target.numel():
            target = target.reshape(output.shape)
        return self.loss(output, target)


@dataclass(frozen=True, eq=False)
class PerSample:
    """A loss summed over the batch, divided by the number of samples."""

    loss: Loss

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        return self.loss(output, target) / max(1, len(target))


@dataclass(frozen=True, eq=False)
class InUnits:
    """A loss on standardised values, for outputs and targets in the original units."""

    loss: Loss
    mean: Tensor
    scale: Tensor

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        mean, scale = self.mean.to(output), self.scale.to(output)
        return self.loss((output - mean) / scale, (target.to(output.dtype) - mean) / scale)


@dataclass(frozen=True, eq=False)
class Between:
    """A loss that wants targets between 0 and 1, for targets between two other numbers."""

    loss: Loss
    low: float
    high: float

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        return self.loss(output, between(target, output, self.low, self.high))


@dataclass(frozen=True, eq=False)
class Multiplied:
    """A loss of scores, given so many times what the model gives."""

    loss: Loss
    factor: float

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        return self.loss(self.factor * output, target)


def multiplied(loss: Loss, factor: float) -> Loss:
    """Cross entropy on so many times the logits."""
    if loss_name(loss) != "cross_entropy":
        raise Refused(f"the loss {loss_name(loss)} takes no logits of classes")
    return Multiplied(loss, factor)


def between(target: Tensor, output: Tensor, low: float, high: float) -> Tensor:
    """Targets from ``low`` to ``high`` as numbers from 0 to 1, in the kind of the output."""
    if not high > low:
        raise Refused(f"targets are all {low:g}: there is no yes and no")
    return ((target.to(output.dtype) - low) / (high - low)).clamp(0, 1)


def averaged(loss: Loss) -> Loss:
    """The loss averaged over the batch instead of summed."""
    if isinstance(loss, nn.Module) and getattr(loss, "reduction", None) == "sum":
        twin: Any = copy.deepcopy(loss)
        twin.reduction = "mean"
        return twin  # type: ignore[no-any-return]
    if isinstance(loss, functools.partial) and loss.keywords.get("reduction") == "sum":
        return functools.partial(loss.func, *loss.args, **{**loss.keywords, "reduction": "mean"})
    return PerSample(loss)


def told_of_rates(loss: Loss, *, log_input: bool) -> Loss:
    """A loss of counts that takes what it is given for logarithms of rates, or for the rates themselves."""
    if isinstance(loss, nn.PoissonNLLLoss):
        twin = copy.deepcopy(loss)
        twin.log_input = log_input
        return twin
    plain = loss.func if isinstance(loss, functools.partial) else loss
    if plain is F.poisson_nll_loss or getattr(plain, "__name__", "") == "poisson_nll_loss":
        return functools.partial(loss, log_input=log_input)
    raise Refused(f"the loss {getattr(plain, '__name__', type(plain).__name__)} is not made for counts")


def weighted(loss: Loss, weight: Tensor) -> Loss:
    """The loss with rare classes weighted up."""
    known = getattr(loss, "__name__", type(loss).__name__)
    if isinstance(loss, TaskLoss):
        return TaskLoss(loss.name, loss.on, weight)
    if known in ("CrossEntropyLoss", "NLLLoss"):
        twin: Any = copy.deepcopy(loss)
        twin.register_buffer("weight", weight)
        return twin  # type: ignore[no-any-return]
    if known in ("cross_entropy", "nll_loss"):
        return functools.partial(loss, weight=weight)
    if known in ("BCEWithLogitsLoss", "binary_cross_entropy_with_logits"):
        return functools.partial(F.binary_cross_entropy_with_logits, pos_weight=weight[-1] / weight[0])
    raise Refused(f"class weights cannot be put into the loss {known}")


def loss_name(loss: Any) -> str:
    """The name of a loss as torch.nn.functional has it, "custom" for one of the user's own.

    >>> loss_name(nn.BCEWithLogitsLoss())
    'binary_cross_entropy_with_logits'
    """
    if isinstance(loss, TaskLoss):
        return loss.name
    if isinstance(loss, Reconciled | PerSample | InUnits | Multiplied):
        return loss_name(loss.loss)
    if isinstance(loss, functools.partial):
        return loss_name(loss.func)
    known = {
        "CrossEntropyLoss": "cross_entropy", "NLLLoss": "nll_loss", "BCELoss": "binary_cross_entropy",
        "BCEWithLogitsLoss": "binary_cross_entropy_with_logits", "MSELoss": "mse_loss", "L1Loss": "l1_loss",
        "SmoothL1Loss": "smooth_l1_loss", "HuberLoss": "huber_loss", "KLDivLoss": "kl_div",
    }  # fmt: skip
    if isinstance(loss, nn.Module):
        return known.get(type(loss).__name__, "custom")
    name = getattr(loss, "__name__", "custom")
    own = inspect.isfunction(loss) and getattr(loss, "__module__", "") == "torch.nn.functional"
    return name if own or inspect.isbuiltin(loss) else "custom"


def class_weights(targets: Tensor, classes: int) -> Tensor:
    """Weights that make every class count alike, at most a hundred to one, with mean one over samples."""
    labels = (
        targets.argmax(1) if targets.dim() > 1 and targets.shape[1] == classes > 1 else targets.reshape(-1)
    )
    counts = torch.bincount(labels.long().cpu().clamp_min(0), minlength=classes).float()
    weights = counts.sum() / (classes * counts.clamp_min(1.0))
    weights = weights.clamp_max(100.0 * float(weights.min()))
    return weights / float((weights * counts).sum() / counts.sum().clamp_min(1.0))
