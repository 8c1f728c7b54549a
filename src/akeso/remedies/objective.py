"""Loss and output by task: what is compared with what."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from akeso.detectors.task import ONE_SIDED
from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.remedies._base import Remedy
from akeso.remedies.chart import Chart, chart
from akeso.remedies.edit import EVERYTHING, Edit, Prescription

_LOSS = {
    "multiclass": "cross_entropy",
    "language-model": "cross_entropy",
    "binary": "binary_cross_entropy_with_logits",
    "multilabel": "binary_cross_entropy_with_logits",
    "regression": "mse_loss",
    "autoencoder": "mse_loss",
}
_ON = {"softmax": "probabilities", "sigmoid": "probabilities", "logsoftmax": "log-probabilities"}
_OF_VALUES = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})
_CLASSES = {
    "softmax": "Softmax",
    "logsoftmax": "LogSoftmax",
    "sigmoid": "Sigmoid",
    "relu": "ReLU",
    "tanh": "Tanh",
}


def loss_for(facts: Chart) -> str:
    """The loss that the task calls for, on raw outputs."""
    if facts.task == "binary" and facts.classes > 1:
        return "cross_entropy"
    return _LOSS.get(
        facts.task, "cross_entropy" if facts.target_kind in ("indices", "one-hot") else "mse_loss"
    )


def task_loss(facts: Chart, on: str = "logits") -> Edit:
    """The edit that puts the task's loss in place."""
    values = {"from": facts.loss, "to": loss_for(facts)}
    return Edit("substitute-loss", "", values if on == "logits" else {**values, "on": on})


def raw_output(facts: Chart) -> Edit:
    """The edit that takes the function off the output; off the model itself where nobody can want what it gives.

    Those are values pressed between zero and one, and logarithms of probabilities where each unit answers for itself.
    """
    values = {"from": _CLASSES.get(facts.output, facts.output), "to": "none"}
    apart = facts.output == "logsoftmax" and facts.loss == "binary_cross_entropy_with_logits"
    if apart or (facts.task in ("regression", "autoencoder") and facts.output in _ON):
        values["in"] = "model"
    return Edit("substitute-activation", "output", values)


#: Share of the loss that weights times gradient come to where nothing gets through, and how alike layers are then.
_NOTHING, _ALIKE = 1e-5, 0.01
#: Losses that ask yes or no, of targets between 0 and 1.
_YES_OR_NO = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
#: Share of the highest target below which the lowest is as good as zero.
_ALMOST = 0.1
#: The function that a loss is made for, where that is any.
_MADE_FOR = {
    "binary_cross_entropy": "Sigmoid",
    "nll_loss": "LogSoftmax",
    "kl_div": "LogSoftmax",
    "ctc_loss": "LogSoftmax",
}


class BareOutput(Remedy):
    """What the last layer gives, through the function that the loss is made for and no other.

    For functions at the output that have no name here and let no gradient through: roundings, normalisations, formulas.
    """

    name = "substitute-activation"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if any(_cut_off(found) for found in diagnoses):
            yield _bare(chart(history))


def _bare(facts: Chart) -> Prescription:
    to = _MADE_FOR.get(facts.loss, "none")
    if facts.loss == "nll_loss" and facts.loss_by_hand:
        to = "Softmax"  # the loss takes the logarithm itself
    if facts.loss in _OF_VALUES and facts.task == "binary":
        to = "Sigmoid"
    return Prescription([Edit("substitute-activation", "output", {"from": EVERYTHING, "to": to})])


def _cut_off(found: Diagnosis) -> bool:
    """Whether no layer gets a gradient worth speaking of, the last one as little as the first."""
    if found.evidence.get("grad_norm") == 0.0:
        return True
    share, ratio = (
        found.evidence.get(name) for name in ("gradient_times_weight_over_loss", "gradient_first_over_last")
    )
    return share is not None and ratio is not None and share < _NOTHING and ratio > _ALIKE


class LossAndOutput(Remedy):
    """Raw outputs under the loss of the task, or the loss of the task on outputs as they are.

    Where the ``output`` is at fault, the third is to leave out whatever is done to it, known by name or not.
    """

    name = "substitute-loss"

    def __init__(self, output: bool = False) -> None:
        self.output = output

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if facts.loss == "ctc_loss":
            return [_bare(facts)]  # no other loss takes answers and targets of different lengths
        doses = list(self._known(facts, history, diagnoses))
        if self.output:
            doses.insert(2, _bare(facts))
        return doses

    def _known(
        self, facts: Chart, history: History, diagnoses: Sequence[Diagnosis]
    ) -> Iterable[Prescription]:
        yield from _of_rates(history, facts)
        yield from self._what_the_loss_wants(facts)
        fits = facts.loss == loss_for(facts)
        bare = facts.output in ("none", "unknown", "")
        if not bare and not fits and not self.output and facts.target_kind == "values":
            yield Prescription([task_loss(facts)])
        if not bare:
            units = [edit for cure in TargetUnits().prescribe(history, diagnoses) for edit in cure]
            if units and facts.loss in _OF_VALUES:
                yield Prescription([raw_output(facts), *units])
            yield Prescription([raw_output(facts)] if fits else [raw_output(facts), task_loss(facts)])
        elif not fits:
            yield Prescription([task_loss(facts)])
        if bare and fits:
            # The loss has the right name but is not what it seems, or a function hides before it.
            yield Prescription([task_loss(facts)])
            yield Prescription([raw_output(facts), task_loss(facts)])
        elif facts.output in _ON and not fits:
            yield Prescription([task_loss(facts, _ON[facts.output])])

    def _what_the_loss_wants(self, facts: Chart) -> Iterable[Prescription]:
        """The function at the output that the loss is made for, where the loss itself fits the targets."""
        wanted = ""
        if facts.output in ("sigmoid", "softmax") and facts.output_of and facts.loss != "cross_entropy":
            # Once is enough: where both stand in the model, and where the second is the program's own.
            last = _CLASSES[facts.output]
            yield Prescription([Edit("substitute-activation", "output", {"from": last, "to": last})])
            first = _CLASSES.get(facts.output_of, facts.output_of)
            edit = Edit("substitute-activation", "output", {"from": first, "to": "none", "in": "model"})
            yield Prescription([edit])
        if facts.loss == "binary_cross_entropy" and facts.output not in ("sigmoid", "unknown", ""):
            # A softmax is one for all units together, or over a single one: the loss wants a sigmoid for each.
            exclusive = facts.classes > 1 and facts.target_kind in ("one-hot", "indices")
            wanted = "" if exclusive else "Sigmoid"
        elif facts.output == "softmax" and (
            facts.loss == "kl_div" or (facts.loss == "nll_loss" and not facts.loss_by_hand)
        ):
            wanted = "LogSoftmax"
        elif (
            facts.loss == "nll_loss" and facts.loss_by_hand and facts.output not in ("softmax", "unknown", "")
        ):
            wanted = "Softmax"  # the loss takes the logarithm itself
        elif self.output and facts.loss == "nll_loss" and facts.output == "logsoftmax":
            # The right function that is found wrong goes over the wrong axis, in the program's answers as well.
            values = {"from": "LogSoftmax", "to": "LogSoftmax", "in": "model"}
            yield Prescription([Edit("substitute-activation", "output", values)])
        if wanted:
            known = _CLASSES.get(facts.output, facts.output)
            yield Prescription([Edit("substitute-activation", "output", {"from": known, "to": wanted})])


def _of_rates(history: History, facts: Chart) -> Iterable[Prescription]:
    """A loss of counts that is told whether it is given rates or their logarithms, where that was found wrong.

    The program has use for the rates that its model gives: so it is the loss that is told, and the model stays.
    """
    logarithms = dict(history.facts.get("loss_args") or {}).get("log_input")
    if facts.loss == "poisson_nll_loss" and logarithms is True and facts.output in ONE_SIDED:
        values = {"from": facts.loss, "to": facts.loss, "log_input": False}
        yield Prescription([Edit("substitute-loss", "", values)])


#: How sure answers should be able to become, and the factors that are given for it.
_SURE, _FACTORS = 0.99, (2.0, 100.0)


class ScaleLogits(Remedy):
    """A factor for logits that lie too close together, as cosines do, where the answers are right and hardly sure.

    It is such that the distance which gives them the little confidence they have gives them nearly all.
    """

    name = "scale-logits"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        others = chart(history).classes - 1
        for found in diagnoses:
            sure = found.evidence.get("output_confidence")
            if sure is None or others < 1 or not 0 < sure < _SURE:
                continue
            apart, wanted = (math.log(others * share / (1 - share)) for share in (sure, _SURE))
            low, high = _FACTORS
            factor = min(max(wanted / apart, low), high) if apart > 0 else high
            yield Prescription([Edit("scale-logits", "", {"factor": float(f"{factor:.2g}")})])
            return


class RobustLoss(Remedy):
    """A loss that grows with the distance alone, where a few targets lie far beyond all others.

    Squared, their distance rules every gradient they are part of.
    """

    name = "substitute-loss"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if facts.loss == "mse_loss" and facts.target_kind == "values" and facts.wild_targets:
            yield Prescription([Edit("substitute-loss", "", {"from": facts.loss, "to": "huber_loss"})])


class Broadcast(Remedy):
    """Outputs and targets brought to the same shape."""

    name = "fix-broadcast"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        yield Prescription([Edit("fix-broadcast")])


class ScaleTargets(Remedy):
    """Yes and no as 1 and 0, where the loss wants that and they are 255 and 0, 1 and -1 or 2 and 1."""

    name = "scale-targets"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if chart(history).loss not in _YES_OR_NO:
            return
        for found in diagnoses:
            low, high = found.evidence.get("target_range") or (0.0, 1.0)
            if low < 0.0 or high > 1.0:
                low = 0.0 if 0.0 < low < _ALMOST * high else low  # shares of 255 that were never quite 0
                yield Prescription([Edit("scale-targets", "", {"low": float(low), "high": float(high)})])
                return


class MeanReduction(Remedy):
    """A loss that is summed over the batch is averaged instead: its gradient grows with the batch."""

    name = "mean-reduction"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if dict(history.facts.get("loss_args") or {}).get("reduction") == "sum":
            yield Prescription([Edit("mean-reduction")])


class Imbalance(Remedy):
    """Rare classes weighted up, and a bias that starts at the prior."""

    name = "weight-classes"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        weights = Edit("weight-classes", "", {"kind": "inverse-frequency"})
        yield Prescription([weights])
        yield Prescription([Edit("set-output-bias", "", {"to": "prior"})])


class TargetUnits(Remedy):
    """Regression targets standardised; predictions come back in the original units."""

    name = "standardise-targets"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        facts = chart(history)
        if facts.task in ("regression", "unknown") and (facts.target_scale > 10 or facts.target_scale < 0.05):
            yield Prescription([Edit("standardise-targets")])
