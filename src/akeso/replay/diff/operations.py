"""Two traces of the same step laid side by side: the first operation in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from akeso.replay.trace.operation import Operation

# Operations that one run has and the other has not are harmless when the traces meet again right after them.
_LONGEST_DETOUR = 400
_MEETING = 6
# Memory that another process has filled: a batch from a loader's worker.
_FROM_ELSEWHERE = ("aten.set_.", "aten.set.")


@dataclass(frozen=True, slots=True)
class OperationDifference:
    """The first operation in which two traces differ."""

    kind: str
    """``call`` (another operation or other arguments), ``input`` (something from outside the step differs),
    ``output`` (the same inputs gave different outputs), ``missing`` (one trace ends earlier)."""
    index: int
    a: Operation | None
    b: Operation | None
    source: str = ""
    """For ``input``: what differs, a parameter's name or ``outside``."""

    @property
    def operation(self) -> Operation:
        """The operation, of the first run where both have one."""
        found = self.a or self.b
        assert found is not None
        return found


def first_operation(a: Sequence[Operation], b: Sequence[Operation]) -> OperationDifference | None:
    """The first operation in which two traces differ, or None when they agree to the end."""
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i].signature == b[j].signature:
            i, j = i + 1, j + 1
            continue
        met = _meet_again(a, b, i, j)
        if met is None:
            return _describe(a[i], b[j], i)
        i, j = met
    if i == len(a) and j == len(b):
        return None
    rest, start = (a[i:], i) if i < len(a) else (b[j:], j)
    if _harmless(rest, start):
        return None
    return OperationDifference("missing", i, a[i] if i < len(a) else None, b[j] if j < len(b) else None)


def _describe(a: Operation, b: Operation, index: int) -> OperationDifference:
    if a.call != b.call:
        return OperationDifference("call", index, a, b)
    for position, (mine, theirs) in enumerate(zip(a.inputs, b.inputs, strict=True)):
        if mine != theirs:
            source = a.sources[position] if position < len(a.sources) else ""
            return OperationDifference("input", index, a, b, source or "outside")
    if a.name.startswith(_FROM_ELSEWHERE):
        return OperationDifference("input", index, a, b, "outside")
    return OperationDifference("output", index, a, b)


def _meet_again(a: Sequence[Operation], b: Sequence[Operation], i: int, j: int) -> tuple[int, int] | None:
    """Where the traces agree again after operations that only one of them has and that change nothing."""
    for length in range(1, _LONGEST_DETOUR):
        for start_a, start_b in ((i + length, j), (i, j + length)):
            if _agree(a, b, start_a, start_b):
                extra = a[i:start_a] or b[j:start_b]
                return (start_a, start_b) if _harmless(extra, i if start_a > i else j) else None
    return None


def _agree(a: Sequence[Operation], b: Sequence[Operation], i: int, j: int) -> bool:
    left = min(len(a) - i, len(b) - j)
    if left <= 0:
        return False
    return all(a[i + k].signature == b[j + k].signature for k in range(min(_MEETING, left)))


def _harmless(extra: Sequence[Operation], start: int) -> bool:
    """Whether operations neither draw random numbers nor write to anything made before them."""
    return not any(
        operation.random or any(maker < start for maker in operation.mutates) for operation in extra
    )
