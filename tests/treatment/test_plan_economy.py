"""Nothing is tried twice, and of cures of equal worth the smallest is handed back."""

from __future__ import annotations

from dataclasses import replace

import akeso
from akeso.diagnosis import Diagnosis
from akeso.history import Event, History
from akeso.treatment import Attempt, Edit, Prescription
from akeso.treatment.plans.choosing import lead
from akeso.treatment.plans.judging import same_course, smallest_first
from tests.treatment.programs import Resumable


def _made(cure: list[Edit], losses: list[float]) -> Attempt:
    history = History(planned_steps=100)
    for step, loss in enumerate(losses):
        history.add(step, "loss", "", loss)
    return Attempt(Prescription(cure), 0, len(losses), 0.1, history=history)


def test_cures_that_took_the_same_course_to_the_last_bit_are_one() -> None:
    named = [Edit("substitute-activation", "output", {"from": "ReLU", "to": "none"})]
    whatever = [Edit("substitute-activation", "output", {"from": "everything", "to": "none"})]
    losses = [1.0 / (1 + step) for step in range(30)]
    assert same_course(_made(named, losses), _made(whatever, losses))
    assert same_course(_made(named, losses), _made(whatever, losses[:20]))
    assert not same_course(_made(named, losses), _made(whatever, [*losses[:29], 0.5]))
    assert not same_course(_made(named, losses[:5]), _made(whatever, losses[:5]))
    # The same training, but what is held out is answered by other means.
    answers = [
        replace(_made(cure, losses), metric=value, metric_name="val_accuracy", higher_is_better=True)
        for cure, value in ((named, 0.4), (whatever, 0.6))
    ]
    assert not same_course(*answers)
    # A schedule is taken off when it would have begun to act, which may be later.
    assert not same_course(_made([], losses), _made([Edit("hold-learning-rate")], losses))


def test_a_cure_that_changes_nothing_else_is_tried_once() -> None:
    class Twins(Resumable):
        def attempt(self, prescription, *, seed=None, max_steps=None, stop_on_error=False):
            made = super().attempt(prescription, max_steps=max_steps)
            return replace(made, history=_copy(made.history, factor=0.9 if prescription else 1.0))

    outcome = akeso.treat(Twins(lambda cure, steps: 0.9 if steps > 50 else 0.5), budget=4.0)
    again = [tried for tried in outcome.attempts if "tried already" in tried.verdict]
    assert again
    assert all(tried.attempt.steps <= 30 for tried in again)


def test_a_cure_under_which_the_training_is_the_same_to_the_last_bit_is_none() -> None:
    class Idle(Resumable):
        def attempt(self, prescription, *, seed=None, max_steps=None, stop_on_error=False):
            self.untreated = self.value(prescription, max_steps or 100)
            made = super().attempt(prescription, max_steps=max_steps)
            return replace(made, history=_copy(made.history))

    # The figure gets better in time: ended early, the untreated run seems to be behind.
    outcome = akeso.treat(Idle(lambda cure, steps: 0.5 + steps / 300), only=["reinitialise"])
    assert outcome.prescription == ()
    assert any("to the last bit" in tried.verdict for tried in outcome.attempts)


def _copy(history: History, factor: float = 1.0) -> History:
    other = History(planned_steps=history.planned_steps)
    other.facts.update(history.facts)
    other.layers = list(history.layers)
    loss = history.series("loss")
    for step, value in zip(loss.steps.tolist(), loss.values.tolist(), strict=True):
        other.add(step, "loss", "", factor * value)
    return other


def test_what_is_wrong_in_the_last_of_several_stages_is_tried_up_to_there() -> None:
    history = History(planned_steps=100)
    history.facts["optimizers"] = [{"name": "SGD", "lr": 0.1}, {"name": "SGD", "lr": 0.1}]
    history.events.append(Event(50, "optimizer", "1"))
    for step in range(100):
        for name in ("lr", "loss"):
            history.add(step, name, str(int(step >= 50)), 0.1)

    def first(shown: History) -> int:
        program = Resumable(lambda cure, step: 0.9 if cure else 0.5)
        program.source = replace(program.source, history=shown)
        tried = akeso.treat(program, budget=4.0).attempts
        return min(one.attempt.steps for one in tried if one.attempt.prescription)

    assert first(history) >= 80
    assert first(History(planned_steps=100)) < 50


def test_a_cure_that_was_ahead_in_the_end_without_any_problem_left_has_repaired() -> None:
    """The untreated run was stopped before it came to the figure that decides, which only its end showed."""

    class Late(Resumable):
        def attempt(self, prescription, *, seed=None, max_steps=None, stop_on_error=False):
            made = super().attempt(prescription, max_steps=max_steps)
            early = not prescription and not made.whole
            return replace(made, metric_name="train_accuracy") if early else made

    outcome = akeso.treat(Late(lambda cure, steps: 0.7), budget=1.1)
    assert outcome.before_whole
    assert outcome.remaining == ()
    assert outcome.status == "repaired"


def _of(cure: Edit, metric: float) -> Attempt:
    made = _made([cure], [1.0 / (1 + step) for step in range(30)])
    return replace(made, metric=metric, metric_name="val_accuracy", curve=((30, metric),))


def test_a_rate_alone_goes_before_another_optimizer_that_is_hardly_better() -> None:
    lower = Edit("set-learning-rate", "", {"to": 0.01})
    adam = _of(Edit("substitute-optimizer", "", {"to": "Adam", "lr": 1e-3}), 0.68)
    too_high = Diagnosis("learning-rate-too-high", "error", 0.9, "", 3, {}, (), (), "")
    dead = Diagnosis("dying-relu", "error", 0.9, "", 3, {}, ("learning-rate-too-high",), (), "")
    untreated = replace(_made([], [1.0] * 30), diagnoses=(too_high, dead))
    close, behind = _of(lower, 0.66), _of(lower, 0.5)
    assert smallest_first([adam, close], untreated) == [close, adam]
    assert smallest_first([adam, behind], untreated) == [adam, behind]
    # Where the rate is not what is wrong, nothing speaks for it.
    other = replace(untreated, diagnoses=(replace(dead, because_of=()), too_high))
    assert smallest_first([adam, close], other) == [adam, close]


def test_once_a_fault_is_gone_an_ordinary_rate_is_only_raised_where_that_is_far_ahead() -> None:
    def judged(rate: float, left: Diagnosis) -> float:
        history = History(planned_steps=100)
        history.facts["optimizers"] = [{"name": "Adam", "lr": rate}]
        cured = replace(_made([Edit("keep-attached")], [1.0] * 30), history=history)
        return lead([left], cured, untreated)

    fault = Diagnosis("parameters-not-trained", "error", 0.95, "", 3, {}, (), (), "")
    untreated = replace(_made([], [1.0] * 30), diagnoses=(fault,))
    slow = Diagnosis("slow-convergence", "error", 0.0, "", 0, {}, (), (), "")  # suspected, not found
    assert judged(2e-3, slow) > judged(1e-6, slow) > 0
    assert judged(2e-3, replace(slow, confidence=0.8)) == judged(1e-6, slow)
    untreated = replace(untreated, diagnoses=(replace(fault, problem="oscillating-loss"),))
    assert judged(2e-3, slow) == judged(1e-6, slow)


def test_an_attempt_that_has_gone_no_further_is_told_once() -> None:
    told: list[tuple[Prescription, int, bool]] = []
    akeso.treat(
        Resumable(lambda cure, steps: 0.5 + (steps / 250 if cure else 0.0)),
        budget=3.0,
        report=lambda tried: told.append(
            (tried.attempt.prescription, tried.attempt.steps, tried.attempt.whole)
        ),
    )
    assert len({cure for cure, *_ in told}) > 2
    assert len(told) == len(set(told))
