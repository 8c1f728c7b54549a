"""What a probe is told of trainings that torch does not run, in the order in which it happens::

looked(events), before_backward(loss)     on a sampled step, before it runs
computed(loss)                            on every other one
before_step(optimizer)                    unless the step is a calm one
after_step(optimizer)                     once it has run
epoch(…), evaluated(…)                    between steps
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, SupportsFloat

import torch
from torch import nn

from akeso.torch.cadence import Cadence
from akeso.torch.evaluating import Evaluations
from akeso.torch.events import Called, Compared, Entered, Figures, Left, Seen
from akeso.torch.listener import Listener
from akeso.torch.loose import LooseEnds
from akeso.torch.naming import Names
from akeso.torch.pace import Pace
from akeso.torch.passes import Passes
from akeso.torch.quiet import quiet
from akeso.torch.record import Record


class Told(Listener):
    """The half of a probe that is told what it cannot see."""

    cadence: Cadence
    step: int
    _adopt: bool
    _names: Names
    _record: Record
    _passes: Passes
    _evaluations: Evaluations
    _loose: LooseEnds
    _pace: Pace
    _losses: list[SupportsFloat | torch.Tensor]
    _sampling: bool
    _own: float

    @property
    def looking(self) -> bool:  # type: ignore[override]
        """Whether the step under way is sampled."""
        return self._sampling

    def concerned(self, model: nn.Module) -> bool:
        """Whether a model is one of those that are watched."""
        return self._adopt or self._names.module(model) is not None or self._names.awaited(model)

    def computed(self, loss: SupportsFloat) -> None:
        """The loss of a step, or of a part of it."""
        if not self._losses and not self.calm:
            self._loose.first_backward()
        self._losses.append(loss)

    def looked(self, events: Sequence[Seen], seconds: float, once: float) -> None:
        """Take what happened in a step for what torch's hooks would have shown."""
        if not self._sampling:
            return
        began, passes = time.perf_counter(), self._passes
        with quiet():
            for event in events:
                if isinstance(event, Entered):
                    passes.enter(event.layer, event.given)
                elif isinstance(event, Left):
                    passes.leave(event.layer, event.given, event.output)
                elif isinstance(event, Called):
                    passes.function(event.name, (), {}, event.result)
                elif isinstance(event, Compared):
                    passes.compared(event.call)
        passes.seconds, passes.module_calls, passes.function_calls = 0.0, 0, 0
        self._own += seconds + time.perf_counter() - began
        self.cadence.spend(once)

    def unlooked(self, reason: str) -> None:
        """This step is none of those that are looked into."""
        self._sampling = False
        self._passes.end()
        if reason:
            self._record.fact("not_looked_into", reason)
            self.cadence.sampled(self.step, 0.0)  # so that not every step is asked for

    def by_hand(self) -> None:
        """There is more than is seen."""
        self._record.fact("by_hand", True)

    def spent(self, seconds: float) -> None:
        """Watching has taken so long."""
        if self._sampling:
            self._own += seconds
        else:
            self.cadence.spend(seconds)

    def epoch(self, batches: int | None, samples: int | None, batch_size: int | None) -> None:
        """A pass over the training data begins."""
        facts: dict[str, Any] = {"batches": batches, "samples": samples, "batch_size": batch_size}
        if samples is not None:
            self._record.fact("dataset_size", samples)
        self._pace.disturbed = True
        self._record.event(
            self.step, "epoch", **{name: fact for name, fact in facts.items() if fact is not None}
        )

    def evaluated(self, figures: Figures) -> None:
        """An evaluation has ended."""
        self._pace.disturbed = True
        with quiet():
            self._evaluations.reported(max(self.step - 1, 0), figures)

    @abstractmethod
    def failed(self, where: str, error: Exception) -> None:
        """Something went wrong at ``where``."""
