"""What is said of a treatment is true: causes before what follows from them, how far a run came, what has no cure."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import akeso
from akeso.diagnosis import Diagnosis
from akeso.script.rewrite import Change
from akeso.treatment import Attempt, Prescription
from akeso.treatment.outcome import Cost, Outcome
from akeso.treatment.telling import Teller
from tests.treatment.programs import Resumable, Scripted


def said(outcome: Outcome) -> str:
    stream = io.StringIO()
    Teller(stream).outcome(outcome, Change("", ()), Path("run"), None)
    return stream.getvalue()


def found(problem: str, *because_of: str, severity: Any = "error") -> Diagnosis:
    return Diagnosis(problem, severity, 0.9, "", 3, {}, because_of, ("look at it",), f"There is {problem}.")


def test_a_run_that_was_stopped_early_is_said_to_have_been_and_where() -> None:
    outcome = akeso.treat(Resumable(lambda cure, steps: 0.9))
    assert not outcome.before_whole
    share = outcome.attempts[0].attempt.steps
    assert f"before 0.5 (stopped early, at {share}% of its training), after 0.9" in said(outcome)
    assert "hopeless" not in said(outcome) + str(outcome)
    misread = replace(outcome.attempts[0].attempt, planned_steps=5)
    outcome = replace(outcome, attempts=(replace(outcome.attempts[0], attempt=misread),))
    assert f"(stopped early, after {share} steps)" in said(outcome)


def test_weights_that_were_better_on_the_way_are_told_of(tmp_path: Path) -> None:
    outcome = akeso.treat(Resumable(lambda cure, steps: 0.9))
    best = outcome.best
    assert best is not None
    for name in ("last", "best"):
        (tmp_path / f"{name}.safetensors").touch()
    curve = ((20, 0.7), (40, 0.99), (60, 0.9), (80, 0.9), (100, 0.9))
    for points, told in ((curve, True), (curve[2:], False)):
        ended = replace(best, metric_name="val_accuracy", curve=points)
        tried = tuple(replace(one, attempt=ended) if one.attempt is best else one for one in outcome.attempts)
        text = said(replace(outcome, attempts=tried, weights=str(tmp_path / "last.safetensors")))
        assert ("weights of its best evaluation, val_accuracy 0.99 after 40 steps" in text) is told


def test_the_time_that_went_by_is_told_beside_the_steps() -> None:
    outcome = replace(akeso.treat(Scripted(0.5, lambda cure: 0.9)), cost=Cost(1.5, 130.0))
    for text in (said(outcome), str(outcome)):
        assert "the steps of 1.50 plain trainings; 2 min 10 s went by" in text
    assert "; 5.2 s went by" in said(replace(outcome, cost=Cost(1.5, 5.21)))


def test_what_follows_from_a_cause_is_not_said_as_if_it_were_one() -> None:
    outcome = akeso.treat(Scripted(0.5, lambda cure: 0.9))
    diagnoses = (
        found("missing-zero-grad"),
        found("dying-relu", "missing-zero-grad"),
        found("overfitting", severity="info"),
    )
    lines = said(replace(outcome, diagnoses=diagnoses)).splitlines()
    assert "  found: There is missing-zero-grad." in lines
    assert "  follows from it: There is dying-relu." in lines
    assert not any("overfitting" in line for line in lines)


class Incurable(Scripted):
    """One whose labels say nothing."""

    severity = "error"

    def attempt(self, prescription: Prescription, *, seed: int | None = None, max_steps: int | None = None,
                stop_on_error: bool = False) -> Attempt:  # fmt: skip
        made = super().attempt(prescription)
        return replace(made, diagnoses=(found("unlearnable-labels", severity=self.severity),))


def test_what_no_remedy_reaches_is_not_healthy() -> None:
    outcome = akeso.treat(Incurable(0.1, None))
    assert outcome.status == "failed"
    assert len(outcome.attempts) == 1
    text = said(outcome)
    assert "akeso: not cured: no remedy is known for what was found" in text
    assert "what may help: look at it" in text
    assert "healthy" not in text


def test_a_doubt_that_no_remedy_reaches_is_told_without_a_clean_bill_of_health() -> None:
    program = Incurable(0.9, None)
    program.severity = "warning"
    outcome = akeso.treat(program)
    assert outcome.status == "healthy"
    assert "akeso: nothing to cure" in said(outcome)
