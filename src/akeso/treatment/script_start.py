"""A script that fails before its first step, because what its model gives is not finite: a fault like any other."""

from __future__ import annotations

from typing import Final

from akeso.diagnosis import Diagnosis
from akeso.script.prescribed.order import Answer

_CONFIDENCE: Final = 0.9
_WEIGHTS: Final = (
    "The model's very first answers are not finite, with inputs that are: its weights, as they are drawn, are out of "
    "range for what it computes, and the script fails for it."
)
_INPUTS: Final = "Inputs of the model are not finite, and the script fails for it before its first step."


def broken_start(answer: Answer) -> tuple[Diagnosis, ...]:
    """What is wrong with a script that did not come to its first step, where it was seen to be its figures."""
    broken = answer.ledger.get("facts", {}).get("broken_from_the_start")
    if answer.trained or not broken:
        return ()
    problem, sentence = (
        ("abnormal-data", _INPUTS) if broken == "inputs" else ("poor-initialisation", _WEIGHTS)
    )
    return (Diagnosis(problem, "error", _CONFIDENCE, "", 0, {"finite": False}, (), (), sentence),)
