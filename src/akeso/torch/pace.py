"""How long the steps take that nobody looks at: what a look costs is told against them."""

from __future__ import annotations

import time
from statistics import median

#: Looks that are remembered, and how many of anything make a median that means something.
_LOOKS, _ENOUGH = 15, 7


class Pace:
    """Times the plain steps of a training; those with an evaluation or a pause among them say nothing."""

    def __init__(self) -> None:
        self._plain: list[float] = []
        self._beyond: list[float] = []
        self._since, self._step = time.perf_counter(), 0
        self.disturbed = False
        """Whether something other than steps has happened since the last one was noted."""

    @property
    def last(self) -> float:
        """Seconds of the plain steps noted last; 0 before there are any."""
        return self._plain[-1] if self._plain else 0.0

    def plain(self, now: float, step: int) -> None:
        """Steps up to ``step`` are done, none of them looked at."""
        if not self.disturbed:
            self._plain.append((now - self._since) / max(1, step - self._step))
            if len(self._plain) > 64:
                del self._plain[:32]
        self.restart(now, step)

    def restart(self, now: float, step: int) -> None:
        """Count from here."""
        self._since, self._step, self.disturbed = now, step, False

    def elapsed(self, now: float) -> float:
        """Seconds since the last step was noted."""
        return now - self._since

    def look_cost(self, now: float, own: float) -> float:
        """Seconds that the look which ends now has cost, ``own`` being those in which its code ran.

        On a card neither is the whole: kernels run later, and code that waits for a full queue takes no time from
        the training. So the length of steps with a look is held against that of plain ones, over several looks:
        a single step may have waited for somebody else.
        """
        if self.disturbed or len(self._plain) < _ENOUGH:
            return own
        self._beyond = [*self._beyond[1 - _LOOKS :], self.elapsed(now) - median(self._plain)]
        return max(0.0, median(self._beyond)) if len(self._beyond) >= _ENOUGH else own
