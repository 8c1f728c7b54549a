"""The account of a treatment: attempts, verdicts, steps and seconds, and the outcome made of them."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from akeso.diagnosis import Diagnosis
from akeso.remedies.candidates import treatable
from akeso.treatment.outcome import Cost, Outcome, Status, Tried, stopped
from akeso.treatment.plans._base import Wishes
from akeso.treatment.plans.race import same_loss
from akeso.treatment.prescription import Edit, Prescription
from akeso.treatment.program import Attempt, Program

#: Batches whose answers make one value of a training's accuracy.
_BATCHES = 4
#: Steps of a training of which nothing is known.
_LENGTH = 400
#: How often luck alone may put a model ahead of the untreated one.
_LUCK = 0.05
#: What no training finds anything in; one that learns from it shows otherwise.
_NO_SIGNAL: Final = "unlearnable-labels"


class Ledger:
    """Makes attempts and keeps the account of them."""

    def __init__(self, program: Program, wishes: Wishes, plan: str) -> None:
        self.program = program
        self.wishes = wishes
        self.plan = plan
        self.untreated: Attempt | None = None
        self._entries: dict[tuple[Prescription, int], tuple[Attempt, str]] = {}
        self._began = time.perf_counter()
        self._steps = 0
        self._untreated_steps = 0
        self.notes: list[str] = []

    @property
    def planned(self) -> int:
        """Steps of one plain training, as well as it is known."""
        known = self.program.planned_steps
        if known is None and self.untreated is not None:
            whole = (attempt.steps for attempt in (self.untreated, *self.attempts) if attempt.whole)
            # One that was ended early says nothing of how long it would have been.
            known = (
                self.untreated.planned_steps or next(whole, None) or max(_LENGTH, 4 * self.untreated.steps)
            )
        return max(1, known or _LENGTH)

    @property
    def room(self) -> float:
        """Steps that may still be spent."""
        return self.wishes.budget * self.planned - (self._steps - self._untreated_steps)

    def rest(self, steps: int) -> int:
        """The steps that an attempt which has done so many needs to its end."""
        return max(0, self.planned - steps) if self.program.resumable else self.planned

    def reserve(self, steps: int) -> int:
        """The steps that one contestant needs to its end after another has disappointed half-way."""
        return self.rest(steps) + (max(0, self.planned // 2 - steps) if self.program.resumable else 0)

    def good_enough(self, attempt: Attempt) -> bool:
        """Whether the metric is at the user's target, at the end or on the way there."""
        target = self.wishes.target
        if target is None or attempt.metric is None or attempt.failed:
            return False
        return attempt.metric >= target if attempt.higher_is_better else attempt.metric <= target

    def reached(self, attempt: Attempt) -> bool:
        """Whether a whole training ends at the user's target."""
        return attempt.whole and self.good_enough(attempt)

    def attempt(
        self, prescription: Prescription, *, seed: int | None = None, max_steps: int | None = None,
        stop_on_error: bool = False,
    ) -> Attempt:  # fmt: skip
        """Make one attempt, or go on with one; steps are those of the plain training, whatever batches are like."""
        chosen = seed if seed is not None else self.wishes.seed
        stretch = self.program.stretch(prescription)
        until = None if max_steps is None else round(max_steps * stretch)
        made = self.program.attempt(prescription, seed=chosen, max_steps=until, stop_on_error=stop_on_error)
        if stretch != 1.0:
            made = _in_plain_steps(made, stretch)
        key = (prescription, made.seed)
        before = self._entries.get(key)
        self._steps += made.spent
        if not prescription and (self.untreated is None or made.seed == self.untreated.seed):
            self._untreated_steps += made.spent
            self.untreated = made
        if before is not None:
            made = replace(made, spent=before[0].spent + made.spent, seconds=before[0].seconds + made.seconds)
        verdict = f"failed: {made.failed}" if made.failed else "tried"
        no_further = before is not None and (before[0].steps, before[0].whole) == (made.steps, made.whole)
        self._entries[key] = (made, verdict)
        if made.failed or not no_further:
            self.wishes.report(Tried(made, verdict))
        return made

    def at_its_best(self, attempt: Attempt) -> Attempt:
        """The attempt with the weights of its best evaluation, where they can be had and the user allows it."""
        if not self.wishes.allows(Edit("keep-best-weights")):
            return attempt
        made = self.program.at_its_best(attempt)
        if made is None:
            return attempt
        stretch = self.program.stretch(attempt.prescription)
        made = _in_plain_steps(made, stretch) if stretch != 1.0 else made
        made = replace(made, spent=attempt.spent, seconds=attempt.seconds)
        if attempt.prescription:
            self._entries.pop((attempt.prescription, attempt.seed), None)
        self._entries[made.prescription, made.seed] = (made, "tried")
        return made

    def judge(self, attempt: Attempt, verdict: str) -> None:
        """Write down what was made of an attempt."""
        self._entries[attempt.prescription, attempt.seed] = (attempt, verdict)

    def known(self, prescription: Prescription) -> Attempt | None:
        """The latest attempt with this prescription."""
        found = [attempt for (cure, _), (attempt, _) in self._entries.items() if cure == prescription]
        return found[-1] if found else None

    @property
    def attempts(self) -> list[Attempt]:
        """Every attempt so far."""
        return [attempt for attempt, _ in self._entries.values()]

    def close(self, best: Attempt, status: Status, **more: Any) -> Outcome:
        """The outcome with this attempt's model handed back."""
        first = self.untreated or best
        self.judge(best, "accepted" if best.prescription or best is not first else "the untreated run")
        if best.prescription and self.untreated is not None:
            whole = "whole" if first.whole else stopped(first)
            self.judge(first, f"the untreated run, {f'failed: {first.failed}' if first.failed else whole}")
        if first.failed:
            self.notes.append(f"the untreated training failed: {first.failed}")
        for key, (attempt, verdict) in self._entries.items():
            if verdict == "tried":
                self._entries[key] = (
                    attempt,
                    f"rejected: less promising than {best.prescription.describe()}",
                )
        tried = tuple(Tried(attempt, verdict) for attempt, verdict in self._entries.values())
        refused: dict[Edit, str] = {edit: why for attempt in self.attempts for edit, why in attempt.refused}
        return Outcome(
            status=status,
            metric=best.metric_name or first.metric_name,
            higher_is_better=best.higher_is_better,
            # a figure of another kind is no "before" to this "after"
            before=first.metric if _alike(first, best) else None,
            before_whole=first.whole,
            after=best.metric,
            diagnoses=_not_refuted(first, best, status),
            prescription=made_edits(best).at_one_rate(),
            attempts=tried,
            cost=Cost(self._steps / self.planned, time.perf_counter() - self._began),
            model=self.program.hand_over(best),
            weights=best.weights,
            remaining=treatable(best.diagnoses) if best.prescription else (),
            refused=tuple(refused.items()),
            plan=self.plan,
            notes=tuple(self.notes) + best.notes,
            **more,
        )


def _not_refuted(first: Attempt, best: Attempt, status: Status) -> tuple[Diagnosis, ...]:
    """What was found, but for labels without a signal where another training has found one in them."""
    found = {one.problem for one in best.diagnoses}
    learnt = status in ("repaired", "improved") and bool(best.prescription) and _NO_SIGNAL not in found
    return tuple(one for one in first.diagnoses if not (learnt and one.problem == _NO_SIGNAL))


def _alike(first: Attempt, best: Attempt) -> bool:
    return best.metric_name in ("", first.metric_name) and same_loss(first, best)


def _in_plain_steps(made: Attempt, stretch: float) -> Attempt:
    """An attempt whose steps are smaller, counted as if they were not."""
    return replace(
        made,
        steps=round(made.steps / stretch),
        spent=round(made.spent / stretch),
        planned_steps=None if made.planned_steps is None else round(made.planned_steps / stretch),
        curve=tuple((round(step / stretch), value) for step, value in made.curve),
    )


def made_edits(attempt: Attempt) -> Prescription:
    """The edits of an attempt that were not refused."""
    refused = [edit for edit, _ in attempt.refused]
    return Prescription(edit for edit in attempt.prescription if edit not in refused)


def margin(attempt: Attempt, among: int = 1) -> float:
    """How much of a metric is noise: of the held-out sample, and of the last evaluations of the run.

    The best of ``among`` is ahead by luck more often than one is: the margin grows so that it is as seldom.
    """
    return _noise(attempt) * _beyond_luck(max(among, 1)) / _beyond_luck(1)


def _noise(attempt: Attempt) -> float:
    value = attempt.metric if attempt.metric is not None and math.isfinite(attempt.metric) else 0.0
    tail = [point for _, point in attempt.curve[-4:] if math.isfinite(point)]
    jitter = _back_and_forth(tail)
    if "accuracy" in attempt.metric_name or attempt.metric_name.endswith("f1"):
        share = min(max(value, 0.02), 0.98)
        samples = _samples(attempt)
        return max(
            NormalDist().inv_cdf(1 - _LUCK) * math.sqrt(share * (1 - share) / max(samples, 20.0)),
            min(jitter, 0.05),
        )
    if attempt.metric_name.endswith("r2"):
        return max(0.02, min(jitter, 0.1))
    return max(0.02 * abs(value), min(jitter, 0.1 * abs(value)))


def _back_and_forth(values: list[float]) -> float:
    """How far values jump about, whatever way they go on the whole: a curve that only rises has no noise to show."""
    if len(values) < 3:
        return 0.0
    steps = [after - before for before, after in itertools.pairwise(values)]
    return (sum(map(abs, steps)) - abs(sum(steps))) / (2 * (len(steps) - 1))


def _samples(attempt: Attempt) -> float:
    """How many answers an accuracy is made of: those of a few batches where it is that of the training."""
    if attempt.metric_name == "train_accuracy":
        batches = attempt.history.series("batch_size").finite().values
        if len(batches):
            return _BATCHES * float(np.median(batches))
    return float(attempt.history.facts.get("val_size") or 500)


def better(new: Attempt, old: Attempt, among: int = 1) -> bool:
    """Whether an attempt beats another beyond noise; ``among`` how many it is the best of, by its metric alone."""
    if new.failed or new.metric is None:
        return False
    return new.score > old.score + margin(old, among)


def _beyond_luck(draws: int) -> float:
    """How many deviations the best of so many draws exceeds by luck as seldom as is allowed."""
    return NormalDist().inv_cdf(1 - _LUCK / draws)
