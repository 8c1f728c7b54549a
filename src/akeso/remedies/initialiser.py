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


def _of_tables(found: Diagnosis) -> bool:
    """Whether embeddings were found that start too large, as torch draws them where they are multiplied."""
    return found.problem == "poor-initialisation" and "first_output_over_target_std" in found.evidence


class Reinitialise(Remedy):
    """Weights drawn by what follows each layer, orthogonal in recurrent ones; tables small where they are at fault."""

    name = "reinitialise"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if any(_of_tables(found) for found in diagnoses):
            yield Prescription([Edit("reinitialise", "", {"scheme": "auto", "tables": "small"})])
            return
        yield Prescription([reinitialise("auto")])
