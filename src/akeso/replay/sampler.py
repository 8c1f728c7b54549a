"""The order of samples as a pure function of (seed, epoch): it can be entered anywhere.

An :class:`Order` answers which samples the b-th batch of epoch e consists of. Nothing is drawn in passing, so
to begin in the middle of an epoch costs as much as to begin at its start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akeso.errors import BadInput, Refused
from akeso.replay import generators
from akeso.replay.keys import key, permutation

Address = tuple[int, int, list[Any]]
"""Epoch, number of the batch in it, and the indices of its samples: all a worker needs to know."""


class Order(ABC):
    """Which samples come when."""

    @abstractmethod
    def epoch(self, epoch: int) -> tuple[int, Callable[[int], list[Any]]]:
        """Return the number of batches of an epoch, and a function from a batch's number to its samples."""

    def length(self, epoch: int) -> int:
        """Return the number of batches of an epoch."""
        return self.epoch(epoch)[0]

    def batch(self, epoch: int, batch: int) -> list[Any]:
        """Return the indices of the samples of one batch."""
        return self.epoch(epoch)[1](batch)


class KeyedOrder(Order):
    """Every sample once an epoch, permuted under the key of the epoch, or in the order of the dataset."""

    def __init__(
        self, samples: int, batch_size: int, *, seed: int, shuffle: bool = True, drop_last: bool = False
    ) -> None:
        if batch_size < 1:
            raise BadInput(f"batch_size must be at least 1, but got {batch_size=}")
        if samples < 1:
            raise BadInput("the dataset has no samples")
        self.samples, self.batch_size, self.seed = samples, batch_size, seed
        self.shuffle, self.drop_last = shuffle, drop_last
        self._last: tuple[int, NDArray[np.int64]] | None = None

    def epoch(self, epoch: int) -> tuple[int, Callable[[int], list[Any]]]:
        size = self.batch_size
        count = self.samples // size if self.drop_last else -(-self.samples // size)
        if count == 0:
            raise BadInput(f"{self.samples} samples make no whole batch of {size}; set drop_last=False")
        order = self._order(epoch)
        return count, lambda batch: order[batch * size : (batch + 1) * size].tolist()

    def _order(self, epoch: int) -> NDArray[np.int64]:
        if self._last is None or self._last[0] != epoch:
            if self.shuffle:
                order = permutation(self.samples, key(self.seed, "order", epoch))
            else:
                order = np.arange(self.samples, dtype=np.int64)
            self._last = (epoch, order)
        return self._last[1]


class DrawnOrder(Order):
    """The order a sampler of the user's gives when every generator it can reach is seeded for the epoch.

    The sampler is asked twice in the first epoch; one that answers differently keeps state of its own, and is
    refused, because its order could not be found again after a kill.
    """

    def __init__(self, sampler: Any, batch_size: int | None, *, seed: int, drop_last: bool = False) -> None:
        self.sampler, self.batch_size, self.seed, self.drop_last = sampler, batch_size, seed, drop_last
        self._last: tuple[int, list[list[Any]]] | None = None
        self._trusted = False

    def epoch(self, epoch: int) -> tuple[int, Callable[[int], list[Any]]]:
        if self._last is None or self._last[0] != epoch:
            drawn = self._draw(epoch)
            if not self._trusted and drawn != self._draw(epoch):
                raise Refused(
                    f"the sampler {type(self.sampler).__name__} gives another order when it is asked again "
                    "under the same seeds: it keeps state or draws from elsewhere, so its order could not "
                    "be found again after a kill; make the order depend on set_epoch(epoch) and a generator "
                    "alone"
                )
            self._trusted = True
            self._last = (epoch, drawn)
        batches = self._last[1]
        return len(batches), lambda batch: batches[batch]

    def _draw(self, epoch: int) -> list[list[Any]]:
        under = key(self.seed, "order", epoch)
        saved = generators.capture()
        try:
            generators.seed_all(under)
            for number, (_, private) in enumerate(generators.find(self.sampler)):
                generators.seed_private(private, key(under, "private", number))
            set_epoch = getattr(self.sampler, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)
            drawn = list(self.sampler)
        finally:
            generators.restore(saved)
        if self.batch_size is None:
            return [list(batch) if isinstance(batch, Sequence) else [batch] for batch in drawn]
        cut = [drawn[at : at + self.batch_size] for at in range(0, len(drawn), self.batch_size)]
        return cut[:-1] if self.drop_last and cut and len(cut[-1]) < self.batch_size else cut


class Addresses:
    """The batches from one place in a run to another, in the form a loader hands to its workers."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.start = (0, 0)
        self.stop_epoch = 0

    def __iter__(self) -> Iterator[Address]:
        return (address for address, _ in self.walk())

    def walk(self) -> Iterator[tuple[Address, bool]]:
        """Yield every address with whether it is the last of its epoch."""
        epoch, batch = self.start
        while epoch < self.stop_epoch:
            count, samples = self.order.epoch(epoch)
            for number in range(batch, count):
                yield (epoch, number, samples(number)), number + 1 == count
            epoch, batch = epoch + 1, 0

    def __len__(self) -> int:
        first = self.start[0]
        total = sum(self.order.length(epoch) for epoch in range(first, self.stop_epoch))
        return total - self.start[1]
