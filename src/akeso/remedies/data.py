"""Inputs cleaned and scaled by the training data alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.remedies._base import Remedy
from akeso.remedies.chart import chart
from akeso.remedies.edit import Edit, Prescription
from akeso.remedies.objective import TargetUnits


def scale_inputs() -> Edit:
    """The edit that cleans and scales inputs."""
    return Edit("scale-inputs", "", {"kind": "standard", "nan": "impute", "outliers": "clip"})


class Shuffle(Remedy):
    """Batches drawn at random, where they were seen to hold one class each."""

    name = "shuffle-data"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if any(
            found.problem == "abnormal-data" and "target_top_share" in found.evidence for found in diagnoses
        ):
            yield Prescription([Edit("shuffle-data")])


class ScaleInputs(Remedy):
    """Missing values imputed, outliers pulled in, features scaled; targets too where they need it."""

    name = "scale-inputs"

    def prescribe(self, history: History, diagnoses: Sequence[Diagnosis]) -> Iterable[Prescription]:
        if str(history.facts.get("input_kind", "values")) not in ("values", "unknown"):
            yield from TargetUnits().prescribe(history, diagnoses)
            return
        units = [edit for cure in TargetUnits().prescribe(history, diagnoses) for edit in cure]
        odd_inputs = chart(history).input_scale
        if units:
            yield Prescription([scale_inputs(), *units])
            if odd_inputs <= 10:
                yield Prescription(units)
        yield Prescription([scale_inputs()])
