"""What detectors say: symptoms, and the diagnoses made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Symptom:
    """One observed fact that speaks for a problem."""

    problem: str
    severity: Severity
    confidence: float
    step: int
    layer: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    sentence: str = ""
    #: What helps in this very case; without it, all that helps against the problem.
    helps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A named problem with where, since when, how sure, why, and what helps."""

    problem: str
    severity: Severity
    confidence: float
    layer: str
    step: int
    evidence: Mapping[str, Any]
    because_of: tuple[str, ...]
    remedies: tuple[str, ...]
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as plain JSON values."""
        return {
            "problem": self.problem,
            "severity": self.severity,
            "confidence": round(self.confidence, 3),
            "layer": self.layer,
            "step": self.step,
            "evidence": dict(self.evidence),
            "because_of": list(self.because_of),
            "remedies": list(self.remedies),
            "sentence": self.sentence,
        }
