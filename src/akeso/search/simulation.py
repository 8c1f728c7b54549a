"""Replays a recorded study under a stopping rule: a search of hours in milliseconds.

Workers take recorded trials in a given order, a trial advances by the seconds it took when it was recorded,
and the rule sees at every moment exactly what it would have seen then. Nothing is trained.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from akeso.errors import BadInput
from akeso.search.curves import Curve, running_costs
from akeso.search.measures import Result
from akeso.search.recorded import PRUNED, RecordedStudy, RecordedTrial
from akeso.search.rules import Rule, Seen
from akeso.search.verdict import CONTINUE, Verdict


@dataclass(frozen=True, slots=True)
class Ended:
    """How one trial ended in a simulated search.

    ``value`` is what it ended with (NaN when stopped), ``last`` where it stood then (NaN when it never reported),
    ``would`` what it came to when it was recorded.
    """

    number: int
    seconds: float
    spent: float
    epochs: float
    verdict: Verdict
    value: float
    would: float
    last: float = math.nan


@dataclass(frozen=True, slots=True)
class Simulated:
    """One simulated search."""

    rule: str
    ended: tuple[Ended, ...]
    seconds: float
    maximize: bool

    @property
    def results(self) -> list[Result]:
        """The trials that ended with a value, as the measures want them."""
        return [Result(e.seconds, e.value) for e in self.ended if math.isfinite(e.value)]

    def until(self, seconds: float) -> Simulated:
        """The part of the search that lies within a time budget."""
        return Simulated(
            self.rule, tuple(e for e in self.ended if e.seconds <= seconds), seconds, self.maximize
        )


#: Chooses the next trial: gets the ended ones and those already taken, gives a number or None for the end.
Chooser = Callable[[Sequence[Ended], frozenset[int]], "int | None"]


def in_order(numbers: Sequence[int]) -> Chooser:
    """The order of arrival as a list of trial numbers."""
    queue: Iterator[int] = iter(numbers)
    return lambda ended, taken: next(queue, None)


class _Running:
    __slots__ = ("begun", "costs", "guarded", "trial", "worker")

    def __init__(
        self, trial: RecordedTrial, begun: float, worker: int, guarded: bool, costs: np.ndarray
    ) -> None:
        self.trial, self.begun, self.worker, self.guarded, self.costs = trial, begun, worker, guarded, costs


def simulate(
    study: RecordedStudy, rule: Rule, chooser: Chooser, *, workers: int = 1, budget: float = math.inf
) -> Simulated:
    """The search that would have happened.

    Trials still running when the ``budget`` of seconds is over are left out, as they would have produced no
    result in time.
    """
    if workers < 1:
        raise BadInput(f"a search needs at least one worker, but {workers=}")
    by_number = {trial.number: trial for trial in study.trials}
    seen = Seen(study.epochs, study.maximize)
    ended: list[Ended] = []
    taken: set[int] = set()
    queue: list[tuple[float, int, int, _Running, Verdict]] = []
    ticket = 0

    def costs_of(trial: RecordedTrial) -> np.ndarray:
        how = "last" if study.value_of == "last" else "best"
        return running_costs(trial.values, maximize=study.maximize, value_of=how)  # type: ignore[arg-type]

    def advance(run: _Running, epoch: int) -> None:
        """Puts the next moment of a trial into the queue: a finding within the epoch, or its end."""
        nonlocal ticket
        trial, done = run.trial, run.costs[:epoch]
        ticket += 1
        interruption = rule.interrupts(trial, done, seen)
        if interruption is not None:
            moment, verdict = interruption
            when = run.begun + trial.seconds_at(moment)
            heapq.heappush(queue, (when, ticket, epoch, run, verdict))
            return
        if epoch >= len(run.costs):
            when = run.begun + (trial.seconds[-1] if trial.seconds else 0.0)
            heapq.heappush(queue, (when, ticket, epoch, run, _cut_off(trial, epoch)))
            return
        heapq.heappush(queue, (run.begun + trial.seconds[epoch], ticket, epoch + 1, run, CONTINUE))

    def start(worker: int, now: float) -> None:
        number = chooser(ended, frozenset(taken))
        if number is None:
            return
        if number not in by_number or number in taken:
            raise BadInput(f"the order of arrival names trial {number}, which is not there or came already")
        taken.add(number)
        trial = by_number[number]
        seen.costs[number] = []
        advance(_Running(trial, now, worker, rule.guarding(seen), costs_of(trial)), 0)

    def end(run: _Running, now: float, verdict: Verdict) -> None:
        trial = run.trial
        done = seen.costs[trial.number]
        stopped = verdict.action == "stop"
        finite = [c for c in done if math.isfinite(c)]
        full = len(done) == study.epochs
        lost = stopped or not finite
        seen.ended[trial.number] = Curve(
            tuple(done),
            full and not lost,
            lost,
            run.guarded,
            verdict.indicator == "no-more-gain" and not lost,
            verdict.expected(study.maximize),
            trial.traits.until(len(done)),
        )
        sign = -1.0 if study.maximize else 1.0
        value = math.nan if lost else sign * finite[-1]
        last = sign * finite[-1] if finite else math.nan
        whole = run.costs[np.isfinite(run.costs)]
        reached = len(run.costs) == study.epochs or not trial.crashed
        would = sign * float(whole[-1]) if len(whole) and reached else math.nan
        spent = now - run.begun
        ended.append(Ended(trial.number, now, spent, _epochs(trial, spent), verdict, value, would, last))

    for worker in range(workers):
        start(worker, 0.0)
    now = 0.0
    while queue:
        now, _, epoch, run, verdict = heapq.heappop(queue)
        if now > budget:
            now = budget
            break
        trial = run.trial
        if not verdict:
            seen.costs[trial.number].append(float(run.costs[epoch - 1]))
            verdict = rule.judge(trial, run.costs[:epoch], seen)
            # One that did not crash ended by itself where its reports end: it had a rule of its own for that.
            whole = study.epochs if trial.crashed else len(run.costs)
            if not verdict and epoch < min(whole, study.epochs):
                advance(run, epoch)
                continue
        end(run, now, verdict)
        start(run.worker, now)
    return Simulated(rule.name, tuple(ended), now, study.maximize)


def _cut_off(trial: RecordedTrial, epoch: int) -> Verdict:
    """How a trial ended that has no more reports, and no value: it crashed, pruned itself, or never reported."""
    if not trial.crashed:
        return Verdict("stop", "no-report", "no-report", epoch=epoch, sentence="The trial reported nothing.")
    by = "objective" if trial.crashed == PRUNED else "crashed"
    return Verdict("stop", by, by, epoch=epoch, sentence=trial.crashed)


def _epochs(trial: RecordedTrial, spent: float) -> float:
    seconds = (0.0, *trial.seconds)
    return float(np.interp(spent, seconds, np.arange(len(seconds))))
