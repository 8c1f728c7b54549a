"""Where a run stands: which loop, epoch, batch and step, and at what kind of place between two iterations."""

from __future__ import annotations

from typing import Any, NamedTuple


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


class Positions:
    """The position of every loop of a program, by the name of the loop."""

    def __init__(self, places: dict[str, list[int]] | None = None) -> None:
        self.places: dict[str, tuple[int, int]] = {
            loop: (epoch, batch) for loop, (epoch, batch) in (places or {}).items()
        }
        # Epochs already asked for in this process: the next call of run.batches covers those that follow.
        self.planned: dict[str, int] = {}

    def start_of(self, loop: str, epochs: int) -> tuple[int, int, int]:
        """Return epoch and batch at which a new stream begins, and the epoch before which it ends."""
        first = self.planned.get(loop, 0)
        self.planned[loop] = first + epochs
        epoch, batch = self.places.get(loop, (first, 0))
        if epoch < first:
            epoch, batch = first, 0
        return epoch, batch, first + epochs

    def plain(self) -> dict[str, list[int]]:
        """Return the places as JSON can hold them."""
        return {loop: list(place) for loop, place in self.places.items()}
