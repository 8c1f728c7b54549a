"""Edits of the loss, where the script calls one of torch's loss functions or modules."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from akeso.errors import Refused
from akeso.remedies.edit import Edit
from akeso.script.prescribed.ledger import Ledger
from akeso.script.prescribed.loss_changes import (
    WITH_SCORES,
    Call,
    Counts,
    between_zero_and_one,
    multiplied,
    substituted,
    takes_as_they_are,
    told_of_rates,
    without_missing,
)
from akeso.script.prescribed.part import Part
from akeso.script.prescribed.parts.models import by_the_loss
from akeso.script.prescribed.parts.outputs import log_probabilities, over_samples, scores_behind
from akeso.script.prescribed.parts.targets import VALUE_LOSSES, Targets
from akeso.script.prescribed.places import caller
from akeso.script.prescribed.targets_of import known_targets
from akeso.script.prescribed.unseen import unseen
from akeso.torch.quiet import quiet
from akeso.torch.surgery.operation import operate

if TYPE_CHECKING:
    from akeso.script.prescribed.operation import Operation

_BY_HAND = "the script computes its loss by hand, not with a loss function of torch"


class Losses(Part):
    """Takes every call of a loss function. Evaluation losses are handed back in the script's own measure."""

    remedies: ClassVar = {
        "substitute-loss": _BY_HAND,
        "mean-reduction": "no loss was summed by a loss function of torch",
        "weight-classes": _BY_HAND,
        "scale-targets": _BY_HAND,
        "scale-logits": _BY_HAND,
        "fix-broadcast": "no output and target of different shape but equal size were compared",
        "set-output-bias": _BY_HAND,
        "standardise-targets": "the script computes its loss by hand, or not as a regression",
        "substitute-activation": "no such activation was seen where the loss looks at the output",
    }

    def __init__(self, operation: Operation, ledger: Ledger) -> None:
        super().__init__(operation, ledger)
        self._targets = Targets(operation, ledger)
        self._counts: Counts | None = None
        self._bias: Tensor | None = None
        self.evaluations: list[tuple[int, float]] = []  # step, mean loss in the script's measure
        self._phase: list[tuple[float, int]] = []
        operation.on_training.append(self._end_phase)

    def on_output(self, model: Any, output: Any, *, training: bool) -> Any:
        """Outputs go through the units of the targets."""
        return self._targets.on_output(model, output)

    # the call ---------------------------------------------------------------------------------------------

    def call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute a loss as prescribed."""
        try:
            arguments = dict(inspect.signature(func).bind(*args, **kwargs).arguments)
        except (TypeError, ValueError):
            return func(*args, **kwargs)
        prediction, target = arguments.get("input"), arguments.get("target")
        if not isinstance(prediction, Tensor) or not isinstance(target, Tensor):
            return func(*args, **kwargs)
        call = Call(func.__name__, func, arguments)
        training = torch.is_grad_enabled() and prediction.requires_grad
        if training:
            self.ledger.place("loss", caller(2))
            return self._training_loss(call)
        return self._evaluation_loss(call)

    def _training_loss(self, call: Call) -> Any:
        changed = self._changed(call, training=True)
        rescaled = [self.ledger.one("weight-classes"), self.ledger.one("mean-reduction")]
        if any(edit is not None and self.ledger.is_applied(edit) for edit in rescaled):
            result = changed()
            return (
                _valued(result, self._changed(call, training=False)) if isinstance(result, Tensor) else result
            )
        edit = self.ledger.one("standardise-targets")
        if edit is not None and changed.name in VALUE_LOSSES:
            try:
                return self._targets.standard_loss(
                    edit, changed.function, changed.arguments, changed.prediction, changed.target
                )
            except Refused as refusal:
                self.ledger.object_to(edit, str(refusal))
        return changed()

    def _evaluation_loss(self, call: Call) -> Any:
        changed = self._changed(call, training=False)
        result = changed()
        if changed.substituted:
            own = result
        elif changed is not call:
            with quiet():
                own = call()
        else:
            own = result
        if isinstance(own, Tensor) and own.numel() == 1:
            self._phase.append((float(own), len(call.prediction) if call.prediction.dim() else 1))
        return own

    def _end_phase(self) -> None:
        if self._phase:
            samples = sum(n for _, n in self._phase)
            self.evaluations.append((self.operation.steps, sum(v * n for v, n in self._phase) / samples))
            self._phase = []

    def finish(self) -> None:
        """Close the last evaluation."""
        self._end_phase()

    # the changes ------------------------------------------------------------------------------------------

    def _changed(self, call: Call, *, training: bool) -> Call:
        call = self._complete(self._reshaped(call))
        for edit in self.ledger.prescription:
            if edit in self.ledger.refused:
                continue
            try:
                if by_the_loss(edit):
                    call = self._on_scores(call, edit)
                elif edit.remedy == "substitute-loss":
                    call = self._substituted(call, edit)
                elif edit.remedy == "scale-targets":
                    call = between_zero_and_one(call, float(edit.values["low"]), float(edit.values["high"]))
                elif edit.remedy == "scale-logits":
                    call = multiplied(call, float(edit.values["factor"]))
                elif edit.remedy == "weight-classes" and training:
                    call = self._weighted(call)
                elif edit.remedy == "mean-reduction" and training:
                    if call.arguments.get("reduction") != "sum":
                        continue
                    call = call.with_(reduction="mean")
                elif edit.remedy == "set-output-bias" and training and self._bias is None:
                    self._bias = self._count(call).prior(call)
                    continue
                else:
                    continue
            except Refused as refusal:
                self.ledger.object_to(edit, str(refusal))
            else:
                if training or edit.remedy != "weight-classes":
                    self.ledger.mark(edit)
        return call

    def _substituted(self, call: Call, edit: Edit) -> Call:
        """The prescribed loss, of the scores behind probabilities where it wants those.

        That takes the function between them off the output, asked for or not: it is part of what is to be changed.
        """
        if "log_input" in edit.values:
            return told_of_rates(call, log_input=bool(edit.values["log_input"]))
        behind = scores_behind(call.prediction)
        changed = substituted(call, str(edit.values["to"]), behind)
        fit = self.ledger.facts.get("targets_fit", True) and takes_as_they_are(changed, call.target)
        self.ledger.facts["targets_fit"] = fit
        if behind is not None and changed.prediction is behind[1]:
            self.ledger.facts["taken_off"] = behind[0]
            for other in self.ledger.prescription:
                if by_the_loss(other) and other.values.get("to") in ("none", "Identity"):
                    self.ledger.mark(other)
        return changed

    def _on_scores(self, call: Call, edit: Edit) -> Call:
        found = scores_behind(call.prediction)
        if found is None:
            raise Refused("the loss was not given the output of a softmax or sigmoid that could be seen")
        if edit.values.get("to") == "LogSoftmax" and found[0] == "Softmax":
            return call.with_(input=log_probabilities(call.prediction))
        if call.name in WITH_SCORES:
            if over_samples(call.prediction):
                self.ledger.facts["over_samples"] = True
            return call.with_(input=found[1])
        raise Refused(f"{call.name} needs the {found[0]} it is given")

    def _reshaped(self, call: Call) -> Call:
        edit = self.ledger.one("fix-broadcast")
        prediction, target = call.prediction, call.target
        if edit is None or prediction.shape == target.shape or call.name in ("cross_entropy", "nll_loss"):
            return call
        if prediction.numel() != target.numel():
            self.ledger.object_to(
                edit, f"shapes {list(prediction.shape)} and {list(target.shape)} differ in size"
            )
            return call
        self._brought_together(edit, prediction)
        return call.with_(target=target.reshape(prediction.shape))

    def _brought_together(self, edit: Edit, output: Tensor) -> None:
        """Note where an output and a target of another shape meet, in training or in evaluation."""
        self.ledger.mark(edit)
        self.ledger.place("broadcast", caller(2))
        self.ledger.facts["output_shape"] = list(output.shape)

    def _complete(self, call: Call) -> Call:
        """Where inputs are cleaned, samples without a target are left out."""
        if self.ledger.one("scale-inputs") is None:
            return call
        complete = without_missing(call)
        if complete is not call:
            self.ledger.facts["missing_targets"] = True
        return complete

    def subtract(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A loss written by hand: a column minus a row of equal size would give a square."""
        edit = self.ledger.one("fix-broadcast")
        if edit is not None and len(args) > 1 and isinstance(args[0], Tensor) and isinstance(args[1], Tensor):
            first, second = args[0], args[1]
            mixed = first.shape != second.shape and first.numel() == second.numel() > 1
            if mixed and (first.requires_grad or second.requires_grad) and not self.operation.inside_model:
                self._brought_together(edit, first)
                return func(first, second.reshape(first.shape), *args[2:], **kwargs)
        return func(*args, **kwargs)

    def _weighted(self, call: Call) -> Call:
        changed = self._count(call).weighted(call)
        argument = "pos_weight" if "pos_weight" in changed.arguments else "weight"
        weights = changed.arguments[argument]
        if weights.shape != call.target.shape or call.name in ("cross_entropy", "nll_loss"):
            self.ledger.facts["class_weights"] = {
                "loss": call.name,
                "argument": argument,
                "values": weights.reshape(-1).tolist(),
                "device": str(weights.device),
            }
        return changed

    def _count(self, call: Call) -> Counts:
        if self._counts is None:
            everything = known_targets(self.operation.current_loader, call.target)
            self._counts = Counts(everything)
        self._counts.add(call.target)
        return self._counts

    def before_step(self, optimizer: Optimizer) -> None:
        """Set the output's bias once the gradients of the first step are taken."""
        edit = self.ledger.one("set-output-bias")
        if edit is None or self._bias is None or self.ledger.is_applied(edit):
            return
        for model in reversed(self.operation.models):
            args, kwargs = self.operation.example(model)
            with self.operation.quietly(), unseen():
                done = operate(model, [edit], args, kwargs, output_bias=self._bias)
            if not done.refused:
                self.ledger.mark(edit)
                return
            self.ledger.object_to(edit, done.refused[0][1])


def _valued(loss: Tensor, plain: Call) -> Tensor:
    """The loss with its gradient, but the value of the plain call, which is what the script reports."""
    with quiet():
        value = plain()
    if not isinstance(value, Tensor) or value.shape != loss.shape or not bool(torch.isfinite(value).all()):
        return loss
    return value + (loss - loss.detach())
