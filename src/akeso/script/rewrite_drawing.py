"""A script's own lines that draw initial weights, taken out where new ones draw all of the same weights."""

from __future__ import annotations

import ast
from collections.abc import Collection

from akeso.script.draft import Draft, name_of
from akeso.script.rewrite_classes import assigned, assignment, constructor

#: Methods that give a tensor other values in place.
_IN_PLACE = frozenset(
    {"normal_", "uniform_", "fill_", "zero_", "mul_", "div_", "trunc_normal_", "exponential_", "add_"}
)
_PARAMETERS = frozenset({"parameters", "named_parameters"})
_TRAINING = frozenset({"backward", "step", "training_step"})


def drop_drawing(draft: Draft, kinds: Collection[str], *, everything: bool) -> None:
    """Take out what draws weights of layers of these ``kinds``; of any layer where ``everything`` is drawn anew.

    A line that may draw something else is left, and so is everything in a function that is used otherwise as well.
    """
    doomed = {
        node
        for node in ast.walk(draft.tree)
        if isinstance(node, ast.Expr | ast.AugAssign) and _draws(draft, node, kinds, everything)
    }
    gone: set[ast.stmt] = set(doomed)
    while more := {node for node in _blocks(draft) if node not in gone and _is_empty(node, gone)}:
        gone |= more
    for function in [node for node in gone if isinstance(node, ast.FunctionDef)]:
        uses = [node for node in ast.walk(draft.tree) if _names(node, function.name)]
        applied = [_applied(draft, use) for use in uses]
        if None in applied:
            return
        gone |= {statement for statement in applied if statement is not None}
    for node in gone:
        if not any(parent in gone for parent in _above(draft, node)) and draft.stands_alone(node):
            _drop(draft, node, gone)


def _draws(draft: Draft, statement: ast.stmt, kinds: Collection[str], everything: bool) -> bool:
    """Whether a statement sets weights of such a layer, before training."""
    target = _target(draft, statement)
    if target is None or any(_trains(draft, parent) for parent in _above(draft, statement)[:-1]):
        return False
    if isinstance(target, ast.Attribute) and target.attr in ("weight", "bias"):
        known = _kinds_of(draft, target.value)
        return bool(known) and known <= set(kinds) if known or not everything else True
    return everything and isinstance(target, ast.Name) and _is_parameter(draft, target)


def _target(draft: Draft, statement: ast.stmt) -> ast.expr | None:
    """The tensor that a statement gives other values."""
    if isinstance(statement, ast.AugAssign):
        return _bare(statement.target) if isinstance(statement.target, ast.Attribute) else None
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute | ast.Name):
        return None
    owner = draft.text(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if owner.rpartition(".")[2] == "init" and name_of(call).endswith("_") and call.args:
        return _bare(call.args[0])
    held = isinstance(call.func, ast.Attribute) and call.func.attr in _IN_PLACE
    return _bare(call.func.value) if held and isinstance(call.func, ast.Attribute) else None


def _bare(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Attribute) and node.attr == "data" else node


def _kinds_of(draft: Draft, layer: ast.expr) -> set[str]:
    """The classes that a layer can have, as far as the lines around it or its making tell."""
    if isinstance(layer, ast.Attribute):
        init = constructor(draft, layer)
        made = assigned(assignment(init, layer.attr), layer.attr) if init is not None else None
        return {name_of(made)} if isinstance(made, ast.Call) else set()
    for parent in _above(draft, layer):
        test = parent.test if isinstance(parent, ast.If) else None
        if isinstance(test, ast.Call) and name_of(test) == "isinstance" and len(test.args) == 2:
            of, classes = test.args
            if draft.text(of) == draft.text(layer):
                return {name_of(one) for one in getattr(classes, "elts", [classes])}
    return set()


def _is_parameter(draft: Draft, name: ast.Name) -> bool:
    """Whether a name stands for every parameter of a model in turn."""
    for parent in _above(draft, name):
        if isinstance(parent, ast.For) and any(node.id == name.id for node in _names_in(parent.target)):
            return name_of(parent.iter) in _PARAMETERS
    return False


def _names_in(node: ast.AST) -> list[ast.Name]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Name)]


def _trains(draft: Draft, node: ast.AST) -> bool:
    """Whether a node is a loop that trains, or a function that makes one step: what is set there is set again."""
    if not isinstance(node, ast.For | ast.While | ast.FunctionDef):
        return False
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call) and name_of(part) in _TRAINING]
    if not isinstance(node, ast.FunctionDef):
        return bool(calls)
    inside = [_above(draft, call) for call in calls]
    loops = [any(isinstance(one, ast.For | ast.While) for one in path[: path.index(node)]) for path in inside]
    return node.name in ("forward", *_TRAINING) or not all(loops)


def _above(draft: Draft, node: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = []
    while (parent := draft.parents.get(node)) is not None:
        found.append(parent)
        node = parent
    return found


def _blocks(draft: Draft) -> list[ast.stmt]:
    kinds = (ast.If, ast.For, ast.With, ast.FunctionDef)
    return [node for node in ast.walk(draft.tree) if isinstance(node, kinds)]


def _is_empty(node: ast.stmt, gone: Collection[ast.AST]) -> bool:
    """Whether nothing is left of a block; what it says of itself does not count."""
    body = [part for part in getattr(node, "body", []) if not _is_text(part)]
    return bool(body) and all(part in gone for part in body) and not getattr(node, "orelse", [])


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _names(node: ast.AST, name: str) -> bool:
    return (isinstance(node, ast.Name) and node.id == name) or (
        isinstance(node, ast.Attribute) and node.attr == name
    )


def _applied(draft: Draft, use: ast.AST) -> ast.stmt | None:
    """The statement that does nothing but apply a function to every part of a model."""
    call = draft.parents.get(use)
    statement = draft.parents.get(call) if isinstance(call, ast.Call) and name_of(call) == "apply" else None
    return statement if isinstance(statement, ast.Expr) and use in getattr(call, "args", []) else None


def _drop(draft: Draft, node: ast.stmt, gone: Collection[ast.AST]) -> None:
    """Take a statement out; where its block would be left empty, something that does nothing stands there."""
    blocks = [getattr(draft.parents[node], name, []) for name in ("body", "orelse")]
    if any(block and node is block[0] and all(part in gone for part in block) for block in blocks):
        draft.replace(node, "pass")
    else:
        draft.drop_lines(node)
