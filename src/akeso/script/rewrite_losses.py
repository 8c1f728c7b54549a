"""Changes to a script's loss: another one, other targets, other shapes, classes weighted."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from akeso.remedies.edit import Edit, Prescription
from akeso.script.clues import Clues
from akeso.script.draft import Draft, name_of

#: Classes whose weights are still written out one by one.
_CLASSES: Final = 64
_MODULE: Final = {
    "cross_entropy": "CrossEntropyLoss", "nll_loss": "NLLLoss", "binary_cross_entropy": "BCELoss",
    "binary_cross_entropy_with_logits": "BCEWithLogitsLoss", "mse_loss": "MSELoss", "l1_loss": "L1Loss",
    "smooth_l1_loss": "SmoothL1Loss", "huber_loss": "HuberLoss",
}  # fmt: skip


def substitute_loss(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Another loss where the old one is made or called."""
    old, new = str(edit.values.get("from", "")), str(edit.values["to"])
    if "log_input" in edit.values:
        return _tell_of_rates(draft, bool(edit.values["log_input"]))
    done = False
    for call in draft.calls({_MODULE.get(old, ""), old} - {""}):
        if name_of(call) == old:
            owner = draft.text(call.func.value) if isinstance(call.func, ast.Attribute) else ""
            prefix = f"{owner}." if owner else f"{draft.alias('torch.nn.functional')}."
            draft.replace(call.func, f"{prefix}{new}")
        else:
            draft.replace(call.func, f"{draft.alias('torch.nn')}.{_MODULE[new]}")
        done = True
    if new == "cross_entropy" and old not in ("nll_loss", ""):
        hint = "give cross entropy raw scores of shape (batch, classes) and class numbers of type long"
        return hint if done else f"use cross entropy in the place of {old}; {hint}"
    if new == "binary_cross_entropy_with_logits":
        hint = "give it raw scores, without a sigmoid, and targets of the same shape as floats"
        return hint if done else f"use {new} in the place of {old}; {hint}"
    if new == "binary_cross_entropy" and old == "cross_entropy":
        hint = "give it targets of the same shape as the answers, as floats"
        return hint if done else f"use {new} in the place of {old}; {hint}"
    return None if done else f"use {new} in the place of {old or 'the loss'}"


def _tell_of_rates(draft: Draft, logarithms: bool) -> str | None:
    """The loss of counts told what it is given, where it is made or called."""
    calls = list(draft.calls({"PoissonNLLLoss", "poisson_nll_loss"}))
    for call in calls:
        draft.set_argument(call, "log_input", str(logarithms), 0 if name_of(call) == "PoissonNLLLoss" else 2)
    return None if calls else f"say log_input={logarithms} where poisson_nll_loss is made or called"


def scale_targets(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Targets between 0 and 1, where the loss is called with them."""
    low, high = float(edit.values["low"]), float(edit.values["high"])
    width = f" / {high - low:g}" if high - low != 1.0 else ""
    for place in clues.places.get("loss", ()):
        for call in draft.calls(None, int(place["line"])):
            loss = "loss" in draft.text(call.func).lower() or "criterion" in draft.text(call.func).lower()
            if len(call.args) == 2 and (loss or "cross_entropy" in name_of(call)):
                target = draft.text(call.args[1])
                whole = (
                    target if isinstance(call.args[1], ast.Name | ast.Attribute | ast.Call) else f"({target})"
                )
                shifted = f"({whole} {'-' if low > 0 else '+'} {abs(low):g})" if low else whole
                draft.replace(call.args[1], f"{shifted}{width}")
                return None
    return f"bring targets between 0 and 1 before the loss: (target - {low:g}) / {high - low:g}"


def mean_reduction(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """The mean over the batch instead of the sum."""
    done = False
    for call in draft.calls():
        for keyword in call.keywords:
            if keyword.arg == "reduction" and getattr(keyword.value, "value", None) == "sum":
                draft.replace(keyword.value, '"mean"')
                done = True
    return None if done else "average the loss over the batch instead of summing it"


def fix_broadcast(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """The target in the shape of the output, where the loss is called with two names."""
    for place in clues.places.get("loss", ()):
        for call in draft.calls(None, int(place["line"])):
            if len(call.args) >= 2 and isinstance(call.args[0], ast.Name) and not name_of(call)[:1].isupper():
                target = draft.text(call.args[1])
                draft.replace(call.args[1], f"{target}.reshape({call.args[0].id}.shape)")
                return None
            if (
                len(call.args) >= 2
                and isinstance(call.args[0], ast.Call)
                and "loss" in draft.text(call.func).lower()
            ):
                draft.replace(call.args[1], f"{draft.text(call.args[1])}.unsqueeze(1)")
                return None
    return "bring output and target to the same shape before the loss: target.reshape(output.shape)"


def weight_classes(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Weights of classes as numbers where the loss of the training is made or called; in words where they are many."""
    known = dict(clues.facts.get("class_weights") or {})
    values, argument, loss = known.get("values") or [], str(known.get("argument")), str(known.get("loss"))
    done = False
    if 0 < len(values) <= _CLASSES:
        device = f', device="{known["device"]}"' if known.get("device", "cpu") != "cpu" else ""
        written = f"{draft.alias('torch')}.tensor({_listed(values)}{device})"
        for call in _losses(draft, loss, clues):
            draft.set_argument(call, argument, written)
            done = True
    if done:
        return "losses that are printed are weighted by class now, where the same loss gives them"
    return (
        "weight the loss by class: counts = torch.bincount(training_targets); "
        "weight = counts.sum() / (len(counts) * counts), given to the loss as weight= (pos_weight= for one unit)"
    )


def _losses(draft: Draft, loss: str, clues: Clues) -> Iterator[ast.Call]:
    """The calls that make a loss as a module, or those that training makes of its function."""
    yield from draft.calls({_MODULE.get(loss, "")} - {""})
    for place in clues.places.get("loss", ()):
        yield from draft.calls({loss}, int(place["line"]))


def _listed(values: Sequence[float]) -> str:
    shown = ", ".join(f"{value:.6g}" for value in values)
    return f"[{shown}]" if len(values) > 1 else f"{values[0]:.6g}"
