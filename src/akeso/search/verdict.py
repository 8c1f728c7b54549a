"""What is decided about a trial, and why: a value that is written to the study and shown to people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from akeso.diagnosis import Diagnosis

#: ``continue``; ``stop`` as hopeless (PRUNED); ``finish`` early with the value kept (COMPLETE).
Action = Literal["continue", "stop", "finish"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One decision about one trial.

    ``indicator`` names the rule that spoke: a diagnosed problem, ``non-finite-value``, ``forecast``,
    ``no-more-gain`` or ``pruner``.
    """

    action: Action
    indicator: str = ""
    problem: str = ""
    layer: str = ""
    step: int = -1
    epoch: int = -1
    sentence: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.action != "continue"

    @classmethod
    def of_diagnosis(cls, diagnosis: Diagnosis, action: Action, epoch: int) -> Verdict:
        """The decision that follows from a diagnosed problem."""
        return cls(
            action,
            diagnosis.problem,
            diagnosis.problem,
            diagnosis.layer,
            diagnosis.step,
            epoch,
            diagnosis.sentence,
            {"confidence": round(diagnosis.confidence, 3), **_plain(diagnosis.evidence)},
        )

    @classmethod
    def of_pruner(cls, pruner: object, reports: int, epochs: int | None = None) -> Verdict:
        """The decision of another pruner, which gives no reason, after so many reports."""
        name = type(pruner).__name__
        times = (
            f"{reports} of {epochs} reports"
            if epochs
            else "1 report"
            if reports == 1
            else f"{reports} reports"
        )
        text = f"{name} stopped the trial after {times}."
        return cls("stop", "pruner", name, epoch=reports - 1, sentence=text)

    def expected(self, maximize: bool) -> float:
        """The cost that a trial ended for its curve was expected to end with; NaN for all others."""
        if (self.action, self.indicator) not in (("stop", "forecast"), ("finish", "no-more-gain")):
            return math.nan
        value = float(self.evidence.get("forecast", math.nan))
        return -value if maximize else value

    def to_dict(self) -> dict[str, Any]:
        """The verdict as plain JSON values."""
        return {
            "action": self.action,
            "indicator": self.indicator,
            "problem": self.problem,
            "layer": self.layer,
            "step": self.step,
            "epoch": self.epoch,
            "sentence": self.sentence,
            "evidence": _plain(self.evidence),
        }


CONTINUE = Verdict("continue")


def _plain(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Evidence cut down to small JSON values: a study's storage is no place for arrays."""
    kept: dict[str, Any] = {}
    for key, value in list(evidence.items())[:12]:
        number = value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value
        if isinstance(number, list | tuple):
            if len(number) <= 8:
                kept[key] = [_small(item) for item in number]
        elif isinstance(number, bool | int | float | str) or number is None:
            kept[key] = _small(number)
    return kept


def _small(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float) or value is None else str(value)[:200]
