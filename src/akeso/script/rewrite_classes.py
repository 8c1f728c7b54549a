"""What a change to a model has to find in the classes of a script."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from akeso.script.draft import Draft, in_order, name_of

#: What is known of a part that goes into a model: its names, the layer and the activation it goes with, its place.
Part: TypeAlias = Mapping[str, Any]

#: What activations are called that are chosen elsewhere: by a table, a setting or an argument.
_CHOSEN: Final = re.compile(r"(^|_)(act|activation|activate|nonlin\w*|nl)(_|$)", re.IGNORECASE)


def assignment(init: ast.FunctionDef, attribute: str) -> ast.stmt | None:
    """The statement of a constructor in which an attribute is first set."""
    for statement in init.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Store):
                return statement
    return None


def assigned(statement: ast.stmt | None, attribute: str) -> ast.AST | None:
    """What is assigned to an attribute in a statement, one of several as well."""
    if not isinstance(statement, ast.Assign):
        return None
    for target in statement.targets:
        if getattr(target, "attr", None) == attribute:
            return statement.value
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            for one, value in zip(target.elts, statement.value.elts, strict=False):
                if getattr(one, "attr", None) == attribute:
                    return value
    return None


def in_module_list(draft: Draft, held: Mapping[str, str]) -> bool:
    """Keep in a module list or dict what a class holds in a plain one, where the constructor first sets it."""
    for node in ast.walk(draft.tree):
        if not isinstance(node, ast.ClassDef) or node.name != held["class"]:
            continue
        made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
        first = assignment(made[0], held["attribute"]) if made else None
        value = first.value if isinstance(first, ast.AnnAssign) else assigned(first, held["attribute"])
        if isinstance(value, ast.expr) and held["kind"] in ("ModuleList", "ModuleDict"):
            empty = isinstance(value, ast.List | ast.Dict) and draft.text(value)[1:-1].strip() == ""
            inside = "" if empty else draft.text(value)
            draft.replace(value, f"{draft.alias('torch.nn')}.{held['kind']}({inside})")
            return True
    return False


def entering(draft: Draft, call: ast.Call, *, of_module: bool) -> ast.expr | None:
    """What an activation is called on: its argument, or the tensor whose method it is."""
    modules = {draft.alias("torch"), draft.alias("torch.nn.functional"), "torch", "F", "nn.functional"}
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if owner is not None and not of_module and draft.text(owner) not in modules:
        return owner
    return call.args[0] if call.args and not isinstance(call.args[0], ast.Starred) else None


def method(draft: Draft, node: ast.AST) -> ast.FunctionDef | None:
    """The function in which a node stands."""
    current: ast.AST | None = node
    while current is not None and not isinstance(current, ast.FunctionDef):
        current = draft.parents.get(current)
    return current


def constructor(draft: Draft, node: ast.AST) -> ast.FunctionDef | None:
    """The constructor of the class in whose method a node stands."""
    function = method(draft, node)
    holder = draft.parents.get(function) if function is not None else None
    for part in holder.body if isinstance(holder, ast.ClassDef) else ():
        if isinstance(part, ast.FunctionDef) and part.name == "__init__" and part.args.args:
            return part
    return None


def own_name(draft: Draft, node: ast.AST) -> str:
    """What the object is called in the method in which a node stands."""
    function = method(draft, node)
    return function.args.args[0].arg if function is not None and function.args.args else "self"


def free_name(draft: Draft, init: ast.FunctionDef, wanted: str) -> str:
    """A name for an attribute that the class has no other use for."""
    holder = draft.parents[init]
    taken = {node.attr for node in ast.walk(holder) if isinstance(node, ast.Attribute)}
    taken |= {name.rpartition(".")[2] for name in draft.names.values()}
    while wanted in taken:
        wanted += "_2"
    return wanted


def gone_through(draft: Draft, loop: ast.For) -> str:
    """The attribute of the object whose parts a loop goes through one by one; empty where it does anything else."""
    held = loop.iter.value if isinstance(loop.iter, ast.Subscript) else loop.iter
    names = {node.id for node in ast.walk(loop.iter) if isinstance(node, ast.Name)}
    own = isinstance(loop.target, ast.Name) and names == {own_name(draft, loop)}
    return held.attr if own and isinstance(held, ast.Attribute) and isinstance(held.value, ast.Name) else ""


def loop_around(draft: Draft, node: ast.AST) -> ast.For | None:
    """The innermost loop of the same function in which a node stands."""
    current: ast.AST | None = draft.parents.get(node)
    while current is not None and not isinstance(current, ast.For | ast.FunctionDef):
        current = draft.parents.get(current)
    return current if isinstance(current, ast.For) else None


def beside(draft: Draft, loop: ast.For, name: str, parts: str) -> None:
    """Let a loop go through other parts as well, each called ``name`` beside what it goes through already."""
    target, through = draft.now(loop.target), draft.now(loop.iter)
    already = through != draft.text(loop.iter)
    draft.replace(loop.target, f"{target}, {name}")
    draft.replace(loop.iter, f"{through[:-1]}, {parts})" if already else f"zip({through}, {parts})")


def in_class(
    draft: Draft,
    parts: Sequence[Part],
    at_call: Callable[[Draft, ast.FunctionDef, ast.Call, Sequence[Part]], bool],
    in_loop: Callable[[Draft, ast.FunctionDef, ast.Call, Sequence[Sequence[Part]]], bool],
) -> bool:
    """Write parts that one line of a method calls for into its class, where that is possible.

    There are as many as there are calls in the line, each written ``at_call``, or one per pass of a loop around it. All
    objects of the class have them.
    """
    calls, owners = _called_in(draft, parts), _by_owner(parts)
    counts = {len(own) for own in owners}
    if not calls or len(counts) != 1 or (init := constructor(draft, calls[0])) is None:
        return False
    if counts == {len(calls)}:
        pairs = [(call, [own[number] for own in owners]) for number, call in enumerate(calls)]
        return all(at_call(draft, init, call, own) for call, own in pairs)
    return len(calls) == 1 and in_loop(draft, init, calls[0], owners)


def _by_owner(parts: Sequence[Part]) -> list[list[Part]]:
    """Parts in groups: those that one object has."""
    owners: dict[str, list[Part]] = {}
    for part in parts:
        owners.setdefault(part["owner"], []).append(part)
    return list(owners.values())


def by_line(parts: Sequence[Part]) -> list[list[Part]]:
    """Parts in groups: those that one line of the script makes or calls for."""
    lines: dict[tuple[str, int], list[Part]] = {}
    for part in parts:
        lines.setdefault((part["how"], int(part["place"]["line"])), []).append(part)
    return list(lines.values())


def _called_in(draft: Draft, parts: Sequence[Part]) -> list[ast.Call]:
    """The calls in the line that parts belong to, in the order in which they are made."""
    names = {part["called"] for part in parts}
    return in_order(draft.calls(names | {f"{name}_" for name in names}, int(parts[0]["place"]["line"])))


def layer_of(part: Part) -> str:
    """What the object that has a part calls the layer that this goes with."""
    return str(part["layer"]).removeprefix(part["owner"]).lstrip(".")


def made_by(draft: Draft, parts: Sequence[Part]) -> list[ast.Call]:
    """The calls that make the activations that parts go with: one each, or one for all of them in a loop."""
    calls, made = _called_in(draft, parts), parts[0]["made_there"]
    calls = calls or chosen_elsewhere(
        draft, int(parts[0]["place"]["line"]), directly=parts[0]["made_directly"]
    )
    if len(parts) == made:
        return calls
    return [calls[part["number_there"]] for part in parts] if len(calls) == made else []


def chosen_elsewhere(draft: Draft, line: int, *, directly: bool) -> list[ast.Call]:
    """The calls at a line that must be the activation, though its name does not stand there: ``act()``, ``act(x)``.

    A module that the line makes ``directly`` is made without arguments, unless what makes it is called so; all of them
    are the same.
    """
    found = []
    for call in in_order(draft.calls(None, line)):
        called_so = bool(_CHOSEN.search(name_of(call.func)))
        given = bool(call.args or call.keywords)
        if (called_so and given) or (directly and not given and name_of(call) != "super"):
            found.append(call)
    return found if len({draft.text(call.func) for call in found}) == 1 else []


def row_of(draft: Draft, call: ast.Call) -> tuple[list[Any], int]:
    """The list or the arguments in which a call stands, and its number among them; nothing where it stands alone."""
    parent = draft.parents.get(call)
    row: list[Any] = getattr(parent, "elts", None) or getattr(parent, "args", None) or []
    return (row, row.index(call)) if call in row else ([], 0)
