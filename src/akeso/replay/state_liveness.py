"""Which variables a loop carries from one iteration to the next, read from the source.

A name is *carried* when the body of a loop both assigns it and may read it before assigning it: ``total +=
x``, ``best = min(best, x)``. A name that every iteration assigns before it reads is scratch. Iterators
hidden in the head of a loop (``enumerate``, ``zip``, ``islice``) carry a position that no variable shows, and are
reported too.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

_Loop = ast.For | ast.While
_STREAMS = ("batches", "epochs", "iterations")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class LoopNames:
    """What the loops around one line do with their names."""

    scratch: frozenset[str]
    """Names the innermost loop assigns before it reads them: worth nothing between two iterations.

    A name that only some iterations assign is none of them where it is read after the loop: the best epoch."""
    scratch_at_end: frozenset[str]
    """Names worth nothing once the innermost loop is over."""
    read: frozenset[str]
    counters: tuple[tuple[str, int], ...]
    """Names counted by an ``enumerate`` that starts at zero, each with its line."""
    hidden: tuple[tuple[str, int], ...]
    """Loops over ``zip`` of several things, or ``islice``, each with its line."""


@lru_cache(maxsize=256)
def loops_around(code: CodeType, line: int, at_head: bool = True) -> LoopNames | None:
    """Return what the loops around a line carry; ``None`` where there is no source, or no loop.

    Not ``at_head``, the line is one in the middle of an iteration: what was assigned before it is still needed.
    """
    scope = _scope(code)
    if scope is None:
        return None
    nodes = _own_nodes(scope)
    loops = [node for node in nodes if isinstance(node, ast.For | ast.While) and _spans(node, line)]
    if not loops:
        return None
    loops.sort(key=lambda loop: (loop.lineno, -(loop.end_lineno or 0)))
    inner = loops[-1]
    outside = {name for loop in loops[:-1] for name in _carried(loop)}
    assigned = _assigned(inner)
    after = {
        node.id
        for node in ast.walk(scope)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and node.lineno > (inner.end_lineno or 0)
    }
    # Functions of the scope may be called after the loop wherever they stand.
    elsewhere = {name for node in nodes if isinstance(node, _SCOPES) for name in _read(node)}
    needed = outside | _carried(inner) | (set() if at_head else _exposed_from(inner.body, line))
    # A loop further out is entered anew by a resumed process and counts its way through what is done.
    counters, hidden = _head(inner, scope) if isinstance(inner, ast.For) else ([], [])
    return LoopNames(
        scratch=frozenset(assigned - needed - (_seldom(inner) & (after | elsewhere))),
        scratch_at_end=frozenset(assigned - outside - after),
        read=frozenset(_read(loops[0])),
        counters=tuple(counters),
        hidden=tuple(hidden),
    )


@lru_cache(maxsize=256)
def loops_of(code: CodeType, line: int) -> tuple[ast.For, ...]:
    """Return the ``for`` loops around a line, the innermost first."""
    scope = _scope(code)
    nodes = _own_nodes(scope) if scope is not None else []
    loops = [node for node in nodes if isinstance(node, ast.For) and _spans(node, line)]
    return tuple(sorted(loops, key=lambda loop: (-loop.lineno, loop.end_lineno or 0)))


@lru_cache(maxsize=256)
def begins_with(loop: ast.For) -> bool:
    """Tell whether the program works out with which number a loop begins: ``range(start, n)``."""
    for call in (node for node in ast.walk(loop.iter) if isinstance(node, ast.Call)):
        name = _called(call)
        if ("range" in name and len(call.args) > 1) or (name == "count" and call.args):
            return not isinstance(call.args[0], ast.Constant | ast.UnaryOp)
    return False


def _called(call: ast.Call) -> str:
    """Return the last word of what is called."""
    function = call.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _carried(loop: _Loop) -> set[str]:
    exposed = _Exposed()
    start = set(_stored(loop.target)) if isinstance(loop, ast.For) else set()
    if isinstance(loop, ast.While):
        exposed.expression(loop.test, start)
    exposed.body(loop.body, start)
    return exposed.names & _assigned(loop)


def _exposed_from(statements: list[ast.stmt], line: int) -> set[str]:
    """Return what the statements from a line on may read before they assign it."""
    found: set[str] = set()
    for number, node in enumerate(statements):
        if line <= (node.end_lineno or node.lineno):
            compound = isinstance(node, ast.If | ast.With | ast.Try | ast.For | ast.While | ast.Match)
            exposed = _Exposed()
            exposed.body(statements[number + compound :], set())
            for part in ("body", "orelse", "finalbody", "handlers", "cases"):
                for block in _blocks(getattr(node, part, []) if compound else []):
                    found |= _exposed_from(block, line)
            return found | exposed.names
    return found


def _blocks(parts: Any) -> list[list[ast.stmt]]:
    """Return the bodies of handlers and cases, or a body itself."""
    if parts and not isinstance(parts[0], ast.stmt):
        return [part.body for part in parts]
    return [parts] if parts else []


def _seldom(loop: _Loop) -> set[str]:
    """Return the names that an iteration may leave as they were."""
    flow = _Exposed()
    done: set[str] = set(_stored(loop.target)) if isinstance(loop, ast.For) else set()
    ends = [] if flow.body(loop.body, done) else [done]
    ends += flow.continued
    surely = set.intersection(*ends) if ends else set[str]()
    return _assigned(loop) - surely


def _assigned(loop: _Loop) -> set[str]:
    stored = {name for node in loop.body for name in _stored(node)}
    return stored | (set(_stored(loop.target)) if isinstance(loop, ast.For) else set())


def _read(tree: ast.AST) -> set[str]:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {node.id for node in nodes if isinstance(node.ctx, ast.Load)}


def _head(loop: ast.For, scope: ast.AST) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Return what the head of a loop counts with ``enumerate``, and what else hides a position in it."""
    counters: list[tuple[str, int]] = []
    hidden: list[tuple[str, int]] = []
    first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else None
    for call in _wrappers(loop.iter, scope):
        name = _called(call)
        if name == "enumerate" and len(call.args) == 1 and not call.keywords and isinstance(first, ast.Name):
            nodes = (node for statement in loop.body for node in ast.walk(statement))
            if any(
                isinstance(node, ast.Name) and node.id == first.id and isinstance(node.ctx, ast.Load)
                for node in nodes
            ):
                counters.append((first.id, loop.lineno))
        if (name == "zip" and len(call.args) > 1) or name == "islice":
            hidden.append((name, loop.lineno))
    return counters, hidden


def _wrappers(head: ast.expr, scope: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that what a loop goes over is wrapped in: ``tqdm(enumerate(stream))``."""
    seen: set[str] = set()
    while True:
        if isinstance(head, ast.Name) and head.id not in seen:
            seen.add(head.id)
            given = [
                node.value
                for node in _own_nodes(scope)
                if isinstance(node, ast.Assign)
                and any(isinstance(target, ast.Name) and target.id == head.id for target in node.targets)
            ]
            if len(given) != 1:
                return
            head = given[0]
        elif isinstance(head, ast.Call) and _called(head) not in _STREAMS and head.args:
            yield head
            head = head.args[0]
        else:
            return


def _scope(code: CodeType) -> ast.AST | None:
    text = "".join(linecache.getlines(code.co_filename))
    tree = _parsed(text) if text else None
    if tree is None or code.co_name == "<module>":
        return tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    return None


@lru_cache(maxsize=32)
def _parsed(text: str) -> ast.AST | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def _own_nodes(scope: ast.AST) -> list[ast.AST]:
    """Return the nodes of a scope without those of functions inside it."""
    found: list[ast.AST] = []
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, (*_SCOPES, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(node))
    return found


def _spans(loop: _Loop, line: int) -> bool:
    return loop.lineno <= line <= (loop.end_lineno or loop.lineno)


def _stored(node: ast.AST) -> list[str]:
    """Return the names a statement binds, not counting those of functions inside it."""
    found: list[str] = []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    for child in [node, *_own_nodes(node)]:
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store | ast.Del):
            found.append(child.id)
        elif isinstance(child, ast.FunctionDef | ast.ClassDef):
            found.append(child.name)
        elif isinstance(child, ast.ExceptHandler):
            found += [child.name] if child.name else []
        elif isinstance(child, ast.Import | ast.ImportFrom):
            found += [(alias.asname or alias.name).partition(".")[0] for alias in child.names]
        elif isinstance(child, ast.MatchAs | ast.MatchStar) and child.name:
            found.append(child.name)
    return found


class _Exposed:
    """Collects the names that may be read before they are assigned."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.continued: list[set[str]] = []
        """What was surely assigned at each ``continue``; those of loops inside are among them."""

    def expression(self, node: ast.AST | None, done: set[str]) -> None:
        if node is None:
            return
        bound: set[str] = set()
        for child in ast.walk(node):
            if isinstance(child, ast.comprehension):
                bound |= set(_stored(child.target))
            elif isinstance(child, ast.arg):
                bound.add(child.arg)
        for child in ast.walk(node):
            if (
                isinstance(child, ast.Name)
                and isinstance(child.ctx, ast.Load)
                and child.id not in done | bound
            ):
                self.names.add(child.id)
        done |= {child.target.id for child in ast.walk(node) if isinstance(child, ast.NamedExpr)}

    def body(self, statements: list[ast.stmt], done: set[str]) -> bool:
        """Go through statements, adding what they surely assign; return whether the end is never reached."""
        return any(self._statement(statement, done) for statement in statements)

    def _branches(self, bodies: list[list[ast.stmt]], done: set[str]) -> bool:
        ends = []
        for body in bodies:
            branch = set(done)
            if not self.body(body, branch):
                ends.append(branch)
        if not ends:
            return True
        done |= set.intersection(*ends)
        return False

    def _statement(self, node: ast.stmt, done: set[str]) -> bool:
        if isinstance(node, ast.Return | ast.Raise | ast.Break | ast.Continue):
            for child in ast.iter_child_nodes(node):
                self.expression(child, done)
            if isinstance(node, ast.Continue):
                self.continued.append(set(done))
            return True
        if isinstance(node, ast.If):
            self.expression(node.test, done)
            return self._branches([node.body, node.orelse], done)
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            self.expression(node.test if isinstance(node, ast.While) else node.iter, done)
            inside = set(done) | (set() if isinstance(node, ast.While) else set(_stored(node.target)))
            self.body(node.body, inside)
            self.body(node.orelse, set(done))
            return False
        if isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self.expression(item.context_expr, done)
                if item.optional_vars is not None:
                    done |= set(_stored(item.optional_vars))
            return self.body(node.body, done)
        if isinstance(node, ast.Try):
            # The body may stop anywhere: a handler can count on nothing it assigned.
            whole = set(done)
            stopped = self.body([*node.body, *node.orelse], whole)
            ends = [] if stopped else [whole]
            for handler in node.handlers:
                branch = set(done) | ({handler.name} if handler.name else set())
                if not self.body(handler.body, branch):
                    ends.append(branch)
            if ends:
                done |= set.intersection(*ends)
            self.body(node.finalbody, done)
            return not ends
        if isinstance(node, ast.Match):
            self.expression(node.subject, done)
            return self._branches([*(case.body for case in node.cases), []], done)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = set(done) | {child.arg for child in ast.walk(node) if isinstance(child, ast.arg)}
            inner |= {name for statement in node.body for name in _stored(statement)}
            self.expression(node, inner)
            done.add(node.name)
            return False
        if isinstance(node, ast.AugAssign):
            self.expression(node.value, done)
            if isinstance(node.target, ast.Name):
                if node.target.id not in done:
                    self.names.add(node.target.id)
            else:
                self.expression(node.target, done)
            return False
        value = getattr(node, "value", None)
        self.expression(value if isinstance(node, ast.Assign | ast.AnnAssign) else node, done)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                self.expression(target, done)  # subscripts and attributes read what they are taken of
                if isinstance(node, ast.Assign) or value is not None:
                    done |= set(_stored(target))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            done |= set(_stored(node))
        return False
