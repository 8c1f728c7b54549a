"""The iterators a user loops over. Each step of theirs is a boundary: a run can be taken up or left there."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from akeso.replay.loader import Batch, KeyedLoader
from akeso.replay.run_asking import asked_from
from akeso.replay.run_position import Boundary

if TYPE_CHECKING:
    from akeso.replay.run import Run


_NUMBERS = count()


class BatchStream:
    """Batches from where the run stands to the end of the epochs asked for."""

    def __init__(
        self, run: Run, loop: str, loader: KeyedLoader, start: tuple[int, int], stop: int, whole: bool
    ) -> None:
        self._run, self._loop, self._loader = run, loop, loader
        #: Epoch and batch that come next.
        self.next = start
        #: The epoch before which it ends.
        self.stop, self._whole = stop, whole
        self._source: Iterator[Batch] | None = None
        self.over = self._gone_over = False
        #: When it was made, on the clock of the run's positions.
        self.born = run._positions.clock
        self._known = (-1, 0)
        #: Which of the streams of this process it is.
        self.number = next(_NUMBERS)
        run._positions.made[loop] = weakref.ref(self)

    def aim(self, at: tuple[int, int], stop: int) -> None:
        """Go on at another place, and up to another epoch."""
        if (self.next, self.stop) != (at, stop):
            self.next, self.stop, self.over, self._source = at, stop, False, None

    def __iter__(self) -> BatchStream:
        # Whoever goes over it a second time may take it for a loader that begins anew; one who takes it in pieces does
        # not. Some stop after the last batch without asking for one more.
        if self._gone_over and (self.over or (self._source is not None and not len(self))):
            self._run._log.over(self._loop)
        self._gone_over = True
        return self

    def __len__(self) -> int:
        """Return the number of batches still to come."""
        epoch, batch = self.next
        return max(0, sum(self._loader.order.length(at) for at in range(epoch, self.stop)) - batch)

    def __next__(self) -> Any:
        frame = sys._getframe(1)
        place, positions = partial(asked_from, frame, self._run), self._run._positions
        pending = self._run._pending
        # A stream that was over before the snapshot was taken has nothing to give and is no boundary.
        past = self.over or self.next[0] >= self.stop
        here = pending is not None and pending.loop == self._loop
        if past and not (here and positions.resumes(self, self._loop, place)):
            raise StopIteration
        epoch, number = self.next
        ended, at = False, Boundary("batch", self._loop, epoch, number)
        restored = at == pending
        # Before data and sampler are what they were, nobody knows how long the epoch is.
        if not restored and number >= self._length(epoch):
            ended = epoch + 1 >= self.stop
            if not ended:
                self._loader.order.check()
                at = Boundary("batch", self._loop, epoch + 1, 0)
        positions.asked(self._loop, self, self.stop, place)
        self._run._boundary(at, frame, self._last(ended))
        epoch, number = at.epoch, at.batch
        if restored:
            self._loader.order.renew()
            self._known = (-1, 0)
            ended = number >= self._length(epoch)
        if ended:
            self.over = True
            raise StopIteration
        if self._source is None:
            self._source = self._loader.read(epoch, number, self.stop)
        batch = next(self._source)
        self.next = (epoch, number + 1)
        self._run._enter(self._loop, batch)
        return batch.data

    def _length(self, epoch: int) -> int:
        if self._known[0] != epoch:
            self._known = (epoch, self._loader.order.length(epoch))
        return self._known[1]

    def _last(self, ended: bool) -> str:
        if not ended:
            return "no"
        return "run" if self._whole else "stream"


class EpochStream:
    """Numbers of epochs from where the run stands."""

    def __init__(self, run: Run, loop: str, start: int, stop: int) -> None:
        self._run, self._loop, self._next, self._stop = run, loop, start, stop
        self._begun = False

    def __iter__(self) -> EpochStream:
        return self

    def __next__(self) -> int:
        epoch, frame = self._next, sys._getframe(1)
        ended = epoch >= self._stop
        if not self._begun:
            self._begun = True
            self._run._positions.begun(self._loop, asked_from(frame, self._run))
        self._run._boundary(Boundary("epoch", self._loop, epoch, 0), frame, "run" if ended else "no")
        if ended:
            self._run._positions.ended(self._loop)
            raise StopIteration
        self._run._enter_epoch(self._loop, self, epoch)
        self._next += 1
        return epoch
