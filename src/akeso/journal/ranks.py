"""The histories of all ranks of a distributed run as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from akeso.history import Event, History

#: What each rank measures on its own batch. Gradients and weights are the same on all ranks.
_LOCAL: Final = ("loss", "accuracy", "val_loss", "val_accuracy", "baseline_loss")
#: What happens on one rank and concerns all.
_SHARED_EVENTS: Final = (
    "non-finite",
    "broadcast",
    "stale-gradient",
    "detached",
    "training-mode",
    "probe-off",
)


def merge_ranks(histories: Mapping[int, History]) -> History:
    """One history for all ranks: the first rank's, with losses and accuracies averaged over the ranks and
    with every serious event that only another rank saw (``data["rank"]`` says which)."""
    if not histories:
        return History()
    first, *others = (histories[rank] for rank in sorted(histories))
    if not others:
        return first
    merged = History(planned_steps=first.planned_steps)
    merged.layers = list(first.layers)
    merged.facts = {**first.facts, "ranks_seen": len(histories)}
    for signal in first.signals():
        for scope in first.scopes(signal):
            series = first.series(signal, scope)
            values = series.values
            if signal in _LOCAL and scope == "":
                columns = [values]
                for other in others:
                    theirs = other.series(signal, scope)
                    columns.append(_aligned(series.steps, theirs.steps, theirs.values))
                values = _mean(np.stack(columns))
            for step, value in zip(series.steps.tolist(), values.tolist(), strict=True):
                merged.add(step, signal, scope, value)
    merged.events = _events(histories)
    merged.steps = max(history.steps for history in histories.values())
    merged.finished = all(history.finished for history in histories.values())
    return merged


_MISSING: Final = -1.25e308


def _aligned(steps: np.ndarray, theirs: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Another rank's values at our steps; where it has none, a mark that the mean leaves out."""
    found = np.full(len(steps), _MISSING)
    if len(theirs):
        places = np.searchsorted(theirs, steps).clip(max=len(theirs) - 1)
        same = theirs[places] == steps
        found[same] = values[places[same]]
    return found


def _mean(columns: np.ndarray) -> np.ndarray:
    """The mean over ranks. A NaN on any rank is one of all: it is what the next reduction will spread."""
    present = columns != _MISSING
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.where(present, columns, 0.0).sum(axis=0) / present.sum(axis=0))


def _events(histories: Mapping[int, History]) -> list[Event]:
    """The first rank's events, and of the others what is serious and new."""
    first = min(histories)
    events = list(histories[first].events)
    known = {(event.kind, event.scope, event.step) for event in events}
    for rank in sorted(histories):
        for event in histories[rank].events:
            if rank == first or event.kind not in _SHARED_EVENTS:
                continue
            if (event.kind, event.scope, event.step) not in known:
                known.add((event.kind, event.scope, event.step))
                events.append(replace(event, data={**event.data, "rank": rank}))
    return sorted(events, key=lambda event: event.step)
