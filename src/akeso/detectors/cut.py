"""Layers that something without a slope cuts off from the loss."""

from __future__ import annotations

from typing import Final

from akeso.detectors import network
from akeso.history import History

#: Share of dead units, or of outputs on the flat parts, from which on these may be what lets no gradient through.
_FLAT: Final = 0.5
#: Relative gradient of the layer behind, over that of the last one, below which a gradient vanishes little by little.
_ABRUPT: Final = 1e-3


def silent(history: History, looks: int) -> tuple[list[str], list[str]]:
    """The weights whose gradient was exactly 0 in every look, and those with one in every look."""
    seen = {
        weight.name: history.series("grad_l2", weight.name).finite() for weight in network.weights(history)
    }
    read = {name: series for name, series in seen.items() if len(series) >= looks}
    return (
        [name for name, series in read.items() if not series.values.any()],
        [name for name, series in read.items() if series.values.all()],
    )


def front(history: History, looks: int = 4) -> list[str]:
    """The first layers, where no gradient at all comes to them while the very next one has as much as the last.

    A gradient that vanishes goes little by little. Dead or saturated units may let nothing through, but what the layer
    behind dead ones is given is 0, so that it has no gradient either.
    """
    without, learning = silent(history, looks)
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
