"""The network as detectors see it: its weight matrices in order of use, with what was read about them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from akeso.detectors import curves
from akeso.history import BARE, Floats, History, Parameter, Series

#: Names of layers that make the queries and keys of an attention, without underscores.
_ASKS = re.compile("(w|to|fc|lin|linear|proj)?(q|k|query|key|queries|keys)(w|fc|lin|linear|proj|net|layer)?")
#: What tables are called whose rows are looked up instead of multiplied.
_LOOKED_UP = "embedding"
#: Parts of the names of layers that are linear by themselves, in torch and in Keras.
_LINEAR: Final = ("Linear", "Conv", "Dense")


@dataclass(frozen=True, slots=True)
class Weight:
    """A trainable weight matrix (or kernel)."""

    name: str
    layer: str
    shape: tuple[int, ...]
    init_mean: float
    init_std: float
    role: str

    @property
    def fan_in(self) -> int:
        """The inputs of one unit; as torch lays weights out, everything but the first dimension.

        A tensor by itself may be laid out either way: what lies between its two sides is off by little.
        """
        if self.role.endswith(BARE) and len(self.shape) == 2:
            return max(1, round(math.sqrt(math.prod(self.shape))))
        return max(1, math.prod(self.shape[1:]))

    @property
    def grown(self) -> bool:
        """Whether it begins as zeros, as the last layer of a branch that is to say nothing at first."""
        return not (self.init_std or self.init_mean)

    @property
    def looked_up(self) -> bool:
        """Whether rows are looked up (embedding) instead of multiplied."""
        if _LOOKED_UP in self.role.lower():
            return True
        # A tensor that belongs to no layer torch knows is what it is called; a layer or a model may be called anything.
        names = (self.layer.rpartition(".")[2], self.name.rpartition(".")[2])
        return self.role.endswith(BARE) and any(_LOOKED_UP in name.lower() for name in names)


def weights(history: History) -> list[Weight]:
    """The weight matrices that learn, in order of use, embeddings left out."""
    return [weight for weight in _matrices(history) if not weight.looked_up]


def tables(history: History) -> list[Weight]:
    """The embeddings that learn, in order of use: some models are made of nothing else."""
    return [weight for weight in _matrices(history) if weight.looked_up]


def _matrices(history: History) -> list[Weight]:
    found: list[Weight] = []
    for layer in sorted(history.layers, key=lambda layer: layer.order):
        for parameter in layer.parameters:
            if _is_matrix(parameter) and parameter.trainable and parameter.in_optimizer:
                kind = f"{layer.role} {layer.kind}"
                found.append(
                    Weight(
                        parameter.name,
                        layer.name,
                        parameter.shape,
                        parameter.init_mean,
                        parameter.init_std,
                        kind,
                    )
                )
    return found


#: Weights on one way through a model, and how many times as many as it has, from which on some are met again.
_MOMENTS, _AGAIN = 10, 3


def unbent(history: History) -> bool:
    """Whether all that was seen of a model of several layers is linear: together they are worth one."""
    plain = all(any(kind in weight.role for kind in _LINEAR) for weight in weights(history))
    seen = int(history.facts.get("layers_seen") or 0) > 1
    return plain and seen and len(weights(history)) > 1 and not history.facts.get("activations")


def through_time(history: History) -> bool:
    """Whether a state is handed on from moment to moment: by a recurrent layer, or by weights met again and again."""
    layers, between = len(weights(history)), history.facts.get("farthest_weight")
    again = isinstance(between, int) and between >= max(_MOMENTS, _AGAIN * layers)
    return again or any(layer.kind in ("RNN", "LSTM", "GRU") for layer in history.layers)


def plain_depth(history: History) -> int:
    """How many layers are stacked with no norm anywhere to keep the signal's size; 0 where there is one.

    Shortcuts do as well: only layers that gradients cannot go around are counted.
    """
    if any(layer.role == "norm" or "Norm" in layer.kind for layer in history.layers):
        return 0
    layers, between = len(weights(history)), history.facts.get("farthest_weight")
    return min(layers, between) if isinstance(between, int) else layers


def _is_matrix(parameter: Parameter) -> bool:
    return len(parameter.shape) >= 2 and min(parameter.shape) >= 1


def called(layer: str) -> str:
    """How a sentence calls a layer; within a ``Sequential`` they are but numbers.

    >>> called("features.3"), called("3")
    ('features.3', 'layer 3')
    """
    return f"layer {layer}" if layer.isdigit() else layer


def relative_gradient(history: History, name: str, *, window: Window, grown: bool = False) -> float:
    """The typical gradient norm of a parameter over the norm of its weights.

    Weights that were ``grown`` from nothing have a size only later: they are held against the one they come to.
    """
    gradient = window.of(history.series("grad_l2", name).finite())
    if not gradient:
        return math.nan
    sizes = history.series("weight_l2", name).finite()
    norm = curves.at_steps(sizes, gradient)
    if not len(norm):
        return math.nan
    if grown:
        norm = np.full(len(norm), float(sizes.values.max()))
    with np.errstate(all="ignore"):
        ratios = gradient.values / np.maximum(norm, 1e-30)
    positive = ratios[ratios > 0]
    if 2 * len(positive) < len(ratios):
        return 0.0
    return curves.geometric(ratios)


@dataclass(frozen=True, slots=True)
class Window:
    """A range of steps, both ends included.

    Sampling is dense at the start and sparse later, so a window near the end may hold hardly any reading;
    ``at_least`` of the last ones before its end are taken then.
    """

    start: int
    end: int
    at_least: int = 0

    def of(self, series: Series) -> Series:
        """The part of a series inside the window."""
        inside = series.since(self.start).until(self.end)
        if len(inside) >= self.at_least:
            return inside
        before = series.until(self.end)
        return Series(before.steps[-self.at_least :], before.values[-self.at_least :])


def early(history: History, share: float = 0.05, at_least: int = 10) -> Window:
    """The first steps of the run: how it was before training could change much."""
    start, end = extent(history)
    return Window(start, start + max(at_least, int(share * (end - start))))


def recent(history: History, share: float = 0.3, at_least: int = 20) -> Window:
    """The last steps of the run."""
    start, end = extent(history)
    return Window(max(start, end - max(at_least, int(share * (end - start)))), end, at_least=3)


def extent(history: History) -> tuple[int, int]:
    """The first and the last step of the run."""
    loss = history.series("loss")
    return (int(loss.steps[0]), int(loss.steps[-1])) if loss else (0, history.steps)


def typical(history: History, signal: str, scope: str, window: Window) -> float:
    """The median of a signal over a window; ``nan`` when nothing was read there."""
    return curves.median(window.of(history.series(signal, scope)).values)


def over_depth(history: History, window: Window) -> tuple[list[Weight], Floats]:
    """The relative gradient of every weight matrix in order of depth, where it was read.

    What only decides where an attention looks is left out: at first it looks everywhere alike, and hardly any gradient
    comes from that, however much flows past it.
    """
    known = [
        (weight, relative_gradient(history, weight.name, window=window, grown=weight.grown))
        for weight in weights(history)
        if not _ASKS.fullmatch(weight.layer.rpartition(".")[2].lower().replace("_", ""))
    ]
    kept = [(weight, value) for weight, value in known if math.isfinite(value)]
    return [weight for weight, _ in kept], np.asarray([value for _, value in kept], np.float64)


def sites(history: History, signal: str, *kinds: str) -> list[str]:
    """The activation sites at which a signal was read and whose function is one of ``kinds``, in order.

    Where the functions are not known, every site with a reading counts.
    """
    read = history.scopes(signal)
    functions = history.facts.get("activations")
    if not isinstance(functions, dict) or not functions:
        return read
    wanted = tuple(kind.lower() for kind in kinds)
    named = [site for site in read if site in functions]
    return [site for site in named if _plain(functions[site]).startswith(wanted)] if named else read


def _plain(name: object) -> str:
    return str(name).lower().replace("_", "").replace("nn.", "")


def updates(history: History, window: Window, *, tables: bool = False, grown: bool = True) -> Floats:
    """The typical relative change per step of every weight matrix, or of every embedding, in a window.

    Without those that had to be ``grown`` from nothing: a change is large against next to nothing.
    """
    wanted = [weight for weight in _matrices(history) if weight.looked_up is tables]
    wanted = [weight for weight in wanted if grown or not weight.grown]
    found = [typical(history, "update_ratio", weight.name, window) for weight in wanted]
    return np.asarray([value for value in found if math.isfinite(value)], np.float64)


def stopped(history: History, looks: int = 3) -> bool:
    """Whether no weight gets any gradient: nothing can be learnt, whatever the loss is and wherever it stands."""
    window = recent(history, 0.5)
    readings = [
        window.of(history.series("grad_l2", weight.name).finite()).values for weight in weights(history)
    ]
    return bool(readings) and all(len(values) >= looks and not values.any() for values in readings)


def growth(history: History) -> Floats:
    """The size of every weight matrix now over that at the start, of those that did not start at 0."""
    found = []
    for weight in weights(history):
        norm = history.series("weight_l2", weight.name).finite().values
        if len(norm) >= 3 and norm[0] > 0:
            found.append(curves.median(norm[-3:]) / float(norm[0]))
    return np.asarray(found, np.float64)


def updates_of(history: History, name: str, window: Window) -> Floats:
    """All relative changes per step of one parameter in a window."""
    return window.of(history.series("update_ratio", name).finite()).values


def up_to_date(history: History, signal: str, scope: str = "", share: float = 0.5) -> bool:
    """Whether the last reading is from the later part of the run, so that it may speak of its present state."""
    start, end = extent(history)
    series = history.series(signal, scope).finite()
    return bool(series) and int(series.steps[-1]) >= start + share * (end - start)


def is_used(history: History, parameter: str) -> bool:
    """Whether the forward pass goes through the parameter's module; an unused head is no mistake."""
    module = parameter.rpartition(".")[0]
    return all(layer.visible for layer in history.layers if layer.name == module)
