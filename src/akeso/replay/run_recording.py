"""What is written about each step, and how often the dear part of it is taken.

Samples, loss and generators cost microseconds and are recorded at every step. Digests of gradients,
parameters and optimizer read all of that memory; they are taken every k steps, k being the smallest power of
two that keeps them within the budget, measured as the run goes. Powers of two make the steps of any two runs
coincide.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import torch

from akeso.replay import digests, generators
from akeso.replay.digests import Digest
from akeso.replay.journal import ReplayJournal, StepRecord
from akeso.replay.run_losses import Courier, Loss, Page
from akeso.replay.state_tracked import Tracked, TrackedModule, TrackedOptimizer

_MOST = 1024
_PATIENCE = 0.1
"""Seconds for which records may wait to be written together: what a kill can cost of the journal.

Twice as long where losses have to come from a device: those of one portion are read when the next one leaves."""


class _Dear(NamedTuple):
    """The digests that are not taken at every step, in their parts; some are still on their way."""

    gradient: Sequence[Digest | str]
    parameters: Sequence[Digest | str]
    optimizer: Sequence[Digest | str]


#: A step that was done: its number, epoch, batch, samples, generators, loss, and the dear digests if taken.
_Done: TypeAlias = tuple[int, int, int, list[Any], str, Loss, _Dear | None]


class Recorder:
    """Makes the records of steps, writes them, and compares them with what was written before."""

    def __init__(self, journal: ReplayJournal | None, expected: dict[int, StepRecord], budget: float) -> None:
        self._journal = journal
        self._expected = expected
        self._budget = budget
        self._waiting: list[_Done] = []
        self._courier = Courier()
        self._away: tuple[list[_Done], list[Page]] = ([], [])
        self._written = perf_counter()
        self._gradient: list[Digest] = []
        self._cost = 0.0
        self._light = 0.0
        self._began = 0.0
        self._extra = 0
        self._taken = 0
        self.every = 1
        self.full = True
        self.step_time = 0.0
        self.compared: list[int] = []
        self.mismatches: list[tuple[StepRecord, StepRecord, tuple[str, ...]]] = []
        self.records: list[StepRecord] | None = None
        """Where records are kept in memory as well, for a replay."""

    def begin(self, step: int) -> None:
        """Decide what the step that now starts will be asked for."""
        known = self._expected.get(step)
        # What was recorded then is recorded again, so that there is something to compare.
        wanted = known is not None and (known.parameters is not None or known.gradient is not None)
        self.full = wanted or step % self.every == 0 or step == self._extra or self._taken < 2
        self._gradient = []
        self._cost = 0.0
        self._began = perf_counter()

    def also(self, step: int) -> None:
        """Take everything at one more step: the second after a snapshot, which proves it complete."""
        self._extra = step

    def gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Digest the gradients an optimizer is about to use."""
        if not self.full:
            return
        start = perf_counter()
        self._gradient.append(
            digests.of_tensors(item.grad for group in optimizer.param_groups for item in group["params"])
        )
        self._cost += perf_counter() - start

    def end(
        self, step: int, epoch: int, batch: int, samples: list[Any], loss: Any, tracked: Iterable[Tracked]
    ) -> None:
        """Make the record of the step that has just been done."""
        start = perf_counter()
        self._pace(start)
        sounding, bits = generators.sounding(), self._courier.take(loss)
        dear = None
        if self.full:
            dear = self._everything(tracked)
            self._cost += perf_counter() - start
            self._adapt()
        self._waiting.append((step, epoch, batch, samples, sounding, bits, dear))
        if self.full or self._courier.full or start - self._written > _PATIENCE:
            self.flush(wait=False)
        if not self.full:
            self._light += 0.1 * (perf_counter() - start - self._light)

    def _everything(self, tracked: Iterable[Tracked]) -> _Dear:
        values: list[torch.Tensor] = []
        states: list[torch.Tensor | None] = []
        rates = ""
        for item in tracked:
            if isinstance(item, TrackedModule):
                values += [*item.value.parameters(), *item.value.buffers()]
            elif isinstance(item, TrackedOptimizer):
                for group in item.value.param_groups:
                    rates += f"{group.get('lr')!r} "
                    for parameter in group["params"]:
                        entries = item.value.state.get(parameter, {})
                        states += [part for part in entries.values() if isinstance(part, torch.Tensor)]
        return _Dear(
            self._gradient,
            [digests.of_tensors(values)] if values else [],
            [digests.of_tensors(states), f"{zlib.crc32(rates.encode()):08x}"] if rates else [],
        )

    def _pace(self, now: float) -> None:
        took = max(now - self._began - self._cost, 1e-6)
        self._taken += 1
        if self._taken == 1:
            return  # the first step of a process warms everything up and says nothing
        self.step_time = took if self.step_time == 0 else 0.9 * self.step_time + 0.1 * took

    def _adapt(self) -> None:
        if self.step_time == 0:
            return
        every = 1
        # What is done at every step is paid first, but never more than three quarters of the budget from it.
        budget = self._budget * self.step_time
        left = max(budget - self._light, 0.25 * budget)
        while every < _MOST and self._cost / every > left:
            every *= 2
        # Up at once, down by halves: one quick step among slow ones should not bring the cost back.
        self.every = every if every >= self.every else self.every // 2

    def flush(self, *, wait: bool = True) -> None:
        """Write the records that are waiting; unless told to ``wait``, those with losses on a device next time."""
        self._written = perf_counter()
        self._land()
        self._away, self._waiting = (self._waiting, self._courier.leave()), []
        if wait or not self._away[1]:
            self._land()

    def _land(self) -> None:
        (waiting, pages), self._away = self._away, ([], [])
        for page in pages:
            page.land()
        records = [_record(*done) for done in waiting]
        self._courier.back(pages)
        if self._journal is not None:
            self._journal.steps(records)
        if self.records is not None:
            self.records += records
        if self._expected:
            for record in records:
                self._compare(record)

    def _compare(self, record: StepRecord) -> None:
        known = self._expected.pop(record.step, None)
        if known is None:
            return
        self.compared.append(record.step)
        found = known.differences(record)
        if found:
            self.mismatches.append((known, record, found))
            if self._journal is not None:
                self._journal.append("mismatch", {"step": record.step, "in": list(found)})

    def largest_drift(self) -> float:
        """Return the largest relative difference of a loss between the steps compared and found different."""
        worst = 0.0
        for then, now, _ in self.mismatches:
            if then.loss and now.loss and len(then.loss) >= 16:
                old, new = digests.from_bits(then.loss[:16]), digests.from_bits(now.loss[:16])
                worst = max(worst, abs(new - old) / max(abs(old), 1e-30))
        return worst


def _record(
    step: int, epoch: int, batch: int, samples: list[Any], sounding: str, loss: Loss, dear: _Dear | None
) -> StepRecord:
    drawn = digests.of_numbers(samples) if not samples or isinstance(samples[0], int) else digests.of(samples)
    if dear is None:
        return StepRecord(step, epoch, batch, drawn, sounding, str(loss))
    rest = ("".join(map(str, parts)) or None for parts in dear)
    return StepRecord(step, epoch, batch, drawn, sounding, str(loss), *rest)
