"""A copy of a script's source under revision: calls found by line and name, replaced or added to."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from typing import Any


def name_of(node: ast.AST) -> str:
    """The last part of a called or used name: ``Sigmoid`` of ``torch.nn.Sigmoid``."""
    if isinstance(node, ast.Call):
        return name_of(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


class Draft:
    """Replacements and new lines for one file; nothing is ever written to it."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.source = source
        self.tree = ast.parse(source)
        self._bytes = source.encode()
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._changes: dict[tuple[int, int], str] = {}
        self._new: dict[int, list[str]] = {}  # before this line
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    # finding ----------------------------------------------------------------------------------------------

    def calls(self, names: Any = None, line: int | None = None) -> Iterator[ast.Call]:
        """The calls of functions with one of these last names, those that cover a line where one is given."""
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Call) or (names is not None and name_of(node) not in names):
                continue
            if names is not None and isinstance(node.func, ast.Call):
                continue  # Softmax(dim=1)(x): what is called there has no name
            if line is None or node.lineno <= line <= (node.end_lineno or node.lineno):
                yield node

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The statement a node belongs to."""
        current: ast.AST | None = node
        while current is not None and not isinstance(current, ast.stmt):
            current = self.parents.get(current)
        return current

    def text(self, node: ast.AST) -> str:
        """The source of a node."""
        return self._bytes[slice(*self._span(node))].decode()

    def alias(self, module: str) -> str:
        """What the script calls a module: ``nn`` for ``torch.nn`` where it says ``import torch.nn as nn``."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for item in node.names:
                    if item.name == module and item.asname:
                        return item.asname
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for item in node.names:
                    if f"{node.module}.{item.name}" == module:
                        return item.asname or item.name
        parent, _, last = module.rpartition(".")
        return f"{self.alias(parent)}.{last}" if parent else module

    # changing ---------------------------------------------------------------------------------------------

    def replace(self, node: ast.AST, text: str) -> None:
        """Put other text in the place of a node."""
        self._changes[self._span(node)] = text

    def replace_between(self, first: int, last: int, text: str) -> None:
        """Put other text between two byte offsets."""
        self._changes[first, last] = text

    def drop_lines(self, statement: ast.stmt) -> None:
        """Take a statement out with the lines it stands on, comments behind it as well."""
        first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
        self.replace_between(self._starts[first], self._starts[min(last, len(self._starts) - 1)], "")

    def add_before(self, statement: ast.stmt, *lines: str) -> None:
        """Add lines before a statement, at its depth."""
        margin = " " * statement.col_offset
        new = self._new.setdefault(statement.lineno, [])
        new += [margin + line for line in lines if margin + line not in new]

    def add_after(self, statement: ast.stmt, *lines: str) -> None:
        """Add lines after a statement, at its depth."""
        margin = " " * statement.col_offset
        new = self._new.setdefault((statement.end_lineno or statement.lineno) + 1, [])
        new[:0] = [margin + line for line in lines if margin + line not in new]

    def set_argument(self, call: ast.Call, name: str, value: str, position: int | None = None) -> None:
        """Give a call's argument another value; one that is not there is added."""
        for keyword in call.keywords:
            if keyword.arg == name:
                self.replace(keyword.value, value)
                return
        if position is not None and len(call.args) > position:
            self.replace(call.args[position], value)
            return
        end = self._span(call)[1] - 1
        separator = ", " if call.args or call.keywords else ""
        inside = self._bytes[:end].rstrip()
        if inside.endswith(b","):
            separator = " "
        self.replace_between(end, end, f"{separator}{name}={value}")

    def drop_argument(self, call: ast.Call, name: str) -> None:
        """Take a keyword argument out of a call."""
        for keyword in call.keywords:
            if keyword.arg == name:
                first, last = self._span(keyword)
                before = self._bytes[:first].rstrip()
                first = len(before) - 1 if before.endswith(b",") else first
                self.replace_between(first, last, "")

    # result -----------------------------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        """Whether anything is different."""
        return bool(self._changes or self._new)

    def revised(self) -> str:
        """The source with every change made."""
        text = self._bytes
        edits = [(first, last, value.encode()) for (first, last), value in self._changes.items()]
        for line, new in self._new.items():
            start = self._starts[min(line - 1, len(self._starts) - 1)]
            block = "".join(f"{entry}\n" for entry in new).encode()
            if start == len(text) and text and not text.endswith(b"\n"):
                block = b"\n" + block
            edits.append((start, start, block))
        # From the end on; what lies inside a replaced part goes with it.
        edits.sort(key=lambda edit: (edit[0], edit[1]), reverse=True)
        limit = len(text) + 1
        for first, last, value in edits:
            if last <= limit:
                text = text[:first] + value + text[last:]
                limit = first if last > first else limit
        return text.decode()

    def diff(self) -> str:
        """The change as a unified diff."""
        lines = difflib.unified_diff(
            self.source.splitlines(keepends=True),
            self.revised().splitlines(keepends=True),
            f"a/{self.path}",
            f"b/{self.path}",
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def _span(self, node: Any) -> tuple[int, int]:
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )
