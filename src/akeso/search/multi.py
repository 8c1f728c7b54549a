"""Several objectives: a trial is hopeless when even its optimistic end is worse than a finished one in all."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from akeso.history import Floats
from akeso.search._safely import safely
from akeso.search.curves import since
from akeso.search.judge import Judge
from akeso.search.traits import NOTHING, Traits
from akeso.search.verdict import CONTINUE, Action, Verdict


def judge_many(
    judges: Sequence[Judge], costs: Sequence[Floats], epochs: int, traits: Traits = NOTHING
) -> Verdict:
    """What follows from the curves of a trial with several objectives.

    For every objective the forecast gives a cost that the trial undercuts with probability at most the
    profile's rate divided by the number of objectives. When one finished trial that is feasible is better than all of
    these bounds at once, the trial ends up dominated with at least the profile's certainty. That is not known of a late
    learner, which has not moved in any objective yet, and one that falls as fast as never before is taken to go on so
    at half of that pace.
    """
    epoch = len(costs[0]) - 1
    if epoch < 0:
        return CONTINUE
    if any(not math.isfinite(curve[-1]) for curve in costs):
        text = f"A value reported after epoch {epoch + 1} is not finite; nothing can be compared with it."
        action: Action = "finish" if unsurpassed(judges, costs) else "stop"
        return Verdict(action, "non-finite-value", "non-finite", epoch=epoch, sentence=text)
    silent = judges[0].knowledge.silent(traits)
    if epoch >= epochs - 1 or epoch < silent:
        return CONTINUE
    known = [
        (judge, judge.forecast, since(curve, silent))
        for judge, curve in zip(judges, costs, strict=True)
        if judge.forecast is not None
    ]
    if len(known) < len(judges) or all(
        judge.may_wake(forecast, curve, traits) for judge, forecast, curve in known
    ):
        return CONTINUE
    floors = [
        min(
            forecast.floor(curve, traits, rate=(judge.profile.false_stops or 0.02) / len(judges)),
            forecast.at_its_pace(curve),
        )
        for judge, forecast, curve in known
    ]
    ends = np.stack([judge.knowledge.curves[:, -1] for judge in judges], axis=1)
    better = np.all(ends < np.array(floors), axis=1) & judges[0].knowledge.feasible
    if not bool(np.any(better)):
        return CONTINUE
    shown = {
        f"objective {i}": _value(judge, floor)
        for i, (judge, floor) in enumerate(zip(judges, floors, strict=True))
    }
    count = int(better.sum())
    who = (
        "one finished trial of this study is" if count == 1 else f"{count} finished trials of this study are"
    )
    text = (
        f"After {epoch + 1} of {epochs} epochs {who} better in all objectives than the trial can be expected "
        "to become."
    )
    return Verdict("stop", "forecast", "hopeless-curve", epoch=epoch, sentence=text, evidence=shown)


def among_best(judges: Sequence[Judge], costs: Sequence[Floats]) -> bool | None:
    """Whether a trial with several objectives is among the best; None for one objective, of which its judge knows."""
    return safely(lambda: unsurpassed(judges, costs), False) if len(costs) > 1 else None


def unsurpassed(judges: Sequence[Judge], costs: Sequence[Floats]) -> bool:
    """Whether no feasible finished trial is as good in all objectives as the trial stood when all were last finite.

    Such a trial is among the best of its study, whatever is found in its network. False while too few have finished.
    """
    reports = np.stack(costs, axis=1)
    reports = reports[np.isfinite(reports).all(1)]
    if not len(reports) or any(len(judge.knowledge) < judge.profile.warm_up for judge in judges):
        return False
    ends = np.stack([judge.knowledge.curves[:, -1] for judge in judges], axis=1)
    return not bool(np.any(np.all(ends <= reports[-1], axis=1) & judges[0].knowledge.feasible))


def _value(judge: Judge, cost: float) -> float:
    return -cost if judge.maximize else cost
