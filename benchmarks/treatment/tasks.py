"""What is run: one case, one seed, one way of treating it."""

from __future__ import annotations

import time
from typing import Any

import torch

from akeso.remedies.autotrainer import ORDERS, solution
from akeso.remedies.candidates import treatable
from akeso.treatment import PLANS, Prescription, Wishes
from akeso.treatment.outcome import Outcome
from akeso.treatment.program import Attempt
from akeso.treatment.recipe import Recipe
from akeso.treatment.recipe_program import RecipeProgram
from benchmarks import corpus

#: AUTOTRAINER's eight problems, in the order of its tables, with its abbreviations.
EIGHT = {
    "vanishing-gradient": "VG", "exploding-gradient": "EG", "dying-relu": "DR", "oscillating-loss": "OL",
    "slow-convergence": "SC", "improper-output-activation": "IO", "improper-loss": "IL", "abnormal-data": "AD",
}  # fmt: skip
Result = dict[str, Any]


def chosen(split: str, names: tuple[str, ...] = ()) -> list[str]:
    """The sick cases that can be put as a recipe, of one half or of both."""
    found = []
    for name, case in corpus.cases().items():
        if not case.sick or not case.is_recipe or case.problem not in EIGHT:
            continue
        part = "held-out" if corpus.held_out(name) else "open"
        if (split in ("all", part)) and (not names or name in names):
            found.append(name)
    return found


def recipe(name: str, variant: corpus.Variant, seed: int) -> Recipe:
    """A case as a user would hand it to akeso."""
    parts = corpus.case(name).parts(variant, seed)
    return Recipe(
        parts.model, parts.train, parts.val, loss=parts.loss, optimizer=parts.optimizer, epochs=parts.epochs,
        batch_size=parts.batch_size, scheduler=parts.schedule, metric=parts.metric, threshold=parts.threshold,
        seed=seed, time_limit=600.0,
    )  # fmt: skip


def run(case: str, seed: int, kind: str, budget: float) -> Result:
    """Run one task; the result is plain JSON."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    if kind == "plain":
        result = _plain(case, seed)
    elif kind == "alone":
        result = _alone(case, seed)
    else:
        result = _treated(case, seed, kind, budget)
    return {"case": case, "seed": seed, "kind": kind, "total_seconds": time.perf_counter() - began, **result}


def _plain(case: str, seed: int) -> Result:
    """The untreated run to its end, and the expert's fix."""
    sick = RecipeProgram(recipe(case, "sick", seed)).attempt(Prescription())
    fixed = RecipeProgram(recipe(case, "fixed", seed)).attempt(Prescription())
    if sick.metric is None or fixed.metric is None:
        raise RuntimeError(f"a plain run brought no metric: {sick.failed or fixed.failed}")
    return {
        "before": sick.metric, "expert": fixed.metric, "seconds": sick.seconds, "found": list(sick.problems),
        "steps": sick.planned_steps,
    }  # fmt: skip


def _treated(case: str, seed: int, plan: str, budget: float) -> Result:
    program = RecipeProgram(recipe(case, "sick", seed))
    outcome = PLANS[plan]().run(program, Wishes(budget=budget))
    program.close()
    if not any(tried.attempt.steps for tried in outcome.attempts):
        raise RuntimeError(f"no attempt trained: {outcome.attempts[0].attempt.failed}")
    return {
        "status": outcome.status, "after": outcome.after, "before_known": outcome.before,
        "before_whole": outcome.before_whole, "prescription": outcome.prescription.to_list(),
        "left": _left(outcome), "found": [one.problem for one in outcome.diagnoses], "cost": outcome.cost.steps,
        "seconds": outcome.cost.seconds, "attempts": len(outcome.attempts),
    }  # fmt: skip


def _left(outcome: Outcome) -> list[str] | None:
    """The problems of the model handed back; None where that is the untreated one."""
    best = outcome.best
    return None if best is None or not outcome.prescription else _problems(best)


def _problems(attempt: Attempt) -> list[str]:
    return [found.problem for found in treatable(attempt.diagnoses)]


def _alone(case: str, seed: int) -> Result:
    """Each of AUTOTRAINER's solutions for the case's problem, on its own."""
    problem = corpus.case(case).problem
    assert problem is not None
    program = RecipeProgram(recipe(case, "sick", seed))
    look = program.attempt(Prescription(), max_steps=max(20, (program.planned_steps or 200) // 8))
    solutions: Result = {}
    for code in ORDERS[problem]:
        doses = solution(code, problem, look.history, seed)
        attempt = program.attempt(doses[0])
        made = attempt.failed is None and len(attempt.refused) < len(attempt.prescription)
        solutions[code] = {
            "after": attempt.metric if made else None,
            "left": _problems(attempt),
            "made": made,
        }
    program.close()
    return {"solutions": solutions}
