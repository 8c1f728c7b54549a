"""Where a run stands: which loop, epoch, batch and step, and at what kind of place between two iterations."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from akeso.errors import Refused
from akeso.replay.run_asking import Asked, Head

if TYPE_CHECKING:
    from akeso.replay.run_streams import BatchStream, EpochStream


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
    first: Asked
    """From where it was first asked since a loop of epochs last gave one."""
    site: object
    """The place in the program from which its loop was first asked since then."""
    given: int = 0
    """How many epochs had been given then."""
    asked: int = 0
    """When it was last asked for a batch."""
    inside: frozenset[str] = frozenset()
    """The loops of the run in whose bodies it is asked."""


class Positions:
    """The position of every loop of a program, by the name of the loop."""

    def __init__(
        self,
        places: dict[str, list[int]] | None = None,
        plans: dict[str, dict[str, int]] | None = None,
        streams: dict[str, list[int]] | None = None,
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
        self._saved_streams = dict(streams or {})
        # The epoch that each loop of epochs has given last.
        self._going: dict[str, tuple[weakref.ref[EpochStream] | None, int]] = {}
        # The number of the newest stream of every loop that was asked.
        self._newest: dict[str, int] = {}
        #: The stream of every loop that was made last.
        self.made: dict[str, weakref.ref[BatchStream]] = {}
        #: Streams by their loops, in the order in which they were first asked for a batch.
        self._streams: dict[str, _Stream] = {}
        #: How often any stream has been asked.
        self.clock = 0
        # How often that was when each loop of epochs last gave one, and how many epochs were given in all.
        self._given: dict[str, int] = {}
        self._epochs = 0
        # Loops of the program over streams and epochs, by their places in it.
        self._heads: dict[Head, str] = {}

    def start_of(self, loop: str, epochs: int) -> tuple[int, int, int]:
        """Return epoch and batch at which a new stream begins, and the epoch before which it ends."""
        first = self.planned.get(loop, 0)
        around, given = self._going.get(loop, (None, first))
        if around is not None and around() is not None and first > given:
            raise Refused(
                f"run.batches(…) is called a second time in epoch {given} of run.epochs(…) for the loop {loop!r}; if "
                "it is for something else, as validation is, give it a name of its own: run.batches(…, name=…)"
            )
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
        if kind == "epoch":
            self._given[loop] = self.clock
            self._epochs += 1

    def restored(self) -> None:
        """Note that the place of the snapshot has been reached."""
        self.planned = self._saved_plans.pop("", self.planned)
        self._saved_plans = {}
        for loop, (epoch, batch, stop) in self._saved_streams.items():
            stream = self.made[loop]() if loop in self.made else None
            if stream is not None:
                stream.aim((epoch, batch), stop)
        self._saved_streams = {}

    def resumes(self, stream: BatchStream, loop: str, place: Callable[[], Asked]) -> bool:
        """Aim a stream that has nothing to give any more where one that the program had put in its place was."""
        if loop not in self._saved_streams or place().heads:
            return False
        epoch, batch, stop = self._saved_streams[loop]
        stream.aim((epoch, batch), stop)
        return True

    def streams(self, at: Boundary, place: Callable[[], Asked]) -> dict[str, tuple[int, int, int]]:
        """Return where the streams stand that are asked by a bare ``next(...)``, and before which epochs they end.

        The program may have made them in the place of others that were over.
        """
        found = {}
        for loop, known in self._streams.items():
            stream = known.alive()
            if stream is not None and not stream.over and not known.first.heads:
                if loop != at.loop:
                    found[loop] = (*stream.next, stream.stop)
                elif all(head in self._heads for head, _ in place().around):
                    found[loop] = (at.epoch, at.batch, stream.stop)
        return found

    def plans(self) -> dict[str, dict[str, int]]:
        """Return what has been asked for, now and when each loop last gave something, for JSON."""
        return {**self._plans, "": dict(self.planned)}

    def gives(self, loop: str, stream: EpochStream, epoch: int) -> None:
        """Note that a loop of epochs gives one: the next batches of the same name belong to it."""
        self.entered("epoch", loop)
        self.planned[loop] = epoch
        self._going[loop] = (weakref.ref(stream), epoch)

    def ended(self, loop: str) -> None:
        """Note that a loop of epochs is over."""
        self._going.pop(loop, None)

    def begun(self, loop: str, asked: Asked) -> None:
        """Note which ``for`` of the program goes over a loop of epochs."""
        self._heads |= dict.fromkeys(asked.heads, loop)

    def asked(self, loop: str, stream: BatchStream, stop: int, place: Callable[[], Asked]) -> None:
        """Note that a stream, which ends before the epoch ``stop``, was asked for a batch from a place."""
        self.clock += 1
        known, site = self._streams.get(loop), None
        if stream.number < self._newest.get(loop, 0):
            raise Refused(
                f"two loops of the run are called {loop!r} and are asked in turns, so that neither's place could be "
                "found again; give one of them a name of its own: run.batches(…, name=…), run.iterations(…, name=…)"
            )
        self._newest[loop] = stream.number
        if known is not None and known.alive() is not stream:
            site = known.site if known.given == self._epochs else None
            del self._streams[loop]  # one that begins anew comes last in the order
            known = None
        if known is None or known.given != self._epochs:
            first = place()
            if known is None:
                known = _Stream(weakref.ref(stream), (stop - 1, sys.maxsize), first, None)
                self._streams[loop] = known
            # Where a stream is begun again by the program that asks for it, the first one is asked from elsewhere.
            known.first, known.given = first, self._epochs
            known.site = first.site if first.heads or site is None else site
            self._heads |= dict.fromkeys(first.heads, loop)
            known.inside = frozenset(self._heads[head] for head, _ in first.around if head in self._heads)
        known.asked = self.clock

    def settled(self, at: Boundary, ends: bool, place: Callable[[], Asked]) -> bool:
        """Tell whether the place of every loop says all about where the program is: where to take a snapshot.

        A stream that is older than the present iteration of a loop around it is asked from the middle of that
        iteration, perhaps from a loop of its own there, of which nothing is known. One that is asked from several
        places, or in several iterations of a plain loop, would be asked by a resumed process from the first of them.

        Between epochs in which batches are read, data may have been changed: a process that goes on there would ask
        for it only when that has come back, and could not tell whether it is the data of the run. The first batch of
        the next epoch is as good a place; after the last one there is none.
        """
        if at.kind == "epoch":
            return ends or self._given.get(at.loop, self.clock) == self.clock
        known = self._streams[at.loop]
        stream = known.alive()
        if stream is None:
            return True
        before = True
        for loop, other in self._streams.items():
            before = before and loop != at.loop
            around = other.alive()
            if loop == at.loop or around is None or around.over:
                continue
            if (before or loop in known.inside) and at.loop not in other.inside and stream.born < other.asked:
                return False
        now = place()
        return now.site == known.site and self.anew(at.loop, now) is None

    def anew(self, loop: str, now: Asked, alone: bool = False) -> Head | None:
        """Return the plain ``for`` that has asked a stream before now, and would begin anew in a resumed process.

        With ``alone``, only one that stands in no loop over epochs, at whose beginnings it could be gone on with.
        """
        first = dict(self._streams[loop].first.around)
        for number, (head, given) in enumerate(now.around):
            if head in self._heads:
                break
            if first.get(head, given) != given:
                enclosed = any(outer in self._heads for outer, _ in now.around[number:])
                return None if alone and enclosed else head
        return None

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
            elif (after or at in known.inside) and not stream.over:
                found[loop] = list(stream.next)
        return found
