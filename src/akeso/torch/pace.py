"""How long the steps take that nobody looks at: what a look costs is told against them."""

from __future__ import annotations

import time


class Pace:
    """Times the plain steps of a training; those with an evaluation or a pause among them say nothing."""

    def __init__(self) -> None:
        self._plain: list[float] = []
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

    def beyond_usual(self, now: float) -> float:
        """Seconds by which the step that ends now took longer than nine in ten plain ones; 0 if not known."""
        if self.disturbed or len(self._plain) < 8:
            return 0.0
        return self.elapsed(now) - sorted(self._plain)[int(0.9 * len(self._plain))]
