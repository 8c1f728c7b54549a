"""Layers that something without a slope cuts off from the loss."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from akeso.detectors import network
from akeso.detectors.drawn import as_drawn, fresh
from akeso.detectors.standing import Standing
from akeso.diagnosis import Severity, Symptom
from akeso.history import History

#: Share of dead units, or of outputs on the flat parts, from which on these may be what lets no gradient through.
_FLAT: Final = 0.5
#: Relative gradient of the layer behind, over that of the last one, below which a gradient vanishes little by little.
_ABRUPT: Final = 1e-3
_HELP: Final = (
    "Look for what has no slope on the way to the loss: `round`, `sign`, `argmax`, comparisons, integers.",
    "Pass the gradient straight through: `x + (rounded - x).detach()`.",
)


def cut_off(
    history: History, stand: Standing, problem: str, *, suffers: bool, looks: int, dead: float
) -> Iterator[Symptom]:
    """Weights as they were drawn whose gradient is exactly 0 in every look, while later layers learn.

    Something on the way to the loss has no slope, as rounding and comparing have not. Units that are dead give no
    gradient either; that, and what else stands in the way of a training that gets nowhere, others report, unless
    nothing but such a cut explains where the gradients end.
    """
    if suffers:
        if not stand.broken and (ended := front(history, looks)):
            yield _without_slope(history, problem, ended, "error")
        else:
            yield from _whole(history, problem, looks, dead)
        return
    silent, learning = _silent(history, looks)
    if not silent or not learning or not network.up_to_date(history, "grad_l2", silent[0]):
        return
    late = network.recent(history, 0.5)
    sites = network.sites(history, "act_dead", "relu", "threshold")
    if any(network.typical(history, "act_dead", site, late) > dead for site in sites):
        return
    drawn = as_drawn(history, silent)
    ended = [
        name
        for name in silent
        if network.is_used(history, name)
        and (drawn or fresh(history, name))
        and not at_the_end(history, name, silent)
    ]
    if ended:
        yield _without_slope(history, problem, ended, "warning")


def at_the_end(history: History, name: str, silent: list[str]) -> bool:
    """Whether a layer without gradients is the last one of a part of the model whose others have some.

    What it gives may not be wanted: the classifier of a network whose hidden layer is taken, say.
    """
    module = name.rpartition(".")[0]
    part = module.rpartition(".")[0]
    order = next((layer.order for layer in history.layers if layer.name == module), math.inf)
    others = [
        layer.order
        for layer in history.layers
        if layer.visible
        and (not part or layer.name.startswith(f"{part}."))
        and any(one.trainable and one.name not in silent for one in layer.parameters)
    ]
    return bool(others) and max(others) < order


def _without_slope(history: History, problem: str, ended: list[str], severity: Severity) -> Symptom:
    looks = len(history.series("grad_l2", ended[0]).finite())
    return Symptom(
        problem,
        severity,
        0.85,
        network.extent(history)[0],
        ended[0].rpartition(".")[0],
        {"reason": "no-slope", "parameters": ended[:8], "count": len(ended), "looks": looks},
        f"{ended[0]}"
        + (f" and {len(ended) - 1} more get" if len(ended) > 1 else " gets")
        + " a gradient of exactly 0 in every step that was looked at, while later layers learn: something between "
        "them lets no gradient through.",
        _HELP,
    )


def _whole(history: History, problem: str, looks: int, dead: float) -> Iterator[Symptom]:
    """No weight has a gradient other than exactly 0 in any look, and yet some parameter learns, a bias mostly.

    Weights that are rounded themselves, say. Dead and saturated units and weights of 0 come to the same.
    """
    names = [weight.name for weight in network.weights(history)]
    seen = {name: history.series("grad_l2", name).finite() for name in names}
    if not seen or any(len(series) < looks or series.values.any() for series in seen.values()):
        return
    others = [
        (name, history.series("grad_l2", name).finite())
        for name in history.scopes("grad_l2")
        if name not in seen
    ]
    alive = [name for name, series in others if len(series) >= looks and series.values.all()]
    sizes = [history.series("weight_l2", name).finite().values for name in names]
    if not alive or not all(len(values) and values.all() for values in sizes):
        return
    late = network.recent(history, 0.5)
    if any(
        network.typical(history, signal, site, late) > dead
        for signal in ("act_dead", "act_saturated")
        for site in history.scopes(signal)
    ):
        return
    yield Symptom(
        problem,
        "error",
        0.9,
        network.extent(history)[0],
        names[0].rpartition(".")[0],
        {"reason": "no-slope", "parameters": names[:8], "count": len(names), "looks": len(seen[names[0]])},
        f"The gradient of every weight is exactly 0 in every step that was looked at, while {alive[0]} learns: "
        "something on the way to the loss lets no gradient through.",
        _HELP,
    )


def _silent(history: History, looks: int) -> tuple[list[str], list[str]]:
    """The weights whose gradient was exactly 0 in every look, and those with one in every look."""
    seen = {
        weight.name: history.series("grad_l2", weight.name).finite() for weight in network.weights(history)
    }
    read = {name: series for name, series in seen.items() if len(series) >= looks}
    return (
        [name for name, series in read.items() if not series.values.any()],
        [name for name, series in read.items() if series.values.all()],
    )


def front(history: History, looks: int) -> list[str]:
    """The first layers, where no gradient at all comes to them while the very next one has as much as the last.

    A gradient that vanishes goes little by little. Dead or saturated units may let nothing through, but what the layer
    behind dead ones is given is 0, so that it has no gradient either.
    """
    without, learning = _silent(history, looks)
    order = [weight.name for weight in network.weights(history)]
    behind = order[len(without) : len(without) + 1]
    if not without or not behind or without != order[: len(without)] or behind != learning[:1]:
        return []
    if not network.up_to_date(history, "grad_l2", without[0]):
        return []
    late = network.recent(history, 0.5)
    flat = (
        network.typical(history, signal, site, late)
        for signal in ("act_dead", "act_saturated")
        for site in history.scopes(signal)
    )
    if any(share > _FLAT for share in flat):
        return []
    next_one, last = (
        network.relative_gradient(history, name, window=late) for name in (behind[0], order[-1])
    )
    return without if next_one >= _ABRUPT * last > 0 else []
