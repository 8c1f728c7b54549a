"""One operation of a step as it was executed, and the file a traced step is kept in."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of a torch operator: what went in, what came out, and where in the program it stands."""

    name: str
    """The operator, such as ``aten.addmm.default``."""
    phase: str
    """``data`` (inside a loader), ``forward``, ``backward``, ``gradient`` (after the backward pass),
    ``optimizer``, or ``between``.
    """
    module: str = ""
    """Path of the module whose forward (or its backward) runs, such as ``Net.encoder.0``."""
    line: str = ""
    """``file:line`` of the innermost line of the program itself."""
    constants: str = ""
    """The arguments that are not tensors, floats in full."""
    shapes: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    """Digests of the tensors that went in."""
    sources: tuple[str, ...] = ()
    """For each input that no operation of this trace made: what it is (a parameter, loaded data …), else
    empty.
    """
    outputs: tuple[str, ...] = ()
    random: bool = False
    """Whether the operator draws from a generator."""
    mutates: tuple[int, ...] = ()
    """For each tensor written in place: the number of the operation that made it, -1 when made before the
    trace.
    """

    @property
    def call(self) -> tuple[Any, ...]:
        """What was asked to be computed, regardless of the values."""
        return (self.name, self.phase, self.module, self.constants, self.shapes)

    @property
    def signature(self) -> tuple[Any, ...]:
        """Everything in which two runs should agree."""
        return (*self.call, self.inputs, self.outputs)

    @property
    def short_name(self) -> str:
        """The operator as people call it: ``addmm``."""
        return self.name.split(".")[1] if "." in self.name else self.name


def write_trace(path: Path, operations: Iterable[Operation]) -> None:
    """Write a traced step, one operation a line."""
    encoder = msgspec.json.Encoder()
    with path.open("wb") as file:
        for operation in operations:
            file.write(encoder.encode(operation) + b"\n")


def read_trace(path: Path) -> list[Operation]:
    """Read a traced step."""
    decoder = msgspec.json.Decoder(Operation)
    return [decoder.decode(line) for line in path.read_bytes().splitlines()]
