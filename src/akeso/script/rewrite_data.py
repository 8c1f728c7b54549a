"""Scales of inputs and targets as a change to a script: where they enter the model, leave it and meet in the loss."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from akeso.remedies.edit import Edit, Prescription
from akeso.script.clues import Clues
from akeso.script.draft import Draft
from akeso.script.rewrite_losses import is_loss, put_around, whole
from akeso.script.rewrite_model import trained

#: Features whose figures are still written out one by one.
_FEATURES = 64
#: Outputs whose figures are still written out in a line.
_OUTPUTS = 8
#: Where standardised inputs are cut off.
_BOUND = 10
#: Dimensions of inputs whose features are not along the last one, with what stands behind these.
_BEHIND = {4: ", 1, 1", 5: ", 1, 1, 1"}


def scale_inputs(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Inputs cleaned and standardised where they enter the model."""
    scale = dict(clues.facts.get("input_scale") or {})
    mean, spread = scale.get("mean") or [], scale.get("std") or []
    left_out = "leave samples out whose target is not finite, in training and in validation"
    beside = left_out if clues.facts.get("missing_targets") else None
    found = trained(draft, clues)
    called = list(draft.calls({found[1].rpartition(".")[2]})) if found is not None else []
    only_clean = edit.values.get("kind") == "none"
    if not mean or found is None or not called or len(mean) > _FEATURES:
        words = _cleaned_in_words(scale, only_clean)
        return f"{words}; {beside}" if beside else words
    plain = not (only_clean or scale.get("dirty")) and len(set(mean)) == len(set(spread)) == 1
    if plain and found[1].isidentifier():
        for call in called:
            if call.args:
                put_around(draft, call.args[0], "(", f" - {mean[0]:.6g}) / {spread[0]:.6g}")
    else:
        statement, name = found
        lines = _entrance(draft, scale, only_clean)
        draft.add_before(statement, *lines, f"{name}.register_forward_pre_hook(scaled_inputs)")
    return beside


def _entrance(draft: Draft, scale: Mapping[str, Any], only_clean: bool) -> list[str]:
    """A function that cleans and scales what a model is called with, and the figures it needs."""
    torch = draft.alias("torch")
    used = ([] if only_clean else ["mean", "std"]) + [
        part for part in ("fill", "low", "high") if scale.get(part)
    ]
    used = [part for part in used if not (only_clean and part in ("low", "high"))]
    behind = _BEHIND.get(int(scale.get("dims", 2)), "")
    shaped = f".reshape(-1{behind})" if behind else ""
    lines = [
        f"inputs_{part} = {torch}.tensor({_listed(scale[part])}){shaped}  # of the training inputs"
        for part in used
    ]
    codes = scale.get("codes") or []
    lines += [
        f"inputs_code_{number} = {torch}.tensor({_exactly(row)}, dtype={torch}.float64){shaped}"
        "  # stands for a missing value"
        for number, row in enumerate(codes)
    ]
    value = "args[0].float()" if scale.get("whole_numbers") else "args[0]"
    lines += ["def scaled_inputs(module, args):", f"    x = {value}"]
    lines += [
        f"    x = {torch}.where(x == inputs_code_{number}.to(x), inputs_fill.to(x), x)"
        for number in range(len(codes))
    ]
    if "fill" in used:
        lines.append(f"    x = {torch}.where({torch}.isfinite(x), x, inputs_fill.to(x))")
    if "low" in used:
        lines.append("    x = x.clamp(inputs_low.to(x), inputs_high.to(x))")
    if "mean" in used:
        lines.append(f"    x = ((x - inputs_mean.to(x)) / inputs_std.to(x)).clamp(-{_BOUND}, {_BOUND})")
    return [*lines, "    return (x, *args[1:])"]


def _listed(values: Sequence[float]) -> str:
    """Numbers as a list in the source."""
    shown = (f"{value:.9g}" if math.isfinite(value) else f'float("{value}")' for value in values)
    return f"[{', '.join(shown)}]"


def _exactly(values: Sequence[float]) -> str:
    """Numbers as a list in the source, one where all are the same, to the last bit: they are looked for."""
    shown = [
        f'float("{value}")' if math.isnan(value) else f"{value!r}".removesuffix(".0") for value in values
    ]
    return f"[{', '.join(shown[:1] if len(set(shown)) == 1 else shown)}]"


def _cleaned_in_words(scale: Mapping[str, Any], only_clean: bool) -> str:
    found = scale.get("found") or []
    steps = []
    codes = "".join(f" ({note})" for note in found if "taken as missing" in note)
    if only_clean or any("not finite" in note or "missing" in note for note in found):
        steps.append(
            f"replace inputs that are not finite{codes} by the median of their feature in the training inputs"
            + _shown("", scale.get("fill"))
        )
    if not only_clean and any("far out" in note for note in found):
        steps.append(
            "pull in outliers" + _shown("below", scale.get("low")) + _shown("above", scale.get("high"))
        )
    if not only_clean:
        steps.append(
            "standardise the inputs, x = (x - mean) / std, with mean and std of the training inputs alone"
            + _shown("here mean", scale.get("mean"))
            + _shown("std", scale.get("std"))
        )
    return "; then ".join(steps)


def _shown(name: str, values: Sequence[float] | None) -> str:
    return f" ({name} {short(list(values))})".replace("( ", "(") if values else ""


def turn_pictures(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """The axis of colours moved where pictures enter the model."""
    found = trained(draft, clues)
    if found is None:
        return (
            "move the axis of the colours with permute, not with reshape or view: "
            "x.reshape(samples, height, width, colours).permute(0, 3, 1, 2)"
        )
    statement, name = found
    lines = [
        "# the colours of a pixel lie side by side: their axis has to be moved, which reshape does not do",
        "def turned_pictures(module, args):",
        "    x = args[0]",
        "    x = x.reshape(x.shape[0], *x.shape[2:], x.shape[1]).permute(0, 3, 1, 2).contiguous()",
        "    return (x, *args[1:])",
        f"{name}.register_forward_pre_hook(turned_pictures)",
    ]
    draft.add_before(statement, *lines)
    return None


def standardise_targets(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """What the model gives brought into the units of the targets, and both into standard units for the loss."""
    scale = dict(clues.facts.get("target_scale") or {})
    mean, spread = scale.get("mean") or [], scale.get("std") or []
    found = trained(draft, clues)
    losses = list(_loss_calls(draft, clues))
    if 1 <= len(mean) <= _OUTPUTS and found is not None and len(losses) == 1:
        statement, name = found
        by, shift = (_constant(draft, values, "out") for values in (spread, mean))
        draft.add_before(
            statement,
            "# the model answers in the units of the targets, and learns in standard ones",
            f"{name}.register_forward_hook(lambda module, args, out: out * {by} + {shift})",
        )
        target = whole(draft, losses[0].args[1])
        by, shift = (_constant(draft, values, target) for values in (spread, mean))
        for part in losses[0].args[:2]:
            put_around(draft, part, "(", f" - {shift}) / {by}")
        return "the loss that is printed while training is in standard units now"
    used = (
        f" (the saved weights belong to mean {short(mean)} and std {short(spread)}, of the batches seen first where "
        "the script keeps no dataset)"
        if mean
        else ""
    )
    return (
        "train on standardised targets, (y - mean) / std with mean and std of the training targets, "
        f"and give predictions back as output * std + mean{used}"
    )


def _constant(draft: Draft, values: Sequence[float], like: str) -> str:
    """A number, or one for each output, where another tensor is."""
    if len(values) == 1:
        return f"{values[0]:.9g}"
    return f"{draft.alias('torch')}.tensor({_listed(values)}).to({like})"


def _loss_calls(draft: Draft, clues: Clues) -> Iterator[ast.Call]:
    """The calls of a loss with output and target, where training makes them."""
    seen: set[int] = set()
    for place in clues.places.get("loss", ()):
        for call in draft.calls(None, int(place["line"])):
            if len(call.args) == 2 and is_loss(draft, call) and id(call) not in seen:
                seen.add(id(call))
                yield call


def short(values: list[float], most: int = 16) -> str:
    """The first of many figures."""
    shown = ", ".join(f"{value:.4g}" for value in values[:most])
    return f"[{shown}{', …' if len(values) > most else ''}]"
