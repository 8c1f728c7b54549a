"""Norms as a change to a script's model: at the places, and under the names, that the cure gave them.

Layers keep their names: a norm goes into the place of its activation, together with it, or becomes an attribute of
the class that calls the activation as a function. So the weights that were trained fit the model that is built.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from akeso.remedies.edit import Edit, Prescription
from akeso.script.clues import Clues
from akeso.script.draft import Draft, name_of
from akeso.script.rewrite_classes import (
    assigned,
    assignment,
    beside,
    by_line,
    constructor,
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

_LAYERS = ("Linear", "Conv1d", "Conv2d", "Conv3d")
_WIDTHS = ("out_features", "out_channels")

Norm = Mapping[str, Any]


def insert_normalisation(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Norms between layers and activations."""
    kind = str(edit.values.get("kind", "batch"))
    known: Sequence[Norm] = clues.facts.get("norms") or ()
    words = (
        [] if known else [f"put {kind} normalisation (torch.nn) between each hidden layer and its activation"]
    )
    here = [norm for norm in known if norm["place"] and norm["place"]["file"] == clues.file]
    for norms in by_line(here):
        if not _written(draft, norms):
            words += [_said(draft, norm) for norm in norms if norm["name"] not in draft.names]
    words += [_said(draft, norm) for norm in known if not norm["place"]]
    return "; ".join(words) or None


def _written(draft: Draft, norms: Sequence[Norm]) -> bool:
    """Write the norms of one line into the draft, where that is possible."""
    how = {"in place": _in_place, "before": _in_class, "behind": _in_class, "of outputs": _of_outputs}
    return how[norms[0]["how"]](draft, norms)


def _said(draft: Draft, norm: Norm) -> str:
    """One norm in words, under the name that its weights are saved by."""
    width = [*norm["groups"], norm["width"]]
    made = f"torch.nn.{norm['norm']}({', '.join(map(str, width))})"
    if norm["how"] == "in place":
        place = norm["name"].rpartition(".")[0]
        return f"make {place} an nn.Sequential of {made} and the activation that it is"
    name = _renamed(draft, norm, _attribute(norm))
    where = "what it gives" if norm["how"] != "before" else "what comes from it, before the activation"
    return f"add {name} = {made} to the model and apply it behind {norm['layer'] or 'its layer'}, to {where}"


def _attribute(norm: Norm) -> str:
    layer = str(norm["layer"]).rpartition(".")[2]
    return f"{layer}_norm" if layer.isidentifier() else f"norm_{layer}" if layer else "norm"


def _renamed(draft: Draft, norm: Norm, attribute: str) -> str:
    """The name of a norm in the model that is built, noted beside the one it was tried under."""
    name = f"{norm['owner']}.{attribute}".lstrip(".")
    draft.names[norm["name"]] = name
    return name


# in the place of an activation ------------------------------------------------------------------------------------


def _in_place(draft: Draft, norms: Sequence[Norm]) -> bool:
    calls = made_by(draft, norms)
    widths = [_width_beside(draft, call, norms) for call in calls]
    if not calls or not all(widths):
        return False
    nn = draft.alias("torch.nn")
    for call, width in zip(calls, widths, strict=True):
        draft.wrap(call, f"{nn}.Sequential({_made(nn, norms[0], width)}, ", ")")
    return True


def _width_beside(draft: Draft, call: ast.Call, norms: Sequence[Norm]) -> str:
    """The width of the layer that stands before an activation in its row; the number where it is the only one."""
    row, number = row_of(draft, call)
    layer = next((part for part in reversed(row[:number]) if name_of(part) in _LAYERS), None)
    return _width(draft, layer, norms)


def _width(draft: Draft, layer: Any, norms: Sequence[Norm]) -> str:
    """What the script gives a layer for its width where the norms have the same, else their number, if it is one."""
    sizes = {norm["width"] for norm in norms}
    given = _given_width(layer) if all(norm["width_name"] for norm in norms) else None
    if given is not None and (not isinstance(given, ast.Constant) or given.value in sizes):
        return draft.text(given)
    return str(sizes.pop()) if len(sizes) == 1 else ""


def _given_width(layer: Any) -> ast.expr | None:
    if not isinstance(layer, ast.Call) or name_of(layer) not in _LAYERS:
        return None
    named = [keyword.value for keyword in layer.keywords if keyword.arg in _WIDTHS]
    given = named or layer.args[1:2]
    return given[0] if given and not isinstance(given[0], ast.Starred) else None


def _made(nn: str, norm: Norm, width: str) -> str:
    return f"{nn}.{norm['norm']}({', '.join([*map(str, norm['groups']), width])})"


# in a class that calls the activation, or the layer, itself ---------------------------------------------------------


def _in_class(draft: Draft, norms: Sequence[Norm]) -> bool:
    """Norms that a line of ``forward`` has to call."""
    return in_class(draft, norms, _one_call, _in_loop)


def _one_call(draft: Draft, init: ast.FunctionDef, call: ast.Call, norms: Sequence[Norm]) -> bool:
    """One attribute of the class, called on what goes into the activation or comes out of the layer."""
    wrapped = call if norms[0]["how"] == "behind" else _entering(draft, call, norms[0])
    attribute = free_name(draft, init, _attribute(norms[0]))
    if wrapped is None or not _declared(draft, init, norms, attribute):
        return False
    draft.wrap(wrapped, f"{own_name(draft, call)}.{attribute}(", ")")
    return True


def _in_loop(draft: Draft, init: ast.FunctionDef, call: ast.Call, owners: Sequence[Sequence[Norm]]) -> bool:
    """``for layer in self.layers``: norms of the same number, gone through beside the layers."""
    loop, given, one = loop_around(draft, call), _entering(draft, call, owners[0][0]), owners[0][0]
    held = gone_through(draft, loop) if loop is not None else ""
    statement = assignment(init, held)
    if loop is None or given is None or statement is None:
        return False
    attribute, nn, layer = (
        free_name(draft, init, f"{held}_norms"),
        draft.alias("torch.nn"),
        draft.text(loop.target),
    )
    width = _width_gone_through(owners, held, layer)
    if not width:
        return False
    me = own_name(draft, call)
    each = f"{_made(nn, one, width)} for {layer if layer in width else '_'} in {draft.text(loop.iter)}"
    draft.add_after(statement, f"{me}.{attribute} = {nn}.ModuleList({each})")
    beside(draft, loop, f"{layer}_norm", f"{me}.{attribute}")
    draft.wrap(given, f"{layer}_norm(", ")")
    for own in owners:
        for number, norm in enumerate(own):
            _renamed(draft, norm, f"{attribute}.{number}")
    return True


def _width_gone_through(owners: Sequence[Sequence[Norm]], held: str, layer: str) -> str:
    """The width of each norm beside ``layer``, where that is the one it goes with; the number where it is in there."""
    pairs = [(norm, f"{held}.{number}") for own in owners for number, norm in enumerate(own)]
    names, sizes = {norm["width_name"] for norm, _ in pairs}, {norm["width"] for norm, _ in pairs}
    if all(layer_of(norm) == name for norm, name in pairs) and len(names) == 1 and all(names):
        return f"{layer}.{names.pop()}"
    inside = all(f"{layer_of(norm)}.".startswith(f"{name}.") for norm, name in pairs)
    return str(sizes.pop()) if inside and len(sizes) == 1 else ""


def _entering(draft: Draft, call: ast.Call, norm: Norm) -> ast.expr | None:
    return entering(draft, call, of_module=norm["of_module"])


def _of_outputs(draft: Draft, norms: Sequence[Norm]) -> bool:
    """A recurrent layer gives two things, of which the first is normalised."""
    calls = list(draft.calls({norms[0]["called"]}, int(norms[0]["place"]["line"])))
    statement = draft.statement(calls[0]) if len(calls) == 1 else None
    if not isinstance(statement, ast.Assign) or statement.value is not calls[0]:
        return False
    (target, *others) = statement.targets
    first = target.elts[0] if isinstance(target, ast.Tuple) and not others else None
    init = constructor(draft, calls[0])
    if not isinstance(first, ast.Name) or init is None:
        return False
    attribute = free_name(draft, init, _attribute(norms[0]))
    if not _declared(draft, init, norms, attribute):
        return False
    draft.add_after(statement, f"{first.id} = {own_name(draft, calls[0])}.{attribute}({first.id})")
    return True


# what both need -------------------------------------------------------------------------------------------------------


def _declared(draft: Draft, init: ast.FunctionDef, norms: Sequence[Norm], attribute: str) -> bool:
    """Make the norm where its layer is made, at the end of the constructor where that is not seen."""
    layer = layer_of(norms[0])
    made = assignment(init, layer)
    width = _width(draft, assigned(made, layer), norms)
    if not width:
        return False
    nn, me = draft.alias("torch.nn"), init.args.args[0].arg
    draft.add_after(made or init.body[-1], f"{me}.{attribute} = {_made(nn, norms[0], width)}")
    for norm in norms:
        _renamed(draft, norm, attribute)
    return True
