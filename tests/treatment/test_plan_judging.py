"""How our plan decides, on programs whose attempts are written down beforehand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

import akeso
from akeso.diagnosis import Diagnosis
from akeso.history import History
from akeso.treatment import Attempt, Edit, Prescription
from akeso.treatment.plans import Wishes
from akeso.treatment.plans.choosing import uncovered
from akeso.treatment.plans.judging import (
    closest,
    comparable,
    cured,
    disappoints,
    learnt_more,
    left_over,
    out_of_reach,
    outdone,
    smallest_first,
)
from akeso.treatment.plans.ledger import Ledger, better
from akeso.treatment.plans.race import promise
from tests.treatment.programs import Resumable, Scripted


def test_a_cure_that_is_not_better_is_not_handed_back() -> None:
    program = Scripted(0.80, lambda cure: 0.805)
    outcome = akeso.treat(program)
    assert outcome.status == "failed"
    assert outcome.prescription == ()
    assert outcome.after == outcome.before == 0.80
    assert any("beyond noise" in tried.verdict for tried in outcome.attempts)


def test_what_no_cure_reaches_is_told_where_it_showed_under_one_alone() -> None:
    empty = Diagnosis("unlearnable-labels", "error", 0.9, "", 40, {}, (), ("Look at pairs.",), "No signal.")

    class Empty(Scripted):
        def attempt(self, prescription, *, seed=None, max_steps=None, stop_on_error=False):
            made = super().attempt(prescription, max_steps=max_steps)
            return replace(made, diagnoses=(empty,)) if prescription and made.whole else made

    outcome = akeso.treat(Empty(0.5, lambda cure: 0.5))
    assert outcome.status == "failed"
    told = [note for note in outcome.notes if "No signal. Look at pairs." in note]
    assert len(told) == 1
    assert "under substitute-activation" in told[0]


def _trained(attempt: Attempt, left: float, *, problem: str = "") -> Attempt:
    history = History(planned_steps=100)
    history.facts["loss"] = "mse_loss"
    for step in range(100):
        history.add(step, "loss", "", left)
        history.add(step, "baseline_loss", "", 1.0)
    found = (Diagnosis(problem, "error", 0.95, "", 0, {}, (), (), ""),) if problem else ()
    return replace(attempt, history=history, diagnoses=found)


@pytest.mark.parametrize(
    ("before", "after", "left", "status"),
    [(1.0, 1.0, 0.05, "repaired"), (1.0, 0.98, 0.05, "failed"), (1.0, 1.0, 0.95, "failed")],
)
def test_a_fault_of_an_output_that_the_figure_is_not_of_is_cured_by_its_loss(
    before: float, after: float, left: float, status: str
) -> None:
    class TwoHeads(Resumable):
        def attempt(self, prescription, *, seed=None, max_steps=None, stop_on_error=False):
            made = super().attempt(prescription, max_steps=max_steps)
            return _trained(made, left) if prescription else _trained(made, 1.5, problem="improper-loss")

    program = TwoHeads(lambda cure, steps: after)
    program.untreated = before
    outcome = akeso.treat(program, budget=4.0)
    assert outcome.status == status
    assert any("as good before" in note for note in outcome.notes) == (status == "repaired")


@pytest.mark.parametrize(("left", "over"), [(1.1, True), (0.96, True), (0.6, False)])
def test_a_training_that_gets_nowhere_is_not_repaired(left: float, over: bool) -> None:
    source = Scripted(0.0, None).source
    slow = Diagnosis("slow-convergence", "warning", 0.8, "", 40, {}, (), (), "")
    after = replace(_trained(source, left), diagnoses=(slow,))
    assert left_over(_trained(source, 1.5, problem="improper-loss"), after) == over


def test_the_best_of_many_attempts_must_be_further_ahead_than_one_alone() -> None:
    """Ten trainings that learnt nothing, of 300 held-out samples: the luckiest is ahead of the untreated one."""
    history = Scripted(0.0, None).source.history
    history.facts["val_size"] = 300
    chance = Attempt(Prescription(), 0, 100, 0.01, 0.327, "val_accuracy", True, history, ())
    lucky = replace(chance, metric=0.377)
    assert better(lucky, chance)
    assert not better(lucky, chance, among=10)
    assert better(replace(chance, metric=0.42), chance, among=10)


def test_another_figure_of_the_untreated_run_is_no_proof() -> None:
    """Ended early it had shown a loss alone: an accuracy, even that of a broken model, is more than minus that."""
    source = Scripted(0.0, None).source
    early = replace(source, metric=1.76, metric_name="train_loss", higher_is_better=False, curve=((9, 1.76),))
    broken = replace(source, metric=0.1, metric_name="metric", whole=True)
    assert better(broken, early)
    assert not comparable(early, broken)
    assert not out_of_reach(early, broken)
    assert not learnt_more(broken, early)


def test_a_training_that_breaks_is_not_judged_by_what_it_showed_before() -> None:
    source = Scripted(0.0, None).source
    broken = Diagnosis("non-finite", "error", 0.99, "", 40, {"recovered": False}, (), (), "")
    healed = replace(broken, evidence={"recovered": True})
    sound = replace(source, metric=0.6, diagnoses=())
    ahead = replace(source, metric=0.9, diagnoses=(broken,))
    assert promise(ahead, source) < promise(sound, source)
    assert promise(replace(ahead, diagnoses=(healed,)), source) > promise(sound, source)
    assert "not finite" in disappoints(ahead, source, [], 1.0)
    assert not disappoints(sound, source, [], 1.0)


def test_what_breaks_for_good_need_not_be_seen_to_its_end() -> None:
    source = Scripted(0.0, None).source
    broken = Diagnosis("non-finite", "error", 0.99, "", 0, {"recovered": False}, (), (), "")
    before = replace(
        source, metric=math.nan, metric_name="val_loss", curve=((9, math.nan),), diagnoses=(broken,)
    )
    after = replace(source, metric=0.4, metric_name="val_mae", curve=((9, 0.4),), diagnoses=())
    assert not comparable(before, after)
    assert out_of_reach(before, after)
    assert not out_of_reach(replace(before, diagnoses=()), after)
    assert not out_of_reach(before, replace(after, diagnoses=(broken,)))


def test_a_cure_that_alone_takes_away_what_is_wrong_may_be_slow() -> None:
    """Some tasks show nothing for half of their training, and what is wrong for certain does not pass by itself."""
    source = replace(Scripted(0.5, None).source, metric=0.5, chance=0.5)
    fault = Diagnosis("improper-output-activation", "error", 0.95, "", 3, {}, (), (), "")
    untreated = replace(source, diagnoses=(fault,))
    slow, rival = replace(source, diagnoses=()), replace(source, diagnoses=(fault,))
    assert not disappoints(slow, untreated, [rival], 0.5)
    assert "brought nothing" in disappoints(slow, untreated, [rival, slow], 0.5)
    assert "brought nothing" in disappoints(rival, untreated, [], 0.5)


def test_a_cure_that_shone_and_faded_gives_way_to_one_that_was_better_after_fewer_steps() -> None:
    def value(cure: Prescription, steps: int) -> float:
        shines = any(edit.values.get("to") == "SELU" for edit in cure)
        return (0.9 if steps <= 30 else 0.6) if shines else 0.8

    outcome = akeso.treat(Resumable(value))
    assert outcome.status == "repaired"
    assert outcome.after == 0.8
    faded = [tried for tried in outcome.attempts if "was better after fewer steps" in tried.verdict]
    assert faded
    assert all(tried.attempt.steps < 100 for tried in faded)
    assert outcome.cost.steps <= 3.0


def test_a_cure_under_which_little_is_learnt_is_tried_at_a_higher_rate() -> None:
    fast = Resumable(lambda cure, steps: 0.9 if cure.of("set-learning-rate") else 0.7)
    only = ["substitute-activation", "reinitialise", "set-learning-rate"]
    outcome = akeso.treat(fast, only=only, budget=3.0)
    assert outcome.prescription.of("substitute-activation")
    assert outcome.prescription.of("set-learning-rate")[0].values["to"] == pytest.approx(0.01)


def test_a_higher_rate_that_falls_back_is_taken_off_the_cure() -> None:
    def value(cure: Prescription, steps: int) -> float:
        if cure.of("set-learning-rate"):
            return 0.8 if steps <= 30 else 0.6
        return 0.7 if steps <= 30 else 0.9

    only = ["substitute-activation", "reinitialise", "set-learning-rate"]
    outcome = akeso.treat(Resumable(value), only=only, budget=3.0)
    assert outcome.after == 0.9
    assert not outcome.prescription.of("set-learning-rate")
    assert any(tried.verdict == "rejected: it falls back" for tried in outcome.attempts)


def test_of_cures_that_have_not_begun_to_learn_none_is_ahead() -> None:
    def begun(metric: float, loss: float) -> Attempt:
        history = History(planned_steps=100)
        for step in range(30):
            history.add(step, "loss", "", loss)
            history.add(step, "baseline_loss", "", 0.69)
        source = Scripted(0.5, None).source
        return replace(source, metric=metric, chance=0.5, history=history, diagnoses=())

    unlucky, lucky = begun(0.46, 0.78), begun(0.52, 0.685)
    assert promise(unlucky) == promise(lucky)
    assert promise(begun(0.56, 0.685)) > promise(lucky)  # beyond luck
    assert promise(begun(0.50, 0.60)) > promise(lucky)  # the loss has begun to fall
    assert promise(begun(0.50, 2.0)) < promise(unlucky)  # thrown up, not begun


def test_losses_of_two_functions_are_not_held_against_each_other() -> None:
    def trained(loss: str, value: float) -> Attempt:
        source = Scripted(0.5, None).source
        history = History(planned_steps=100)
        history.facts["loss"] = loss
        for step in range(60):
            history.add(step, "loss", "", value)
            history.add(step, "baseline_loss", "", 0.5 if loss == "mse_loss" else 0.33)
        return replace(source, metric_name="train_loss", metric=value, higher_is_better=False, curve=((50, value),),
                       steps=60, history=history, diagnoses=())  # fmt: skip

    absolute, squared, rival = trained("l1_loss", 0.33), trained("mse_loss", 0.42), trained("l1_loss", 0.30)
    assert not comparable(absolute, squared)
    assert comparable(absolute, rival)
    assert not disappoints(squared, absolute, [replace(rival, steps=30)], 0.5)
    assert "fewer steps" in disappoints(absolute, absolute, [replace(rival, steps=30)], 0.5)
    assert promise(squared, absolute) > promise(absolute, absolute)
    # What training shows is of other samples at each step: ahead is who is ahead after as many steps.
    alike = replace(absolute, curve=((25, 0.30), (50, 0.33)))
    assert not disappoints(alike, absolute, [replace(rival, steps=30)], 0.5)
    assert cured(squared, absolute)


def test_what_an_error_is_put_down_to_is_cured_however_mildly_it_is_put() -> None:
    cause = Diagnosis("parameters-not-trained", "warning", 0.7, "", 0, {}, (), (), "")
    other = Diagnosis("overfitting", "warning", 0.7, "", 0, {}, (), (), "")
    harm = Diagnosis("constant-prediction", "error", 0.7, "", 0, {}, ("parameters-not-trained",), (), "")
    program = Scripted(0.5, None)
    ledger, source = Ledger(program, Wishes(), "akeso"), program.source
    left, _ = uncovered(ledger, source, replace(source, diagnoses=(cause, other, harm)))
    assert left == [cause, harm]
    assert uncovered(ledger, source, replace(source, diagnoses=(cause, other, replace(harm, because_of=()))))[
        0
    ] == [replace(harm, because_of=())]


def test_a_measure_apart_from_the_loss_counts_whatever_loss_is_trained_with() -> None:
    def trained(loss: str, name: str, value: float) -> Attempt:
        history = History(planned_steps=100)
        history.facts["loss"] = loss
        for step in range(60):
            history.add(step, "loss", "", 19.0)
            history.add(step, "baseline_loss", "", 20.0)
        return replace(Scripted(0.5, None).source, metric_name=name, metric=value, higher_is_better=False, steps=60,
                       curve=((50, value),), history=history, diagnoses=())  # fmt: skip

    untreated = trained("mse_loss", "train_loss", 18_000.0)  # ended before it showed more
    robust, squared = trained("huber_loss", "val_mae", 0.7), trained("mse_loss", "val_mae", 9.0)
    assert promise(robust, untreated) > promise(squared, untreated)


def test_a_loss_that_cannot_be_is_no_figure_to_hold_a_cure_against() -> None:
    """Given probabilities in the place of their logarithms it goes below zero: rightly computed it comes down to it."""

    def trained(loss: str, end: float, name: str = "train_loss") -> Attempt:
        history = History(planned_steps=100)
        history.facts["loss"] = loss
        for step in range(60):
            history.add(step, "loss", "", 2.0 + (end - 2.0) * min(1.0, step / 30))
        return replace(Scripted(0.5, None).source, metric_name=name, metric=end, higher_is_better=False, steps=60,
                       curve=((50, end),), history=history, diagnoses=())  # fmt: skip

    for name in ("train_loss", "val_loss"):
        astray, right = trained("ctc_loss", -4.6, name), trained("ctc_loss", 0.03, name)
        assert not comparable(astray, right)
        assert learnt_more(right, astray)
        assert cured(right, astray)
        assert not out_of_reach(astray, right)
        assert comparable(astray, trained("ctc_loss", -4.7, name))  # which is no cure
    # Other losses may well be below zero, and what is told apart from the loss is what it is.
    assert comparable(trained("gaussian_nll_loss", -1.0), trained("gaussian_nll_loss", 0.1))
    assert not learnt_more(trained("gaussian_nll_loss", 0.1), trained("gaussian_nll_loss", -1.0))
    assert comparable(trained("ctc_loss", -4.6, "error"), trained("ctc_loss", 0.03, "error"))


class Breaking(Resumable):
    """A regression that ends in NaN unless its data are seen to, and is learnt well once its output is, too."""

    FAULTS = tuple(Diagnosis(name, "error", 0.95, "", 0, {}, (), (), "")
                   for name in ("abnormal-data", "improper-output-activation", "non-finite"))  # fmt: skip

    def attempt(self, prescription: Prescription, **options: Any) -> Attempt:
        made = super().attempt(prescription, **options)
        left = [found for found in self.FAULTS if not self._cures(prescription, found.problem)]
        broken = any(found.problem == "non-finite" for found in left)
        level = 500.0 if left else 100.0
        history = History(planned_steps=100)
        history.facts.update({"loss": "mse_loss", "task": "regression", "output_activation": "tanh",
                              "target_kind": "values", "classes": 1})  # fmt: skip
        history.add(0, "input_nonfinite", "", 0.1)
        for step in range(made.steps):
            history.add(step, "loss", "", math.nan if broken else level)
            history.add(step, "baseline_loss", "", 1000.0)
        whole = made.whole and not broken
        return replace(
            made, history=history, diagnoses=tuple(left), higher_is_better=whole,
            metric=None if broken else (0.9 if not left else 0.5) if whole else level,
            metric_name="" if broken else "r2" if whole else "train_loss",
            curve=() if broken else ((made.steps, 0.9 if whole else level),), chance=None,
        )  # fmt: skip

    def _cures(self, cure: Prescription, problem: str) -> bool:
        kind = "substitute-activation" if problem == "improper-output-activation" else "scale-inputs"
        return bool(cure.of(kind))


def test_any_figure_is_better_than_none_and_a_second_fault_is_treated_whatever_the_units() -> None:
    outcome = akeso.treat(Breaking(lambda cure, steps: 0.5), budget=4.0)
    assert outcome.status == "repaired"
    assert outcome.after == 0.9
    assert outcome.prescription.of("scale-inputs")
    assert outcome.prescription.of("substitute-activation")
    alone = akeso.treat(Breaking(lambda cure, steps: 0.5), never=["substitute-activation"])
    assert alone.after == 0.5
    assert alone.status == "improved"


class Forgetful(Resumable):
    """One that has lost its paused attempts: going on with one costs all of its steps again."""

    def attempt(self, prescription: Prescription, **options: Any) -> Attempt:
        made = super().attempt(prescription, **options)
        return replace(made, spent=made.steps)


def test_the_best_cure_is_run_to_its_end_also_where_going_on_cost_more_than_was_kept_for_it() -> None:
    outcome = akeso.treat(Forgetful(lambda cure, steps: 0.9 if cure.of("reinitialise") else 0.5))
    assert outcome.status == "repaired"
    assert outcome.after == 0.9
    assert outcome.best is not None
    assert outcome.best.whole


class Fading(Resumable):
    """One whose attempts end below where they were, and still have the weights of then."""

    def at_its_best(self, attempt: Attempt) -> Attempt:
        best = max(value for _, value in attempt.curve)
        return replace(attempt, prescription=attempt.prescription.plus(KEEP), metric=best, spent=0)


KEEP = Edit("keep-best-weights")


def test_a_cure_that_fell_back_is_handed_back_as_it_was_at_its_best() -> None:
    def program() -> Fading:
        return Fading(lambda cure, steps: 0.9 if steps <= 50 else 0.8)

    outcome = akeso.treat(program())
    assert outcome.status == "repaired"
    assert outcome.prescription[-1] == KEEP
    assert outcome.after == 0.9
    assert outcome.cost.steps <= 3.0
    without = akeso.treat(program(), never=["keep-best-weights"])
    assert without.after == 0.8
    assert KEEP not in without.prescription
    assert akeso.treat(Fading(lambda cure, steps: 0.805 if steps <= 50 else 0.8)).prescription[-1] != KEEP


def test_a_cure_that_is_no_better_even_at_its_best_is_told_once() -> None:
    outcome = akeso.treat(Fading(lambda cure, steps: 0.52 if steps <= 50 else 0.4), budget=3.0)
    tried = [tuple(edit for edit in one.attempt.prescription if edit != KEEP) for one in outcome.attempts]
    assert len(set(tried)) == len(tried)
    assert any("0.52 is not better than 0.5 beyond noise" in one.verdict for one in outcome.attempts)


def test_where_nothing_helps_the_untreated_model_is_handed_back_at_its_best() -> None:
    class Untreatable(Fading):
        def attempt(self, prescription: Prescription, *, seed: int | None = None, max_steps: int | None = None,
                    stop_on_error: bool = False) -> Attempt:  # fmt: skip
            self.untreated = 0.9 if (max_steps or 100) <= 50 else 0.5
            return super().attempt(prescription, max_steps=max_steps)

    outcome = akeso.treat(Untreatable(lambda cure, steps: 0.4))
    assert outcome.status == "improved"
    tried = [attempt.attempt.prescription for attempt in outcome.attempts]
    assert len(set(tried)) == len(tried)
    assert outcome.prescription == (KEEP,)
    assert (outcome.before, outcome.after) == (0.5, 0.9)


class Suspected(Resumable):
    """One that starts like its cure, and whose diagnosis is as sure as is said."""

    def __init__(self, confidence: float) -> None:
        super().__init__(lambda cure, steps: 0.5 if steps <= 20 else 0.8)
        found = self.source.diagnoses
        self.source = replace(self.source, diagnoses=tuple(replace(d, confidence=confidence) for d in found))

    def attempt(self, prescription: Prescription, *, seed: int | None = None, max_steps: int | None = None,
                stop_on_error: bool = False) -> Attempt:  # fmt: skip
        self.untreated = 0.5 if (max_steps or 100) <= 20 else 0.8
        return super().attempt(prescription, max_steps=max_steps)


@pytest.mark.parametrize(("confidence", "status"), [(0.8, "failed"), (0.97, "repaired")])
def test_what_was_only_suspected_is_run_past_where_its_cure_began_to_learn(
    confidence: float, status: str
) -> None:
    outcome = akeso.treat(Suspected(confidence))
    assert outcome.status == status
    if status == "failed":
        assert outcome.before == outcome.after == 0.8
        assert outcome.before_whole


def test_what_was_found_early_and_passed_by_itself_is_run_to_its_end() -> None:
    """A cure that is far ahead at first proves nothing where nothing is wrong any more."""

    class Passing(Suspected):
        def attempt(self, prescription: Prescription, *, seed: int | None = None, max_steps: int | None = None,
                    stop_on_error: bool = False) -> Attempt:  # fmt: skip
            made = super().attempt(prescription, max_steps=max_steps)
            early = made.steps <= 20
            if prescription:
                return made
            value = 0.3 if made.steps < 90 else 0.9
            return replace(
                made, metric=value, curve=((made.steps, value),), diagnoses=made.diagnoses if early else ()
            )

    outcome = akeso.treat(Passing(0.8), budget=3.0)
    assert outcome.status == "healthy"
    assert outcome.before == outcome.after == 0.9
    assert outcome.before_whole


def test_ctrl_c_hands_back_the_best_so_far() -> None:
    answers = iter([0.9])
    program = Scripted(0.5, lambda cure: next(answers, KeyboardInterrupt()))
    outcome = akeso.treat(program)
    assert outcome.interrupted
    assert outcome.after == 0.9
    assert outcome.status == "improved"


def test_who_learnt_next_to_nothing_is_not_healthy_because_a_finding_passed() -> None:
    class Passing(Suspected):
        def attempt(self, prescription: Prescription, *, seed: int | None = None, max_steps: int | None = None,
                    stop_on_error: bool = False) -> Attempt:  # fmt: skip
            made = super().attempt(prescription, max_steps=max_steps)
            made = replace(made, metric=0.5, curve=((made.steps, 0.5),))
            return replace(made, diagnoses=()) if made.whole and not prescription else made

    outcome = akeso.treat(Passing(0.5))
    assert outcome.status == "failed"
    assert any(note.startswith("before its end:") for note in outcome.notes)


def test_what_the_rules_of_the_paper_do_not_see_is_not_healthy_for_that() -> None:
    class Unseen(Scripted):
        def attempt(self, prescription: Prescription, *, seed: int | None = None, max_steps: int | None = None,
                    stop_on_error: bool = False) -> Attempt:  # fmt: skip
            made = super().attempt(prescription, max_steps=max_steps)
            return replace(made, history=History(planned_steps=100))

    outcome = akeso.treat(Unseen(0.5, lambda cure: 0.5), plan="autotrainer")
    assert outcome.status == "failed"
    assert outcome.diagnoses


def test_what_is_as_good_as_was_asked_for_is_left_alone() -> None:
    outcome = akeso.treat(Suspected(0.9), target=0.2)
    assert outcome.status == "healthy"
    assert outcome.before_whole
    assert not outcome.prescription
    assert akeso.treat(Suspected(0.9), target=0.99).prescription


def _rated(value: float, cure: Prescription, steps: int = 40) -> Attempt:
    history = History(planned_steps=400)
    for step in range(steps):
        history.add(step, "loss", "", 1.0 - value / 2)
        history.add(step, "baseline_loss", "", 1.0)
    history.facts["val_size"] = 600
    return Attempt(cure, 0, steps, 1.0, value, "val_accuracy", history=history, curve=((steps, value),))


LOWER = Prescription([Edit("set-learning-rate", "", {"to": 0.01})])
ADAM = Prescription([Edit("substitute-optimizer", "", {"to": "Adam", "lr": 0.001})])
CLIPPED = Prescription([Edit("clip-gradient", "", {"kind": "norm", "limit": 1.0})])


def test_where_the_rate_is_the_fault_a_lower_one_is_held_against_another_optimizer_and_taken_if_as_good() -> (
    None
):
    too_high = Diagnosis("learning-rate-too-high", "error", 0.9, "", 0, {}, (), (), "")
    untreated = replace(_rated(0.3, Prescription()), diagnoses=(too_high,))
    adam, clipped, lower = _rated(0.76, ADAM), _rated(0.75, CLIPPED), _rated(0.72, LOWER)
    assert closest([adam, clipped, lower], untreated) == [adam, lower]
    assert smallest_first([adam, lower, clipped], untreated) == [lower, adam, clipped]
    behind = _rated(0.6, LOWER)
    assert smallest_first([adam, behind, clipped], untreated) == [adam, behind, clipped]
    of_another_kind = replace(untreated, diagnoses=(replace(too_high, problem="vanishing-gradient"),))
    assert closest([adam, clipped, lower], of_another_kind) == [adam, clipped]
    assert smallest_first([adam, lower], of_another_kind) == [adam, lower]


def test_a_cure_that_ends_below_where_another_was_is_outdone() -> None:
    assert outdone(_rated(0.7, LOWER, 400), [_rated(0.8, ADAM)])
    assert not outdone(_rated(0.79, LOWER, 400), [_rated(0.8, ADAM)])
    assert not outdone(_rated(0.7, LOWER, 400), [])


class Endless(Scripted):
    """One that does not say how long it will be."""

    @property
    def planned_steps(self) -> Any:
        return None


def test_a_training_that_was_ended_early_is_not_taken_for_short() -> None:
    ledger = Ledger(Endless(0.5, None), Wishes(2.0, None, (), (), False, None, lambda tried: None), "akeso")
    ledger.untreated = replace(_rated(0.3, Prescription(), 15), planned_steps=None)
    assert ledger.planned == 400
    ledger.untreated = replace(_rated(0.3, Prescription(), 150), planned_steps=None)
    assert ledger.planned == 600


def test_a_worse_start_is_no_merit_where_only_the_first_loss_says_what_there_is_to_learn() -> None:
    def trained(first: float, last: float, accuracy: float, *cure: Edit) -> Attempt:
        history = History(planned_steps=100)
        for step in range(60):
            history.add(step, "loss", "", first if step < 2 else last)
        return Attempt(
            Prescription(cure), 0, 60, 0.1, accuracy, "accuracy", True, history, (), curve=((60, accuracy),)
        )

    untreated = trained(0.5, 0.5, 0.5)
    guarded = trained(0.5, 0.13, 0.80, Edit("guard-functions"))
    redrawn = trained(2.5, 0.15, 0.76, Edit("reinitialise", "", {"scheme": "auto"}), Edit("guard-functions"))
    assert promise(guarded, untreated) > promise(redrawn, untreated)


def test_where_values_are_kept_from_breaking_and_that_helps_nothing_else_is_tried() -> None:
    class Broken(Resumable):
        def attempt(self, prescription, *, seed=None, max_steps=None, stop_on_error=False):
            made = super().attempt(prescription, max_steps=max_steps)
            ill = Diagnosis("non-finite", "error", 0.99, "", 5, {}, (), (), "")
            return replace(made, diagnoses=() if prescription.of("guard-functions") else (ill,))

    def learns(cure: Prescription, steps: int) -> float:
        return 0.5 + 0.003 * steps if cure.of("guard-functions") else 0.5

    outcome = akeso.treat(Broken(learns), budget=4.0)
    assert [edit.remedy for edit in outcome.prescription] == ["guard-functions"]
    assert not any(tried.attempt.prescription.of("reinitialise") for tried in outcome.attempts)
