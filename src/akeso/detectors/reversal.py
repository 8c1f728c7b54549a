"""Answers of yes and no that are right in training and the wrong way round in validation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from akeso.detectors import curves
from akeso.detectors.standing import Standing, chance_level, validation_accuracy
from akeso.history import History

#: Evaluations that are needed, and held-out samples that are taken for granted where their number is not known.
_EVALUATED: Final = 3
_HELD_OUT: Final = 100
#: Chance up to which two answers are about as frequent, what of the answers may be right in validation, and what must
#: be in training.
_EVEN, _WRONG, _RIGHT = 0.6, 0.44, 0.55


@dataclass(frozen=True, slots=True)
class Reversal:
    """Shares of right answers late in validation and in training, and since when."""

    validation: float
    training: float
    since: int


def reversal(history: History, stand: Standing) -> Reversal | None:
    """Whether validation is worse than guessing every time, by more than luck, where training is better than that.

    Of two answers that are about as frequent, who knows nothing has half right; less than that takes knowledge.
    """
    chance = chance_level(history)
    two = history.facts.get("task") == "binary" or history.facts.get("classes") == 2
    correct = validation_accuracy(history)
    if not two or not 0.5 <= chance <= _EVEN or not stand.finished or stand.adversarial:
        return None
    if len(correct) < _EVALUATED or not stand.improved:
        return None
    late = correct.values[len(correct) // 2 :]
    size = history.facts.get("val_size")
    luck = 1.5 / math.sqrt(size if isinstance(size, int) and size > 0 else _HELD_OUT)
    trained = curves.mean(curves.tail(history.series("accuracy").finite().values, 0.5, 3))
    if not float(late.max()) < 0.5 - luck or not float(np.median(late)) <= _WRONG or not trained >= _RIGHT:
        return None
    return Reversal(float(np.median(late)), trained, int(correct.steps[0]))
