"""A script whose steps no optimizer of torch makes, but Keras or the script itself: judged, but never changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.remedies.candidates import candidates, treatable

#: Why nothing is changed.
ONLY_WATCHED: Final = (
    "no optimizer of torch makes the steps of this script, but Keras or the script itself: they are watched and "
    "judged, but nothing in them is changed"
)
#: Cures that are named where none can be tried.
_NAMED: Final = 3


def advice(history: History, diagnoses: Sequence[Diagnosis]) -> list[str]:
    """What would have been tried first, and that it was not."""
    worth = candidates(history, treatable(diagnoses))[:_NAMED]
    return [ONLY_WATCHED, *(f"worth a try by hand: {option.prescription.describe()}" for option in worth)]
