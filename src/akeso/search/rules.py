"""Stopping rules under one interface, so that the simulator can set them side by side."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from akeso.history import Floats
from akeso.search.curves import Curve, Knowledge
from akeso.search.judge import Judge
from akeso.search.profiles import SearchProfile
from akeso.search.recorded import RecordedTrial
from akeso.search.verdict import CONTINUE, Verdict


@dataclass(slots=True)
class Seen:
    """What a study has seen at one moment: running costs per trial, and which of them ended how."""

    epochs: int
    maximize: bool
    costs: dict[int, list[float]] = field(default_factory=dict)
    ended: dict[int, Curve] = field(default_factory=dict)


class Rule(ABC):
    """A stopping rule: looks at one trial after one epoch, or at a finding within one."""

    name: ClassVar[str]

    @abstractmethod
    def judge(self, trial: RecordedTrial, costs: Floats, seen: Seen) -> Verdict:
        """What to do after the epoch that ``costs`` ends with."""

    def interrupts(self, trial: RecordedTrial, costs: Floats, seen: Seen) -> tuple[float, Verdict] | None:
        """A moment within the coming epoch at which the trial ends, in epochs since its start."""
        return None

    def guarding(self, seen: Seen) -> bool:
        """Whether the rule could stop a trial for its curve with what has been seen."""
        return False


class NoRule(Rule):
    """Every trial goes to its end."""

    name = "none"

    def judge(self, trial: RecordedTrial, costs: Floats, seen: Seen) -> Verdict:
        return CONTINUE


class NanRule(Rule):
    """Stops a trial whose reported value is not finite, as most people's loops do."""

    name = "nan"

    def judge(self, trial: RecordedTrial, costs: Floats, seen: Seen) -> Verdict:
        if math.isfinite(costs[-1]):
            return CONTINUE
        return Verdict("stop", "non-finite-value", "non-finite", epoch=len(costs) - 1, sentence="not finite")


class ProfileRule(Rule):
    """One of akeso's search profiles, judging what was recorded as it would have judged it live."""

    def __init__(self, profile: SearchProfile) -> None:
        self.name = profile.name  # type: ignore[misc]
        self.profile = profile
        self._judge: Judge | None = None
        self._made_for = -1

    def _current(self, seen: Seen) -> Judge:
        # A new judge when the ended trials grew by a tenth: the forecast changes little in between.
        count = len(seen.ended)
        if (
            self._judge is None
            or count < self._made_for
            or count >= self._made_for + max(1, self._made_for // 10)
        ):
            knowledge = Knowledge(seen.ended.values(), seen.epochs)
            self._judge, self._made_for = Judge(self.profile, knowledge, maximize=seen.maximize), count
        return self._judge

    def guarding(self, seen: Seen) -> bool:
        return self._current(seen).guarding

    def judge(self, trial: RecordedTrial, costs: Floats, seen: Seen) -> Verdict:
        judge = self._current(seen)
        verdict = judge.of_curve(costs, trial.traits.until(len(costs)))
        if verdict:
            return verdict
        known = [f.diagnosis() for f in trial.findings if self._mine(f.profile) and f.epochs <= len(costs)]
        return judge.of_findings(known, costs, epoch=len(costs) - 1)

    def interrupts(self, trial: RecordedTrial, costs: Floats, seen: Seen) -> tuple[float, Verdict] | None:
        epoch = len(costs)
        for finding in sorted(trial.findings, key=lambda f: f.epochs):
            if not self._mine(finding.profile) or not epoch <= finding.epochs < epoch + 1:
                continue
            verdict = self._current(seen).of_findings(
                [finding.diagnosis()], costs, epoch=epoch, within_epoch=True
            )
            if verdict:
                return finding.epochs, verdict
        return None

    def _mine(self, profile: str) -> bool:
        return profile == self.profile.detectors


class ExtrapolationRule(Rule):
    """Learning-curve extrapolation: a fitted power law must promise to reach the best value so far.

    The curve ``c + a * t ** -b`` is fitted by least squares over a grid of ``b``; a trial is stopped when its
    forecast at the last epoch is worse than the best finished trial, checked every epoch from ``start`` on.
    """

    name = "extrapolation"

    def __init__(self, start: int = 5) -> None:
        self.start = start

    def judge(self, trial: RecordedTrial, costs: Floats, seen: Seen) -> Verdict:
        finals = [c.final for c in seen.ended.values()]
        best = min(finals, default=math.inf)
        if len(costs) < self.start or not math.isfinite(best) or len(costs) >= seen.epochs:
            return CONTINUE
        if not np.all(np.isfinite(costs)):
            return Verdict("stop", "extrapolation", "non-finite", epoch=len(costs) - 1)
        predicted = power_law_end(costs, seen.epochs)
        if predicted > best:
            return Verdict("stop", "extrapolation", "hopeless-curve", epoch=len(costs) - 1)
        return CONTINUE


def power_law_end(costs: Floats, epochs: int) -> float:
    """The cost at the last of ``epochs`` by the best fitting power law ``c + a * t ** -b``."""
    t = np.arange(1, len(costs) + 1, dtype=np.float64)
    best_error, best_end = math.inf, float(costs[-1])
    for b in (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0):
        design = np.stack([np.ones_like(t), t**-b], axis=1)
        (c, a), *_ = np.linalg.lstsq(design, costs, rcond=None)
        error = float(np.sum((design @ np.array([c, a]) - costs) ** 2))
        if error < best_error:
            best_error, best_end = error, float(c + a * float(epochs) ** -b)
    return best_end
