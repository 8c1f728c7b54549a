"""Other optimizers, batch sizes and regularisation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.remedies._base import Remedy
from akeso.remedies.chart import chart
from akeso.remedies.edit import Edit, Prescription
from akeso.remedies.rate import hold


def use(name: str, lr: float, **options: Any) -> Edit:
    """The edit that puts another optimizer in place."""
    return Edit("substitute-optimizer", "", {"to": name, "lr": lr, **options})


class SubstituteOptimizer(Remedy):
    """Adam where it is not used yet, at its usual rate and above; SGD with momentum where it is."""

    name = "substitute-optimizer"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if facts.optimizer in ("adam", "adamw", "nadam", "radam"):
            yield Prescription([*hold(facts), use("SGD", 0.01, momentum=0.9)])
            return
        yield Prescription([*hold(facts), use("Adam", 1e-3)])
        yield Prescription([*hold(facts), use("Adam", 5e-3)])


class LargerBatches(Remedy):
    """Four times the batch against noise, where there are samples enough for many steps."""

    name = "set-batch-size"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if 0 < facts.batch_size <= 64 and facts.dataset_size >= 32 * facts.batch_size:
            yield Prescription([Edit("set-batch-size", "", {"to": facts.batch_size * 4})])


class SmallerBatches(Remedy):
    """More steps for the same number of passes, where batches take in much of the data."""

    name = "set-batch-size"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if facts.batch_size > 64 and 0 < facts.dataset_size < 16 * facts.batch_size:
            yield Prescription([Edit("set-batch-size", "", {"to": 32})])


class LessRegularisation(Remedy):
    """A hundredth of the weight decay, a fifth dropped out at most."""

    name = "set-weight-decay"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        dropout = any("Dropout" in layer.kind for layer in history.layers)
        decay = Edit("set-weight-decay", "", {"to": min(1e-4, facts.weight_decay / 100)})
        less = Edit("set-dropout", "", {"to": 0.2})
        if facts.weight_decay > 1e-3:
            yield Prescription([decay])
        if dropout:
            yield Prescription([less])
            if facts.weight_decay > 1e-3:
                yield Prescription([decay, less])
