"""Trainings in stages: one optimizer after another, as for a teacher and its student, or a head and the rest."""

from __future__ import annotations

from dataclasses import replace

from akeso.history import History, Layer

#: Steps that a stage must have to be judged by itself.
_LEAST = 30


def last_stage(history: History) -> tuple[History, int]:
    """The part of a run that its last optimizer trained alone, and the step it began with.

    The whole run, from step 0, where optimizers take turns or there is but one.
    """
    begun = [(event.step, event.scope) for event in history.events_of("optimizer")]
    if not begun:
        return history, 0
    start, last = max(begun)
    others = [scope for scope in history.scopes("lr") if scope != last]
    if any(history.series("lr", scope).steps[-1] >= start for scope in others):
        return history, 0
    part = history.since(start)
    if len(part.series("loss", last)) < _LEAST or not part.series("lr", last):
        return history, 0
    part.rename("loss", last, "")
    part.rename("lr", last, "0")
    known = history.facts.get("optimizers") or []
    part.facts["optimizers"] = known[int(last) : int(last) + 1]
    part.facts["earlier_stages"] = True
    part.layers = [_now(layer, part) for layer in history.layers if not _before(layer, history, part)]
    return part, start


def _now(layer: Layer, part: History) -> Layer:
    """The layer with those of its parameters in the optimizer that this one has."""
    trained = (
        replace(one, in_optimizer=bool(part.series("weight_l2", one.name))) for one in layer.parameters
    )
    return replace(layer, parameters=tuple(trained))


def _before(layer: Layer, history: History, part: History) -> bool:
    """Whether a layer was trained before, and is no more."""
    then, now = (any(of.series("weight_l2", one.name) for one in layer.parameters) for of in (history, part))
    return then and not now
