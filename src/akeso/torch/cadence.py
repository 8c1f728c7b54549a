"""When to look: dense at the start, then as often as the budget allows, dense again when something moves."""

from __future__ import annotations

import time
from collections.abc import Callable


class Cadence:
    """Decides which steps are sampled and keeps the account of what watching costs.

    A look at every doubling of the step is free: a short run is seen too, and a long one hardly notices. Those
    in between must be paid from ``budget``, the share of the training time that watching may take. A ``frugal``
    cadence gives a third as many away, for those who train many short runs and know what the others came to.
    """

    #: Seconds that may go into looking before the budget has had time to grow; nobody notices them.
    ALLOWANCE = 0.010
    #: Share of the budget for looking; the rest is for what unsampled steps and evaluations cost.
    SHARE = 0.6
    #: However cheap looking is, a reading every few steps says as much as one at each.
    DENSEST = 8
    #: However far the budget is away, a run is looked after now and then.
    LONGEST = 56
    #: How often something that moves is looked at closely whatever it costs.
    BURSTS = 4

    def __init__(
        self, budget: float, clock: Callable[[], float] = time.perf_counter, *, frugal: bool = False
    ) -> None:
        self.budget = budget
        self.growth, self._gifts = (8, 0) if frugal else (2, self.BURSTS)
        self._clock = clock
        self._began = clock()
        self._next = 0
        self._free = 0  # the next step that is looked at whatever it costs
        self._burst_until = -1
        self._bursts = 0
        self.spent = 0.0
        self.samples = 0
        self._cost = 0.0  # of one sampled step, running mean
        self._paused: float | None = None

    def pause(self) -> None:
        """The clock stands still: what is not watched pays for nothing."""
        if self._paused is None:
            self._paused = self._clock()

    def resume(self) -> None:
        """The clock goes on."""
        if self._paused is not None:
            self._began += self._clock() - self._paused
            self._paused = None

    def due(self, step: int) -> bool:
        """Whether ``step`` is to be sampled."""
        if step <= self._burst_until or step >= self._free:
            return True
        if step < self._next:
            return False
        return self.spent + self._cost <= self.SHARE * self.budget * self.elapsed + self.ALLOWANCE

    def earliest(self, step: int, pace: float = 0.0) -> int:
        """The first step after ``step`` at which :meth:`due` is worth asking, for steps of ``pace`` seconds."""
        soon = step + self.DENSEST
        if pace > 0:
            # Half of the way to where the budget will be there again: steps may become slower.
            missing = (self.spent + self._cost - self.ALLOWANCE) / (self.SHARE * self.budget) - self.elapsed
            soon += max(0, min(int(0.5 * missing / pace), self.LONGEST))
        return min(later for later in (soon, self._next, self._free) if later > step)

    @property
    def elapsed(self) -> float:
        """Seconds since watching began."""
        return (self._clock() if self._paused is None else self._paused) - self._began

    @property
    def overhead(self) -> float:
        """Share of the time so far that went into watching."""
        rest = self.elapsed - self.spent
        return self.spent / rest if rest > 0 else 0.0

    def sampled(self, step: int, seconds: float) -> None:
        """Account for a sampled step that cost ``seconds`` more than a plain one."""
        self.samples += 1
        self._cost = seconds if self.samples == 1 else 0.7 * self._cost + 0.3 * seconds
        self._next = step + min(1 + step // 4, self.DENSEST)
        if step >= self._free:
            self._free = self.growth * step + (step < 4)
        self.spend(seconds)

    def spend(self, seconds: float) -> None:
        """Account for other work."""
        self.spent += max(seconds, 0.0)

    def stir(self, step: int, *, urgent: bool = False) -> None:
        """Something moved at ``step``, or broke: look at the next few steps closely, but not for ever."""
        if step > self._burst_until and (
            self._bursts < (self.BURSTS if urgent else self._gifts)
            or self.spent <= self.SHARE * self.budget * self.elapsed
        ):
            self._bursts += 1
            self._burst_until = step + 2

    def affords(self, seconds: float, share: float) -> bool:
        """Whether ``seconds`` more are within ``share`` of the time so far."""
        return seconds <= share * self.elapsed
