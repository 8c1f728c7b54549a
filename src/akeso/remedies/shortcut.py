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
from akeso.remedies.normalisation import normalise

#: Layers from which on a stack is so deep that nothing else works as well.
VERY_DEEP = 12


class AddResidual(Remedy):
    """Residual connections in stacks of at least so many layers of equal width.

    What is added must neither fade nor drift over many layers: functions that squash are replaced, and norms
    go in front of them all.
    """

    name = "add-residual"

    def __init__(self, shallowest: int = 6) -> None:
        self.shallowest = shallowest

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if facts.depth < self.shallowest:
            return
        squashing = facts.activation in SQUASHING or facts.activation in GROWING
        first = [substitute(facts.activation, "ReLU")] if squashing else []
        last = [Edit("add-residual", "hidden"), reinitialise("auto")]
        doses = [Prescription([*first, normalise(facts), *last]), Prescription([*first, *last])]
        # Norms that are there already need no others beside them.
        yield from reversed(doses) if facts.normalised else doses
