"""A copy of a script's source under revision: calls found by line and name, replaced or added to."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Collection, Iterable, Iterator
from typing import Any


def name_of(node: ast.AST) -> str:
    """The last part of a called or used name: ``Sigmoid`` of ``torch.nn.Sigmoid``."""
    if isinstance(node, ast.Call):
        return name_of(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def in_order(calls: Iterable[ast.Call]) -> list[ast.Call]:
    """Calls in the order in which they are made: those inside of others come first."""
    return sorted(calls, key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0))


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
        self._arguments: dict[int, dict[str, str]] = {}  # added at the end of calls
        self.names: dict[
            str, str
        ] = {}  # parts of the model that are called otherwise here than where they were tried
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

    def stands_alone(self, statement: ast.AST) -> bool:
        """Whether a statement has its lines to itself."""
        first, last = self._span(statement)
        before = self._bytes[:first].rpartition(b"\n")[2]
        behind = self._bytes[last:].partition(b"\n")[0].strip()
        return not before.strip() and (not behind or behind.startswith(b"#"))

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

    def now(self, node: ast.AST) -> str:
        """What stands in the place of a node by now."""
        return self._changes.get(self._span(node), self.text(node))

    def put_around(self, first: ast.AST, last: ast.AST, before: str, after: str) -> None:
        """Put text before one node and behind another, outside of what was put there already."""
        begin, end = self._span(first)[0], self._span(last)[1]
        self._changes[begin, begin] = before + self._changes.get((begin, begin), "")
        self._changes[end, end] = self._changes.get((end, end), "") + after

    def strip(self, outer: ast.AST, inner: ast.AST) -> None:
        """Take away what a node has around another one inside of it."""
        (first, last), (begin, end) = self._span(outer), self._span(inner)
        self.replace_between(first, begin, "")
        self.replace_between(end, last, "")

    def wrap(self, node: ast.AST, before: str, after: str) -> None:
        """Put text on both sides of a node, whatever becomes of the node itself; what is put there later is inside."""
        first, last = self._span(node)
        self._changes[first, first] = self._changes.get((first, first), "") + before
        self._changes[last, last] = after + self._changes.get((last, last), "")

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
        text = [(margin + line).rstrip() for line in lines]
        if not any(new[start : start + len(text)] == text for start in range(len(new))):
            new[:0] = text

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
        new = self._arguments.setdefault(end, {})
        new[name] = value
        separator = ", " if call.args or call.keywords else ""
        inside = self._bytes[:end].rstrip()
        if inside.endswith(b","):
            separator = " "
        added = ", ".join(f"{argument}={text}" for argument, text in new.items())
        self.replace_between(end, end, f"{separator}{added}")

    def keep_first(self, call: ast.Call, others: str = "") -> None:
        """Put other text in the place of all arguments of a call but the first."""
        last = self._span(call.args[0])[1]
        end = self._span(call)[1] - 1
        if self._bytes[last:end].decode().strip(" ,") or others:
            self.replace_between(last, end, others)

    def make_argument(self, node: ast.AST, call: ast.Call, function: str, others: str = "") -> None:
        """Give a function the node whose method a call was, which other changes may still reach."""
        self.wrap(node, f"{function}(", "")
        self.replace_between(self._span(node)[1], self._span(call)[1], f"{others})")

    def drop_keywords(self, call: ast.Call, names: Collection[str]) -> None:
        """Take keyword arguments out of a call, each with the comma before it, or with what stands before the next."""
        given: list[ast.expr | ast.keyword] = sorted(
            [*call.args, *call.keywords], key=lambda one: self._span(one)
        )
        kept = False
        for place, one in enumerate(given):
            if not isinstance(one, ast.keyword) or one.arg not in names:
                kept = True
                continue
            first, last = self._span(one)
            if kept:
                first = len(self._bytes[:first].rstrip()) - 1
            elif place + 1 < len(given):
                last = self._span(given[place + 1])[0]
            else:
                last = self._span(call)[1] - 1
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
        spans = [(first, last) for first, last, _ in edits if first < last]
        for first, last, value in edits:
            if not any(_inside((first, last), span) for span in spans):
                text = text[:first] + value + text[last:]
        return self._with_imports(text.decode())

    def _with_imports(self, text: str) -> str:
        """The text with torch imported, where only what was changed calls it by that name."""
        if self._knows("torch"):
            return text
        try:
            uses = _uses(ast.parse(text), "torch")
        except SyntaxError:
            return text
        first = next((one for one in self.tree.body if _is_import(one)), None)
        if not uses or first is None:
            return text
        lines = text.splitlines(keepends=True)
        lines.insert(first.lineno - 1, "import torch\n")
        return "".join(lines)

    def _knows(self, name: str) -> bool:
        """Whether the script has a use for a name already, or imports it."""
        imported = (
            item.asname or item.name.partition(".")[0]
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for item in node.names
        )
        return name in imported or _uses(self.tree, name)

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


def _uses(tree: ast.AST, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


def _is_import(statement: ast.stmt) -> bool:
    """Whether a statement imports something, and not from the future, which has to come first."""
    if isinstance(statement, ast.ImportFrom):
        return statement.module != "__future__"
    return isinstance(statement, ast.Import)


def _inside(part: tuple[int, int], span: tuple[int, int]) -> bool:
    """Whether a part lies in a span, apart from what is put right before or behind it."""
    (first, last), (begin, end) = part, span
    return (begin < first < end) if first == last else (begin <= first and last <= end and part != span)
