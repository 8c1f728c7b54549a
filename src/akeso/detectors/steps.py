"""How long the steps of a run are, how far they get, and whether they lost what was learnt."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors.standing import Standing, loss_floor
from akeso.history import Floats, History, Series

#: The rate at which an optimizer usually works on networks of ordinary size, by its name in lower case.
USUAL_RATE: Final = {
    "sgd": 0.01, "asgd": 0.01, "adam": 1e-3, "adamw": 1e-3, "sparseadam": 1e-3, "nadam": 1e-3, "radam": 1e-3,
    "adamax": 2e-3, "rmsprop": 1e-3, "adagrad": 1e-2, "adadelta": 1.0, "rprop": 1e-2,
}  # fmt: skip

#: Optimizers that divide every gradient by what is usual for it.
_ADAPTIVE: Final = frozenset({"adam", "adamw", "sparseadam", "nadam", "radam", "adamax", "rmsprop"})

#: Parts of a run that are compared, and steps in one of them where the run is long.
_PARTS, _STEPS = 12, 40

#: What is left of a change that weight decay accounts for.
_TRACE = 1e-3


def usual_rate(optimizer: str, momentum: float = 0.0) -> float:
    """The usual rate of an optimizer: higher where it has no momentum, lower where that is longer than the usual 0.9.

    >>> usual_rate("SGD"), usual_rate("SGD", 0.9), round(usual_rate("SGD", 0.99), 6)
    (0.05, 0.01, 0.001)
    """
    rate = USUAL_RATE.get(optimizer.lower(), 1e-3)
    if optimizer.lower() == "sgd":
        # A step goes on in 1 / (1 - momentum) others.
        rate *= 5.0 if momentum < 0.5 else 1.0 if momentum <= 0.9 else 10.0 * max(1.0 - momentum, 1e-3)
    return rate


def of_their_size(ratio: float) -> str:
    """How much of something is changed, in words: percentages of many digits say nothing.

    >>> of_their_size(0.132), of_their_size(1377784479.916)
    ('13.2% of their size', '1.38e+09 times their size')
    """
    return f"{ratio:.1%} of their size" if ratio < 10 else f"{ratio:.3g} times their size"


def optimizer_name(history: History) -> str:
    """What the first optimizer is called; empty where none was seen."""
    optimizers = list(history.facts.get("optimizers") or ())
    return str(optimizers[0].get("name")) if optimizers else ""


def times_usual(history: History, given: float) -> float:
    """A rate over the usual one of the only optimizer; ``nan`` where there are several, or none."""
    optimizers = list(history.facts.get("optimizers") or ())
    if len(optimizers) != 1:
        return math.nan
    return given / usual_rate(optimizer_name(history), float(optimizers[0].get("momentum") or 0.0))


def adaptive(history: History) -> bool:
    """Whether the optimizer makes steps of about its rate for every weight, whatever the gradient."""
    return optimizer_name(history).lower() in _ADAPTIVE


def rate(history: History) -> float:
    """The largest learning rate that was used; ``nan`` when none was seen."""
    peaks = [float(np.max(series.values)) for series in rates(history) if series]
    return max(peaks) if peaks else math.nan


def last_rate(history: History) -> float:
    """The largest learning rate at the end; ``nan`` when none was seen."""
    ends = [float(series.values[-1]) for series in rates(history) if series]
    return max(ends) if ends else math.nan


def rate_at(history: History, step: int) -> float:
    """The largest learning rate at a step; ``nan`` when none was seen until then."""
    known = [series.values[series.steps <= step] for series in rates(history)]
    return max((float(values[-1]) for values in known if len(values)), default=math.nan)


def rates(history: History) -> list[Series]:
    """The learning rate of each optimizer, over the steps."""
    return [history.series("lr", scope).finite() for scope in history.scopes("lr")]


def pass_length(history: History) -> int:
    """The steps in which all data are gone through once; 0 when that is not known."""
    size, batch = history.facts.get("dataset_size"), curves.median(history.series("batch_size").values)
    return math.ceil(size / batch) if isinstance(size, int) and size > 0 and batch > 0 else 0


def divisor(history: History) -> float:
    """By how much a mean loss is divided before SGD, apart from the batches of one step; 1 where it is not.

    An optimizer that has a scale of its own takes no harm from it.
    """
    scale, batches = history.facts.get("val_scale"), history.facts.get("micro_batches")
    optimizers: list[dict[str, Any]] = list(history.facts.get("optimizers") or ())
    plain = bool(optimizers) and all(one.get("name") == "SGD" for one in optimizers)
    mean = dict(history.facts.get("loss_args") or {}).get("reduction") == "mean"
    if not plain or not mean or not isinstance(scale, (int, float)) or not scale > 0:
        return 1.0
    return max(1.0, 1.0 / scale / (batches if isinstance(batches, int) and batches > 1 else 1))


def longest_update(history: History) -> tuple[float, int]:
    """The largest typical relative change per step in any part of the run, and where that part starts."""
    start, end = network.extent(history)
    edges = np.unique(np.linspace(start, end + 1, 6).astype(int))
    best, where = math.nan, start
    parts = [network.Window(start, start + 10)]
    parts += [network.Window(int(low), int(high) - 1) for low, high in itertools.pairwise(edges)]
    for part in parts:
        found = network.updates(history, part, grown=False)
        if len(found) and not float(np.median(found)) <= best:
            best, where = float(np.median(found)), part.start
    return best, where


def travel(history: History, stand: Standing, quantile: float = 0.9) -> float:
    """How far the fastest matrices can get in the whole run, in units of their own size: by what the data teach.

    A lower ``quantile`` than that asks for slower ones.
    """
    start, _ = network.extent(history)
    decay = _decay(history)
    ways = []
    for weight in network.weights(history) or network.tables(history):
        changes = history.series("update_ratio", weight.name).finite()
        if changes:
            # Sampling is uneven: each reading stands for the steps up to the next one.
            spans = np.diff(np.append(changes.steps, start + stand.length))
            taught = changes.values
            if decay > 0 and history.series("lr", "0"):
                pulled = decay * curves.at_steps(history.series("lr", "0"), changes)
                # Decay is known to within a factor, as momentum may change: a trace is left of whatever moves.
                taught = np.sqrt(np.maximum(taught**2 - pulled**2, (_TRACE * taught) ** 2))
            ways.append(float(np.sum(taught * np.maximum(spans, 0))))
    return float(np.quantile(ways, quantile)) if ways else math.nan


def _decay(history: History) -> float:
    """What weight decay alone takes of the weights in a step, over the learning rate; 0 where that is not known."""
    found = history.facts.get("optimizers") or []
    if len(found) != 1 or found[0].get("name") not in ("SGD", "AdamW"):
        return 0.0
    decay = float(found[0].get("weight_decay") or 0.0)
    momentum = float(found[0].get("momentum") or 0.0) if found[0]["name"] == "SGD" else 0.0
    return decay / max(1.0 - momentum, 1e-3)


def falls_at_end(values: Floats, at_least: int = 12) -> bool:
    """Whether a curve falls clearly, and its last third lies lower than the one before: it has not settled yet."""
    if len(values) < at_least:
        return False
    third = len(values) // 3
    before, last = float(np.mean(values[-2 * third : -third])), float(np.mean(values[-third:]))
    error = curves.noise(values) * math.sqrt(2.0 / third)
    return curves.trend(values).falls and before - last > max(1.5 * error, 0.05 * abs(before))


def at_rest(history: History) -> bool:
    """Whether validation gives the very same loss again and again: the weights no longer move."""
    values = history.series("val_loss").finite().values
    late = values[len(values) // 2 :]
    if len(values) < 6 or not float(np.median(np.abs(late))) > 0:
        return False
    return bool(np.max(np.abs(np.diff(late))) < 1e-5 * float(np.median(np.abs(late))))


@dataclass(frozen=True, slots=True)
class Relapse:
    """A loss that was much lower once: how low, since when it is higher, and by how much of a constant's loss."""

    best: float
    since: int
    share: float


def relapse(
    history: History, stand: Standing, learned: float, lost: float, of_best: float = 0.5
) -> Relapse | None:
    """Whether the run had learnt and lost it again, for good and far beyond the noise of its loss.

    ``learned`` is the share of a constant prediction's loss below which it must have been, ``lost`` the share
    of it by which it must have gone up again, ``of_best`` that share of the lowest loss.
    """
    loss = history.series("loss").finite()
    # A long run may have been at its best for a short time only.
    parts = curves.block_means(loss.values, min(max(_PARTS, len(loss) // _STEPS), 4 * _PARTS))
    if len(loss) < 60 or len(parts) < _PARTS or not stand.baseline > 0 or stand.adversarial:
        return None
    several = int(history.facts.get("loss_terms") or 1) > 1 or history.facts.get("task") == "autoencoder"
    if several or float(loss.values.min()) < 0:
        return None  # terms may be weighted anew as the run goes; rewards have no floor
    middle = 2 * len(parts) // 3
    at = int(np.argmin(parts[:middle]))
    best, late = float(parts[at]), parts[middle:]
    error = stand.noise / math.sqrt(len(loss) / len(parts))
    up = float(np.median(late)) - best
    above = best - loss_floor(history, stand.baseline)
    if best > learned * stand.baseline or up < max(lost * stand.baseline, of_best * above, 6.0 * error):
        return None
    if float(late.min()) < best + 0.5 * up or (stand.recent.falls and not stand.finished):
        return None  # it may get there again
    begin = at * len(loss) // len(parts)
    if _leaps(loss.values[begin:], up):
        return None  # from one step to the next: other data or another task, not the steps
    since = int(loss.steps[(at + 1) * len(loss) // len(parts)])
    then, now = rate_at(history, since), last_rate(history)
    if now > 1.5 * then and now >= 0.9 * rate(history) and not stand.remaining_loss >= 1.0:
        return None  # a schedule that is just now at its height
    return Relapse(best, since, up / stand.baseline)


def _leaps(values: Floats, far: float, beside: int = 20) -> bool:
    """Whether a curve goes most of that far up at a single step, from one level to another."""
    windows = np.lib.stride_tricks.sliding_window_view(values, beside)
    before, after = windows[:-beside], windows[beside:]
    rise = np.min(after, axis=1) - np.max(before, axis=1)
    return bool(len(rise) and float(rise.max()) > 0.6 * far)
