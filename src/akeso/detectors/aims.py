"""Whether what is minimised leads where the training is to go, told by the loss and by what a script prints."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors.standing import Standing, no_measure
from akeso.diagnosis import Symptom
from akeso.history import Floats, History

#: Figures that are one half where answers have nothing to do with what is asked, and so far below it that it is no
#: accident of a small set.
_RANKINGS: Final = ("auc", "concordance")
_HALF: Final = 0.5
_BELOW: Final = 0.44
#: Times a figure must have been printed.
_PRINTED: Final = 4
#: What of a reward must be lost, and what it may have gained on the way, as shares of what it was at first.
_LOST, _GAINED = 0.3, 0.1
#: How many times its first size a loss without measure must have fallen, and by what share of the pace of its first
#: third in its last one, where nothing bounds it.
_FALL, _PACE = 20.0, 0.7
_STEPS: Final = 100
#: A cross-entropy of yes and no that is next to nothing.
_NOTHING: Final = 0.02


def misses_its_aim(history: History, stand: Standing, problem: str) -> Symptom | None:
    """A loss that falls while what it is for gets worse, or one that has no least value."""
    return (
        _backwards(history, stand, problem)
        or _worse_rewarded(history, stand, problem)
        or _bottomless(history, stand, problem)
        or _no_opponents(history, stand, problem)
    )


def printed(history: History, *quantities: str) -> list[tuple[str, Floats]]:
    """The figures of these quantities that a script prints while it trains, under the names it gives them.

    What is printed at the first step of a later stage may still be of the one before it.
    """
    start, _ = network.extent(history)
    found = []
    for name, points in dict(history.facts.get("printed_metrics") or {}).items():
        if str(name).rpartition("_")[2] in quantities:
            kept = [float(value) for step, value in points if step > start or not start]
            values = np.asarray(kept, np.float64)
            if len(values) >= _PRINTED and np.isfinite(values).all():
                found.append((str(name), values))
    return found


def _backwards(history: History, stand: Standing, problem: str) -> Symptom | None:
    """A ranking that is worse than chance every time: what a model answers goes with the targets, the wrong way."""
    if not stand.finished:
        return None  # it may be on its way
    for name, values in printed(history, *_RANKINGS):
        late = values[len(values) // 2 :]
        if not float(late.max()) < _HALF or not float(np.median(late)) <= _BELOW:
            continue
        return Symptom(
            problem,
            "error",
            0.8,
            network.extent(history)[0],
            "",
            {"printed": name, "median": curves.rounded(float(np.median(late))), **stand.evidence()},
            f"The {name} that is printed is {np.median(late):.2f} and never better than 0.5, what guessing gives: the "
            "answers go with the targets, but the wrong way round. A sign is wrong, or an order, in the loss or in "
            "what is handed to the figure.",
            (
                "See which answer the loss rewards: the higher score, or the lower one, for what is to rank first.",
                "Hand the figure scores that are high where the target is: distances and times want a minus.",
            ),
        )
    return None


def reward_lost(history: History, stand: Standing) -> tuple[str, float, float] | None:
    """A printed reward that became worse and never was better to speak of: its name, its first and its late value.

    Only where no loss tells how the training stands, as in games.
    """
    told = math.isfinite(stand.baseline) and not no_measure(history) and not stand.adversarial
    return None if told else reward_fallen(history, stand)


def reward_fallen(history: History, stand: Standing) -> tuple[str, float, float] | None:
    """The same whatever the loss tells, which may be of values that were learnt and are good for nothing."""
    if not stand.finished:
        return None  # agents often do worse before they do better
    for name, values in printed(history, "reward"):
        first = float(np.mean(values[: max(1, len(values) // 6)]))
        late = values[-max(2, len(values) // 3) :]
        size = abs(first)
        noise = curves.noise(values) / math.sqrt(len(late))
        best = float(curves.block_means(values, 6).max())
        lost = first - float(np.mean(late)) >= max(_LOST * size, 3.0 * noise)
        if size > 0 and lost and best <= first + _GAINED * size:
            return name, first, float(np.mean(late))
    return None


def _worse_rewarded(history: History, stand: Standing, problem: str) -> Symptom | None:
    found = reward_lost(history, stand)
    if found is None:
        return None
    name, first, late = found
    return Symptom(
        problem,
        "error",
        0.7,
        network.extent(history)[0],
        "",
        {
            "printed": name,
            "at_first": curves.rounded(first),
            "late": curves.rounded(late),
            **stand.evidence(),
        },
        f"The {name} that is printed has gone from {first:.3g} to {late:.3g} and was never better: the training leads "
        "away from what it is for.",
        (
            "Check the signs: the logarithm of an action's probability times its advantage is to grow, so that the "
            "loss is minus that.",
            "Check what values are taught: reward plus the discounted value of the next state, none where an episode "
            "is over, by a target network that is brought up to date.",
            "Lower the learning rate.",
        ),
    )


def _bottomless(history: History, stand: Standing, problem: str) -> Symptom | None:
    """A loss of one's own that falls below zero ever on, as fast as ever: nothing bounds it.

    Where there is a best answer a loss slows down on its way to it, however far down that lies.
    """
    loss = history.series("loss").finite().values
    own = history.facts.get("loss") in (None, "custom") and not stand.adversarial
    if not own or math.isfinite(stand.baseline) or not stand.finished or not _without_end(loss):
        return None
    thirds = curves.block_means(loss, 7)
    return Symptom(
        problem,
        "warning",
        0.65,
        network.extent(history)[0],
        "",
        {"at_first": curves.rounded(float(loss[0])), "late": curves.rounded(float(thirds[6]))},
        f"The loss falls without end: from {loss[0]:.3g} to {thirds[6]:.3g}, as fast as ever. A loss that has a least "
        "value slows down on its way there; this one seems to have none.",
        (
            "Likelihoods need probabilities that sum to one: weights of a mixture go through a `log_softmax`, a change "
            "of variables brings its volume with it.",
            "See whether a sign is wrong: what is to grow goes into the loss with a minus.",
        ),
    )


def _without_end(loss: Floats) -> bool:
    """Whether a loss falls far below zero, and at its end about as fast as at its beginning."""
    if len(loss) < _STEPS:
        return False
    parts = curves.block_means(loss, 7)
    early, late = parts[0] - parts[2], parts[4] - parts[6]
    return bool(parts[6] < -_FALL * float(np.mean(np.abs(loss[:5]))) and early > 0 and late >= _PACE * early)


def _no_opponents(history: History, stand: Standing, problem: str) -> Symptom | None:
    """Two losses of which one is to rise where the other falls, as those of a generator and its judge, fall both."""
    scopes = history.scopes("loss")
    if len(scopes) != 2 or len(history.facts.get("optimizers") or ()) != 2 or stand.over < 0.5:
        return None
    losses = [history.series("loss", scope).finite().values for scope in scopes]
    if min(map(len, losses)) < _STEPS:
        return None
    late = [curves.median(curves.tail(loss, 0.3)) for loss in losses]
    # Every answer of a batch is to be the same, yes or no: that is how real and made samples are told apart.
    apart = curves.median(history.series("target_std").finite().values) == 0.0
    judged = apart and str(history.facts.get("loss")).startswith("binary_cross_entropy")
    content = judged and max(late) < _NOTHING
    if not content and not all(_without_end(loss) for loss in losses):
        return None
    return Symptom(
        problem,
        "error",
        0.8,
        network.extent(history)[0],
        "",
        {"losses_late": [curves.rounded(one) for one in late]},
        "Both networks get what they want: their losses "
        + ("have come to nothing" if content else "fall without end")
        + f" ({late[0]:.3g} and {late[1]:.3g}). Where one is to be deceived by the other only one of them can: the "
        "generator is rewarded for being found out.",
        (
            "Teach the generator with the labels of real samples for what it has made, or with minus what the critic "
            "says of it.",
        ),
    )
