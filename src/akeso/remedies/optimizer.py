"""Other optimizers, batch sizes and regularisation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from akeso.detectors.steps import USUAL_RATE
from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.remedies._base import Remedy
from akeso.remedies.chart import ORDINARY, Chart, chart
from akeso.remedies.edit import Edit, Prescription
from akeso.remedies.rate import steady

#: Times the ordinary rate beyond which the rate is not kept.
_TOP = 10
#: Optimizer steps that are few for a whole training.
_FEW_STEPS = 120
#: Share dropped out that is usual and seldom too much.
_DROPPED = 0.2


def use(name: str, lr: float, **options: Any) -> Edit:
    """The edit that puts another optimizer in place."""
    return Edit("substitute-optimizer", "", {"to": name, "lr": lr, **options})


class SubstituteOptimizer(Remedy):
    """Adam where it is not used yet, at its usual rate and above; SGD with momentum where it is.

    With ``only`` where the optimizer is one of those that no rate makes right.
    """

    name = "substitute-optimizer"

    def __init__(self, only: tuple[str, ...] = ()) -> None:
        self.only = only

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if self.only and facts.optimizer not in self.only:
            return
        if facts.optimizer in ("adam", "adamw", "nadam", "radam"):
            yield Prescription([*steady(facts), use("SGD", 0.01, momentum=0.9)])
            return
        yield Prescription([*steady(facts), use("Adam", 1e-3)])
        yield Prescription([*steady(facts), use("Adam", 5e-3)])


class OrdinaryOptions(Remedy):
    """The same optimizer with its ordinary options, where momentum, betas or epsilon are far from them.

    Steps that go on for dozens of others, or that are divided by a constant instead of their own size: no rate
    makes up for that.
    """

    name = "substitute-optimizer"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if not facts.odd_options or facts.lr <= 0:
            return
        for rate in dict.fromkeys((facts.lr, _ordinary_rate(facts))):
            if rate <= _TOP * _ordinary_rate(facts):
                momentum = {"momentum": 0.9} if facts.momentum > 0 else {}
                yield Prescription([use(ORDINARY[facts.optimizer], float(f"{rate:.3g}"), **momentum)])


def _ordinary_rate(facts: Chart) -> float:
    return min(facts.lr, USUAL_RATE[facts.optimizer])


class LargerBatches(Remedy):
    """Four times the batch against noise, where there are samples enough for many steps."""

    name = "set-batch-size"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if 0 < facts.batch_size <= 64 and facts.dataset_size >= 32 * facts.batch_size:
            yield Prescription([Edit("set-batch-size", "", {"to": facts.batch_size * 4})])


class SmallerBatches(Remedy):
    """More steps for the same number of passes, where batches take in much of the data.

    With ``few`` only where the training has so few steps that no rate makes up for it.
    """

    name = "set-batch-size"

    def __init__(self, few: bool = False) -> None:
        self.few = few

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if self.few and facts.planned > _FEW_STEPS:
            return
        if facts.batch_size > 64 and 0 < facts.dataset_size < 16 * facts.batch_size:
            yield Prescription([Edit("set-batch-size", "", {"to": 32})])


class LessRegularisation(Remedy):
    """A hundredth of the weight decay, a fifth dropped out at most.

    With ``beyond`` only where the weight decay is beyond anything usual: it is then the likeliest cause of a model that
    learns nothing, also before its weights are seen to have shrunk.
    """

    name = "set-weight-decay"

    def __init__(self, beyond: bool = False) -> None:
        self.beyond = beyond

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if self.beyond and not facts.large_decay:
            return
        known = history.facts.get("dropout")
        shares = [float(share) for share in known.values()] if isinstance(known, dict) else []
        dropout = (
            any("Dropout" in layer.kind for layer in history.layers) and max(shares, default=1.0) > _DROPPED
        )
        decay = Edit("set-weight-decay", "", {"to": min(1e-4, facts.weight_decay / 100)})
        less = Edit("set-dropout", "", {"to": _DROPPED})
        if facts.weight_decay > 1e-3:
            yield Prescription([decay])
        if dropout:
            yield Prescription([less])
            if facts.weight_decay > 1e-3:
                yield Prescription([decay, less])
