"""Whether a training settles: how far the loss jumps about when it no longer falls."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors.standing import Standing, validation_loss
from akeso.detectors.steps import (
    Relapse,
    last_rate,
    optimizer_name,
    pass_length,
    rate,
    relapse,
    times_usual,
)
from akeso.history import Floats, History

#: Parts of the late loss whose means are compared, and how far they must go beyond what batch noise explains.
_PARTS, _BEYOND_NOISE = 10, 3.0
#: A first beta from which on directions are averaged over more than thirty steps; lower ones harm in no order.
_LONG = 0.97
#: Passes over the data and parameters per sample from which on a model can learn them by heart.
_SEVERAL, ROOM = 3.0, 2.0
#: Share of a constant prediction's loss that a hot training must have got below, and what of it must be lost again.
_LITTLE, _SOME = 0.8, 0.1
#: Share of a constant prediction's loss below which jumps, however large by themselves, no longer matter.
_NEXT_TO_NOTHING = 0.01


@dataclass(frozen=True, slots=True)
class Flutter:
    """A validation loss that goes up and down: typical factor from one time to the next, its range, since when."""

    factor: float
    least: float
    most: float
    since: int
    update: float


def flutter(
    history: History, stand: Standing, jump: float, update: float, evaluations: int
) -> Flutter | None:
    """Whether steps of at least ``update`` of the weights throw the loss about by a factor of at least ``jump``.

    A validation set is the same every time, so that all its loss does is done by the weights. Training must show
    the same from one part to the next, and beyond batch noise; where the loss still falls, or a schedule is about
    to calm it down, there is nothing to say yet.
    """
    series = validation_loss(history)
    late = series.values[len(series) // 2 :]
    if len(series) < evaluations or not (late > 0).all() or stand.recent.falls or curves.trend(late).falls:
        return None
    if not stand.remaining_loss >= _NEXT_TO_NOTHING or last_rate(history) < 0.5 * rate(history):
        return None
    factor = math.exp(float(np.median(np.abs(np.diff(np.log(late))))))
    steps = network.updates(history, network.recent(history, 0.3, 20))
    if factor < jump or not len(steps) or float(np.median(steps)) < update:
        return None
    if not _trains_so(history.series("loss").finite().values, jump):
        return None
    return Flutter(
        factor,
        float(late.min()),
        float(late.max()),
        int(series.steps[len(series) // 2]),
        float(np.median(steps)),
    )


def _trains_so(loss: Floats, jump: float) -> bool:
    """Whether the means over parts of the late training loss differ by such factors, too."""
    late = curves.tail(loss, 0.5, 20)
    means = curves.block_means(late, _PARTS)
    if len(means) < _PARTS or not (means > 0).all():
        return False
    by_chance = curves.noise(late) / float(np.mean(means)) / math.sqrt(len(late) / _PARTS)
    spread = float(np.std(np.log(means)))
    return spread >= math.log(jump) and spread >= _BEYOND_NOISE * by_chance


def calm(history: History, stand: Standing, remaining: float, evaluations: int = 4) -> bool:
    """Whether late validation is good every time: then a training loss that swings does so with what is in its batches.

    Where one target in fifty is absurd and the loss bounds what it does to the weights, batches that hold one lose more
    than a constant prediction for ever, and all others are learnt.
    """
    values = validation_loss(history).values
    late = values[len(values) // 2 :]
    return len(late) >= evaluations and bool(np.max(late) < remaining * stand.baseline)


def restless(history: History, stand: Standing, update: float, remaining: float) -> float:
    """The share of the weights that each late step changes, where that is at least ``update`` and brings nothing.

    No minimum is found by steps that go anywhere; 0 where the loss falls, is low, or the rate is about to go.
    """
    if stand.recent.falls or not stand.remaining_loss >= remaining:
        return 0.0
    steps = network.updates(history, network.recent(history, 0.3, 20))
    if not len(steps) or last_rate(history) < 0.5 * rate(history):
        return 0.0
    typical = float(np.median(steps))
    return typical if typical >= update else 0.0


@dataclass(frozen=True, slots=True)
class Overheated:
    """A rate many times the usual one, and what shows that a lower one would do better.

    The model has the room to learn its samples by heart, or it was better once: then ``lost`` says when.
    """

    times: float
    optimizer: str
    passes: float
    parameters_per_sample: float
    lost: Relapse | None


def overheated(history: History, stand: Standing, times: float, remaining: float) -> Overheated | None:
    """Whether a loss stays up that must come down, under a rate at least ``times`` the usual one for its optimizer.

    A model with more parameters than samples learns these by heart when it sees them again and again, unless
    something keeps it from that: dropout, a schedule that is about to calm the steps down, or steps that are too long.
    A smaller one must have lost again some of what it had learnt.
    """
    over = stand.finished or (math.isfinite(stand.share) and stand.share >= 0.9)
    dropout = history.facts.get("dropout") or history.facts.get("dropout_called")
    if not over or stand.recent.falls or dropout:
        return None
    length = pass_length(history)
    if (
        not length
        or not isinstance(history.facts.get("dataset_size"), int)
        or last_rate(history) < 0.5 * rate(history)
    ):
        return None
    above = times_usual(history, last_rate(history))
    room, passes = parameters_per_sample(history), stand.steps / length
    left = min(x for x in (stand.remaining_loss, stand.remaining_error, math.inf) if not math.isnan(x))
    if not above >= times or passes < _SEVERAL or not remaining <= left < math.inf:
        return None
    lost = relapse(history, stand, _LITTLE, _SOME, 2 * _SOME) if room < ROOM else None
    if room < ROOM and lost is None:
        return None
    return Overheated(above, optimizer_name(history), passes, room, lost)


def parameters_per_sample(history: History) -> float:
    """Trained parameters for every sample; NaN where the number of samples is not known."""
    size = history.facts.get("dataset_size")
    free = sum(math.prod(p.shape) for p in history.parameters if p.trainable and p.in_optimizer)
    return free / size if isinstance(size, int) and size > 0 else math.nan


def swapped_betas(history: History, stand: Standing) -> tuple[float, float] | None:
    """The betas of an Adam that are in the wrong order, where its loss stays up or no longer falls.

    A direction averaged over longer than its scale points for ages to where the loss was once steep.
    """
    for optimizer in history.facts.get("optimizers") or ():
        betas: list[float] = list(optimizer.get("betas") or ())
        known = "adam" in str(optimizer.get("name")).lower() and len(betas) == 2
        if known and betas[0] > max(betas[1], _LONG):
            low = stand.remaining_loss < _NEXT_TO_NOTHING
            return None if low or stand.recent.falls else (float(betas[0]), float(betas[1]))
    return None


def signs_of_batches(history: History, stand: Standing, remaining: float) -> float:
    """Batches per pass under an optimizer that goes by the signs of whole gradients; 0 where that does no harm.

    Rprop lengthens a step while the sign stays and shortens it where it turns: from one batch to the next it turns by
    chance, so that steps shrink long before anything is learnt, or follow the noise.
    """
    names = [str(one.get("name")) for one in history.facts.get("optimizers") or ()]
    length = pass_length(history)
    if names != ["Rprop"] or length < 2 or stand.steps < _SEVERAL * length:
        return 0.0
    return 0.0 if stand.recent.falls or not stand.remaining_loss >= remaining else float(length)


def jumps(values: Floats) -> tuple[float, float]:
    """How far a curve typically jumps from one value to the next, as a standard deviation; the same without its worst.

    A single value far off makes two jumps of its own, and is an accident.
    """
    parts = [values, *(np.delete(values, index) for index in range(len(values)))]
    found = [_typical_jump(part) for part in parts]
    return found[0], min(found[1:], default=0.0)


def _typical_jump(values: Floats) -> float:
    if len(values) < 2:
        return 0.0
    return math.sqrt(
        float(np.median(np.diff(values) ** 2)) / 2.0 / 0.455
    )  # the median of a squared normal value
