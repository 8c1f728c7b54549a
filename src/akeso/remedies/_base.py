"""The extension point of cures: one class, one method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.remedies.edit import Prescription


class Remedy(ABC):
    """A kind of cure, dosed by what a history shows.

    ``prescribe`` looks at nothing but the history and the diagnoses, never raises on a short history or on
    missing facts, and yields prescriptions in the order in which they should be tried: none where the remedy
    has nothing to offer for this run.
    """

    name: ClassVar[str]

    @abstractmethod
    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        """Doses for this run, the most promising first."""
