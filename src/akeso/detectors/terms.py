"""One of several losses of a step that the others leave no room for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from akeso.detectors import curves, network
from akeso.detectors.standing import Standing
from akeso.history import Floats, History

_LOOKS, _LATE = 5, 3
#: Share of the whole up to which a loss is next to nothing, and by how much the other's share may vary: where it stays
#: the same, whatever the cross-entropy does, no weight makes up for the difference in size.
_SHARE, _STEADY = 0.01, 1.1
#: Where it does not stay the same: times that the other loss has fallen, which shows what the shared layers learnt.
_FALLEN: Final = 10.0
#: Share of a constant prediction's loss from which on nothing has been learnt.
_CHANCE: Final = 0.95
#: Share of the run that must be over.
_OVER: Final = 0.5


@dataclass(frozen=True, slots=True)
class Drowned:
    """A cross-entropy beside a loss that is so many times as large."""

    times: float
    left: float
    at_first: bool

    def evidence(self) -> dict[str, float | None]:
        """The figures a reader needs."""
        return {
            "whole_loss_over_cross_entropy": curves.rounded(self.times),
            "cross_entropy_over_constant": curves.rounded(self.left),
        }

    def sentence(self) -> str:
        """What is wrong with it."""
        if self.at_first:
            return (
                f"the cross-entropy stays at chance, for the whole loss was {self.times:.2g} times as large at first "
                "and what the layers have learnt they have learnt for the rest"
            )
        return (
            f"the cross-entropy stays at chance, for the whole loss is {self.times:.2g} times as large and its "
            "gradients come from the rest"
        )


def drowned(history: History, stand: Standing) -> Drowned | None:
    """The cross-entropy of a step with several losses, if it is a trace of the whole and never gets below chance."""
    left = history.series("class_loss_left").finite()
    share, other = (history.series(name).finite().values for name in ("class_loss_share", "other_loss_share"))
    if not len(left) >= _LOOKS or len(share) != len(left) or len(other) != len(left):
        return None
    if stand.over < _OVER or not network.up_to_date(history, "class_loss_left"):
        return None
    late = curves.tail(left.values, 0.3, _LATE)
    if not float(late.min()) >= _CHANCE:
        return None
    if 0 < float(other.max()) <= _STEADY * float(other.min()) and float(share.max()) <= _SHARE:
        return Drowned(_times(curves.tail(share, 0.3, _LATE)), curves.median(late), False)
    loss = history.series("loss").finite().values
    fallen = stand.last > 0 and stand.last * _FALLEN <= float(np.median(loss[:_LATE]))
    # What has only begun to fall may leave room yet.
    if not stand.finished or not fallen or not float(share[:_LATE].max()) <= _SHARE:
        return None
    return Drowned(_times(share[:_LATE]), curves.median(late), True)


def _times(share: Floats) -> float:
    return 1.0 / max(1e-30, curves.median(share))
