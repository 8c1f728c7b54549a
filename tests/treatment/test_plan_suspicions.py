"""What our plan makes of suspicions: of figures that show nothing, of slow starts, of rates that are too high."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import akeso
from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.treatment import Attempt, Edit, Prescription
from akeso.treatment.plans.judging import cured, smallest_first
from akeso.treatment.script_metric import Figure
from tests.treatment.programs import Resumable, Scripted


def test_an_f1_of_nothing_is_no_healthy_training_and_a_rare_class_the_first_suspect() -> None:
    tried: list[str] = []

    class OfARareClass(Scripted):
        def attempt(self, prescription: Prescription, **options: Any) -> Attempt:
            tried.extend(edit.remedy for edit in prescription)
            made = super().attempt(prescription, **options)
            return replace(made, metric_name="val_f1", diagnoses=(), chance=0.0)

    outcome = akeso.treat(OfARareClass(0.0, lambda cure: 0.8 if cure.of("weight-classes") else 0.0))
    assert tried[0] == "weight-classes"
    assert outcome.status == "repaired"
    assert Figure("val_f1", True, ((9, 0.0),), 1).of_nothing == 0.0
    assert Figure("val_accuracy", True, ((9, 0.0),), 1).of_nothing is None


@pytest.mark.parametrize(("confidence", "status"), [(0.7, "healthy"), (0.95, "repaired")])
def test_what_was_only_suspected_is_run_to_its_end_before_a_cure_is_believed(
    confidence: float, status: str
) -> None:
    """Ended before it had evaluated, a slow start looks like a training that stands still."""
    found = Diagnosis("vanishing-gradient", "error", confidence, "", 9, {}, (), (), "it vanishes")

    class SlowToStart(Resumable):
        def attempt(self, prescription: Prescription, **options: Any) -> Attempt:
            made = super().attempt(prescription, **options)
            if prescription or made.whole:
                history = History(planned_steps=100)
                for step in range(10):
                    history.add(step, "loss", "", 1.0 - 0.09 * step)
                value = made.metric if prescription else 0.9
                return replace(made, diagnoses=(), metric=value, history=history)
            early = replace(made, metric_name="train_accuracy", diagnoses=(found,), history=History())
            return replace(early, metric=0.5, curve=((made.steps, 0.5),))

    program = SlowToStart(lambda cure, steps: 0.9)
    outcome = akeso.treat(program)
    assert outcome.status == status
    assert program.reached[Prescription()] == (100 if status == "healthy" else 15)


def test_labels_that_a_cure_has_learnt_from_are_not_said_to_carry_no_signal() -> None:
    class Deaf(Resumable):
        def attempt(self, prescription: Prescription, **options: Any) -> Attempt:
            made = super().attempt(prescription, **options)
            found = (_found("learning-rate-too-high"), _found("unlearnable-labels"))
            return made if prescription else replace(made, diagnoses=found)

    outcome = akeso.treat(Deaf(lambda cure, steps: 0.9 if cure else 0.1))
    assert outcome.status == "repaired"
    assert [found.problem for found in outcome.diagnoses] == ["learning-rate-too-high"]


def _found(problem: str) -> Diagnosis:
    return Diagnosis(problem, "error", 0.8, "", 9, {}, (), (), "")


@pytest.mark.parametrize(
    ("left", "first"), [((), True), (("vanishing-gradient",), True), (("non-finite",), False)]
)
def test_where_the_rate_is_the_fault_it_comes_before_an_optimizer_that_leaves_as_much(
    left: tuple[str, ...], first: bool
) -> None:
    """Neither has begun to learn: what little one is ahead by is luck."""
    untreated = Attempt(Prescription(), 0, 30, 0.1, diagnoses=(_found("learning-rate-too-high"),))
    other = replace(
        untreated,
        prescription=Prescription([Edit("substitute-optimizer", "", {"to": "SGD", "lr": 0.01})]),
        metric=0.522,
        metric_name="val_accuracy",
        diagnoses=(_found("vanishing-gradient"),),
    )
    rate = replace(
        other,
        prescription=Prescription([Edit("set-learning-rate", "", {"to": 1e-3})]),
        metric=0.516,
        diagnoses=tuple(map(_found, left)),
    )
    assert (smallest_first([other, rate], untreated)[0] is rate) is first


def test_before_its_first_evaluation_a_cure_is_held_against_what_was_learnt() -> None:
    """An accuracy of its training is none of those that the untreated run has been evaluated to."""

    def losses(last: float) -> History:
        history = History(planned_steps=100)
        for step in range(20):
            history.add(step, "loss", "", 2.0 + (last - 2.0) * step / 19)
            history.add(step, "baseline_loss", "", 2.0)
        return history

    untreated = Attempt(
        Prescription(), 0, 60, 0.1, 0.66, "val_accuracy", True, losses(2.2), curve=((50, 0.66),)
    )
    cure = Prescription([Edit("shuffle-data")])
    begun = Attempt(cure, 0, 30, 0.1, 0.58, "train_accuracy", True, losses(1.0), curve=((30, 0.58),))
    assert cured(begun, untreated)
    assert not cured(replace(begun, history=losses(2.5), metric=0.9), untreated)
