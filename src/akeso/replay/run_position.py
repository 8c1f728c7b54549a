"""Where a run stands: which loop, epoch, batch and step, and at what kind of place between two iterations."""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from akeso.replay.run_streams import BatchStream


class Boundary(NamedTuple):
    """A place between two iterations, at which a snapshot can be taken and a run can go on.

    ``batch`` boundaries come before a batch is handed out (or at the end of the stream, with the number of
    batches of its last epoch); ``epoch`` boundaries before ``run.epochs`` hands out an epoch. A snapshot is
    restored at the boundary it was taken at, so that the code between two boundaries is run exactly once.
    """

    kind: str
    loop: str
    epoch: int
    batch: int

    def plain(self) -> dict[str, Any]:
        """Return the fields as a dictionary."""
        return self._asdict()


@dataclass(slots=True)
class _Stream:
    """The newest stream of a loop."""

    alive: weakref.ref[BatchStream]
    end: tuple[int, int]
    """Where it stands once it is over."""
    asked: int = 0
    """When it was last asked for a batch."""


class Positions:
    """The position of every loop of a program, by the name of the loop."""

    def __init__(
        self, places: dict[str, list[int]] | None = None, plans: dict[str, dict[str, int]] | None = None
    ) -> None:
        self.places: dict[str, tuple[int, int]] = {
            loop: (epoch, batch) for loop, (epoch, batch) in (places or {}).items()
        }
        # Epochs already asked for in this process: the next call of run.batches covers those that follow.
        self.planned: dict[str, int] = {}
        # The same as it was when each loop last gave something. A process that goes on with a loop does not
        # come by what was asked for in the iterations that are done.
        self._plans: dict[str, dict[str, int]] = {}
        self._saved_plans = dict(plans or {})
        #: Streams by their loops, in the order in which they were first asked for a batch.
        self._streams: dict[str, _Stream] = {}
        #: How often any stream has been asked.
        self.clock = 0

    def start_of(self, loop: str, epochs: int) -> tuple[int, int, int]:
        """Return epoch and batch at which a new stream begins, and the epoch before which it ends."""
        first = self.planned.get(loop, 0)
        self.planned[loop] = first + epochs
        epoch, batch = self.places.get(loop, (first, 0))
        if epoch < first:
            epoch, batch = first, 0
        return epoch, batch, first + epochs

    def entered(self, kind: str, loop: str) -> None:
        """Note that a loop has given something: an epoch or a batch."""
        name = f"{kind} {loop}"
        self.planned = self._saved_plans.pop(name, self.planned)
        self._plans[name] = dict(self.planned)

    def restored(self) -> None:
        """Note that the place of the snapshot has been reached."""
        self.planned = self._saved_plans.pop("", self.planned)
        self._saved_plans = {}

    def plans(self) -> dict[str, dict[str, int]]:
        """Return what has been asked for, now and when each loop last gave something, for JSON."""
        return {**self._plans, "": dict(self.planned)}

    def asked(self, loop: str, stream: BatchStream, stop: int) -> None:
        """Note that a stream, which ends before the epoch ``stop``, was asked for a batch."""
        self.clock += 1
        known = self._streams.get(loop)
        if known is None or known.alive() is not stream:
            self._streams.pop(loop, None)  # one that begins anew comes last in the order
            known = self._streams[loop] = _Stream(weakref.ref(stream), (stop - 1, sys.maxsize))
        known.asked = self.clock

    def settled(self, at: Boundary) -> bool:
        """Tell whether the place of every loop says all about where the program is: where to take a snapshot.

        A stream that is older than the present iteration of a loop around it is asked from the middle of that
        iteration, perhaps from a loop of its own there, of which nothing is known.
        """
        stream = self._streams[at.loop].alive() if at.kind == "batch" else None
        if stream is None:
            return True
        for loop, other in self._streams.items():
            if loop == at.loop:
                break
            around = other.alive()
            if around is not None and not around.over and stream.born < other.asked:
                return False
        return True

    def plain(self, at: str) -> dict[str, list[int]]:
        """Return where each loop is to begin for a process that is to come to the loop ``at``, for JSON.

        On its way it asks the loops that were asked first in this process: those begin with the batch that is
        in use. The others are asked later, and begin with the batch that is next. A loop that was left by
        ``break`` is over.
        """
        found = {loop: list(place) for loop, place in self.places.items()}
        after = False
        for loop, known in self._streams.items():
            stream = known.alive()
            if loop == at:
                after = True
            elif stream is None:
                if self.places[loop] < known.end:
                    found[loop] = list(known.end)
            elif after and not stream.over:
                found[loop] = list(stream.next)
        return found
