"""Lines of a program on which the order of a set, or the hash of a text, can reach its results.

Such an order cannot be watched from outside: sets are iterated over in C. That it matters is proved by running
the program under two hash seeds; the lines are then read off the source.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

_ORDERED = {"sorted", "len", "min", "max", "sum", "any", "all", "set", "frozenset", "isinstance", "bool"}
_SET_METHODS = {"union", "intersection", "difference", "symmetric_difference", "copy"}


@dataclass(frozen=True, slots=True)
class HashUse:
    """A line whose result follows the hash seed."""

    file: str
    line: int
    what: str


def hash_uses(path: Path) -> list[HashUse]:
    """The lines of a file that iterate over a set or take the hash of something."""
    try:
        tree = ast.parse(path.read_text())
    except (OSError, SyntaxError, ValueError):
        return []
    visitor = _Visitor(str(path), _set_names(tree))
    visitor.visit(tree)
    return sorted(visitor.found, key=lambda use: use.line)


def _set_names(tree: ast.AST) -> set[str]:
    """Names that are bound to a set somewhere in the file; repeated until nothing new turns up."""
    names: set[str] = set()
    while True:
        before = len(names)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and _is_set(node.value, names):
                names |= {_name(target) for target in node.targets if _name(target)}
            elif isinstance(node, ast.AnnAssign) and node.value is not None and _is_set(node.value, names):
                names |= {_name(node.target)} - {""}
        if len(names) == before:
            return names


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _is_set(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            return node.func.id in ("set", "frozenset")
        return (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in _SET_METHODS
            and _is_set(node.func.value, names)
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return _is_set(node.left, names) and (_is_set(node.right, names) or isinstance(node.op, ast.Sub))
    return _name(node) in names and isinstance(node, ast.Name | ast.Attribute)


class _Visitor(ast.NodeVisitor):
    def __init__(self, file: str, names: set[str]) -> None:
        self._file, self._names = file, names
        self._ordered: set[int] = set()
        self.found: list[HashUse] = []

    def _add(self, node: ast.AST, what: str) -> None:
        use = HashUse(self._file, getattr(node, "lineno", 0), what)
        if use not in self.found:
            self.found.append(use)

    def visit_For(self, node: ast.For) -> None:
        if _is_set(node.iter, self._names):
            self._add(node, "a set is iterated over")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = _name(node.func)
        if called in _ORDERED and isinstance(node.func, ast.Name):
            self._ordered |= {id(argument) for argument in node.args}
        elif called == "hash" and isinstance(node.func, ast.Name):
            self._add(node, "the hash of a value is taken")
        elif (
            called == "pop" and isinstance(node.func, ast.Attribute) and _is_set(node.func.value, self._names)
        ):
            self._add(node, "an arbitrary member is taken from a set")
        elif called not in ("add", "update", "discard", "remove", "print", *_SET_METHODS):
            for argument in node.args:
                if _is_set(argument, self._names):
                    self._add(node, "a set is turned into a sequence")
        self.generic_visit(node)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> None:
        # sorted(f(x) for x in some_set) is in order again.
        if id(node) not in self._ordered and any(_is_set(part.iter, self._names) for part in node.generators):
            self._add(node, "a set is iterated over")
        self.generic_visit(node)

    visit_ListComp = visit_GeneratorExp = visit_DictComp = _comprehension
