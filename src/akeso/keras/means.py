"""The loss of every step, out of the running mean that Keras logs of it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any


class LateLoss:
    """A loss that is read when it is wanted: until then the device is not waited for."""

    __slots__ = ("_means", "_value")

    def __init__(self, means: Means) -> None:
        self._means = means
        self._value: float | None = None

    def __float__(self) -> float:
        while self._value is None:
            self._means.resolve()
        return self._value

    def put(self, value: float) -> None:
        """The number has come."""
        self._value = value


class Means:
    """Undoes the running mean over an epoch, in which every step counts by its samples.

    All batches of an epoch but the last are taken to be of one size; that of the last follows from the sum of all.
    """

    def __init__(self, number: Callable[[Any], float]) -> None:
        self._number = number
        self._waiting: deque[tuple[Any, float, LateLoss] | float] = deque()  # means; or where an epoch ends
        self._mean = self._weight = 0.0
        self.averaged = True
        """Whether what is logged is a mean at all, and not the loss of the step itself."""
        self.batch = 1.0
        """Samples of a batch."""

    def add(self, logged: Any, steps: int) -> LateLoss:
        """What was logged after so many more steps; their loss, to be read later."""
        late = LateLoss(self)
        self._waiting.append((logged, float(steps), late))
        return late

    def end(self, samples: float) -> None:
        """The mean begins anew; ``samples`` went into it."""
        self._waiting.append(samples)

    def resolve(self) -> None:
        """Read the oldest one that waits."""
        entry = self._waiting.popleft()
        if isinstance(entry, float):
            self._mean = self._weight = 0.0
            return
        logged, steps, late = entry
        mean, weight = self._number(logged), steps * self.batch
        if not self.averaged:
            late.put(mean)
            return
        if self._waiting and isinstance(self._waiting[0], float):
            last = self._waiting[0] - self._weight
            weight = last if 0 < last < weight else weight
        whole = self._weight + weight
        value = (mean * whole - self._mean * self._weight) / weight if math.isfinite(mean) else mean
        self._mean, self._weight = mean, whole
        late.put(value)
