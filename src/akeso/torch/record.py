"""Where a probe's readings go: the history in memory and, when there is a run folder, the journal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from akeso.history import Event, History, Layer
from akeso.journal import JournalWriter


class Record:
    """Writes history and journal alike."""

    def __init__(self, history: History, journal: JournalWriter | None) -> None:
        self.history = history
        self._journal = journal
        self._layers: dict[str, Layer] = {}

    def readings(self, step: int, values: Mapping[str, Mapping[str, float]]) -> None:
        """The readings of one step: signal, then scope, then value."""
        if not values:
            return
        self.history.add_step(step, values)
        if self._journal is not None:
            self._journal.readings(step, values)

    def many(self, signal: str, scope: str, points: list[tuple[int, float]]) -> None:
        """Readings of one signal at many steps."""
        self.history.add_many(signal, scope, points)
        if self._journal is not None:
            self._journal.many(signal, scope, points)

    def fact(self, name: str, value: Any) -> None:
        """Something known about the run; written again only when it has changed."""
        if name in self.history.facts and self.history.facts[name] == value:
            return
        self.history.facts[name] = value
        if self._journal is not None:
            self._journal.fact(name, value)

    def event(self, step: int, kind: str, scope: str = "", /, **data: Any) -> None:
        """Something that happened."""
        event = Event(step, kind, scope, data)
        self.history.events.append(event)
        if self._journal is not None:
            self._journal.event(event)

    def layer(self, layer: Layer) -> None:
        """A layer, new or known better than before."""
        if self._layers.get(layer.name) == layer:
            return
        self._layers[layer.name] = layer
        self.history.layers = sorted(self._layers.values(), key=lambda known: known.order)
        if self._journal is not None:
            self._journal.layer(layer)

    def header(self, **content: Any) -> None:
        """What identifies the run."""
        if self._journal is not None:
            self._journal.header(content)

    def flush(self) -> None:
        """Let a reader of the journal see everything so far."""
        if self._journal is not None:
            self._journal.flush()

    def end(self, **content: Any) -> None:
        """The run is over."""
        if self._journal is not None:
            self._journal.end(content)
