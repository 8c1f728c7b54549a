"""Normalisation before activations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.remedies._base import Remedy
from akeso.remedies.chart import Chart, chart
from akeso.remedies.edit import Edit, Prescription
from akeso.remedies.initialiser import reinitialise

#: Statistics of fewer samples than this are too noisy to normalise by.
SMALLEST_BATCH = 16


def normalise(facts: Chart) -> Edit:
    """Batch normalisation, or layer normalisation where batches are small or models recurrent."""
    small = 0 < facts.batch_size < SMALLEST_BATCH
    kind = "layer" if small or facts.recurrent or facts.attention else "batch"
    return Edit("insert-normalisation", "hidden", {"kind": kind})


class InsertNormalisation(Remedy):
    """Norms in front of activations, with weights drawn anew and without."""

    name = "insert-normalisation"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        yield Prescription([normalise(facts), reinitialise("auto")])
        yield Prescription([normalise(facts)])
