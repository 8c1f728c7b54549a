"""The extension point of diagnosis: one class, one method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from akeso.diagnosis import Symptom
from akeso.history import History


class Detector(ABC):
    """A pure function from a history to symptoms.

    Thresholds are the fields of the (frozen dataclass) subclass and are filled from a profile. ``detect``
    looks at nothing but the history, never raises on a short one, and yields nothing on a healthy one.
    """

    name: ClassVar[str]

    @abstractmethod
    def detect(self, history: History) -> Iterable[Symptom]:
        """The symptoms that the history shows."""
