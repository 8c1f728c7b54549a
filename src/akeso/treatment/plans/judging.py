"""What is made of attempts: sick or well, cured or not, worth going on with or not."""

from __future__ import annotations

import statistics

import numpy as np

from akeso.diagnosis import Diagnosis
from akeso.remedies.candidates import treatable
from akeso.treatment.plans.ledger import better, margin
from akeso.treatment.plans.race import bounded, breaks, learnt, promise, same_loss, same_measure
from akeso.treatment.program import Attempt

#: Problems with one right cure: where it works there is nothing to compare it with.
CERTAIN = frozenset(
    {
        "shape-broadcast",
        "wrong-axis",
        "missing-zero-grad",
        "parameters-not-trained",
        "wrong-mode",
        "improper-output-activation",
        "improper-loss",
        "abnormal-data",
    }
)
#: A bounded metric that leaves nothing to look for.
GOOD = 0.97
#: Remedies that show in the first loss or in the one after it, where they change anything.
_AT_ONCE = frozenset(
    {
        "substitute-activation", "insert-normalisation", "add-residual", "reinitialise", "set-dropout", "embed-inputs",
        "turn-recurrence", "turn-pictures",
        "substitute-loss", "scale-inputs", "scale-targets", "scale-logits", "standardise-targets", "fix-broadcast",
        "mean-reduction", "set-batch-size", "shuffle-data",
    }
)  # fmt: skip
#: What changes no more than the rate.
_RATE_ALONE = frozenset({"set-learning-rate", "hold-learning-rate"})
#: How much less promising one may be that is worth a second look.
NEAR = 0.25
#: Losses that must be alike to the last bit for two courses to be the same.
_COURSE = 10
#: Share of a constant prediction's loss below which a whole training has learnt next to nothing.
LITTLE = 0.1
#: How much more of a constant prediction's loss must be gone where nothing else can be compared.
_MORE = 0.1


def serious(attempt: Attempt) -> tuple[Diagnosis, ...]:
    """The diagnoses that call for treatment."""
    return tuple(
        found
        for found in treatable(attempt.diagnoses)
        if (found.severity == "error" and found.confidence >= 0.5)
        or (attempt.whole and found.confidence >= 0.5)
    )


def incurable(attempt: Attempt) -> tuple[Diagnosis, ...]:
    """The grave diagnoses for which there is no remedy, such as labels without a signal."""
    return tuple(
        found
        for found in attempt.diagnoses
        if found.severity == "error" and found.confidence >= 0.5 and found not in treatable(attempt.diagnoses)
    )


def come_to_light(attempts: list[Attempt], untreated: Attempt) -> list[str]:
    """What no change to the training cures, where it showed only once something else was out of its way.

    An untreated run that has learnt something shows that there is something to be learnt.
    """
    if untreated.chance is not None and not learnt_nothing(untreated):
        return []
    known = {found.problem for found in incurable(untreated)}
    told: dict[str, str] = {}
    for attempt in sorted(attempts, key=lambda attempt: -attempt.steps):
        for found in incurable(attempt) if attempt.prescription else ():
            if found.problem not in known:
                words = " ".join((found.sentence, *found.remedies[:1]))
                told.setdefault(
                    found.problem,
                    f"under {attempt.prescription.describe()} something came to light that no change to the training "
                    f"cures: {words}",
                )
    return list(told.values())


def same_course(one: Attempt, other: Attempt) -> bool:
    """Whether two cures that show from the first step on took the very same course: they come to the same thing.

    Others, such as a schedule that is taken off, may show later. Where what is held out is answered differently, the
    models are not the same however alike they are trained.
    """
    apart = set(one.prescription) ^ set(other.prescription)
    told_apart = one.history is not other.history
    if not told_apart or not apart or any(edit.remedy not in _AT_ONCE for edit in apart):
        return False
    if one.metric_name == other.metric_name and one.steps == other.steps and one.metric != other.metric:
        return False
    first, second = (attempt.history.series("loss") for attempt in (one, other))
    length = min(len(first), len(second))
    if length < _COURSE or not np.array_equal(first.steps[:length], second.steps[:length]):
        return False
    return np.array_equal(first.values[:length], second.values[:length])


def learnt_nothing(attempt: Attempt) -> bool:
    """Whether the held-out metric is no better than that of a constant prediction."""
    if attempt.chance is None or attempt.metric is None:
        return False
    sign = 1.0 if attempt.higher_is_better else -1.0
    return attempt.score <= sign * attempt.chance + margin(attempt) / 2


def cured(attempt: Attempt, untreated: Attempt) -> bool:
    """Better than the untreated run was after as many steps, and without its problems."""
    then = [value for step, value in untreated.curve if step <= attempt.steps] or [untreated.metric or 0.0]
    sign = 1.0 if attempt.higher_is_better else -1.0
    ahead = attempt.score > sign * then[-1] + margin(untreated)
    if untreated.metric is None:
        ahead = attempt.metric is not None and learnt(attempt) > 0
    elif not comparable(attempt, untreated):
        ahead = learnt(attempt) > learnt(untreated)
    return ahead and not any(found.severity == "error" for found in treatable(attempt.diagnoses))


def comparable(before: Attempt, after: Attempt) -> bool:
    """Whether both show the same figure: a script that was ended early may not have come to the one that decides.

    Where all that is known is the loss it trains with, another loss is another figure.
    """
    return before.metric_name == after.metric_name and same_loss(before, after)


def learnt_more(after: Attempt, before: Attempt) -> bool:
    """Whether a run has no error left and has learnt clearly more than one that shows another figure."""
    return not errors(after) and learnt(after) > learnt(before) + _MORE


def out_of_reach(before: Attempt, after: Attempt) -> bool:
    """Whether the untreated run, ended early, would need more than its best pace to catch up."""
    if before.failed or (breaks(before) and not breaks(after)):
        return True  # values that are not finite do not become so again
    if before.metric is None or not before.curve:
        return True
    if not comparable(before, after):
        return False
    sign = 1.0 if before.higher_is_better else -1.0
    scores = [sign * value for _, value in before.curve]
    planned = before.planned_steps or before.steps
    half = scores[len(scores) // 2 :]
    pace = max(0.0, max(half) - scores[0]) / max(1, before.steps)
    # Learning curves bend: going on at the pace so far is more than can be hoped for.
    return after.score > max(scores) + pace * (planned - before.steps) * 0.5 + margin(before)


def took_off(before: Attempt, after: Attempt) -> int:
    """The first step at which a cure was clearly ahead of where the untreated run was when it ended."""
    sign = 1.0 if after.higher_is_better else -1.0
    if not comparable(before, after) or before.metric is None:
        return 0
    ahead = [step for step, value in after.curve if sign * value > before.score + margin(before)]
    return min(ahead, default=0)


def rank(attempt: Attempt, untreated: Attempt) -> tuple[bool, float]:
    """Order among candidates: one that leaves a certain fault in place comes after those that remove it."""
    return leaves_fault(attempt, untreated), -promise(attempt, untreated)


def leaves_fault(attempt: Attempt, untreated: Attempt) -> bool:
    faults = {found.problem for found in treatable(untreated.diagnoses)} & set(CERTAIN)
    return any(found.problem in faults for found in treatable(attempt.diagnoses))


def removes_fault(attempt: Attempt, untreated: Attempt) -> bool:
    """Whether what was wrong with the untreated run for certain no longer is."""
    certain = any(found.problem in CERTAIN for found in serious(untreated))
    return certain and not leaves_fault(attempt, untreated)


def unseen_by_its_figure(attempt: Attempt, untreated: Attempt) -> bool:
    """Whether a cure takes away a certain fault, and the figure had nothing to gain: it is of another output.

    Then the loss of the training has to show it, and the figure must not be any lower.
    """
    if not (attempt.whole and untreated.whole and bounded(untreated) and comparable(untreated, attempt)):
        return False
    nothing_to_gain = GOOD <= untreated.score <= attempt.score
    return (
        nothing_to_gain
        and removes_fault(attempt, untreated)
        and same_measure(attempt, untreated)
        and learnt_more(attempt, untreated)
        and learnt(attempt) > _MORE
    )


def closest(ranked: list[Attempt], untreated: Attempt) -> list[Attempt]:
    """The first and the one that is to be held against it once more, where it is close.

    Where the rate is the fault and another optimizer comes first, that is the best of those that change only the rate.
    """
    first, others = ranked[0], ranked[1:2]
    if _rate_too_high(untreated) and first.prescription.of("substitute-optimizer"):
        others = [other for other in ranked[1:] if _rate_alone(other) and errors(other) <= errors(first)][
            :1
        ] or others
    near = promise(first, untreated) - NEAR
    return [first, *(other for other in others if promise(other, untreated) > near)]


def smallest_first(ranked: list[Attempt], untreated: Attempt) -> list[Attempt]:
    """The same order, but a rate alone before another optimizer where the rate is the fault and does about as well."""
    if not ranked or not _rate_too_high(untreated):
        return ranked
    first = ranked[0]
    for attempt in ranked[1:] if first.prescription.of("substitute-optimizer") else ():
        alone = _rate_alone(attempt)
        # Of two trainings under way the one that is ahead by little may well end behind.
        near = margin(attempt) * (1 if attempt.whole else 2)
        as_good = comparable(attempt, first) and attempt.score >= first.score - near
        as_good = as_good and learnt(attempt) > learnt(first) - _MORE
        if alone and as_good and attempt.steps >= first.steps and errors(attempt) <= errors(first):
            return [attempt, *(other for other in ranked if other is not attempt)]
    return ranked


def _rate_too_high(untreated: Attempt) -> bool:
    """Whether a rate that is too high is what everything else comes from."""
    named = {found.problem for found in untreated.diagnoses}
    causes = [found for found in treatable(untreated.diagnoses) if not named & set(found.because_of)]
    return bool(causes) and causes[0].problem == "learning-rate-too-high"


def _rate_alone(attempt: Attempt) -> bool:
    return all(edit.remedy in _RATE_ALONE for edit in attempt.prescription)


def disappoints(current: Attempt, untreated: Attempt, rivals: list[Attempt], share: float) -> str:
    """Why a contestant is not worth the rest of its training; empty where it is."""
    if breaks(current):
        return "values that are not finite end it"
    for rival in rivals if share < 1.0 else ():
        as_clean = leaves_fault(rival, untreated) <= leaves_fault(current, untreated)
        ahead = comparable(rival, current) and better(rival, current) and rival.score > _typical(current)
        ahead = ahead and _was_ahead(rival, current)
        if as_clean and rival.steps < current.steps and ahead:
            return f"{rival.prescription.describe()} was better after fewer steps"
        if as_clean and errors(current) - errors(rival) and falls_back(current):
            return f"it falls back, which {rival.prescription.describe()} did not"
    if share == 0.5 and learnt_nothing(current) and not better(current, untreated):
        # Where it alone takes away what is wrong for certain, nothing better is to be had for the rest.
        alone = removes_fault(current, untreated) and all(leaves_fault(r, untreated) for r in rivals)
        return "" if alone else "half of the training has brought nothing"
    return ""


def _was_ahead(rival: Attempt, current: Attempt) -> bool:
    """Whether a rival was ahead after as many steps: what training itself shows is of other samples at each step."""
    if not rival.metric_name.startswith("train_"):
        return True
    sign = 1.0 if current.higher_is_better else -1.0
    then = [sign * value for step, value in current.curve if step <= rival.steps]
    return not then or rival.score > then[-1] + margin(rival)


def _typical(attempt: Attempt) -> float:
    """Where the metric was in the last fifth of the steps: one evaluation may have met a bad moment."""
    sign = 1.0 if attempt.higher_is_better else -1.0
    late = [sign * value for step, value in attempt.curve if step > 0.8 * attempt.steps]
    return statistics.median(late or [attempt.score])


def in_doubt(attempt: Attempt) -> bool:
    """Whether a cure that was proved is still not all well: what is left of the budget may bring a better one."""
    return attempt.score < GOOD and (bool(treatable(attempt.diagnoses)) or falls_back(attempt))


def falls_back(attempt: Attempt, among: int = 1) -> bool:
    """Whether the metric was clearly better earlier in the same training, as the best of ``among`` evaluations."""
    sign = 1.0 if attempt.higher_is_better else -1.0
    best = max((sign * value for _, value in attempt.curve), default=attempt.score)
    return best > attempt.score + margin(attempt, among)


def outdone(best: Attempt, rivals: list[Attempt]) -> bool:
    """Whether a cure that was proved has ended below where another was on its way."""
    return any(
        comparable(rival, best) and better(rival, best) and not errors(rival) - errors(best)
        for rival in rivals
    )


def errors(attempt: Attempt) -> set[str]:
    return {found.problem for found in treatable(attempt.diagnoses) if found.severity == "error"}


def left_over(untreated: Attempt, after: Attempt) -> bool:
    """Whether a problem of the untreated run is still there, or a new one is.

    So is whatever is found, however mildly, where next to nothing of a constant prediction's loss is gone.
    """
    if treatable(after.diagnoses) and learnt(after) < LITTLE:
        return True
    before = {found.problem for found in treatable(untreated.diagnoses)} & CERTAIN
    return bool(errors(after)) or any(found.problem in before for found in treatable(after.diagnoses))
