"""What one trial has reported so far: its values, the training losses before them, and under which steps."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable
from typing import Any

import numpy as np

from akeso.errors import BadInput
from akeso.history import Floats
from akeso.search import _optional
from akeso.search.curves import ValueOf, costs_so_far
from akeso.search.traits import Traits
from akeso.search.values import all_finite, as_numbers

#: So many training losses are kept of a trial: a text in MySQL holds 64 kB.
_KEPT = 4000


class Reports:
    """The reports of one trial, in the order of their steps, as a study has them.

    ``rows`` holds those that were finite, ``losses`` what belongs to each of them.
    """

    def __init__(self, maximize: tuple[bool, ...], value_of: ValueOf, *, in_study: bool) -> None:
        self.maximize, self.value_of = maximize, value_of
        self.rows: list[tuple[float, ...]] = []
        self.losses: list[float] = []
        self.steps: set[int] = set()
        self.finite = True  # what was last reported
        self.unsettled = 0  # so many of them said nothing, for running statistics had not left their start
        self.repaired = 0  # after so many of them the trial began anew
        self._in_study = in_study
        self._finite_steps: list[int] = []
        self._place = 0  # of the last report that was finite

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def last_step(self) -> int:
        """The highest step so far; -1 before any."""
        return max(self.steps, default=-1)

    def step(self, given: Any) -> int:
        """The step of the next report: the one given, or the one after the last."""
        at = self.last_step + 1 if given is None else given
        if isinstance(at, bool) or not isinstance(at, int | np.integer) or at < 0:
            raise BadInput(f"the step of a report is a whole number of at least 0, but step={given!r}")
        return int(at)

    def read(self, value: Any) -> tuple[float, ...]:
        """A reported value as one number per objective."""
        row = as_numbers(value, len(self.maximize) if self._in_study else None)
        if not self._in_study and len(row) != len(self.maximize):
            # A trial of no study: its report shows how many objectives it has.
            self.maximize = (False,) * len(row)
        return row

    def add(self, step: int, row: tuple[float, ...]) -> None:
        """Take a report in; of what is not finite only that it came."""
        self.steps.add(step)
        self.finite = all_finite(row)
        if self.finite:
            self._place = bisect(self._finite_steps, step)
            self._finite_steps.insert(self._place, step)
            self.rows.insert(self._place, row)

    def add_loss(self, loss: float) -> None:
        """The training loss before the last report that was finite."""
        self.losses.insert(self._place, loss)

    def take_over(self, before: Iterable[tuple[int, float]]) -> None:
        """Begin with the steps and values, in order, that the trial reported before a break."""
        for step, value in before:
            self.steps.add(step)
            if math.isfinite(value):
                self._finite_steps.append(step)
                self.rows.append((value,))
                self.losses.append(math.nan)

    def about(self) -> dict[str, Any]:
        """What a storage keeps beside the values: how many there are and say nothing, a few digits of the losses."""
        known = Traits.of({}, self.losses[:_KEPT]).losses
        plain = [float(f"{loss:.6g}") if math.isfinite(loss) else None for loss in known]
        unsettled = {"unsettled": self.unsettled} if self.unsettled else {}
        return {"reports": len(self), **({"losses": plain} if plain else {}), **unsettled}

    def begin_anew(self) -> None:
        """The trial was repaired: where it stood before says nothing about where it goes."""
        self.repaired = len(self.rows)

    def costs(self) -> list[Floats]:
        """The running costs of each objective; infinite at the end where the last report was not finite."""
        return self._costs(() if self.finite else (math.nan,))

    def finite_costs(self) -> list[Floats]:
        """The running costs of each objective by its finite reports alone."""
        return self._costs(())

    def _costs(self, missing: tuple[float, ...]) -> list[Floats]:
        rows = self.rows[self.repaired :]
        return [
            costs_so_far([*(row[objective] for row in rows), *missing], maximize=up, value_of=self.value_of)
            for objective, up in enumerate(self.maximize)
        ]

    def value(self, *, ended: bool) -> Any:
        """What the trial is worth: one number, or a list with several objectives."""
        if not self.rows:
            if self.steps:
                raise _optional.optuna().TrialPruned("No finite value was reported.")
            raise BadInput(
                "health.value was asked for, but nothing was reported; call health.report(value) after each "
                "epoch inside the with block, or return a value of your own"
            )
        if self.value_of == "last" and not self.finite and not ended:
            raise _optional.optuna().TrialPruned("The last value that was reported is not finite.")
        rows = np.asarray(self.rows)
        if self.value_of == "last" or not self._in_study:  # of no study nobody knows which way is better
            chosen = rows[-1]
        elif len(self.maximize) == 1:
            chosen = rows.max(0) if self.maximize[0] else rows.min(0)
        else:
            chosen = rows[-1]  # the best of several objectives need not belong to one epoch
        return float(chosen[0]) if len(self.maximize) == 1 else [float(v) for v in chosen]
