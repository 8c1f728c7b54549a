"""The readings of one run in memory: what detectors see, and all they see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray  # a large module, for types alone

Floats: TypeAlias = "NDArray[np.float64]"
Steps: TypeAlias = "NDArray[np.int64]"


#: The kind of a layer that is no module but a tensor by itself: which of its sides is the input is not known.
BARE: Final = "Tensor"


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of a signal at one step."""

    step: int
    signal: str
    scope: str
    value: float


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened once, with what is known about it.

    ``kind`` is one of ``epoch``, ``evaluation``, ``training-mode``, ``non-finite``, ``broadcast``, ``stale-gradient``,
    ``detached``, ``clip``, ``optimizer`` (the first step of a later one), ``probe-off``.
    """

    step: int
    kind: str
    scope: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter tensor as it was when first seen."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    trainable: bool = True
    in_optimizer: bool = True
    init_mean: float = 0.0
    init_std: float = 0.0


@dataclass(frozen=True, slots=True)
class Layer:
    """A module that has parameters or an activation, in order of first use."""

    name: str
    kind: str
    order: int
    parameters: tuple[Parameter, ...] = ()
    visible: bool = True
    role: str = ""  # "hidden", "output", "activation", "norm", "dropout", "embedding", "recurrent"…


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one signal in one scope, in order of steps."""

    steps: Steps
    values: Floats

    def __len__(self) -> int:
        return len(self.steps)

    def __bool__(self) -> bool:
        return len(self.steps) > 0

    def since(self, step: int) -> Series:
        """The part from ``step`` on."""
        start = int(np.searchsorted(self.steps, step))
        return Series(self.steps[start:], self.values[start:])

    def until(self, step: int) -> Series:
        """The part up to and including ``step``."""
        end = int(np.searchsorted(self.steps, step, side="right"))
        return Series(self.steps[:end], self.values[:end])

    def finite(self) -> Series:
        """The part whose values are finite."""
        keep = np.isfinite(self.values)
        return Series(self.steps[keep], self.values[keep])


_EMPTY = Series(np.empty(0, np.int64), np.empty(0, np.float64))


class History:
    """The readings, layers, facts and events of one run.

    A history is filled by a probe or from a journal and only read by detectors.

    >>> history = History()
    >>> history.add(0, "loss", "", 0.7)
    >>> history.add(1, "loss", "", 0.6)
    >>> history.series("loss").values.tolist()
    [0.7, 0.6]
    """

    def __init__(self, *, planned_steps: int | None = None) -> None:
        self._columns: dict[str, dict[str, tuple[list[int], list[float]]]] = {}
        self._cache: dict[tuple[str, str], Series] = {}
        self.layers: list[Layer] = []
        self.facts: dict[str, Any] = {}
        self.events: list[Event] = []
        self.planned_steps = planned_steps
        self.steps = 0
        self.finished = False

    def add(self, step: int, signal: str, scope: str, value: float) -> None:
        """Append one reading; steps of one signal and scope must not go back."""
        steps, values = self._columns.setdefault(signal, {}).setdefault(scope, ([], []))
        steps.append(step)
        values.append(value)
        self._cache.pop((signal, scope), None)
        if step >= self.steps:
            self.steps = step + 1

    def add_step(self, step: int, values: Mapping[str, Mapping[str, float]]) -> None:
        """Append the readings of one step: signal, then scope, then value."""
        for signal, scopes in values.items():
            columns = self._columns.get(signal)
            if columns is None:
                columns = self._columns[signal] = {}
            for scope, value in scopes.items():
                column = columns.get(scope)
                if column is None:
                    column = columns[scope] = ([], [])
                column[0].append(step)
                column[1].append(value)
        self._cache.clear()
        if step >= self.steps:
            self.steps = step + 1

    def add_many(self, signal: str, scope: str, points: list[tuple[int, float]]) -> None:
        """Append readings of one signal and scope at many steps."""
        steps, values = self._columns.setdefault(signal, {}).setdefault(scope, ([], []))
        steps += [step for step, _ in points]
        values += [value for _, value in points]
        self._cache.pop((signal, scope), None)
        if points and steps[-1] >= self.steps:
            self.steps = steps[-1] + 1

    def extend(self, readings: Iterable[Reading]) -> None:
        """Append many readings."""
        for reading in readings:
            self.add(reading.step, reading.signal, reading.scope, reading.value)

    def series(self, signal: str, scope: str = "") -> Series:
        """All values of a signal in a scope; empty when there are none."""
        cached = self._cache.get((signal, scope))
        if cached is not None:
            return cached
        column = self._columns.get(signal, {}).get(scope)
        if column is None:
            return _EMPTY
        series = Series(np.asarray(column[0], np.int64), np.asarray(column[1], np.float64))
        if len(series) > 1 and bool(np.any(np.diff(series.steps) < 0)):
            order = np.argsort(series.steps, kind="stable")
            series = Series(series.steps[order], series.values[order])
        self._cache[signal, scope] = series
        return series

    def scopes(self, signal: str) -> list[str]:
        """The scopes in which a signal was read, in order of first reading."""
        return list(self._columns.get(signal, {}))

    def signals(self) -> list[str]:
        """The signals that were read."""
        return list(self._columns)

    def events_of(self, *kinds: str) -> list[Event]:
        """The events of the given kinds, in order."""
        return [event for event in self.events if event.kind in kinds]

    @property
    def parameters(self) -> Iterator[Parameter]:
        """All parameters in order of their layers."""
        for layer in self.layers:
            yield from layer.parameters

    def until(self, step: int) -> History:
        """The history as it was known after ``step``: nothing later is visible."""
        part = self._cut(lambda series: series.until(step))
        part.planned_steps = self.planned_steps or self.steps
        part.events = [event for event in self.events if event.step <= step]
        part.steps = min(self.steps, step + 1)
        return part

    def since(self, step: int) -> History:
        """The history from ``step`` on, as if nothing had been before."""
        part = self._cut(lambda series: series.since(step))
        part.planned_steps, part.finished = self.planned_steps, self.finished
        part.events = [event for event in self.events if event.step >= step]
        part.steps = self.steps
        return part

    def rename(self, signal: str, scope: str, name: str) -> None:
        """Let the readings of a signal in one scope go by another."""
        columns = self._columns[signal]
        columns[name] = columns.pop(scope)
        self._cache.clear()

    def _cut(self, cut: Callable[[Series], Series]) -> History:
        part = History()
        part.layers = list(self.layers)
        part.facts = dict(self.facts)
        for signal, scopes in self._columns.items():
            for scope in scopes:
                series = cut(self.series(signal, scope))
                if series:
                    part._columns.setdefault(signal, {})[scope] = (
                        series.steps.tolist(),
                        series.values.tolist(),
                    )
        return part
