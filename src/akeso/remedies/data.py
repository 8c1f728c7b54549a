"""Inputs cleaned and scaled by the training data alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.remedies._base import Remedy
from akeso.remedies.chart import chart
from akeso.remedies.edit import Edit, Prescription
from akeso.remedies.objective import RobustLoss, TargetUnits

#: Columns from which on inputs may be sequences of names, the largest spread of one over that of the typical one, and
#: the largest grey level.
_COLUMNS, _ALIKE, _GREY = 8, 3.0, 255


def scale_inputs() -> Edit:
    """The edit that cleans and scales inputs."""
    return Edit("scale-inputs", "", {"kind": "standard", "nan": "impute", "outliers": "clip"})


def clean_inputs() -> Edit:
    """Missing values imputed, everything else left as it is."""
    return Edit("scale-inputs", "", {"kind": "none", "nan": "impute", "outliers": "keep"})


class Shuffle(Remedy):
    """Batches drawn at random, where they were seen to hold one class each."""

    name = "shuffle-data"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if any(
            found.problem == "abnormal-data" and "target_top_share" in found.evidence for found in diagnoses
        ):
            yield Prescription([Edit("shuffle-data")])


class EmbedNames(Remedy):
    """An embedding in place of the first layer, where inputs are numbers of words or items and no quantities.

    Such numbers are whole, go up to thousands, and are alike in every column. Grey levels are too, but go up to 255.
    """

    name = "embed-inputs"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        low, high, whole, spread = (
            history.series(signal).finite().values
            for signal in ("input_min", "input_max", "input_whole", "input_scale_spread")
        )
        shape = list(history.facts.get("input_shape") or ())
        if not (len(low) and len(whole) and len(spread)) or len(shape) != 2 or shape[1] < _COLUMNS:
            return
        alike = float(np.median(spread)) <= _ALIKE
        if alike and low.min() >= 0 and high.max() > _GREY and whole.min() == 1.0:
            yield Prescription([Edit("embed-inputs", "", {"names": int(high.max())})])


class ScaleInputs(Remedy):
    """Missing values imputed, outliers pulled in, features scaled; targets too where they need it.

    Where some targets lie far beyond the others, as codes for missing values do, a loss that such targets do not rule
    comes with the inputs, and before everything else.
    """

    name = "scale-inputs"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if str(history.facts.get("input_kind", "values")) not in ("values", "unknown"):
            yield from TargetUnits().prescribe(history, diagnoses)
            return
        facts = chart(history)
        if facts.merely_missing:
            yield Prescription([clean_inputs()])
        robust = [edit for cure in RobustLoss().prescribe(history, diagnoses) for edit in cure]
        if robust and inputs_found(diagnoses):
            yield Prescription([scale_inputs(), *robust])
        units = [edit for cure in TargetUnits().prescribe(history, diagnoses) for edit in cure]
        if units and not inputs_found(diagnoses) and not facts.odd_inputs:
            yield Prescription(units)
            yield Prescription([scale_inputs(), *units])
        elif units:
            yield Prescription([scale_inputs(), *units])
            if facts.input_scale <= 10:
                yield Prescription(units)
        yield Prescription([scale_inputs()])


def inputs_found(diagnoses: Sequence[Diagnosis]) -> bool:
    """Whether it is the inputs that were found to be out of scale, and not the targets alone."""
    return any(
        name.startswith("input")
        for found in diagnoses
        if found.problem == "abnormal-data"
        for name in found.evidence
    )
