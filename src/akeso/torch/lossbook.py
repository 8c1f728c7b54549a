"""The loss of every step: kept where it is until it is worth fetching, then put on record."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from akeso.torch.cadence import Cadence
from akeso.torch.mailbox import Delivery, Mailbox, Tag
from akeso.torch.quiet import quiet
from akeso.torch.record import Record

Value = float | torch.Tensor
#: Losses on a device are fetched when this many have gathered.
_WAITING = 64
#: Losses that are known already are written down when this many have gathered.
_FEW = 8


class LossBook:
    """Gathers losses and writes them down step by step."""

    def __init__(
        self, record: Record, mailbox: Mailbox, cadence: Cadence, on_nonfinite: Callable[[float, int], None]
    ) -> None:
        self._record, self._mailbox, self._cadence = record, mailbox, cadence
        self._on_nonfinite = on_nonfinite
        self._waiting: list[tuple[int, str, list[Value]]] = []
        self._scopes: dict[int, str] = {}
        self._level: float | None = None
        self._noise = 0.0

    def put(self, step: int, optimizer: int, values: list[Value]) -> None:
        """The losses behind one step of one optimizer; the first optimizer with a loss has the run's."""
        scope = self._scopes.get(optimizer)
        if scope is None:
            scope = self._scopes[optimizer] = str(optimizer) if self._scopes else ""
        self._waiting.append((step, scope, values))

    def flush(self, *, force: bool) -> None:
        """Put finished losses on record: a few at a time, those on a device only when it is worth a copy."""
        if not self._waiting or (not force and len(self._waiting) < _FEW):
            return
        if any(isinstance(value, torch.Tensor) for value in self._waiting[-1][2]):
            if force or len(self._waiting) >= _WAITING:
                self._fetch()
            return
        for step, scope, values in self._waiting:
            self._write(step, scope, [float(value) for value in values])
        self._waiting.clear()

    def _fetch(self) -> None:
        waiting, self._waiting = self._waiting, []
        items: list[tuple[Tag, torch.Tensor]] = []
        with quiet():
            for i, (_, _, values) in enumerate(waiting):
                for j, value in enumerate(values):
                    items.append(
                        ((i, j), value.float() if isinstance(value, torch.Tensor) else torch.tensor(value))
                    )

            def receive(delivery: Delivery) -> None:
                for i, (step, scope, values) in enumerate(waiting):
                    numbers = [delivery[i, j] for j in range(len(values))]
                    self._write(step, scope, numbers)
                    for number in numbers:
                        if not math.isfinite(number):
                            self._on_nonfinite(number, step)

            self._mailbox.post(items, receive)

    def _write(self, step: int, scope: str, values: list[float]) -> None:
        value = sum(values) / len(values)
        self._record.readings(step, {"loss": {scope: value}})
        if len(values) > 1:
            self._record.fact("micro_batches", len(values))
        if scope == "" and math.isfinite(value):
            self._feel(step, value)

    def _feel(self, step: int, value: float) -> None:
        """Look closer when the loss jumps out of its own noise."""
        if self._level is None:
            self._level = value
            return
        gap = abs(value - self._level)
        if step > 20 and gap > 8 * self._noise:
            self._cadence.stir(step)
        self._noise = gap if self._noise == 0.0 else 0.95 * self._noise + 0.05 * gap
        self._level += 0.1 * (value - self._level)
