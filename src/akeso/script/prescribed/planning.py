"""How many steps a training will take, read from the loops around its first step.

Where ``optimizer.step()`` stands in ``for epoch in range(args.epochs): for x, y in loader:``, the lengths of both
loops are known while they run; where a trainer of a library makes the loops, it knows. Only names, attributes,
numbers and a few harmless calls are evaluated.
"""

from __future__ import annotations

import ast
import linecache
import math
import operator
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from akeso.script.prescribed.places import is_users
from akeso.script.prescribed.trainers import trainer_steps

_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
_SIGNS: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.USub: operator.neg, ast.Not: operator.not_}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
#: Orders of samples: as long as their argument says.
_SHUFFLED = ("randperm", "permutation", "arange")
_PASSED_ON = ("enumerate", "tqdm", "trange", "track", "iter", "list")


def planned_steps() -> tuple[int | None, int | None]:
    """Steps of the whole training and of one pass of its outermost loop, None where unknown."""
    frame: FrameType | None = sys._getframe(1)
    lengths: list[float] = []  # innermost first
    trainers: list[Any] = []
    gathered = 1
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            loops = _loops_around(frame)
            if not lengths:
                gathered *= _gathered(frame, loops[0] if loops else None)
            for loop in loops:
                length = _length(loop, frame)
                if not length:
                    return None, None
                lengths.append(length if lengths else math.ceil(length / gathered))
        elif (found := trainer_steps(frame)) is not None and all(found[0] is not known for known in trainers):
            trainer, once, whole = found
            trainers.append(trainer)
            lengths += [once, whole / once]  # the last pass may be cut short
        frame = frame.f_back
    if not lengths:
        return None, None
    return round(math.prod(lengths)), round(math.prod(lengths[:-1]))


_Loop = ast.For | ast.While | ast.comprehension
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _loops_around(frame: FrameType) -> list[_Loop]:
    """The loops of this frame's own function, or module, that contain its current line.

    Comprehensions are loops of the function that they stand in, whether they run in a frame of their own or not.
    """
    if frame.f_code.co_name.startswith("<") and frame.f_code.co_name != "<module>":
        return []
    source = "".join(linecache.getlines(frame.f_code.co_filename))
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    line, scope = frame.f_lineno, _scope(tree, frame)
    around: list[tuple[int, _Loop]] = []
    for node in _own(scope):
        if isinstance(node, (ast.For, ast.While)) and node.body[0].lineno <= line <= _last(node):
            around.append((node.lineno, node))
        elif isinstance(node, _COMPREHENSIONS) and _calls_at(node, line):
            around += [(node.lineno, part) for part in node.generators]
    return [loop for _, loop in sorted(around, key=lambda found: -found[0])]  # innermost first


def _scope(tree: ast.Module, frame: FrameType) -> ast.AST:
    """The function, or the module, that a frame runs."""
    found: ast.AST = tree
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == frame.f_code.co_name:
            start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if start == frame.f_code.co_firstlineno:
                found = node
    return found


def _gathered(frame: FrameType, loop: _Loop | None) -> int:
    """How many rounds of the innermost loop make one step: ``if (i + 1) % 4 == 0:`` around it says four."""
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except (SyntaxError, ValueError):
        return 1
    first = loop.body[0].lineno if isinstance(loop, ast.For | ast.While) else 0
    rounds = 1
    for node in _own(_scope(tree, frame)):
        if not isinstance(node, ast.If) or node.orelse or node.lineno < first:
            continue
        if not node.body[0].lineno <= frame.f_lineno <= (node.body[-1].end_lineno or node.body[-1].lineno):
            continue
        for part in ast.walk(node.test):
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
                try:
                    rounds *= max(1, int(_value(part.right, frame)))
                except Exception:  # a guess, as lengths are
                    return 1
    return rounds


def _calls_at(node: ast.AST, line: int) -> bool:
    """Whether a comprehension covers a line and calls something for each of its values."""
    last = getattr(node, "end_lineno", None) or line
    given = [getattr(node, name) for name in ("elt", "key", "value") if hasattr(node, name)]
    calls = any(isinstance(part, ast.Call) for one in given for part in ast.walk(one))
    return calls and getattr(node, "lineno", line + 1) <= line <= last


def _own(scope: ast.AST) -> list[ast.AST]:
    """The nodes of a scope without those of functions and classes inside it."""
    found: list[ast.AST] = []
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        found.append(node)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            pending.extend(ast.iter_child_nodes(node))
    return found


def _last(loop: ast.For | ast.While) -> int:
    return loop.body[-1].end_lineno or loop.body[-1].lineno


def _length(loop: _Loop, frame: FrameType) -> int | None:
    if isinstance(loop, ast.While) or (isinstance(loop, ast.comprehension) and loop.ifs):
        return None
    try:
        return _count(loop.iter, frame)
    except Exception:  # whatever the user's names stand for, this is a guess and nothing else
        return None


def _count(node: ast.expr, frame: FrameType) -> int | None:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("range", "trange"):
            return len(range(*[int(_value(argument, frame)) for argument in node.args]))
        if name in _PASSED_ON and node.args:
            return _count(node.args[0], frame)
        if name == "zip":
            counts = [_count(argument, frame) for argument in node.args]
            return None if None in counts else min(count for count in counts if count is not None)
        if name == "split" and len(node.args) == 1 and isinstance(node.func, ast.Attribute):
            whole = _count(node.func.value, frame)
            return None if whole is None else math.ceil(whole / int(_value(node.args[0], frame)))
        if name == "chunk" and node.args:
            return int(_value(node.args[0], frame))
        if name in _SHUFFLED and len(node.args) == 1:
            given = _value(node.args[0], frame)
            return len(given) if hasattr(given, "__len__") else int(given)
        return None
    value = _value(node, frame)
    return len(value) if hasattr(value, "__len__") else None


def _value(node: ast.expr, frame: FrameType) -> Any:
    """The value of an expression that can be had without running anything of the user's."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return frame.f_locals[node.id] if node.id in frame.f_locals else frame.f_globals[node.id]
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, frame), node.attr)
    if isinstance(node, ast.Subscript):
        return _value(node.value, frame)[_value(node.slice, frame)]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _SIGNS:
        return _SIGNS[type(node.op)](_value(node.operand, frame))
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(part, frame) for part in node.elts]
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, frame) else node.orelse, frame)
    if isinstance(node, ast.BoolOp):
        stop = isinstance(node.op, ast.Or)
        for part in node.values[:-1]:
            value = _value(part, frame)
            if bool(value) is stop:
                return value
        return _value(node.values[-1], frame)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        compare = _COMPARISONS[type(node.ops[0])]
        return compare(_value(node.left, frame), _value(node.comparators[0], frame))
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, frame), _value(node.right, frame)
        return _OPERATIONS[type(node.op)](left, right)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("len", "int", "min", "max"):
        function = {"len": len, "int": int, "min": min, "max": max}[node.func.id]  # type: ignore[attr-defined]
        return function(*[_value(argument, frame) for argument in node.args])  # type: ignore[operator]
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("size", "__len__"):
        assert isinstance(node.func, ast.Attribute)
        owner = _value(node.func.value, frame)
        return getattr(owner, node.func.attr)(*[_value(argument, frame) for argument in node.args])
    raise LookupError(f"{type(node).__name__} is not evaluated")
