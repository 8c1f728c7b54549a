"""Copies of a model that stand beside it in training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from akeso.detectors import network
from akeso.detectors.aims import reward_fallen
from akeso.detectors.standing import Standing
from akeso.diagnosis import Symptom
from akeso.history import History

_VALUES: Final = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
#: Share of a constant prediction's loss that must be left, and of the run that must be over.
_REMAINING, _OVER = 0.9, 0.9


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
