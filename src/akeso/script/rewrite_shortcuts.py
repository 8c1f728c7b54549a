"""Shortcuts around layers as a change to a script's model, under names that the trained weights are saved by."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from akeso.remedies.edit import Edit, Prescription
from akeso.script.clues import Clues
from akeso.script.draft import Draft
from akeso.script.rewrite_classes import (
    assignment,
    beside,
    by_line,
    entering,
    free_name,
    gone_through,
    in_class,
    layer_of,
    loop_around,
    made_by,
    own_name,
    row_of,
)

_CLASS = '''

class Shortcut({nn}.Module):
    """A layer and its activation, which add to what they are given."""

    def __init__(self, layer, activation, gain):
        super().__init__()
        self.layer, self.activation = layer, activation
        self.gain = {nn}.Parameter({torch}.tensor(gain))

    def forward(self, x):
        return x + self.gain * self.activation(self.layer(x))'''

Shortcut = Mapping[str, Any]


def add_residual(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Shortcuts around layers of equal width and their activations."""
    known: Sequence[Shortcut] = clues.facts.get("shortcuts") or ()
    if not known:
        return (
            "add residual connections: let every layer of equal width add to its input, "
            "x = x + activation(layer(x)) / n with n layers in the stack"
        )
    here = [one for one in known if one["place"] and one["place"]["file"] == clues.file]
    missed = [one for group in by_line(here) if not _written(draft, group) for one in group]
    missed += [one for one in known if not one["place"]]
    if not missed:
        return None
    for one in missed:
        draft.names[one["name"]] = f"{one['layer']}_gain"
    layers = ", ".join(one["layer"] for one in missed)
    return (
        f"add residual connections around {layers}: x = x + gain * activation(layer(x)), with gain = "
        f"nn.Parameter(torch.tensor({missed[0]['gain']:.6g})), of which the weights have one per layer: "
        f"{draft.names[missed[0]['name']]} and so on"
    )


def _written(draft: Draft, shortcuts: Sequence[Shortcut]) -> bool:
    """Write the shortcuts of one line into the draft, where that is possible."""
    if shortcuts[0]["how"] == "in place":
        return _in_row(draft, shortcuts)
    return in_class(draft, shortcuts, _around_call, _in_loop)


def _in_row(draft: Draft, shortcuts: Sequence[Shortcut]) -> bool:
    """Layer and activation side by side become one part; a second one that does nothing keeps the numbers."""
    calls = made_by(draft, shortcuts)
    layers = [_layer_before(draft, call) for call in calls]
    appended = [_appended(draft, call) for call in calls]
    fits = all(layer is not None or name for layer, name in zip(layers, appended, strict=True))
    if not calls or not fits or not all(map(_is_next, shortcuts)):
        return False
    nn = draft.alias("torch.nn")
    end = f", {shortcuts[0]['gain']:.6g}), {nn}.Identity()"
    for layer, call, name in zip(layers, calls, appended, strict=True):
        if layer is not None:
            draft.put_around(layer, call, "Shortcut(", end)
        else:
            statement = draft.parents[draft.parents[call]]
            draft.put_around(call, call, f"{name}[-1:] = [Shortcut({name}[-1], ", f"{end}]")
            draft.strip(statement, call)
    _define(draft, nn)
    for one in shortcuts:
        draft.names[one["layer"]] = f"{one['layer']}.layer"
        draft.names[one["name"]] = f"{one['layer']}.gain"
        draft.names[one["activation"]] = f"{one['layer']}.activation"
    return True


def _layer_before(draft: Draft, call: ast.Call) -> ast.Call | None:
    """The layer that stands before an activation in its row."""
    row, number = row_of(draft, call)
    before = row[number - 1] if number else None
    return before if isinstance(before, ast.Call) else None


def _appended(draft: Draft, call: ast.Call) -> str:
    """The name of the list that an activation is appended to, right after its layer was."""
    holder = draft.parents.get(call)
    statement = draft.parents.get(holder) if holder is not None else None
    block: list[Any] = getattr(draft.parents.get(statement), "body", []) if statement is not None else []
    number = block.index(statement) if statement in block else 0
    names = [_append_to(one) for one in block[max(0, number - 1) : number + 1]]
    return names[0] if len(names) == 2 and names[0] == names[1] else ""


def _append_to(statement: ast.stmt) -> str:
    """The name of the list to which a statement appends what it makes."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Attribute)
        or call.func.attr != "append"
    ):
        return ""
    made = len(call.args) == 1 and isinstance(call.args[0], ast.Call)
    return call.func.value.id if made and isinstance(call.func.value, ast.Name) else ""


def _is_next(shortcut: Shortcut) -> bool:
    """Whether an activation comes right behind its layer in what holds them."""
    (where, _, layer), (home, _, activation) = (
        str(shortcut[part]).rpartition(".") for part in ("layer", "activation")
    )
    return where == home and layer.isdigit() and activation.isdigit() and int(activation) == int(layer) + 1


def _define(draft: Draft, nn: str) -> None:
    """The class of shortcuts, behind the imports at the head of the script."""
    body = draft.tree.body
    head = [one for one in body if isinstance(one, ast.Import | ast.ImportFrom)]
    until = next((one.lineno for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef)), 1 << 60)
    last = max((one for one in head if one.lineno < until), key=lambda one: one.lineno, default=body[0])
    draft.add_after(last, *_CLASS.format(nn=nn, torch=draft.alias("torch")).split("\n"))


def _around_call(draft: Draft, init: ast.FunctionDef, call: ast.Call, shortcuts: Sequence[Shortcut]) -> bool:
    """``relu(self.fc(x))`` becomes what is added to ``x``."""
    given = _given(draft, call, shortcuts[0])
    layer = layer_of(shortcuts[0])
    made = assignment(init, layer)
    if given is None or made is None:
        return False
    attribute, me = free_name(draft, init, f"{layer}_gain"), own_name(draft, call)
    gain = f"{draft.alias('torch.nn')}.Parameter({draft.alias('torch')}.tensor({shortcuts[0]['gain']:.6g}))"
    draft.add_after(made, f"{init.args.args[0].arg}.{attribute} = {gain}")
    _added(draft, call, f"{given} + {me}.{attribute} * ")
    for one in shortcuts:
        draft.names[one["name"]] = f"{one['owner']}.{attribute}".lstrip(".")
    return True


def _in_loop(
    draft: Draft, init: ast.FunctionDef, call: ast.Call, owners: Sequence[Sequence[Shortcut]]
) -> bool:
    """``for layer in self.layers``: factors of the same number, gone through beside the layers.

    The first layers of a list may have none, because they are of another width.
    """
    loop, given = loop_around(draft, call), _given(draft, call, owners[0][0])
    held = gone_through(draft, loop) if loop is not None else ""
    made = assignment(init, held)
    start = layer_of(owners[0][0]).removeprefix(f"{held}.")
    if loop is None or given is None or made is None or not start.isdigit():
        return False
    without = int(start)
    numbered = [f"{held}.{without + number}" for number in range(len(owners[0]))]
    if any([layer_of(one) for one in own] != numbered for own in owners):
        return False
    attribute, layer = free_name(draft, init, f"{held}_gains"), draft.text(loop.target)
    me, torch, through = own_name(draft, call), draft.alias("torch"), draft.text(loop.iter)
    through += f"[{without}:]" if without else ""
    each = f"{torch}.tensor({owners[0][0]['gain']:.6g}) for {layer} in {through}"
    draft.add_after(made, f"{me}.{attribute} = {draft.alias('torch.nn')}.ParameterList({each})")
    if without:
        none = f"{layer}_gain is None"
        beside(draft, loop, f"{layer}_gain", f"[{'None, ' * without}*{me}.{attribute}]")
        _added(draft, call, f"(0 if {none} else {given}) + (1 if {none} else {layer}_gain) * ")
    else:
        beside(draft, loop, f"{layer}_gain", f"{me}.{attribute}")
        _added(draft, call, f"{given} + {layer}_gain * ")
    for own in owners:
        for number, one in enumerate(own):
            draft.names[one["name"]] = f"{one['owner']}.{attribute}.{number}".lstrip(".")
    return True


def _added(draft: Draft, call: ast.Call, sum_with: str) -> None:
    """Make a call the last term of a sum."""
    alone = isinstance(draft.parents.get(call), ast.Assign | ast.Return)
    draft.put_around(call, call, sum_with if alone else f"({sum_with}", "" if alone else ")")


def _given(draft: Draft, call: ast.Call, shortcut: Shortcut) -> str | None:
    """The name of what goes into the layer whose output an activation is called on."""
    inner = entering(draft, call, of_module=shortcut["of_module"])
    if not isinstance(inner, ast.Call) or len(inner.args) != 1 or not isinstance(inner.args[0], ast.Name):
        return None
    return inner.args[0].id
