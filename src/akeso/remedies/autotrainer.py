"""AUTOTRAINER's nine solutions and the orders in which it tries them."""

from __future__ import annotations

from typing import Final

from akeso.history import History
from akeso.remedies.chart import chart
from akeso.remedies.data import scale_inputs
from akeso.remedies.edit import Edit, Prescription
from akeso.remedies.objective import raw_output, task_loss

#: Problem to solutions, in the paper's order (Table 2 and 4.4).
ORDERS: Final[dict[str, tuple[str, ...]]] = {
    "vanishing-gradient": ("S2", "S1"),
    "exploding-gradient": ("S2", "S1", "S3"),
    "dying-relu": ("S2", "S1", "S4"),
    "oscillating-loss": ("S7", "S6", "S4", "S5"),
    "slow-convergence": ("S7", "S6", "S4"),
    "improper-output-activation": ("S2",),
    "improper-loss": ("S8",),
    "abnormal-data": ("S9",),
}

_ACTIVATIONS = ("SELU", "ReLU", "LeakyReLU")
_OPTIMIZERS = ("SGD", "Adam", "RMSprop", "Adagrad", "Adadelta", "NAdam", "Adamax")


def solution(code: str, problem: str, history: History, draw: int = 0) -> list[Prescription]:
    """The doses of one solution for one problem, in order.

    ``draw`` stands for the paper's random choice of another optimizer against slowness.
    """
    facts = chart(history)
    if code == "S1":
        return [Prescription([Edit("insert-normalisation", "hidden", {"kind": "batch"})])]
    if code == "S2" and problem == "improper-output-activation":
        # What the output is changed to follows from the loss that is used; logits go with those of torch.
        return [Prescription([raw_output(facts)])]
    if code == "S2":
        chosen = [name for name in _ACTIVATIONS if name.lower() != facts.activation]
        return [Prescription([Edit("substitute-activation", "hidden", {"to": name})]) for name in chosen[:1]]
    if code == "S3":
        return [Prescription([Edit("clip-gradient", "", {"kind": "value", "limit": 10.0})])]
    if code == "S4":
        return [Prescription([Edit("reinitialise", "", {"scheme": "xavier"})])]
    if code == "S5":
        return [Prescription([Edit("set-batch-size", "", {"to": size})]) for size in (32, 64, 128, 256)]
    if code == "S6":
        usual = 0.01 if facts.optimizer in ("sgd", "asgd") else 0.001
        next_rate = usual * 10 if problem == "slow-convergence" else usual / 10
        return [Prescription([Edit("set-learning-rate", "", {"to": rate})]) for rate in (usual, next_rate)]
    if code == "S7":
        return [Prescription([_optimizer(problem, facts.optimizer, draw)])]
    if code == "S8":
        return [Prescription([task_loss(facts)])]
    return [Prescription([scale_inputs()])]


def _optimizer(problem: str, now: str, draw: int) -> Edit:
    if problem == "oscillating-loss":
        return Edit("substitute-optimizer", "", {"to": "SGD", "lr": 0.01, "momentum": 0.9})
    others = [name for name in _OPTIMIZERS if name.lower() != now]
    return Edit("substitute-optimizer", "", {"to": others[draw % len(others)]})
