"""What is written to the trials of a study, and read back from them: attributes in its own storage.

Per trial there are as many writes as reports, one more when it ends, and five when it was ended by a verdict, however
many layers, steps or trials there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from akeso.search.curves import Curve, ValueOf, running_costs
from akeso.search.traits import NOTHING, Traits
from akeso.search.verdict import Verdict

#: One entry per trial that says how it was run and how it ended.
TRIAL = "akeso:trial"
#: The curves of a study with several objectives, which Optuna has no reports for.
CURVE = "akeso:curve"
SHADOW = "akeso:would_have"
USED = "akeso:used"

#: How a trial has ended on which somebody decided.
OUTCOMES: Final[Mapping[str, str]] = {"stop": "stopped", "finish": "finished early"}


def is_maximize(study: Any) -> tuple[bool, ...]:
    """For each objective whether it is maximised."""
    return tuple(direction.name == "MAXIMIZE" for direction in study.directions)


def reason_attributes(verdict: Verdict) -> dict[str, Any]:
    """What is written to a trial that was ended: one readable attribute each."""
    return {
        "akeso:outcome": OUTCOMES[verdict.action],
        "akeso:problem": verdict.problem,
        "akeso:layer": verdict.layer,
        "akeso:step": verdict.step,
        "akeso:sentence": verdict.sentence,
    }


def foreseen(verdict: Verdict) -> dict[str, Any]:
    """What a study remembers of a verdict: the rule that spoke, and the value that was expected, if it said one."""
    expected = verdict.expected(maximize=False)
    known = {"expected": expected} if math.isfinite(expected) else {}
    return {"indicator": verdict.indicator, **known}


def about(trial: Any) -> Mapping[str, Any]:
    """What a trial that was watched, or stopped by our pruner, says of itself; nothing where it was neither."""
    said = trial.user_attrs.get(TRIAL)
    return said if isinstance(said, Mapping) else {}


def constraints_of(trial: Any) -> Mapping[str, float]:
    """The constraints that a trial has set, by name; before Optuna 5 by their place."""
    known: Mapping[str, float] | None = getattr(trial, "constraints", None)
    if known is not None:
        return known
    return {str(place): value for place, value in enumerate(trial.system_attrs.get("constraints") or ())}


def is_feasible(trial: Any) -> bool:
    """Whether a trial violates none of the constraints that it has set."""
    return all(value <= 0 for value in constraints_of(trial).values())


def reason_of(study: Any, trial: Any) -> dict[str, Any]:
    """What our pruner remembered of its verdict on a trial under way; nothing when it did not stop it."""
    if study is None:
        return {}
    # It was given a frozen trial and wrote to the storage: the trial itself does not know.
    known = about(study._storage.get_trial(trial._trial_id))
    if known.get("outcome") != "stopped":
        return {}
    return {key: known[key] for key in ("indicator", "expected") if key in known}


def reported(study: Any, trial: Any) -> list[tuple[int, float]]:
    """The steps and values that a trial under way has reported to its study."""
    return sorted(study._storage.get_trial(trial._trial_id).intermediate_values.items())


def reports_of(trial: Any, objectives: int) -> list[Sequence[float]]:
    """The values a trial reported, in order of its steps, one sequence per report."""
    if objectives > 1:
        return [tuple(map(float, row)) for row in trial.user_attrs.get(CURVE, ())]
    return [(float(value),) for _, value in sorted(trial.intermediate_values.items())]


def curve_of(trial: Any, objective: int, maximize: Sequence[bool], epochs: int, value_of: ValueOf) -> Curve:
    """One objective of an ended trial as a curve."""
    reports = reports_of(trial, len(maximize))
    costs = running_costs(
        [row[objective] for row in reports], maximize=maximize[objective], value_of=value_of
    )
    said = about(trial)
    complete = trial.state.name == "COMPLETE"
    # One that a pruner was to stop and that has completed went on all the same,
    # and so may one whose objective left the block by an error of its own.
    whole = said.get("outcome") != "finished early"
    full = complete and len(costs) == epochs and whole
    if complete and not len(costs):
        # Returned without a report: its value still counts for what the best of the study are.
        value = float(trial.values[objective])
        costs = running_costs([value], maximize=maximize[objective])
    settled = complete and said.get("indicator") == "no-more-gain"
    sign = -1.0 if maximize[objective] else 1.0
    return Curve(
        tuple(costs.tolist()),
        full,
        not complete,
        bool(said.get("guarded", False)),
        settled,
        sign * _number(said.get("expected")),
        traits_of(trial),
        is_feasible(trial),
    )


def traits_of(trial: Any) -> Traits:
    """What is known of an ended trial beside its reports; of one that was repaired, nothing that it began with."""
    said = about(trial)
    if said.get("outcome") == "repaired":
        return NOTHING
    return Traits(trial.params, tuple(map(_number, said.get("losses", ()))), int(said.get("unsettled", 0)))


def _number(known: Any) -> float:
    return math.nan if known is None else float(known)
