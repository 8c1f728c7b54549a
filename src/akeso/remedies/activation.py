"""Other activation functions between layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.remedies._base import Remedy
from akeso.remedies.chart import GROWING, RECTIFYING, SQUASHING, Chart, chart
from akeso.remedies.edit import Edit, Prescription
from akeso.remedies.initialiser import reinitialise
from akeso.remedies.normalisation import normalise

#: Class names of torch.nn by the lower-case names in facts.
_CLASSES = {
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "hardsigmoid": "Hardsigmoid",
    "hardtanh": "Hardtanh",
    "softsign": "Softsign",
    "softmax": "Softmax",
    "logsigmoid": "LogSigmoid",
    "exp": "Exp",
    "square": "Square",
    "cube": "Cube",
    "fourth": "Fourth",
    "relu": "ReLU",
}


def substitute(old: str, new: str) -> Edit:
    """The edit that puts ``new`` in the place of the hidden activations, which are mostly ``old``."""
    known = _CLASSES.get(old)
    values = {"from": known, "to": new} if known else {"to": new}
    return Edit("substitute-activation", "hidden", values)


class SubstituteActivation(Remedy):
    """Functions that neither squash nor grow nor die, with weights drawn to fit them.

    A new function over old weights is half a cure: weights drawn for a sigmoid are too small for a rectifier.
    """

    name = "substitute-activation"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if _runaway(facts):
            yield Prescription([substitute("relu", "Tanh"), reinitialise("auto")])
        squashing = facts.activation in SQUASHING or facts.activation in GROWING
        if squashing:
            yield Prescription([substitute(facts.activation, "SELU"), reinitialise("auto")])
            yield Prescription([substitute(facts.activation, "ReLU"), normalise(facts), reinitialise("auto")])
            yield Prescription([substitute(facts.activation, "LeakyReLU"), reinitialise("auto")])
        elif facts.activation in RECTIFYING or facts.activation:
            yield Prescription([substitute(facts.activation, "SELU"), reinitialise("auto")])
            yield Prescription([substitute(facts.activation, "LeakyReLU"), reinitialise("auto")])


class SubstituteGrowing(SubstituteActivation):
    """The same where functions grow without bound: whatever else is done, they will blow up again."""

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        return super().prescribe(history, diagnoses) if facts.activation in GROWING or _runaway(facts) else ()


def _runaway(facts: Chart) -> bool:
    """A rectifier in a plain recurrent layer multiplies without bound from step to step."""
    return facts.recurrent and facts.activation in ("", "relu") and facts.weights_large
