"""What trains and can be run again, and what came of one such run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.treatment.prescription import Edit, Prescription


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a program under a prescription, measured.

    ``steps`` is the step that was reached, ``spent`` the steps that were run for it: fewer where an earlier
    attempt with the same prescription and seed was continued. ``metric`` is the last held-out value (the
    value of the weights handed back), ``curve`` every one known, by step, ``chance`` that of the best constant
    prediction where it is clear. ``whole`` says that the run came to its planned end, ``failed`` why it did not
    where that was not asked for (a crash, a kill, a time limit).
    """

    prescription: Prescription
    seed: int
    steps: int
    seconds: float
    metric: float | None = None
    metric_name: str = ""
    higher_is_better: bool = True
    history: History = field(default_factory=History)
    diagnoses: tuple[Diagnosis, ...] = ()
    whole: bool = False
    failed: str | None = None
    refused: tuple[tuple[Edit, str], ...] = ()
    weights: Path | None = None
    curve: tuple[tuple[int, float], ...] = ()
    planned_steps: int | None = None
    spent: int = -1
    model: Any = None
    chance: float | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.spent < 0:
            object.__setattr__(self, "spent", self.steps)

    @property
    def score(self) -> float:
        """The metric with its sign turned so that more is better; minus infinity where there is none."""
        if self.metric is None or self.metric != self.metric:
            return float("-inf")
        return self.metric if self.higher_is_better else -self.metric

    @property
    def problems(self) -> tuple[str, ...]:
        """The names of the problems found, ranked."""
        return tuple(diagnosis.problem for diagnosis in self.diagnoses)


class Program(ABC):
    """A training that can be run again under a prescription: a recipe, or a script with its arguments."""

    @abstractmethod
    def attempt(
        self,
        prescription: Prescription,
        *,
        seed: int | None = None,
        max_steps: int | None = None,
        stop_on_error: bool = False,
    ) -> Attempt:
        """Run the program with the prescription applied, for at most ``max_steps`` steps.

        ``seed`` is None for the program's own. With ``stop_on_error`` the run ends as soon as a finding of
        severity "error" is known. Whatever goes wrong inside is told in :attr:`Attempt.failed`; only
        ``KeyboardInterrupt`` comes out.
        """

    @abstractmethod
    def refuses(self, edit: Edit) -> str | None:
        """Why the edit cannot be made on this program, or None where nothing speaks against it."""

    def refusals(self, prescription: Prescription) -> tuple[tuple[Edit, str], ...]:
        """The edits of a prescription that turn out not to be possible when it is tried on, without training."""
        return ()

    @abstractmethod
    def describe(self) -> str:
        """The program in one line."""

    @property
    @abstractmethod
    def planned_steps(self) -> int | None:
        """The optimizer steps of one plain training, where they are known."""

    def stretch(self, prescription: Prescription) -> float:
        """Steps under a prescription for one of the plain training: smaller batches take more of them, each less."""
        return 1.0

    def hand_over(self, attempt: Attempt) -> Any:
        """The model of an attempt as the user gets it; the attempt is not gone on with after that."""
        return attempt.model

    def at_its_best(self, attempt: Attempt) -> Attempt | None:
        """A whole attempt with the weights of its best evaluation; None where they are gone."""
        return None

    @property
    def resumable(self) -> bool:
        """Whether an attempt that stopped at a step is gone on with when it is asked for again."""
        return False
