"""Shortcuts around the layers of deep stacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.remedies._base import Remedy
from akeso.remedies.activation import substitute
from akeso.remedies.chart import GROWING, SQUASHING, chart
from akeso.remedies.edit import Edit, Prescription
from akeso.remedies.initialiser import reinitialise

#: Layers from which on a stack is so deep that nothing else works as well.
VERY_DEEP = 12


class AddResidual(Remedy):
    """Residual connections in stacks of at least so many layers of equal width.

    A shortcut passes on what a function leaves of it, so that one which squashes is replaced as well.
    """

    name = "add-residual"

    def __init__(self, shallowest: int = 6) -> None:
        self.shallowest = shallowest

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if facts.depth < self.shallowest:
            return
        edits = [Edit("add-residual", "hidden"), reinitialise("auto")]
        if facts.activation in SQUASHING or facts.activation in GROWING:
            edits = [substitute(facts.activation, "ReLU"), *edits]
        yield Prescription(edits)
