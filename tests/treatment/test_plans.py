"""Plans on real, small trainings."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from sklearn.datasets import make_circles
from torch import nn

import akeso
from akeso.diagnosis import Diagnosis
from akeso.errors import BadInput
from akeso.history import History
from akeso.treatment import PLANS, Attempt, Edit, Outcome, Prescription, Program, Tried, Wishes
from akeso.treatment.plans.judging import comparable, cured, disappoints, learnt_more, out_of_reach
from akeso.treatment.plans.ledger import Ledger, better
from akeso.treatment.plans.race import promise
from akeso.treatment.recipe_program import RecipeProgram

_x, _y = make_circles(600, noise=0.1, factor=0.5, random_state=1)
X, Y = torch.tensor(_x, dtype=torch.float32), torch.tensor(_y)


def _deep(activation: type[nn.Module], depth: int = 6) -> nn.Module:
    parts: list[nn.Module] = [nn.Linear(2, 8), activation()]
    for _ in range(depth):
        parts += [nn.Linear(8, 8), activation()]
    return nn.Sequential(*parts, nn.Linear(8, 2))


def sick(**changes: Any) -> akeso.Recipe:
    parts: dict[str, Any] = {
        "model": lambda: _deep(nn.Sigmoid), "train": (X[:400], Y[:400]), "val": (X[400:], Y[400:]),
        "loss": nn.CrossEntropyLoss(), "optimizer": "Adam", "lr": 5e-3, "epochs": 20, "batch_size": 40,
    }  # fmt: skip
    return akeso.Recipe(**{**parts, **changes})


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return akeso.treat(sick())


def test_a_vanishing_gradient_is_cured_within_the_budget(outcome: Outcome) -> None:
    assert outcome.status == "repaired"
    assert "vanishing-gradient" in [found.problem for found in outcome.diagnoses]
    assert outcome.before is not None
    assert outcome.after is not None
    assert outcome.before < 0.6 < 0.9 < outcome.after
    assert not outcome.before_whole
    assert outcome.cost.steps <= 3.0
    with torch.no_grad():
        share = (outcome.model.eval()(X[400:]).argmax(1) == Y[400:]).float().mean()
    assert float(share) == pytest.approx(outcome.after)


def test_the_outcome_is_the_json_that_is_promised(outcome: Outcome) -> None:
    told = json.loads(json.dumps(outcome.to_dict()))
    keys = {
        "schema",
        "status",
        "metric",
        "higher_is_better",
        "before",
        "after",
        "diagnoses",
        "prescription",
        "attempts",
        "cost",
    }
    assert keys <= set(told)
    assert told["metric"] == "val_accuracy"
    assert {"prescription", "steps", "metric", "verdict"} <= set(told["attempts"][0])
    assert set(told["cost"]) == {"steps", "seconds"}
    assert told["attempts"][0]["verdict"].startswith("the untreated run")
    assert "repaired" in str(outcome)


def test_the_same_treatment_twice_gives_the_same_bits(outcome: Outcome) -> None:
    again = akeso.treat(sick())
    assert again.prescription == outcome.prescription
    assert [tried.verdict for tried in again.attempts] == [tried.verdict for tried in outcome.attempts]
    states = (again.model.state_dict(), outcome.model.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[1])


def test_a_healthy_program_is_left_alone_after_one_run() -> None:
    told: list[Tried] = []
    healthy = akeso.treat(sick(model=lambda: _deep(nn.ReLU, 1)), report=told.append)
    assert healthy.status == "healthy"
    assert healthy.cost.steps == pytest.approx(1.0)
    assert healthy.prescription == ()
    assert healthy.before == healthy.after
    assert {tried.attempt.prescription for tried in told} == {Prescription()}


def test_only_and_never_bind_and_a_dry_run_trains_nothing_else() -> None:
    never = akeso.treat(sick(), never=["substitute-activation"], budget=1.2)
    assert not any(tried.attempt.prescription.of("substitute-activation") for tried in never.attempts)
    dry = akeso.treat(sick(), dry_run=True, only=["insert-normalisation", "reinitialise"])
    assert len(dry.attempts) == 1
    assert any("insert-normalisation" in note for note in dry.notes)
    assert not any("substitute" in note for note in dry.notes)


@pytest.mark.parametrize("plan", ["autotrainer", "reseed", "random"])
def test_other_plans_keep_to_the_budget(plan: str) -> None:
    other = akeso.treat(sick(epochs=10), plan=plan, budget=1.5)
    assert other.plan == plan
    assert other.cost.steps <= 2.6
    assert other.status in ("repaired", "improved", "failed")


def test_arguments_are_checked() -> None:
    for wrong, message in (
        ({"plan": "hope"}, "hope"),
        ({"budget": 0}, "budget"),
        ({"only": ["magic"]}, "magic"),
    ):
        with pytest.raises(BadInput, match=message):
            akeso.treat(sick(), **wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="Recipe"):
        akeso.treat("train.py")  # type: ignore[arg-type]


class Rounding(nn.Module):
    """Gives whole numbers: what everybody wants to see, and nothing can be learnt from."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.body(x)).round()


def test_a_function_at_the_output_that_has_no_name_is_gone_around() -> None:
    targets = Y[:, None].float()
    outcome = akeso.treat(
        sick(
            model=Rounding,
            train=(X[:400], targets[:400]),
            val=(X[400:], targets[400:]),
            loss=nn.BCELoss(),
            lr=2e-2,
        )
    )
    assert outcome.status == "repaired"
    assert outcome.prescription[0].to_dict() == {
        "remedy": "substitute-activation", "from": "everything", "to": "Sigmoid", "where": "output",
    }  # fmt: skip
    assert outcome.after is not None
    assert outcome.after > 0.9
    with torch.no_grad():
        given = outcome.model.eval()(X[400:])
    assert float(((given > 0.5).float() == targets[400:]).float().mean()) == pytest.approx(outcome.after)
    assert len(given.unique()) > 2


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


def test_a_cure_that_is_not_better_is_not_handed_back() -> None:
    program = Scripted(0.80, lambda cure: 0.805)
    outcome = akeso.treat(program)
    assert outcome.status == "failed"
    assert outcome.prescription == ()
    assert outcome.after == outcome.before == 0.80
    assert any("beyond noise" in tried.verdict for tried in outcome.attempts)


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


def test_a_cure_that_alone_takes_away_what_is_wrong_may_be_slow() -> None:
    """Some tasks show nothing for half of their training, and what is wrong for certain does not pass by itself."""
    source = replace(Scripted(0.5, None).source, metric=0.5, chance=0.5)
    fault = Diagnosis("improper-output-activation", "error", 0.95, "", 3, {}, (), (), "")
    untreated = replace(source, diagnoses=(fault,))
    slow, rival = replace(source, diagnoses=()), replace(source, diagnoses=(fault,))
    assert not disappoints(slow, untreated, [rival], 0.5)
    assert "brought nothing" in disappoints(slow, untreated, [rival, slow], 0.5)
    assert "brought nothing" in disappoints(rival, untreated, [], 0.5)


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


def test_smaller_batches_cost_what_their_samples_cost() -> None:
    """Eight times as many steps over the same samples are one training, not eight."""
    recipe = sick(batch_size=200, epochs=6)
    program = RecipeProgram(recipe)
    ledger = Ledger(program, Wishes(), "akeso")
    cure = Prescription([Edit("set-batch-size", "", {"to": 25})])
    half = ledger.attempt(cure, max_steps=ledger.planned // 2)
    assert half.steps == ledger.planned // 2
    assert half.history.steps == half.steps * program.stretch(cure) == half.steps * 8
    whole = ledger.attempt(cure)
    assert whole.whole
    assert whole.steps == whole.planned_steps == ledger.planned
    assert ledger.close(whole, "repaired").cost.steps == pytest.approx(1.0, abs=0.1)
    assert program.stretch(Prescription([Edit("set-batch-size", "", {"to": 1024})])) == 1.0
    program.close()


def test_ctrl_c_hands_back_the_best_so_far() -> None:
    answers = iter([0.9])
    program = Scripted(0.5, lambda cure: next(answers, KeyboardInterrupt()))
    outcome = akeso.treat(program)
    assert outcome.interrupted
    assert outcome.after == 0.9
    assert outcome.status == "improved"


def test_every_plan_is_named_as_it_is_called() -> None:
    assert sorted(PLANS) == ["akeso", "autotrainer", "random", "reseed"]
    assert all(plan.name == name for name, plan in PLANS.items())
