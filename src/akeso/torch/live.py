"""A verdict while the training runs, as often as it can be afforded."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.torch.cadence import Cadence

#: Share of the training time that may go into examining the history while it grows, and when it is asked for.
_SHARE, _EAGER = 0.005, 0.05
#: Looks that a frugal watch, which only looks where nothing is learnt, is given before its share has had time to
#: grow: enough to suspect a dead network in a short run, and to be sure. Counted, not timed: a busy machine must not
#: decide what is found.
_GIVEN = 3
#: Problems that are told by the harm they do, and how long nothing is said of them where nobody knows yet by what harm
#: is to be measured: an agent that has hardly begun to act looks just like a training that fails.
_BY_HARM = frozenset(
    {
        "vanishing-gradient", "exploding-gradient", "dying-relu", "saturated-activation", "poor-initialisation",
        "learning-rate-too-high", "learning-rate-too-low", "slow-convergence", "oscillating-loss",
        "constant-prediction", "over-regularised", "unlearnable-labels", "class-imbalance",
    }
)  # fmt: skip
_UNKNOWN = 512
#: Harm must still be there when a run has gone so much further than where it was first suspected: many a healthy one
#: begins as badly as a sick one, and gets over it.
_PERSISTS = 2.0
#: Losses whose targets are answers that somebody has given: labels, not what an agent makes of its own guesses.
_OF_LABELS = ("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
#: What a loss falls by, from the second quarter of the run so far to the last, where something is learnt.
_FALL = 0.03


class LiveVerdict:
    """Examines the history now and then and tells of every problem once."""

    def __init__(
        self,
        history: History,
        profile: str | Path,
        on_finding: Callable[[Diagnosis], None],
        cadence: Cadence,
        eager: bool = False,
        frugal: bool = False,
    ) -> None:
        self._history, self._profile, self._tell = history, profile, on_finding
        self._cadence, self._share = cadence, _EAGER if eager else _SHARE
        self._frugal = frugal
        self._apart = 1.0 if frugal else 0.125  # between two looks, at least: a share of the steps so far
        self._spent = self._cost = 0.0
        self._given = _GIVEN if frugal else 0
        self._next = 64 if frugal else 16
        self._told: set[str] = set()
        self._suspected: dict[str, int] = {}  # since which step
        self._hurried = False

    def hurry(self) -> None:
        """Something happened that cannot wait."""
        self._next = 0
        self._hurried = True

    def look(self, step: int) -> None:
        """Examine if it is time and the time is there."""
        if step < self._next:
            return
        if (
            self._next
            and not self._given
            and not self._cadence.affords(self._spent + self._cost, self._share)
        ):
            return
        hurried = not self._next
        self._next = step + max(8, int(self._apart * step))
        if self._frugal and not hurried and self._learns():
            return
        self._given = max(self._given - 1, 0)
        from akeso.examination import examine  # with all detectors: where they are wanted

        began = time.perf_counter()
        verdict = examine(self._history, self._profile)
        self._cost = time.perf_counter() - began
        self._spent += self._cost
        self._cadence.spend(self._cost)
        early = step < _UNKNOWN and not self._supervised()
        found = [diagnosis for diagnosis in verdict.diagnoses if diagnosis.severity != "info"]
        for diagnosis in found:
            if diagnosis.problem in self._told or (early and diagnosis.problem in _BY_HARM):
                continue
            if self._sure(diagnosis.problem, step):
                self._told.add(diagnosis.problem)
                self._tell(diagnosis)
        problems = {diagnosis.problem for diagnosis in found}
        self._suspected = {problem: self._suspected.get(problem, step) for problem in problems}
        self._hurried = False

    def _sure(self, problem: str, step: int) -> bool:
        """Whether later looks have confirmed what an earlier one suspected, or it is beyond doubt."""
        if self._hurried:
            return True
        since = self._suspected.get(problem)
        return since is not None and (problem not in _BY_HARM or step >= _PERSISTS * since)

    def _supervised(self) -> bool:
        """Whether data with answers are learnt, as far as is known: by loss, loader, or what is held out of them."""
        facts = self._history.facts
        if facts.get("loss") in _OF_LABELS or "dataset_size" in facts:
            return True
        return bool(self._history.events_of("epoch")) or any(
            "loss" in event.data for event in self._history.events_of("evaluation")
        )

    def _learns(self) -> bool:
        """Whether the loss fell of late: then no network is dead, and a frugal watch saves itself the look."""
        loss = self._history.series("loss").finite().values
        parts = np.array_split(loss, 4)
        if len(loss) < 16:
            return False
        before, now = float(np.mean(parts[1])), float(np.mean(parts[3]))
        return before - now > _FALL * abs(before)
