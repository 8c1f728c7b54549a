"""Another loss for the same prediction and target, where shapes and values allow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from akeso.errors import Refused
from akeso.torch.surgery.losses import between

#: Losses that want scores, not probabilities.
WITH_SCORES = frozenset({"cross_entropy", "binary_cross_entropy_with_logits"})
_CLASSES = ("cross_entropy", "nll_loss")
_BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
_VALUES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a loss function, arguments by name."""

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]
    substituted: bool = False

    @property
    def prediction(self) -> Tensor:
        """What is judged."""
        tensor: Tensor = self.arguments["input"]
        return tensor

    @property
    def target(self) -> Tensor:
        """What it is compared with."""
        tensor: Tensor = self.arguments["target"]
        return tensor

    def with_(self, **changes: Any) -> Call:
        """The call with other arguments."""
        return replace(self, arguments={**self.arguments, **changes})

    def __call__(self) -> Any:
        return self.function(**self.arguments)


def substituted(call: Call, new: str, scores: tuple[str, Tensor] | None) -> Call:
    """The call of loss ``new`` in place of this one; raises :class:`Refused` where that makes no sense."""
    if new == call.name:
        raise Refused(f"the loss is {new} already")
    before, raw = scores if scores is not None else ("", call.prediction)
    if new == "cross_entropy" or new == "nll_loss":
        if raw.dim() < 2 or raw.shape[1] < 2:
            raise Refused(f"{new} needs an output unit per class, but the output has shape {list(raw.shape)}")
        return _made(call, "cross_entropy", raw, _classes(call.target, raw.shape[1]))
    if new in _BINARY:
        target = _same_shape(raw, call.target).to(raw.dtype)
        if bool((target < 0).any()) or bool((target > 1).any()):
            raise Refused(f"{new} needs targets between 0 and 1")
        if before == "Sigmoid":
            return _made(call, "binary_cross_entropy_with_logits", raw, target)
        if new == "binary_cross_entropy" and before:
            return _made(call, new, call.prediction, target)
        return _made(call, "binary_cross_entropy_with_logits", raw, target)
    if new in _VALUES:
        return _made(
            call, new, call.prediction, _same_shape(call.prediction, call.target).to(call.prediction.dtype)
        )
    raise Refused(f"{new} cannot be put in from outside")


def takes_as_they_are(call: Call, target: Tensor) -> bool:
    """Whether a loss takes these targets without any change: shares of classes and of yes, and class numbers."""
    if target.is_floating_point():
        return target.shape == call.prediction.shape
    numbers = call.name == "cross_entropy" and target.dtype == torch.long
    return numbers and target.dim() == call.prediction.dim() - 1


def told_of_rates(call: Call, *, log_input: bool) -> Call:
    """The call of a loss of counts that takes what it is given for logarithms of rates, or for the rates."""
    if call.name != "poisson_nll_loss":
        raise Refused(f"{call.name} is not made for counts")
    return replace(call.with_(log_input=log_input), substituted=True)


def multiplied(call: Call, factor: float) -> Call:
    """The call on so many times the logits."""
    if call.name != "cross_entropy":
        raise Refused(f"{call.name} takes no logits of classes")
    return replace(call.with_(input=factor * call.prediction), substituted=True)


def between_zero_and_one(call: Call, low: float, high: float) -> Call:
    """The call on targets that go from 0 to 1 instead of from ``low`` to ``high``."""
    if call.name not in _BINARY:
        raise Refused(f"{call.name} takes targets as they are")
    return replace(call.with_(target=between(call.target, call.prediction, low, high)), substituted=True)


def without_missing(call: Call) -> Call:
    """The call on the samples whose target is there; the same call where that is all of them."""
    prediction, target = call.prediction, call.target
    if not target.is_floating_point() or not target.dim() or len(prediction) != len(target):
        return call
    there = torch.isfinite(target).reshape(len(target), -1).all(1)
    if bool(there.all()):
        return call
    if not bool(there.any()):
        prediction, target, there = prediction * 0, torch.zeros_like(target), torch.ones_like(there)
    return replace(call.with_(input=prediction[there], target=target[there]), substituted=True)


def _made(call: Call, name: str, prediction: Tensor, target: Tensor) -> Call:
    reduction = call.arguments.get("reduction", "mean")
    if reduction not in ("none", "sum"):
        reduction = "mean"  # kl_div knows a mean over batches
    arguments = {"input": prediction, "target": target, "reduction": reduction}
    return Call(name, getattr(F, name), arguments, substituted=True)


def _same_shape(prediction: Tensor, target: Tensor) -> Tensor:
    if prediction.numel() != target.numel():
        raise Refused(f"output {list(prediction.shape)} and target {list(target.shape)} differ in size")
    return target.reshape(prediction.shape)


def _classes(target: Tensor, units: int) -> Tensor:
    """Class numbers, or shares of classes, out of whatever the target is."""
    if target.dim() > 1 and target.shape[1] == units:
        rows = target.float().sum(1)
        if bool((target < 0).any()) or not bool(torch.allclose(rows, torch.ones_like(rows), atol=1e-3)):
            raise Refused("the targets have several classes per sample, so cross entropy does not fit")
        return target.float()
    if target.dim() == 2 and target.shape[1] == 1:
        target = target.squeeze(1)
    numbers = target.round()
    if not bool((numbers == target).all()) or bool((numbers < 0).any()) or bool((numbers >= units).any()):
        raise Refused(f"the targets are no class numbers under {units}")
    return numbers.long()


class Counts:
    """How often each class occurs in the training targets."""

    def __init__(self, everything: Tensor | None) -> None:
        self._everything = everything
        self._kept: list[Tensor] = []

    def add(self, target: Tensor) -> None:
        """Take in a batch, where the whole is not known."""
        if self._everything is None and sum(map(len, self._kept)) < 20_000:
            self._kept.append(target.detach())

    def _all(self) -> Tensor:
        return self._everything if self._everything is not None else torch.cat(self._kept)

    def _shares(self, units: int) -> Tensor:
        targets = self._all()
        if targets.dim() > 1 and targets.shape[1] == units and units > 1:
            return targets.float().reshape(len(targets), units, -1).mean((0, 2))
        numbers = torch.bincount(targets.reshape(-1).long().clamp(min=0), minlength=units)[:units].float() + 1
        return numbers / numbers.sum()

    def weighted(self, call: Call) -> Call:
        """The call with rare classes weighted by the inverse of their share."""
        if call.name in _CLASSES and call.prediction.dim() > 1:
            units = call.prediction.shape[1]
            shares = self._shares(units).to(call.prediction)
            return call.with_(weight=(1 / (units * shares.clamp(min=1e-4))).clamp(max=100))
        if call.name in _BINARY:
            share = self._all().float().mean().clamp(1e-3, 1 - 1e-3).to(call.prediction)
            if call.name == "binary_cross_entropy_with_logits":
                return call.with_(pos_weight=((1 - share) / share).clamp(max=100))
            weight = torch.where(call.target > 0.5, 0.5 / share, 0.5 / (1 - share))
            return call.with_(weight=weight)
        raise Refused(f"{call.name} has no classes to weight")

    def prior(self, call: Call) -> Tensor:
        """The scores, or values, of the best constant prediction."""
        if call.name in _CLASSES and call.prediction.dim() > 1:
            return self._shares(call.prediction.shape[1]).log().to(call.prediction)
        targets = self._all().float()
        mean = targets.reshape(len(targets), -1).mean(0).to(call.prediction)
        if call.name in _BINARY:
            return torch.logit(mean.clamp(1e-3, 1 - 1e-3))
        if call.name in _VALUES:
            return mean
        raise Refused(f"the best constant prediction under {call.name} is not known")
