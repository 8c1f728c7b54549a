"""What ``akeso diff`` says: the first step, what differed first, the first operation, and the likely
cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from akeso.replay.diff.operations import OperationDifference

WORDS = {
    "order": "the order of the samples",
    "samples": "the data",
    "inputs": "the inputs of the model",
    "generators": "the state of the random generators",
    "loss": "the loss",
    "gradient": "the gradient",
    "parameters": "the parameters after the step",
    "optimizer": "the state of the optimizer",
    "others": "buffers or models that no gradient trains",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of comparing two runs."""

    a: str
    b: str
    equal: bool
    compared: int
    """Number of steps both runs have."""
    cause: str = ""
    """``data``, ``randomness``, ``parameters``, ``forward``, ``gradient``, ``optimizer``, ``environment`` or
    ``nondeterminism`` (a run does not repeat itself)."""
    summary: str = ""
    step: int | None = None
    differing: tuple[str, ...] = ()
    operation: OperationDifference | None = None
    evidence: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """The finding as plain JSON."""
        found: dict[str, Any] = {
            "runs": [self.a, self.b],
            "equal": self.equal,
            "steps_compared": self.compared,
            "cause": self.cause or None,
            "summary": self.summary,
            "first_step": self.step,
            "differing": list(self.differing),
            "evidence": list(self.evidence),
            "environment": list(self.environment),
            "notes": list(self.notes),
            "operation": None,
        }
        if self.operation is not None:
            found["operation"] = {
                "kind": self.operation.kind,
                "index": self.operation.index,
                "name": self.operation.operation.name,
                "phase": self.operation.operation.phase,
                "module": self.operation.operation.module,
                "line": self.operation.operation.line,
                "input": self.operation.source or None,
                "a": _short(self.operation.a),
                "b": _short(self.operation.b),
            }
        return found

    def text(self) -> str:
        """The finding in whole sentences, the cause first."""
        if self.equal:
            lines = [f"Equal: {self.compared} steps, bit for bit ({self.a}, {self.b})."]
        else:
            lines = [f"Cause ({self.cause}): {self.summary}"]
            if self.step is not None:
                first = WORDS.get(self.differing[0], self.differing[0]) if self.differing else "?"
                rest = [WORDS.get(name, name) for name in self.differing[1:]]
                then = f"; then {', '.join(rest)}" if rest else ""
                lines.append(f"First differing step: {self.step}. First to differ: {first}{then}.")
            if self.operation is not None:
                lines += _operation_text(self.operation)
            lines += [f"  - {item}" for item in self.evidence]
        if self.environment:
            lines.append("The runs also differ in:" if not self.equal else "Though the runs differ in:")
            lines += [f"  - {item}" for item in self.environment]
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(lines)


def _operation_text(difference: OperationDifference) -> list[str]:
    operation = difference.operation
    where = f" in {operation.module}" if operation.module else ""
    line = f" ({operation.line})" if operation.line else ""
    said = {
        "call": "is another call in the two runs",
        "input": f"gets another input: {difference.source}",
        "output": "gives different outputs from the same inputs",
        "missing": "is executed in one run only",
    }[difference.kind]
    lines = [f"First differing operation: {operation.short_name}{where}, {operation.phase}{line}; it {said}."]
    if difference.kind == "call" and difference.a and difference.b:
        lines += [f"  A: {_call(difference.a)}", f"  B: {_call(difference.b)}"]
    return lines


def _call(operation: Any) -> str:
    return f"{operation.name}({', '.join(operation.shapes)}; {operation.constants}) {operation.line}"


def _short(operation: Any) -> dict[str, Any] | None:
    if operation is None:
        return None
    return {
        "name": operation.name,
        "constants": operation.constants,
        "shapes": list(operation.shapes),
        "module": operation.module,
        "line": operation.line,
    }
