"""Copies of a model that stand beside it in training."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from akeso.detectors import network
from akeso.detectors.aims import reward_fallen
from akeso.detectors.standing import Standing, chance_level, validation_accuracy, validation_loss
from akeso.diagnosis import Symptom
from akeso.history import History, Series

_VALUES: Final = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
#: Share of a constant prediction's loss that must be left, and of the run that must be over.
_REMAINING, _OVER = 0.9, 0.9
#: Evaluations of a copy that stands still, and the share of a constant prediction's loss that may be left in training.
_EVALUATED, _LEARNT = 3, 0.5
#: Evaluations that must be the same, the share of the run that they must span, the share of parameters that must get
#: gradients and change, and held-out samples that are taken for granted where their number is not known.
_SAME, _SPAN, _MOVING, _HELD_OUT = 5, 0.5, 0.5, 100


def stale_copy(history: History, stand: Standing, problem: str) -> Iterator[Symptom]:
    """A copy of the model that values are taught by, as a target network, and that is what it was at the beginning.

    A teacher, a reference or a random network that is to be imitated stands still on purpose: what it gives can be
    learnt. Where nothing comes of it, values are led back to what nobody ever learnt.
    """
    copies = history.facts.get("copies_unmoved")
    if not isinstance(copies, list) or not copies or history.facts.get("loss") not in _VALUES:
        return
    if stand.over < _OVER or not (stand.remaining_loss >= _REMAINING or reward_fallen(history, stand)):
        return
    yield Symptom(
        problem,
        "warning",
        0.8,
        network.extent(history)[0],
        str(copies[0]),
        {"reason": "copy-unmoved", "copies": copies, **stand.evidence()},
        f"{copies[0]} is a copy of the model that is trained, takes part in its steps, and still is what it was at the "
        "beginning: values that are taught by it never come to hold what has been learnt.",
        (
            "Bring a target network up to date: `target.load_state_dict(model.state_dict())` every so many steps, or a "
            "little in each.",
        ),
    )


def same_answers(history: History, stand: Standing, problem: str) -> Iterator[Symptom]:
    """Evaluations that are no better than guessing and the same to the last digit while the optimizer changes weights.

    Where gradients are gone, that may have any reason; a reference that was trained before answers well.
    """
    copies = history.facts.get("copies_unmoved")
    if isinstance(copies, list) and copies and _left_at_start(history, stand):
        yield Symptom(
            problem,
            "error",
            0.85,
            int(history.events_of("evaluation")[0].step),
            str(copies[0]),
            {"reason": "evaluated-copy-unmoved", "copies": copies, **stand.evidence()},
            f"What is evaluated is a copy, {copies[0]}, that still is what it was at the beginning: it answers no "
            "better than guessing, while what the optimizer trains has learnt.",
            (
                "Write into the tensors of the copy, as with `average.lerp_(weight, 0.01)`: `average = "
                "average.lerp(weight, 0.01)` gives a name to a new one, and changes no model.",
                "Evaluate the model that is trained as well.",
            ),
        )
        return
    figures, exact = _figures(history)
    evaluations = [event for event in history.events_of("evaluation") if event.scope != "training-data"]
    copied = exact and bool(evaluations) and all(event.data.get("copy") for event in evaluations)
    if len(figures) < _SAME or not (copied or copies) or not figures.values[0] or np.ptp(figures.values):
        return
    if figures.steps[-1] - figures.steps[0] < _SPAN * history.steps or not _moving(history):
        return
    if not _guessing(history, stand):
        return
    name = str(copies[0]) if isinstance(copies, list) and copies else ""
    yield Symptom(
        problem,
        "error",
        0.85,
        int(figures.steps[0]),
        name,
        {"reason": "same-answers", "evaluations": len(figures), **stand.evidence()},
        f"What is evaluated never changes: its figures are the same to the last digit in all {len(figures)} "
        "evaluations, while the optimizer changes its weights in every step."
        + (f" {name} is a copy that still is what it was at the beginning." if name else ""),
        (
            "Evaluate the very tensors that the optimizer has: `.clone()` and `deepcopy` make others that do not "
            "follow.",
            "Write what was trained back into the model with `load_state_dict(...)`: putting other tensors into the "
            "dict that `state_dict()` gave changes no model.",
        ),
    )


def _left_at_start(history: History, stand: Standing) -> bool:
    """Whether all evaluations are of copies, and no better than guessing, in a run that has learnt.

    What is drawn anew in each of them, as noise, makes their figures differ although nothing has changed.
    """
    evaluations = [event for event in history.events_of("evaluation") if event.scope != "training-data"]
    copied = len(evaluations) >= _EVALUATED and all(event.data.get("copy") for event in evaluations)
    learnt = stand.over >= _OVER and stand.learned(_LEARNT) and _moving(history)
    return copied and learnt and _guessing(history, stand)


def _figures(history: History) -> tuple[Series, bool]:
    """What evaluations came to: losses as they were seen, which are exact, or figures that the script prints."""
    seen = validation_loss(history)
    if len(np.unique(seen.steps)) >= _SAME:
        return seen, True
    printed = dict(history.facts.get("printed_metrics") or {})
    for name in ("val_loss", "test_loss"):
        points = [(int(step), float(value)) for step, value in printed.get(name) or ()]
        if points:
            return Series(
                np.array([step for step, _ in points]), np.array([value for _, value in points])
            ), False
    return validation_accuracy(history), False


def _moving(history: History) -> bool:
    """Whether most of what an optimizer has still gets gradients and is changed in the second half of the run."""

    def late(signal: str, name: str) -> bool:
        seen = history.series(signal, name).finite()
        return bool((seen.values[seen.steps >= 0.5 * history.steps] > 0).any())

    names = [name for name in history.scopes("update_ratio") if late("update_ratio", name)]
    return len([name for name in names if late("grad_l2", name)]) > _MOVING * len(names)


def _guessing(history: History, stand: Standing) -> bool:
    """Whether evaluations are no better than guessing; where neither loss nor classes tell, there must be one model."""
    correct, chance = validation_accuracy(history).values, chance_level(history)
    if len(correct) and math.isfinite(chance):
        size = history.facts.get("val_size")
        count = size if isinstance(size, int) and size > 0 else _HELD_OUT
        return bool(correct.max() <= chance + 3.0 * math.sqrt(chance * (1.0 - chance) / count))
    lost = validation_loss(history).values
    if len(lost) and math.isfinite(stand.baseline):
        return bool(lost.min() >= _REMAINING * stand.baseline)
    return not stand.steps and len(history.facts.get("models") or ()) == 1
