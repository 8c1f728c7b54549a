"""What stood before a probability: scores are kept beside softmax and sigmoid, for losses that need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from akeso.script.prescribed.functions import ACTIVATIONS, PROBABILITIES, VIEWS
from akeso.script.prescribed.part import Handler, Part
from akeso.script.prescribed.parts.models import by_the_loss

_BEFORE = "_akeso_before"
_AXIS = "_akeso_axis"


class Outputs(Part):
    """Remembers the scores behind a tensor of probabilities, also through changes of its shape."""

    def handlers(self) -> dict[str, Handler]:
        """Functions that give probabilities, and those that reshape them, where an edit will ask."""
        asked = self.ledger.one("substitute-loss") is not None
        if not asked and not any(by_the_loss(edit) for edit in self.ledger.prescription):
            return {}
        table: dict[str, Handler] = {
            n: self._squashed for n, kind in ACTIVATIONS.items() if kind in PROBABILITIES
        }
        table.update(dict.fromkeys(VIEWS | {"__getitem__"}, self._reshaped))
        return table

    def _squashed(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        entered = args[0] if args else kwargs.get("input")
        twice = getattr(entered, _BEFORE, None)
        if twice is not None and self._taken_off(twice[0]) and not self.operation.inside_model:
            # The script turns what its model gives into probabilities itself: it takes the model's output for scores.
            args = (twice[1], *args[1:])
            kwargs = {name: value for name, value in kwargs.items() if name != "input"}
            entered = twice[1]
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and isinstance(entered, Tensor) and not func.__name__.endswith("_"):
            setattr(result, _BEFORE, (ACTIVATIONS[func.__name__], entered))
            setattr(result, _AXIS, kwargs.get("dim", args[1] if len(args) > 1 else None))
        return result

    def on_output(self, model: nn.Module, output: Any, *, training: bool) -> Any:
        """Scores for what the script evaluates, where the function that is taken off went over the samples.

        Then its answers were not even in the order of the scores: nobody can want them.
        """
        if training or not self.ledger.facts.get("over_samples") or not isinstance(output, Tensor):
            return output
        found = scores_behind(output)
        return found[1] if found is not None and over_samples(output) else output

    def _taken_off(self, activation: str) -> bool:
        """Whether the prescription takes this function off the output."""
        return any(by_the_loss(e) and e.values.get("from") == activation for e in self.ledger.prescription)

    def _reshaped(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        before = getattr(args[0], _BEFORE, None) if args else None
        if before is not None and isinstance(result, Tensor):
            setattr(result, _BEFORE, (before[0], func(before[1], *args[1:], **kwargs)))
        return result


def scores_behind(prediction: Tensor) -> tuple[str, Tensor] | None:
    """The activation a prediction came from and what it was applied to, where that was seen."""
    found: tuple[str, Tensor] | None = getattr(prediction, _BEFORE, None)
    return found


def over_samples(prediction: Tensor) -> bool:
    """Whether a softmax was taken over the samples of a batch instead of the classes."""
    axis = getattr(prediction, _AXIS, None)
    return isinstance(axis, int) and prediction.dim() > 1 and axis % prediction.dim() == 0


def log_probabilities(prediction: Tensor) -> Tensor:
    """The logarithm of probabilities: of their scores where those are at hand, which no probability of zero breaks."""
    name, scores = getattr(prediction, _BEFORE, ("", prediction))
    axis = getattr(prediction, _AXIS, None)
    if name == "Softmax" and isinstance(axis, int):
        return F.log_softmax(scores, dim=axis)
    return prediction.clamp(min=torch.finfo(prediction.dtype).tiny).log()
