"""A sick recipe, and programs whose attempts are written down beforehand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from sklearn.datasets import make_circles
from torch import nn

import akeso
from akeso.treatment import Attempt, Edit, Prescription, Program

_x, _y = make_circles(600, noise=0.1, factor=0.5, random_state=1)
X, Y = torch.tensor(_x, dtype=torch.float32), torch.tensor(_y)


def deep(activation: type[nn.Module], depth: int = 6) -> nn.Module:
    parts: list[nn.Module] = [nn.Linear(2, 8), activation()]
    for _ in range(depth):
        parts += [nn.Linear(8, 8), activation()]
    return nn.Sequential(*parts, nn.Linear(8, 2))


def sick(**changes: Any) -> akeso.Recipe:
    parts: dict[str, Any] = {
        "model": lambda: deep(nn.Sigmoid), "train": (X[:400], Y[:400]), "val": (X[400:], Y[400:]),
        "loss": nn.CrossEntropyLoss(), "optimizer": "Adam", "lr": 5e-3, "epochs": 20, "batch_size": 40,
    }  # fmt: skip
    return akeso.Recipe(**{**parts, **changes})


class Scripted(Program):
    """A program whose attempts are written down beforehand, for the ways that plans decide."""

    def __init__(self, untreated: Any, treated: Any) -> None:
        self.untreated, self.treated, self.seen = untreated, treated, 0
        self.source = akeso.treat(sick(), dry_run=True).attempts[0].attempt

    @property
    def planned_steps(self) -> int:
        return 100

    def describe(self) -> str:
        return "scripted"

    def refuses(self, edit: Edit) -> str | None:
        return None

    def attempt(self, prescription: Prescription, *, seed: int | None = None, max_steps: int | None = None,
                stop_on_error: bool = False) -> Attempt:  # fmt: skip
        self.seen += 1
        value = self.treated(prescription) if prescription else self.untreated
        if isinstance(value, BaseException):
            raise value
        steps = max_steps or 100
        found = () if prescription else self.source.diagnoses
        return Attempt(prescription, 0, steps, 0.01, value, "val_accuracy", True, self.source.history, found,
                       whole=steps == 100, planned_steps=100, curve=((steps, value),), model=object())  # fmt: skip


class Resumable(Scripted):
    """One whose attempts can be gone on with, and whose value depends on the step."""

    def __init__(self, treated: Any) -> None:
        super().__init__(0.5, None)
        self.value, self.reached = treated, {Prescription(): 0}
        self.curves: dict[Prescription, tuple[tuple[int, float], ...]] = {}

    @property
    def resumable(self) -> bool:
        return True

    def attempt(self, prescription: Prescription, *, seed: int | None = None, max_steps: int | None = None,
                stop_on_error: bool = False) -> Attempt:  # fmt: skip
        self.treated = lambda cure: self.value(cure, max_steps or 100)
        made = super().attempt(prescription, max_steps=max_steps)
        before = self.reached.get(prescription, 0)
        self.reached[prescription] = made.steps
        curve = self.curves[prescription] = (*self.curves.get(prescription, ()), *made.curve)
        return replace(made, spent=made.steps - before, curve=curve)
