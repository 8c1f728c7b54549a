"""What came of a treatment, with the evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from akeso.diagnosis import Diagnosis
from akeso.treatment.prescription import Edit, Prescription
from akeso.treatment.program import Attempt

Status = Literal["healthy", "repaired", "improved", "failed"]


@dataclass(frozen=True, slots=True)
class Tried:
    """One attempt with what the plan made of it."""

    attempt: Attempt
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """The attempt as plain JSON values."""
        result: dict[str, Any] = {
            "prescription": self.attempt.prescription.to_list(),
            "seed": self.attempt.seed,
            "steps": self.attempt.steps,
            "spent": self.attempt.spent,
            "metric": _number(self.attempt.metric),
            "whole": self.attempt.whole,
            "problems": list(self.attempt.problems),
            "verdict": self.verdict,
        }
        if self.attempt.refused:
            result["refused"] = [
                {**edit.to_dict(), "reason": reason} for edit, reason in self.attempt.refused
            ]
        return result


@dataclass(frozen=True, slots=True)
class Cost:
    """What a treatment took, the untreated run included.

    ``steps`` is in multiples of one plain training, so 1.0 is what the user would have spent anyway; ``seconds`` is all
    the time that went by, in which every attempt was also started, watched and judged.
    """

    steps: float
    seconds: float

    def describe(self) -> str:
        """The cost in a few words.

        >>> Cost(1.5, 130.0).describe()
        'the steps of 1.50 plain trainings; 2 min 10 s went by, with every start, look and evaluation'
        """
        minutes, seconds = divmod(round(self.seconds), 60)
        time = f"{minutes} min {seconds} s" if minutes else f"{self.seconds:.1f} s"
        return f"the steps of {self.steps:.2f} plain trainings; {time} went by, with every start, look and evaluation"

    def to_dict(self) -> dict[str, float]:
        """The cost as plain JSON values."""
        return {"steps": round(self.steps, 3), "seconds": round(self.seconds, 3)}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Before, after, what was changed, what else was tried, and what it cost.

    ``status`` is "healthy" (nothing found, nothing changed), "repaired" (better, and the problems of the
    untreated run are gone), "improved" (better, some problem is left) or "failed" (nothing was better, or what was
    found has no cure: the untreated model is handed back). ``before_whole`` is False where the untreated run was
    stopped early, as soon as it was known to be sick; ``before`` is then the last value known, or None.
    """

    status: Status
    metric: str
    higher_is_better: bool
    before: float | None
    before_whole: bool
    after: float | None
    diagnoses: tuple[Diagnosis, ...]
    prescription: Prescription
    attempts: tuple[Tried, ...]
    cost: Cost
    model: Any = None
    weights: Any = None
    remaining: tuple[Diagnosis, ...] = ()
    refused: tuple[tuple[Edit, str], ...] = ()
    plan: str = "akeso"
    interrupted: bool = False
    notes: tuple[str, ...] = ()

    @property
    def evidence(self) -> tuple[Tried, ...]:
        """Every attempt that was made, in order, with its verdict."""
        return self.attempts

    @property
    def best(self) -> Attempt | None:
        """The attempt whose model is handed back."""
        for tried in reversed(self.attempts):
            if tried.verdict.startswith("accepted"):
                return tried.attempt
        return None

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain JSON values."""
        return {
            "schema": 1,
            "status": self.status,
            "plan": self.plan,
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "before": _number(self.before),
            "before_whole": self.before_whole,
            "after": _number(self.after),
            "diagnoses": [diagnosis.to_dict() for diagnosis in self.diagnoses],
            "remaining": [diagnosis.to_dict() for diagnosis in self.remaining],
            "prescription": self.prescription.to_list(),
            "attempts": [tried.to_dict() for tried in self.attempts],
            "refused": [{**edit.to_dict(), "reason": reason} for edit, reason in self.refused],
            "cost": self.cost.to_dict(),
            "interrupted": self.interrupted,
            "notes": list(self.notes),
        }

    @property
    def fate(self) -> str:
        """What became of the untreated run, in brackets; nothing where it was whole."""
        first = self.attempts[0].attempt if self.attempts else None
        if self.before_whole or first is None:
            return ""
        return " (failed)" if first.failed else f" ({stopped(first)})"

    @property
    def causes(self) -> tuple[Diagnosis, ...]:
        """What was found and is more than a remark, without what follows from something else that was found."""
        named = {found.problem for found in self.diagnoses}
        return tuple(
            found
            for found in self.diagnoses
            if found.severity != "info" and not named & set(found.because_of)
        )

    @property
    def consequences(self) -> tuple[Diagnosis, ...]:
        """What was found and follows from something else that was."""
        causes = self.causes
        return tuple(found for found in self.diagnoses if found.severity != "info" and found not in causes)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __rich__(self) -> Any:
        from rich.text import Text

        return Text("\n".join(self._lines()))

    def _lines(self) -> list[str]:
        name = self.metric or "metric"
        before = "unknown" if self.before is None else f"{self.before:.4g}"
        after = "unknown" if self.after is None else f"{self.after:.4g}"
        early = self.fate
        lines = [
            f"{self.status}: {name} {before}{early} -> {after}",
            f"  cost   {self.cost.describe()}",
        ]
        remarks = tuple(found for found in self.diagnoses if found.severity == "info")
        for word, some in (("found ", self.causes), ("so    ", self.consequences), ("remark", remarks)):
            lines += [f"  {word} {diagnosis.sentence or diagnosis.problem}" for diagnosis in some]
        lines += [f"  change {edit.describe()}" for edit in self.prescription]
        lines += [f"  left   {diagnosis.sentence or diagnosis.problem}" for diagnosis in self.remaining]
        for tried in self.attempts:
            value = "  -   " if tried.attempt.metric is None else f"{tried.attempt.metric:.4f}"
            cure = tried.attempt.prescription.describe()
            lines.append(f"  tried  {value} after {tried.attempt.steps} steps: {cure}: {tried.verdict}")
        return lines + [f"  note   {note}" for note in self.notes]


def stopped(attempt: Attempt) -> str:
    """How far a training came that was stopped before its end.

    >>> stopped(Attempt(Prescription(), 0, steps=30, seconds=1.0, planned_steps=300))
    'stopped early, at 10% of its training'
    """
    planned = attempt.planned_steps
    if planned and attempt.steps < planned:
        return f"stopped early, at {attempt.steps / planned:.0%} of its training"
    return f"stopped early, after {attempt.steps} steps"


def _number(value: float | None) -> float | None:
    """JSON knows neither NaN nor infinity."""
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    return float(value)
