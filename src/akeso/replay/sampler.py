"""The order of samples as a pure function of (seed, epoch): it can be entered anywhere.

An :class:`Order` answers which samples the b-th batch of epoch e consists of. Nothing is drawn in passing, so
to begin in the middle of an epoch costs as much as to begin at its start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import islice
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

    @abstractmethod
    def renew(self) -> None:
        """Take the data and the sampler as the program has made them since: a new stream begins."""

    @abstractmethod
    def held(self) -> dict[str, Any] | None:
        """Return what gives the epoch in use again, where data and sampler as they are now might not."""

    @abstractmethod
    def restore(self, held: dict[str, Any]) -> None:
        """Give one epoch as it was when it was held."""

    @abstractmethod
    def check(self) -> None:
        """Refuse to go on into the next epoch of a stream with data that is no longer what it began with."""


class KeyedOrder(Order):
    """Every sample once an epoch, permuted under the key of the epoch, or in the order of the dataset."""

    def __init__(
        self, data: int | Sized, batch_size: int, *, seed: int, shuffle: bool = True, drop_last: bool = False
    ) -> None:
        if batch_size < 1:
            raise BadInput(f"batch_size must be at least 1, but got {batch_size=}")
        self.data, self.batch_size, self.seed = data, batch_size, seed
        self.shuffle, self.drop_last = shuffle, drop_last
        self._last: tuple[tuple[int, int], NDArray[np.int64]] | None = None
        self._used: tuple[int, int] | None = None
        self._held: tuple[int, int] | None = None
        self.renew()

    def renew(self) -> None:
        self.samples = self._count()
        if self.samples < 1:
            raise BadInput("the dataset has no samples")

    def _count(self) -> int:
        return self.data if isinstance(self.data, int) else len(self.data)

    def held(self) -> dict[str, Any] | None:
        return {"epoch": self._used[0], "samples": self._used[1]} if self._used else None

    def restore(self, held: dict[str, Any]) -> None:
        self._held = (held["epoch"], held["samples"])

    def check(self) -> None:
        now = self._count()
        if now != self.samples:
            raise Refused(
                f"the dataset had {self.samples} samples when run.batches(…, epochs=…) began and has {now} in "
                "the middle of it; change it between epochs, with run.batches(…) inside of "
                "for epoch in run.epochs(…)"
            )

    def epoch(self, epoch: int) -> tuple[int, Callable[[int], list[Any]]]:
        size, samples = self.batch_size, self.samples
        if self._held is not None and self._held[0] == epoch:
            samples = self._held[1]
        count = samples // size if self.drop_last else -(-samples // size)
        if count == 0:
            raise BadInput(f"{samples} samples make no whole batch of {size}; set drop_last=False")
        self._used = (epoch, samples)
        if not self.shuffle:
            return count, lambda batch: list(range(batch * size, min((batch + 1) * size, samples)))
        if self._last is None or self._last[0] != self._used:
            self._last = (self._used, permutation(samples, key(self.seed, "order", epoch)))
        order = self._last[1]
        return count, lambda batch: order[batch * size : (batch + 1) * size].tolist()


class DrawnOrder(Order):
    """The order a sampler of the user's gives when every generator it can reach is seeded for the epoch.

    The sampler is asked twice in the first epoch; one that answers differently keeps state of its own, and is
    refused, because its order could not be found again after a kill.
    """

    def __init__(self, sampler: Any, batch_size: int | None, *, seed: int, drop_last: bool = False) -> None:
        self.sampler, self.batch_size, self.seed, self.drop_last = sampler, batch_size, seed, drop_last
        self._last: tuple[int, list[list[Any]]] | None = None
        self._held: tuple[int, list[list[Any]]] | None = None
        self._packed: tuple[int, dict[str, Any]] | None = None
        self._trusted = False

    def renew(self) -> None:
        self._last = self._packed = None

    def check(self) -> None:
        """Nothing to refuse: a sampler may answer otherwise in every epoch."""

    def held(self) -> dict[str, Any] | None:
        # Whole: what the sampler has drawn by, weights say, may have changed since.
        if self._last is None:
            return None
        epoch, batches = self._last
        if self._packed is None or self._packed[0] != epoch:
            flat = [index for batch in batches for index in batch]
            plain = all(type(index) is int for index in flat)
            sizes = np.array([len(batch) for batch in batches], np.int64)
            packed = {"epoch": epoch, "sizes": sizes, "indices": np.array(flat, np.int64) if plain else flat}
            self._packed = (epoch, packed)
        return self._packed[1]

    def restore(self, held: dict[str, Any]) -> None:
        indices = held["indices"]
        left = iter(indices.tolist() if isinstance(indices, np.ndarray) else indices)
        self._held = (held["epoch"], [list(islice(left, size)) for size in held["sizes"].tolist()])

    def epoch(self, epoch: int) -> tuple[int, Callable[[int], list[Any]]]:
        if self._held is not None and self._held[0] == epoch:
            self._last = self._held
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
