"""What stands in the wrong order in a script: optimizers made before their layers, gradients clipped while scaled."""

from __future__ import annotations

import ast
from typing import Any

from akeso.remedies.edit import Edit, Prescription
from akeso.script.clues import Clues
from akeso.script.draft import Draft, name_of
from akeso.script.rewrite_classes import method


def given_parameters(draft: Draft, optimizer: ast.Call) -> ast.Call | None:
    """The call of ``parameters()`` that an optimizer is given, by way of a list and of one name as well.

    Those that are frozen may be left out of it.
    """
    given: ast.AST | None = optimizer.args[0] if optimizer.args else None
    if isinstance(given, ast.Name):
        given = _set_once(draft, given)
    if isinstance(given, ast.Call) and name_of(given) == "list" and len(given.args) == 1:
        given = given.args[0]
    given = _not_frozen(draft, given) or given
    return given if isinstance(given, ast.Call) and name_of(given) == "parameters" else None


def _not_frozen(draft: Draft, given: ast.AST | None) -> ast.expr | None:
    """What is gone through for all that is trainable: the end of a ``filter``, or of a comprehension."""
    if isinstance(given, ast.Call) and name_of(given) == "filter" and len(given.args) == 2:
        test, through = given.args
        return through if "requires_grad" in draft.text(test) else None
    if not isinstance(given, ast.ListComp | ast.GeneratorExp) or len(given.generators) != 1:
        return None
    (each,) = given.generators
    trainable = [f"{draft.text(given.elt)}.requires_grad"] == [draft.text(test) for test in each.ifs]
    return each.iter if trainable and draft.text(each.target) == draft.text(given.elt) else None


def _set_once(draft: Draft, name: ast.Name) -> ast.expr | None:
    """What a name stands for that is set once in its function and used nowhere else."""
    home: ast.AST = method(draft, name) or draft.tree
    uses = [node for node in ast.walk(home) if isinstance(node, ast.Name) and node.id == name.id]
    stores = [draft.statement(node) for node in uses if isinstance(node.ctx, ast.Store)]
    plain = len(uses) == 2 and len(stores) == 1
    return stores[0].value if plain and isinstance(stores[0], ast.Assign) else None


def made_later(draft: Draft, optimizer: ast.Call, clues: Clues) -> bool | None:
    """Move an optimizer behind the layers that replace what it was given, where nothing in between needs it.

    None where nothing is replaced, False where the optimizer has to stay where it is.
    """
    made, given = draft.statement(optimizer), given_parameters(draft, optimizer)
    owner = given.func.value if given is not None and isinstance(given.func, ast.Attribute) else None
    if made is None or owner is None:
        return None
    behind = _behind(draft, made)
    replaced = [place for place, one in enumerate(behind) if _replaces(draft, one, draft.text(owner), clues)]
    if not replaced:
        return None
    # A list that was made before would still hold what is replaced.
    together = draft.statement(owner) is made and isinstance(made, ast.Assign) and draft.stands_alone(made)
    between = behind[: replaced[-1] + 1]
    names = {name_of(target) for target in getattr(made, "targets", ())}
    if not together or any(name_of(node) in names for one in between for node in ast.walk(one)):
        return False
    lines = [line.removeprefix(" " * made.col_offset) for line in draft.text(made).splitlines()]
    draft.drop_lines(made)
    draft.add_after(between[-1], *lines)
    return True


def _behind(draft: Draft, statement: ast.stmt) -> list[ast.stmt]:
    """The statements that follow one in the same block."""
    holder: Any = draft.parents.get(statement)
    blocks = [getattr(holder, name, None) for name in ("body", "orelse", "finalbody")]
    for block in blocks:
        if isinstance(block, list) and statement in block:
            return list(block[block.index(statement) + 1 :])
    return []


def _replaces(draft: Draft, statement: ast.stmt, given: str, clues: Clues) -> bool:
    """Whether a statement puts a new layer where parameters were seen to be missing, into what the optimizer got."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    if not isinstance(target, ast.Attribute):
        return False
    parts = {part for name in clues.facts.get("left_out") or () for part in str(name).split(".")[:-1]}
    written = draft.text(target)
    return target.attr in parts and (written == given or written.startswith(f"{given}."))


def delay_zero_grad(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """What clears gradients before the step moved behind it, where both stand in the same block."""
    done = False
    for place in clues.places.get("cleared before the step", ()):
        for call in draft.calls({"zero_grad"}, int(place["line"])):
            statement = draft.statement(call)
            behind = _behind(draft, statement) if statement is not None else []
            step = next((one for one in behind if any(_steps(node) for node in ast.walk(one))), None)
            if statement is None or step is None or not draft.stands_alone(statement):
                continue
            text = draft.text(statement)
            draft.drop_lines(statement)
            draft.add_after(step, text)
            done = True
    return None if done else "clear gradients after the step or before the backward pass, not between the two"


def _steps(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and name_of(node) == "step"


def unscale_gradients(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """The loss scale taken off the gradients of the optimizer that steps next, right before they are clipped."""
    done = False
    for place in clues.places.get("clipped while scaled", ()):
        for call in draft.calls({"clip_grad_norm_", "clip_grad_value_"}, int(place["line"])):
            statement, step = draft.statement(call), _step_of_scaler(draft, call)
            if statement is None or step is None or not isinstance(step.func, ast.Attribute):
                continue
            draft.add_before(statement, f"{draft.text(step.func.value)}.unscale_({draft.text(step.args[0])})")
            done = True
    words = "take the loss scale off the gradients before they are clipped: scaler.unscale_(optimizer)"
    return None if done else words


def _step_of_scaler(draft: Draft, clipping: ast.Call) -> ast.Call | None:
    """The call by which a scaler lets an optimizer step that comes after a clipping in the same block."""
    statement = draft.statement(clipping)
    for one in [] if statement is None else _behind(draft, statement):
        for call in ast.walk(one):
            if isinstance(call, ast.Call) and name_of(call) == "step" and len(call.args) == 1:
                return call
    return None
