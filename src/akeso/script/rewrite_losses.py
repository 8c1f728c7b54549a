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
#: What losses are called.
_NAMES: Final = ("loss", "criterion", "crit", "mse", "l1", "objective", "entropy", "bce", "nll")
_MODULE: Final = {
    "cross_entropy": "CrossEntropyLoss", "nll_loss": "NLLLoss", "binary_cross_entropy": "BCELoss",
    "binary_cross_entropy_with_logits": "BCEWithLogitsLoss", "mse_loss": "MSELoss", "l1_loss": "L1Loss",
    "smooth_l1_loss": "SmoothL1Loss", "huber_loss": "HuberLoss", "soft_margin_loss": "SoftMarginLoss",
    "hinge_embedding_loss": "HingeEmbeddingLoss", "multi_margin_loss": "MultiMarginLoss",
    "multilabel_margin_loss": "MultiLabelMarginLoss", "multilabel_soft_margin_loss": "MultiLabelSoftMarginLoss",
    "kl_div": "KLDivLoss", "poisson_nll_loss": "PoissonNLLLoss",
}  # fmt: skip
#: What a loss can be told by name, beside what all can.
_TOLD: Final = {
    "cross_entropy": {"weight", "ignore_index", "label_smoothing"}, "nll_loss": {"weight", "ignore_index"},
    "binary_cross_entropy": {"weight"}, "binary_cross_entropy_with_logits": {"weight", "pos_weight"},
    "smooth_l1_loss": {"beta"}, "huber_loss": {"delta"},
}  # fmt: skip
_TOLD_ALL: Final = frozenset({"input", "target", "reduction"})


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
        known = _TOLD_ALL | _TOLD.get(new, set())
        draft.drop_keywords(call, {one.arg for one in call.keywords if one.arg} - known)
        done = True
    if done and clues.facts.get("targets_fit"):
        return None
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
            if len(call.args) == 2 and is_loss(draft, call):
                target = whole(draft, call.args[1])
                shifted = f"({target} {'-' if low > 0 else '+'} {abs(low):g})" if low else target
                draft.replace(call.args[1], f"{shifted}{width}")
                return None
    return f"bring targets between 0 and 1 before the loss: (target - {low:g}) / {high - low:g}"


def scale_logits(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Logits times a factor, wherever the loss is called that training goes by: in evaluation, too."""
    factor = f"{float(edit.values['factor']):g}"
    lines = [int(place["line"]) for place in clues.places.get("loss", ())]
    called = [call for line in lines for call in draft.calls(None, line) if len(call.args) > 1]
    names = {draft.text(call.func) for call in called if is_loss(draft, call)}
    for call in draft.calls():
        given = len(call.args) > 1 and not isinstance(call.args[0], ast.Starred)
        if given and draft.text(call.func) in names:
            put_around(draft, call.args[0], f"{factor} * ", "")
    return None if names else f"multiply the logits by {factor} before the loss"


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
    """The target in the shape of the output, wherever the two were seen to meet."""
    done = False
    for place in clues.places.get("broadcast") or clues.places.get("loss", ()):
        met = _compared(draft, int(place["line"]))
        if met is not None:
            output, target = met
            draft.replace(target, f"{whole(draft, target)}.{_shaped_like(output, clues)}")
            done = True
    words = "bring output and target to the same shape before the loss: target.reshape(output.shape)"
    return None if done else words


def _compared(draft: Draft, line: int) -> tuple[ast.expr, ast.expr] | None:
    """Output and target where a line calls a loss with both, or takes the one from the other."""
    given = [call for call in draft.calls(None, line) if len(call.args) >= 2]
    calls = [call for call in given if is_loss(draft, call)]
    calls = calls or [call for call in given if isinstance(call.args[0], ast.Name) and not _makes(call)]
    if calls:
        return calls[0].args[0], calls[0].args[1]
    taken = [
        node
        for node in ast.walk(draft.tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return (taken[0].left, taken[0].right) if len(taken) == 1 else None


def _shaped_like(output: ast.expr, clues: Clues) -> str:
    """What gives a target the shape of an output, which may have no name."""
    if isinstance(output, ast.Name):
        return f"reshape({output.id}.shape)"
    shape = clues.facts.get("output_shape") or (0, 1)
    return f"reshape({', '.join(str(size) for size in (-1, *shape[1:]))})"


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


def is_loss(draft: Draft, call: ast.Call) -> bool:
    """Whether what is called, not made, has a name that losses go by."""
    text = draft.text(call.func).lower()
    return any(word in text for word in _NAMES) and not _makes(call)


def _makes(call: ast.Call) -> bool:
    """Whether a call makes an object, as far as its name tells: ``MSELoss()``, not ``MSELoss()(output, target)``."""
    return name_of(call)[:1].isupper() and not isinstance(call.func, ast.Call)


def whole(draft: Draft, node: ast.expr) -> str:
    """The text of a node, as something that may be followed by a dot or an operator."""
    return draft.text(node) if _simple(node) else f"({draft.text(node)})"


def put_around(draft: Draft, node: ast.expr, before: str, after: str) -> None:
    """Make a node part of a formula, with whatever another edit changes inside of it."""
    opened, closed = ("", "") if _simple(node) else ("(", ")")
    draft.wrap(node, f"{before}{opened}", f"{closed}{after}")


def _simple(node: ast.expr) -> bool:
    """Whether a node may be followed by a dot or an operator as it stands."""
    return isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript)


def _listed(values: Sequence[float]) -> str:
    shown = ", ".join(f"{value:.6g}" for value in values)
    return f"[{shown}]" if len(values) > 1 else f"{values[0]:.6g}"
