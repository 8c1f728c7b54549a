"""Losses as they are recorded: their bits, fetched from a device in bulk and never waited for at a step."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import torch

_SEATS = 256

_Kind: TypeAlias = tuple[torch.device, torch.dtype]


class Page:
    """Pinned memory of the host into which losses of one kind are copied as they come."""

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self._host = torch.empty(_SEATS, dtype=kind[1], pin_memory=True)
        self._seats = self._host.unbind()
        self._event = torch.cuda.Event()
        self._taken = 0
        self._values: list[float] = []

    @property
    def full(self) -> bool:
        """Whether no further loss has room."""
        return self._taken == _SEATS

    def put(self, number: torch.Tensor) -> int:
        """Send a number on its way; return the place at which it will arrive."""
        self._seats[self._taken].copy_(number, non_blocking=True)
        self._taken += 1
        return self._taken - 1

    def seal(self) -> None:
        """Mark the moment by which everything sent so far has arrived."""
        self._event.record(torch.cuda.current_stream(self.kind[0]))

    def land(self) -> None:
        """Wait for what was sent, and read it."""
        self._event.synchronize()
        self._values = self._host[: self._taken].tolist()

    def value(self, seat: int) -> float:
        """Return a number that has landed."""
        return self._values[seat]

    def clear(self) -> None:
        """Make room; what has landed is forgotten."""
        self._taken = 0
        self._values = []


class Loss:
    """The bits of a loss, or of several; ``str()`` once those on a device have landed."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[float | tuple[Page, int]]) -> None:
        self.parts = parts

    def __str__(self) -> str:
        return "".join(
            struct.pack(">d", part if isinstance(part, float) else part[0].value(part[1])).hex()
            for part in self.parts
        )


class Courier:
    """Takes the losses of steps and brings those on a device home, many at a time."""

    def __init__(self) -> None:
        self._open: dict[_Kind, Page] = {}
        self._full: list[Page] = []
        self._free: dict[_Kind, list[Page]] = {}

    @property
    def full(self) -> bool:
        """Whether a page is full and should leave."""
        return bool(self._full)

    def take(self, loss: Any) -> Loss:
        """Take a number, a tensor, several in a list or by name, or nothing."""
        return Loss([self._part(value) for value in _numbers(loss)])

    def _part(self, value: Any) -> float | tuple[Page, int]:
        if not isinstance(value, torch.Tensor):
            return float(value)
        one = value.numel() == 1
        if not value.is_cuda:
            return float(value.item() if one else value.detach().double().sum().item())
        number = value.detach() if value.requires_grad else value
        if not one:
            number = number.double().sum()
        elif number.dim():
            number = number.reshape(())
        # Copied now: what is read later may have been written over by then.
        kind = (number.device, number.dtype)
        page = self._open.get(kind)
        if page is None:
            free = self._free.get(kind)
            page = self._open[kind] = free.pop() if free else Page(kind)
        seat = page.put(number)
        if page.full:
            self._full.append(self._open.pop(kind))
        return page, seat

    def leave(self) -> list[Page]:
        """Close the pages in use and return them: they are on their way."""
        pages = [*self._full, *self._open.values()]
        self._full, self._open = [], {}
        for page in pages:
            page.seal()
        return pages

    def back(self, pages: Iterable[Page]) -> None:
        """Take back pages that have been read."""
        for page in pages:
            page.clear()
            self._free.setdefault(page.kind, []).append(page)


def _numbers(loss: Any) -> list[Any]:
    if loss is None:
        return []
    if isinstance(loss, Mapping):
        return list(loss.values())
    return list(loss) if isinstance(loss, list | tuple) else [loss]
