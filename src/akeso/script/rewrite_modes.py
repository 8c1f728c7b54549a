"""Modes as a change to a script: set where its model is called for training and for evaluation."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from akeso.remedies.edit import Edit, Prescription
from akeso.script.clues import Clues
from akeso.script.draft import Draft, name_of
from akeso.script.rewrite_classes import method
from akeso.script.rewrite_model import trained

#: What models are mostly called, where the line that makes the optimizer does not tell.
_USUAL: Final = ("model", "net", "network")
_WITHOUT_GRADIENTS: Final = ("no_grad", "inference_mode", "set_grad_enabled")


def set_mode(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """Training mode before each step, evaluation mode before each evaluation."""
    done = False
    for statement, name in _calls(draft, clues, "trained"):
        draft.add_before(statement, f"{name}.train()")
        done = True
    for statement, name in _calls(draft, clues, "evaluated"):
        draft.add_before(_outermost(draft, statement), f"{name}.eval()")
        done = True
    if done:
        return None
    return (
        "call model.train() before each pass over the training data and model.eval() before each evaluation"
    )


def _calls(draft: Draft, clues: Clues, phase: str) -> Iterator[tuple[ast.stmt, str]]:
    """The statements that call the model in one phase, and what it is called there."""
    found = trained(draft, clues)
    names = {found[1].rpartition(".")[2]} if found is not None else set(_USUAL)
    for place in clues.places.get(f"called when {phase}", ()):
        for call in draft.calls(names, int(place["line"])):
            statement = draft.statement(call)
            if statement is not None:
                yield statement, draft.text(call.func)
                break


def _outermost(draft: Draft, statement: ast.stmt) -> ast.stmt:
    """What begins an evaluation: the block, or the function, for which gradients are switched off."""
    function = method(draft, statement)
    if function is not None and any(_switches(decorator) for decorator in function.decorator_list):
        return function.body[0]
    found, current = statement, draft.parents.get(statement)
    while current is not None and current is not function:
        if isinstance(current, ast.With) and any(_switches(item.context_expr) for item in current.items):
            found = current
        current = draft.parents.get(current)
    return found


def _switches(node: ast.AST) -> bool:
    return name_of(node) in _WITHOUT_GRADIENTS
