"""Epochs as the papers' rules need them: figures per pass over the data."""

from __future__ import annotations

import itertools
import math

import numpy as np

from akeso.detectors import curves
from akeso.detectors.network import Window, extent
from akeso.history import Floats, History

#: Parts into which a run is cut when its epochs cannot be seen: what one of the papers trains for.
_UNSEEN = 20

#: Facts of a watched trial: the steps at which it reported the ends of its epochs, and how many there will be.
REPORTED, PLANNED = "epoch_ends", "planned_epochs"


def epochs(history: History) -> list[Window]:
    """The epochs of the run, the last one perhaps incomplete.

    A trial of a search reports the ends of its epochs. Elsewhere a data loader that starts over begins one; where
    none was seen, the size of the data set tells how long an epoch is, and where that is not known either, the
    run is cut into equal parts.
    """
    first, last = extent(history)
    starts = _starts(history, first, last)
    if not starts and REPORTED not in history.facts:
        whole = max(history.planned_steps or 0, last - first + 1)
        length = _length(history) or max(1, math.ceil(whole / _UNSEEN))
        starts = list(range(first + length, last + 1, length))
    edges = [first, *starts, last + 1]
    return [Window(low, high - 1) for low, high in itertools.pairwise(edges) if high > low]


def are_seen(history: History) -> bool:
    """Whether :func:`epochs` are the run's own and not equal parts that stand for them."""
    return REPORTED in history.facts or bool(_starts(history, *extent(history))) or _length(history) > 0


def _starts(history: History, first: int, last: int) -> list[int]:
    """The steps in which an epoch was reported to have ended, or else the data loader was seen starting over."""
    reported = history.facts.get(REPORTED)
    if reported is not None:
        return sorted({int(step) for step in reported if first < step <= last})
    return sorted({event.step for event in history.events_of("epoch") if first < event.step <= last})


def planned_epochs(history: History, seen: list[Window]) -> int:
    """How many epochs the whole run will have."""
    if not seen:
        return 0
    told = history.facts.get(PLANNED)
    if isinstance(told, int):
        return max(len(seen), told)
    lengths = [window.end - window.start + 1 for window in seen[:-1] or seen]
    return max(len(seen), round((history.planned_steps or 0) / max(1.0, float(np.median(lengths)))))


def _length(history: History) -> int:
    """The steps of an epoch by the size of the data set; 0 when that is not known."""
    samples = history.facts.get("dataset_size")
    batch = curves.median(history.series("batch_size").values)
    if isinstance(samples, int) and samples > 0 and math.isfinite(batch) and batch > 0:
        return math.ceil(samples / batch)
    return 0


def per_epoch(history: History, signal: str, seen: list[Window]) -> Floats:
    """The mean of a run-wide signal in every epoch; ``nan`` where nothing was read."""
    series = history.series(signal)
    return np.asarray([_mean(window.of(series).values) for window in seen], np.float64)


def _mean(values: Floats) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def last_in(history: History, signal: str, scope: str, window: Window) -> float:
    """The last reading of a signal in an epoch; ``nan`` when there is none."""
    values = window.of(history.series(signal, scope)).values
    return float(values[-1]) if len(values) else math.nan
