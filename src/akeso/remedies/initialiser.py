"""New initial weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.remedies._base import Remedy
from akeso.remedies.edit import Edit, Prescription


def reinitialise(scheme: str) -> Edit:
    """The edit that draws all weights anew."""
    return Edit("reinitialise", "", {"scheme": scheme})


class Reinitialise(Remedy):
    """Weights drawn by what follows each layer, orthogonal in recurrent ones."""

    name = "reinitialise"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        yield Prescription([reinitialise("auto")])
