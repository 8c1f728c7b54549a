"""Plans on real, small trainings."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import akeso
from akeso.errors import BadInput
from akeso.treatment import PLANS, Edit, Outcome, Prescription, Tried, Wishes
from akeso.treatment.plans.ledger import Ledger
from akeso.treatment.recipe_program import RecipeProgram
from tests.treatment.programs import X, Y, deep, sick


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
    healthy = akeso.treat(sick(model=lambda: deep(nn.ReLU, 1)), report=told.append)
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


def test_a_budget_for_one_whole_training_is_spent_on_the_first_cure() -> None:
    tight = akeso.treat(sick(), budget=1.0)
    assert tight.status == "repaired"
    assert tight.after is not None
    assert tight.after > 0.8
    assert tight.cost.steps <= 2.0
    less = akeso.treat(sick(), budget=0.5)
    assert less.status == "failed"
    assert any("a budget of 0.5 leaves less than that; give more" in note for note in less.notes)


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


def test_every_plan_is_named_as_it_is_called() -> None:
    assert sorted(PLANS) == ["akeso", "autotrainer", "random", "reseed"]
    assert all(plan.name == name for name, plan in PLANS.items())


def test_a_rate_that_is_wrong_for_every_cure_is_set_on_top_of_one() -> None:
    outcome = akeso.treat(sick(lr=2e-5, seed=1))
    assert outcome.prescription.of("set-learning-rate")
    assert outcome.after is not None
    assert outcome.after > 0.9


@pytest.mark.parametrize("names", [True, False])
def test_whole_numbers_are_taken_for_names_or_quantities_by_what_is_learnt_from_them(names: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    if names:
        x = torch.randint(0, 300, (3000, 30), generator=generator).float()
        y = ((x % 7 == 0).sum(1) > 4).long()
    else:
        signal = torch.randn(3000, 30, generator=generator)
        x, y = (2000 + 400 * signal).round().clamp(0, 4095), (signal[:, :5].sum(1) > 0).long()
    outcome = akeso.treat(
        akeso.Recipe(
            lambda: nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 2)), (x[:2500], y[:2500]),
            (x[2500:], y[2500:]), loss=nn.CrossEntropyLoss(), optimizer="Adam", lr=1e-3, epochs=15, batch_size=50,
        )
    )  # fmt: skip
    assert bool(outcome.prescription.of("embed-inputs")) == names
    assert bool(outcome.prescription.of("scale-inputs")) != names
    assert outcome.after is not None
    assert outcome.after > 0.8
