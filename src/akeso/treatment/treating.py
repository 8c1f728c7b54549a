"""The one call that treats a program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from akeso.errors import BadInput
from akeso.remedies.edit import REMEDIES
from akeso.treatment.outcome import Outcome, Tried
from akeso.treatment.plans import PLANS, Plan, Report, Wishes
from akeso.treatment.program import Program

if TYPE_CHECKING:
    from akeso.treatment.recipe import Recipe


def treat(
    program: Recipe | Program,
    *,
    plan: str | Plan = "akeso",
    budget: float = 2.0,
    target: float | None = None,
    only: Sequence[str] = (),
    never: Sequence[str] = (),
    dry_run: bool = False,
    seed: int | None = None,
    report: Report | None = None,
) -> Outcome:
    """Find out what is wrong with a training, cure it, and prove the cure.

    Args:
        program: A :class:`akeso.Recipe`, or any other program that can be run again.
        plan: ``"akeso"``, ``"autotrainer"``, ``"reseed"``, ``"random"``, or a plan of your own.
        budget: What may be spent on top of the untreated run, in multiples of one plain training.
        target: A value of the metric that is good enough.
        only: Remedies that may be used; all when empty.
        never: Remedies that must not be used.
        dry_run: Make the untreated run alone and say in ``notes`` what would be tried.
        seed: Another seed than the program's own.
        report: Called with every attempt as it ends.

    Returns:
        The outcome: status, metric before and after, prescription, every attempt with its verdict, cost, and
        the model. It is never worse than the untreated one under the plan "akeso". A program that is healthy
        is left alone after one run. Ctrl-C hands back the best so far.

    Example:
        >>> import torch, akeso
        >>> x = torch.linspace(-1, 1, 96).unsqueeze(1)
        >>> recipe = akeso.Recipe(
        ...     lambda: torch.nn.Linear(1, 1), (x, 2 * x), (x, 2 * x),
        ...     loss="mse_loss", optimizer="SGD", lr=0.2, epochs=20, batch_size=8,
        ... )
        >>> akeso.treat(recipe).status
        'healthy'
    """
    if isinstance(plan, str):
        if plan not in PLANS:
            raise BadInput(f"plan must be one of {', '.join(PLANS)}, but got {plan!r}.")
        plan = PLANS[plan]()
    if not isinstance(budget, int | float) or not budget > 0:
        raise BadInput(f"budget must be a positive multiple of one plain training, but got {budget}.")
    if target is not None and (not isinstance(target, int | float) or math.isnan(target)):
        raise BadInput(f"target must be a number that the metric is to reach, but got {target!r}.")
    if isinstance(only, str) or isinstance(never, str):
        raise BadInput("only and never are lists of remedies: only=['reinitialise'].")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise BadInput(f"seed must be a whole number, but got {seed!r}.")
    for name in (*only, *never):
        if name not in REMEDIES:
            raise BadInput(f"There is no remedy {name!r}. Known remedies: {', '.join(sorted(REMEDIES))}.")
    both = sorted(set(only) & set(never))
    if both:
        raise BadInput(
            f"only and never both name {', '.join(both)}: nothing is left to try. Take it out of one."
        )
    wishes = Wishes(budget, target, tuple(only), tuple(never), dry_run, seed, report or _nobody)
    if isinstance(program, Program):
        return plan.run(program, wishes)
    from akeso.treatment.recipe import Recipe
    from akeso.treatment.recipe_program import RecipeProgram

    if not isinstance(program, Recipe):
        raise BadInput(f"treat needs an akeso.Recipe or a Program, but got {type(program).__name__}.")
    runner = RecipeProgram(program)
    try:
        return plan.run(runner, wishes)
    finally:
        runner.close()


def _nobody(tried: Tried) -> None:
    """Tell nobody."""
