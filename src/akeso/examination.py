"""From a history to ranked diagnoses: run the detectors, find the roots, say what could not be checked.

>>> from akeso.history import History
>>> examine(History()).status
'healthy'
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from akeso.advice import advice
from akeso.catalogue import PROBLEMS, causes_of
from akeso.detectors.stages import last_stage
from akeso.detectors.standing import losses_of_their_own, no_measure, summed_over_episodes
from akeso.diagnosis import SEVERITIES, Diagnosis, Symptom
from akeso.history import History
from akeso.profiles import Profile, load_profile

#: A problem seen with less certainty than this is not taken as the cause of others.
_CAUSE: Final = 0.6
#: What certainty is worth against a place in the causal order, and against an onset at the end of the run.
_RANK: Final = 0.01
_ONSET: Final = 0.15
#: The order in which the papers list their problems, for those that are exposed together.
_TABLE: Final = (
    "vanishing-gradient", "exploding-gradient", "dying-relu", "oscillating-loss", "slow-convergence",
    "improper-output-activation", "improper-loss", "abnormal-data", "no-more-gain",
)  # fmt: skip
#: Consequences that say nothing new once their cause is named.
_REDUNDANT: Final = frozenset(
    {"unlearnable-labels", "no-more-gain", "class-imbalance", "validation-mismatch"}
)
#: How many consequences are named beside the roots.
_CONSEQUENCES: Final = 3
#: What is said of a part of the watch that failed.
SWITCHED_OFF: Final = "switched off"
#: What is said where there is, or may be, such a loop.
BY_HAND: Final = "loops that are written by hand on TensorFlow or JAX are not watched"
#: What is said of a run whose steps were seen, but not what they came from.
NO_LOSS: Final = "no backward pass was seen: the training could not be judged"
#: Steps under which curves are not judged.
_SHORT: Final = 30


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found, roots first, and what could not be checked."""

    diagnoses: tuple[Diagnosis, ...]
    not_checked: tuple[str, ...]
    profile: str = "akeso"

    @property
    def status(self) -> Literal["healthy", "findings"]:
        """``"healthy"`` when there is nothing above info."""
        serious = any(diagnosis.severity != "info" for diagnosis in self.diagnoses)
        return "findings" if serious else "healthy"


def examine(history: History, profile: str | Path | Profile = "akeso") -> Examination:
    """Judge a history with the detectors and thresholds of a profile."""
    chosen = load_profile(profile)
    symptoms: list[Symptom] = []
    failed: list[str] = []
    start = 0
    if chosen.ranking == "causes":
        history, start = last_stage(history)
    with np.errstate(all="ignore"):
        for detector in chosen.detectors:
            try:
                symptoms += list(detector.detect(history))
            except Exception as problem:  # a detector that fails must not take the others with it
                failed.append(
                    f"{detector.name}: the detector failed ({problem.__class__.__name__}: {problem})"
                )
    merged = _merged(symptoms)
    ranked = _by_cause(merged, history) if chosen.ranking == "causes" else _by_exposure(merged, history)
    before = (f"what another optimizer trained in the first {start} steps",) if start else ()
    return Examination(tuple(ranked), (*failed, *before, *_unseen(history)), chosen.name)


def _merged(symptoms: Iterable[Symptom]) -> dict[str, Symptom]:
    """One symptom per problem: the gravest and surest, since the earliest step of those as grave."""
    merged: dict[str, Symptom] = {}
    for symptom in symptoms:
        known = merged.get(symptom.problem)
        if known is None:
            merged[symptom.problem] = symptom
            continue
        strong, weak = sorted((known, symptom), key=_gravity)
        same = strong.severity == weak.severity
        evidence = {**weak.evidence, **strong.evidence} if same else strong.evidence
        step = min(strong.step, weak.step) if same else strong.step
        merged[symptom.problem] = replace(strong, step=step, evidence=evidence)
    return merged


def _gravity(symptom: Symptom) -> tuple[int, float]:
    return SEVERITIES.index(symptom.severity), -symptom.confidence


def _by_exposure(merged: Mapping[str, Symptom], history: History) -> list[Diagnosis]:
    def order(symptom: Symptom) -> tuple[bool, int, int]:
        place = _TABLE.index(symptom.problem) if symptom.problem in _TABLE else len(_TABLE)
        return symptom.severity == "info", symptom.step, place

    ordered = sorted(merged.values(), key=order)
    framework = _framework(history)
    return [_diagnosis(symptom, (), framework) for symptom in ordered]


def _by_cause(merged: Mapping[str, Symptom], history: History) -> list[Diagnosis]:
    slack = max(20, history.steps // 10)
    first = int(history.series("loss").steps[0]) if history.series("loss") else 0

    def order(symptom: Symptom) -> tuple[int, float]:
        """Gravest first; then surest, earliest and nearest to the user's own code."""
        rank = PROBLEMS[symptom.problem].root_rank if symptom.problem in PROBLEMS else len(PROBLEMS)
        since = max(0.0, (symptom.step - first) / max(1, history.steps - first))
        score = symptom.confidence - _RANK * rank - _ONSET * since
        return SEVERITIES.index(symptom.severity), -score

    because: dict[str, tuple[str, ...]] = {}
    for problem, symptom in merged.items():
        causes = [
            cause
            for cause in causes_of(problem)
            if cause in merged and _explains(merged[cause], symptom, slack)
        ]
        because[problem] = tuple(sorted(causes, key=lambda cause: order(merged[cause])))
    roots = [symptom for problem, symptom in merged.items() if not because[problem]]
    effects = [symptom for problem, symptom in merged.items() if because[problem]]
    grave = [symptom for symptom in roots if symptom.severity != "info"]
    if grave:
        roots = [
            symptom for symptom in roots if symptom.problem not in _REDUNDANT or symptom.severity != "info"
        ]
    effects = [symptom for symptom in effects if symptom.problem not in _REDUNDANT]
    named = sorted(roots, key=order) + _causes_first(sorted(effects, key=order)[:_CONSEQUENCES], because)
    kept = {symptom.problem for symptom in named}
    framework = _framework(history)
    return [
        _diagnosis(symptom, tuple(cause for cause in because[symptom.problem] if cause in kept), framework)
        for symptom in named
    ]


def _causes_first(effects: list[Symptom], because: Mapping[str, tuple[str, ...]]) -> list[Symptom]:
    """Consequences in the given order, except that none comes before one of its own causes."""
    waiting, ordered = list(effects), []
    while waiting:
        names = {symptom.problem for symptom in waiting}
        free = [symptom for symptom in waiting if not names & set(because[symptom.problem])]
        following = (free or waiting)[0]
        waiting.remove(following)
        ordered.append(following)
    return ordered


def _explains(cause: Symptom, effect: Symptom, slack: int) -> bool:
    """Whether one problem was sure enough, grave enough and early enough to have caused another."""
    if cause.severity == "info" or cause.confidence < _CAUSE:
        return False
    if _by_exclusion(effect) and cause.confidence > effect.confidence:
        return True
    return cause.step <= effect.step + slack


def _by_exclusion(effect: Symptom) -> bool:
    """Whether something is said for want of anything else, of a run on the whole: what is surer speaks against it.

    That is so of labels that no validation has told anything about.
    """
    return effect.problem == "unlearnable-labels" and "best_validation_over_constant" not in effect.evidence


def _framework(history: History) -> str:
    """Whose optimizer trains, where that is not torch's own."""
    optimizers = list(history.facts.get("optimizers") or ())
    return str(optimizers[-1].get("framework") or "") if optimizers else ""


def _diagnosis(symptom: Symptom, because: tuple[str, ...], framework: str) -> Diagnosis:
    return Diagnosis(
        symptom.problem,
        symptom.severity,
        float(min(1.0, max(0.0, symptom.confidence))),
        symptom.layer,
        int(symptom.step),
        {key: _plain(value) for key, value in symptom.evidence.items() if value is not None},
        because,
        symptom.helps or advice(symptom.problem, framework),
        symptom.sentence,
    )


def _plain(value: Any) -> Any:
    """Evidence as JSON can hold it."""
    if isinstance(value, (np.floating, float)):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.bool_):
        return bool(value)
    return value


def _unseen(history: History) -> list[str]:
    """What a reader must not take silence about for a good sign."""
    facts, lines = history.facts, []
    loss = history.series("loss")
    if facts.get("by_hand"):
        lines.append(BY_HAND)
    if not loss:
        return [NO_LOSS if history.steps else "no training step was seen", *lines]
    if reason := facts.get("not_looked_into"):
        lines.append(f"the steps could not be looked into ({reason})")
    if len(loss) < _SHORT:
        of = f" of {history.steps}" if history.steps > len(loss) else ""
        steps = "step" if len(loss) == 1 and not of else "steps"
        lines.append(f"only {len(loss)}{of} {steps} seen: too few to judge curves")
    if not history.series("val_loss") and not history.series("val_accuracy"):
        printed = any(name.startswith(("val", "test")) for name in facts.get("printed_metrics") or ())
        where = "validation seen only in what the script prints" if printed else "no validation seen"
        lines.append(f"{where}: overfitting and leakage not checked")
    if facts.get("loss") in (None, "custom"):
        lines.append("loss function not recognised: output, loss and targets not checked against each other")
    elif facts.get("task") in (None, "unknown"):
        lines.append("task not recognised")
    if not history.series("baseline_loss").finite() and "initial_loss_reference" not in facts:
        if summed_over_episodes(history):
            lines.append(
                "the loss is a sum of more terms in one step than in another: its curve is not judged"
            )
        else:
            lines.append("no constant prediction to compare with: harm is judged by the loss curve alone")
    if reason := no_measure(history):
        lines.append(f"{reason}: the loss curve is not judged")
    seen, total = facts.get("layers_seen"), facts.get("layers_total")
    if isinstance(seen, int) and isinstance(total, int) and seen < total:
        lines.append(f"{seen} of {total} layers visible")
    if not history.scopes("grad_l2"):
        lines.append("no gradients per layer seen")
    if not history.scopes("act_std") and not history.scopes("act_linf"):
        lines.append("no activations seen")
    if losses_of_their_own(history):
        lines.append("several optimizers: the loss curve is not judged, for each may have a loss of its own")
    if history.planned_steps is None and not history.finished:
        lines.append("length of the run not known: slowness not judged")
    lines += [
        f"{event.scope or 'a probe'} {SWITCHED_OFF} in step {event.step}"
        for event in history.events_of("probe-off")
    ]
    return lines
