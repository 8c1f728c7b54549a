"""The loss of every step: kept where it is until it is worth fetching, then put on record."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import SupportsFloat

import torch

from akeso.torch.cadence import Cadence
from akeso.torch.mailbox import Delivery, Mailbox, Tag
from akeso.torch.quiet import quiet
from akeso.torch.record import Record

Value = SupportsFloat | torch.Tensor
#: Losses on a device are fetched when this many have gathered.
_WAITING = 64
#: Losses that are known already are written down this often, in seconds.
_SECONDS = 0.2


class LossBook:
    """Gathers losses and writes them down step by step."""

    def __init__(
        self, record: Record, mailbox: Mailbox, cadence: Cadence, on_nonfinite: Callable[[float, int], None]
    ) -> None:
        self._record, self._mailbox, self._cadence = record, mailbox, cadence
        self._on_nonfinite = on_nonfinite
        self._waiting: list[tuple[int, str, list[Value]]] = []
        # Most losses are one number each: two flat lists give the garbage collector nothing to look at.
        self._steps: list[int] = []
        self._values: list[float] = []
        self._flushed = 0.0
        self._scopes: dict[int, str] = {}
        self._level: float | None = None
        self._noise = 0.0

    def put(self, step: int, optimizer: int, values: list[Value]) -> None:
        """The losses behind one step of one optimizer; the first optimizer with a loss has the run's."""
        scope = self._scopes.get(optimizer)
        if scope is None:
            scope = self._scopes[optimizer] = str(optimizer) if self._scopes else ""
        if scope == "" and len(values) == 1 and isinstance(values[0], float):
            self._steps.append(step)
            self._values.append(values[0])
            if not math.isfinite(values[0]):
                self._on_nonfinite(values[0], step)
        else:
            self._waiting.append((step, scope, values))

    def flush(self, now: float, *, force: bool) -> None:
        """Put finished losses on record, many at a time; those on a device only when it is worth a copy."""
        if not (force or now - self._flushed > _SECONDS):
            return
        self._flushed = now
        if self._steps:
            points = list(zip(self._steps, self._values, strict=True))
            self._steps.clear()
            self._values.clear()
            self._put_down("", points)
        if not self._waiting:
            return
        if any(isinstance(value, torch.Tensor) for value in self._waiting[-1][2]):
            if force or len(self._waiting) >= _WAITING:
                self._fetch()
            return
        waiting, self._waiting = self._waiting, []
        self._told([(step, scope, [float(value) for value in values]) for step, scope, values in waiting])

    def _fetch(self) -> None:
        waiting, self._waiting = self._waiting, []
        items: list[tuple[Tag, torch.Tensor]] = []
        with quiet():
            for i, (_, _, values) in enumerate(waiting):
                for j, value in enumerate(values):
                    items.append(
                        (
                            (i, j),
                            value.float() if isinstance(value, torch.Tensor) else torch.tensor(float(value)),
                        )
                    )

            def receive(delivery: Delivery) -> None:
                known = [
                    (step, scope, [delivery[i, j] for j in range(len(values))])
                    for i, (step, scope, values) in enumerate(waiting)
                ]
                self._told(known)

            self._mailbox.post(items, receive)

    def _told(self, known: list[tuple[int, str, list[float]]]) -> None:
        """Losses have come that nobody has seen before."""
        self._write(known)
        for step, _, numbers in known:
            for number in numbers:
                if not math.isfinite(number):
                    self._on_nonfinite(number, step)

    def _write(self, known: list[tuple[int, str, list[float]]]) -> None:
        points: dict[str, list[tuple[int, float]]] = {}
        for step, scope, values in known:
            value = values[0] if len(values) == 1 else sum(values) / len(values)
            points.setdefault(scope, []).append((step, value))
            if len(values) > 1:
                self._record.fact("micro_batches", len(values))
        for scope, found in points.items():
            self._put_down(scope, found)

    def _put_down(self, scope: str, points: list[tuple[int, float]]) -> None:
        self._record.many("loss", scope, points)
        if scope == "":
            jumps = [self._jumps(step, value) for step, value in points if math.isfinite(value)]
            if any(jumps):
                self._cadence.stir(points[-1][0] + 1)

    def _jumps(self, step: int, value: float) -> bool:
        """Whether the loss jumps out of its own noise, which is worth a closer look."""
        if self._level is None:
            self._level = value
            return False
        gap = abs(value - self._level)
        jumps = step > 20 and gap > 8 * self._noise
        self._noise = gap if self._noise == 0.0 else 0.95 * self._noise + 0.05 * gap
        self._level += 0.1 * (value - self._level)
        return jumps
