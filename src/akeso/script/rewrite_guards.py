"""Functions kept off the edge of their range as a change to a script, at the lines where they met it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, TypeGuard

from akeso.remedies.edit import Edit, Prescription
from akeso.script.clues import Clues
from akeso.script.draft import Draft, name_of
from akeso.script.rewrite_classes import entering

#: What keeps an argument off the edge, by the kind of function that it goes into.
_KEPT_OFF: Final = {
    "root": ".clamp(min=1e-12)",
    "bounded": ".clamp(-1 + 1e-6, 1 - 1e-6)",
}
_NAMES: Final = {
    "root": {"sqrt", "rsqrt", "log", "log2", "log10", "pow", "float_power"},
    "bounded": {"acos", "asin", "arccos", "arcsin", "atanh", "arctanh"},
}
_WORDS: Final = (
    "keep roots, logarithms and fractional powers off zero, where their slope is infinite: "
    "torch.sqrt(x.clamp(min=1e-12)), torch.log(p.clamp(min=1e-12))"
)


def guard_functions(draft: Draft, edit: Edit, clues: Clues, _: Prescription) -> str | None:
    """The argument of a function kept off the edge where it came there; in words where no line shows it."""
    done = False
    for kind, kept_off in _KEPT_OFF.items():
        for place in clues.places.get(f"edge of {kind}", ()):
            for node in _arguments(draft, kind, int(place["line"])):
                simple = isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
                draft.wrap(node, "" if simple else "(", kept_off if simple else f"){kept_off}")
                done = True
    for place in clues.places.get("edge of quotient", ()):
        for node in _divisors(draft, int(place["line"])):
            draft.wrap(node, "(", " + 1e-12)")
            done = True
    for place in clues.places.get("edge of std", ()):
        for call in draft.calls({"std"}, int(place["line"])):
            if isinstance(call.func, ast.Attribute):
                draft.replace(call.func, f"{draft.text(call.func.value)}.var")
                draft.wrap(call, "", ".clamp(min=1e-12).sqrt()")
                done = True
    return None if done else _WORDS


def _arguments(draft: Draft, kind: str, line: int) -> Iterator[ast.expr]:
    """What such functions are called on in a line, roots that are written as powers included."""
    for call in draft.calls(_NAMES[kind], line):
        node = entering(draft, call, of_module=False)
        if node is not None and (name_of(call) not in ("pow", "float_power") or _is_root(call.args[-1])):
            yield node
    for part in ast.walk(draft.tree) if kind == "root" else ():
        if _covers(part, line, ast.Pow) and _is_root(part.right):
            yield part.left


def _divisors(draft: Draft, line: int) -> Iterator[ast.expr]:
    for node in ast.walk(draft.tree):
        if _covers(node, line, ast.Div) and not isinstance(node.right, ast.Constant):
            yield node.right


def _covers(node: ast.AST, line: int, operator: type[ast.operator]) -> TypeGuard[ast.BinOp]:
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, operator)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    )


def _is_root(power: ast.expr) -> bool:
    """Whether a power is a number below one that is not whole: others have a slope everywhere."""
    if isinstance(power, ast.UnaryOp) and isinstance(power.op, ast.USub):
        power = power.operand
        return isinstance(power, ast.Constant) and isinstance(power.value, float) and power.value % 1 != 0
    return isinstance(power, ast.Constant) and isinstance(power.value, float) and 0 < power.value < 1
