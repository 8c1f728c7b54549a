"""The extension point of treatment: one class, one method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from akeso.remedies.edit import Edit
from akeso.treatment.outcome import Outcome, Tried
from akeso.treatment.program import Program

#: Is told every attempt as soon as it ended, with its verdict so far.
Report = Callable[[Tried], None]


def _silent(tried: Tried) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked for.

    ``budget`` is in multiples of one plain training and is for what comes on top of the untreated run, which
    the user would have made anyway: a budget of 2 allows three times a plain training in all.
    :attr:`akeso.treatment.outcome.Cost.steps` counts everything, the untreated run included.
    """

    budget: float = 2.0
    target: float | None = None
    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    dry_run: bool = False
    seed: int | None = None
    report: Report = field(default=_silent)

    def allows(self, edit: Edit) -> bool:
        """Whether the user's ``only`` and ``never`` leave this edit."""
        return (not self.only or edit.remedy in self.only) and edit.remedy not in self.never


class Plan(ABC):
    """How attempts are chosen. A plan never hands back a model worse than the untreated one."""

    name: ClassVar[str]

    @abstractmethod
    def run(self, program: Program, wishes: Wishes) -> Outcome:
        """Treat the program."""
