"""Our plan: candidates from the ranked causes, tried briefly, the best trained to the end."""

from __future__ import annotations

import math

from akeso.detectors.stages import last_stage
from akeso.remedies.candidates import Candidate, candidates
from akeso.treatment.outcome import Outcome
from akeso.treatment.plans._base import Plan, Wishes
from akeso.treatment.plans.choosing import (
    FEWEST_STEPS,
    FIRST_RUNG,
    RATES,
    SECOND_RUNG,
    allowed,
    lead,
    options,
    uncovered,
    untried,
)
from akeso.treatment.plans.judging import (
    CERTAIN,
    GOOD,
    LITTLE,
    closest,
    come_to_light,
    comparable,
    cured,
    disappoints,
    errors,
    falls_back,
    in_doubt,
    incurable,
    learnt_more,
    learnt_nothing,
    left_over,
    out_of_reach,
    outdone,
    rank,
    same_course,
    serious,
    smallest_first,
    took_off,
    unseen_by_its_figure,
)
from akeso.treatment.plans.ledger import Ledger, better, made_edits, margin
from akeso.treatment.plans.race import bounded, breaks, learnt, promise
from akeso.treatment.prescription import Prescription
from akeso.treatment.program import Attempt, Program

#: Shares of a plain training after which the untreated run is looked at.
CHECKPOINTS = (0.06, 0.12, 0.25, 0.5, 0.75, 1.0)
MOST_CANDIDATES = 5
#: Once a candidate works, this many more are held against it.
OTHERS_AFTER_A_CURE = 2
#: So many cures that all ask for another learning rate are enough.
ENOUGH = 3
#: Confidence from which on a diagnosis ends the untreated run for good, and how far past the step at which the cure
#: began to learn it is run otherwise.
SURE, PAST_TAKE_OFF = 0.9, 1.5
#: Remedies that leave everything as it is but for values that would break.
_TO_THE_POINT = frozenset({"guard-functions"})
_TOO_LITTLE = (
    "not every cure was tried: a cure takes one whole training, and a budget of {budget:g} leaves less than that; "
    "give more"
)


class AkesoPlan(Plan):
    """Watch the untreated run, stop where it is known to be sick, race its cures, prove the winner."""

    name = "akeso"

    def run(self, program: Program, wishes: Wishes) -> Outcome:
        ledger = Ledger(program, wishes, self.name)
        try:
            return self._run(ledger)
        except KeyboardInterrupt:
            return _interrupted(ledger)

    def _run(self, ledger: Ledger) -> Outcome:
        untreated = _until_sick(ledger)
        sick = serious(untreated)
        if ledger.reached(untreated) or (untreated.whole and not sick and not learnt_nothing(untreated)):
            return _left_alone(ledger, untreated)
        choices = options(ledger, untreated)
        if ledger.wishes.dry_run:
            ledger.notes += [f"would try: {option.prescription.describe()}" for option in choices]
            return ledger.close(untreated, "failed" if sick else "healthy")
        ranked = self._race(ledger, untreated, choices)
        best = None
        for position, contestant in enumerate(ranked):
            if best is not None and ledger.room < ledger.rest(contestant.steps):
                continue
            winner = self._prove(ledger, untreated, contestant, ranked[position + 1 :], first=position == 0)
            if winner is not None and (best is None or better(winner, best)):
                best = winner
            rivals = ranked[position + 1 :]
            if best is not None and (
                ledger.reached(best) or not (in_doubt(best) or outdone(best, rivals[:1]))
            ):
                break
            if best is None and _refuted(ledger.untreated):
                break
        if best is None:
            return self._give_up(ledger, untreated)
        return ledger.close(best, "improved" if left_over(untreated, best) else "repaired")

    def _race(self, ledger: Ledger, untreated: Attempt, choices: list[Candidate]) -> list[Attempt]:
        """Candidates in order of promise, tried up to a first and, for the best two, a second rung."""
        # What is wrong in the last stage of several shows nowhere else.
        start = last_stage(untreated.history)[1]
        rung = start + max(FEWEST_STEPS, round(FIRST_RUNG * (ledger.planned - start)))
        rung = min(max(rung, min(untreated.steps, round(CHECKPOINTS[1] * ledger.planned))), ledger.planned)
        tried: list[Attempt] = []
        done: list[Prescription] = []  # what was really changed
        since = 0  # candidates seen since the first that works
        for position, option in enumerate(choices):
            # The first is tried where there is room for nothing but itself.
            kept = ledger.reserve(rung) if tried else ledger.rest(rung)
            if len(tried) >= MOST_CANDIDATES or ledger.room < rung + kept:
                if not tried:
                    ledger.notes.append(_TOO_LITTLE.format(budget=ledger.wishes.budget))
                break
            if not untried(ledger, option.prescription):
                continue
            attempt = ledger.attempt(option.prescription, max_steps=rung)
            if attempt.failed or _unchanged(attempt):
                ledger.judge(attempt, f"rejected: {attempt.failed or 'nothing could be changed'}")
                continue
            changed = made_edits(attempt)
            if same_course(attempt, untreated):
                ledger.judge(attempt, "rejected: the training is the same to the last bit")
                continue
            if changed in done or any(same_course(attempt, other) for other in tried):
                ledger.judge(attempt, "rejected: what could be changed of it was tried already")
                continue
            done.append(changed)
            tried.append(attempt)
            # Whether numbers are names or quantities, only both readings of them can tell.
            other = any(later.prescription.of("embed-inputs") for later in choices[position + 1 :])
            certain = (option.problem in CERTAIN and position < 2 and not other) or _to_the_point(attempt)
            works = cured(attempt, untreated)
            since += bool(since) or works
            if (works and (certain or attempt.score >= GOOD)) or since > OTHERS_AFTER_A_CURE:
                break
            if sum(_at_odds(other) for other in tried) >= ENOUGH:
                break  # what is left of the budget goes into a better rate
        ranked = sorted(tried, key=lambda attempt: rank(attempt, untreated))
        # A remedy that is behind at the rate it came with may be ahead at another.
        raised = [self._combine(ledger, untreated, attempt) for attempt in ranked[:2]]
        ranked += [new for new in raised if all(new is not attempt for attempt in ranked)]
        ranked.sort(key=lambda attempt: rank(attempt, untreated))
        return smallest_first(self._second_rung(ledger, untreated, ranked), untreated)

    def _second_rung(self, ledger: Ledger, untreated: Attempt, ranked: list[Attempt]) -> list[Attempt]:
        rung = round(SECOND_RUNG * ledger.planned)
        close = closest(ranked, untreated) if ranked else []
        if len(close) < 2 or ranked[0].steps >= rung:
            return ranked
        behind = sum(attempt.steps for attempt in close) if ledger.program.resumable else 0
        if ledger.room < 2 * rung - behind + ledger.reserve(rung):
            return ranked
        further = [ledger.attempt(attempt.prescription, max_steps=rung) for attempt in close]
        further.sort(key=lambda attempt: rank(attempt, untreated))
        if further[0].prescription.extends(further[1].prescription) and further[1].score >= further[0].score:
            further.reverse()  # a higher rate is ahead at first: one that is overtaken already falls further behind
        others = [attempt for attempt in ranked if all(attempt is not other for other in close)]
        for attempt in others:
            ledger.judge(attempt, f"rejected: less promising than {further[0].prescription.describe()}")
        return further + others

    def _prove(
        self, ledger: Ledger, untreated: Attempt, contestant: Attempt, rivals: list[Attempt], *, first: bool
    ) -> Attempt | None:
        """Train a contestant to the end, treat what it uncovers, and hold it against the untreated run.

        The budget was kept for the ``first``; where paused trainings were lost and had to be run again, it goes on all
        the same, for otherwise all that was spent would have been for nothing.
        """
        current = self._combine(ledger, untreated, contestant)
        for share in (SECOND_RUNG, 0.5, 1.0) if ledger.program.resumable else (1.0,):
            steps = None if share == 1.0 else max(current.steps, round(share * ledger.planned))
            owed = first and ledger.program.resumable
            if ledger.room < ledger.rest(current.steps) and not owed:
                ledger.judge(current, "rejected: the budget does not reach to its end")
                return None
            current = self._gone_on(ledger, untreated, current, [contestant, *rivals], steps)
            if current.failed:
                ledger.judge(current, f"rejected: {current.failed}")
                return None
            if share < 1.0:
                current = self._combine(ledger, untreated, current)
            reason = disappoints(current, untreated, rivals, share)
            if reason:
                ledger.judge(current, f"rejected: {reason}")
                return None
        before = self._given_a_chance(ledger, ledger.untreated or untreated, current)
        if not before.whole and not before.failed and self._worth_its_end(ledger, before, current):
            before = ledger.attempt(Prescription())
        if unseen_by_its_figure(current, before):
            ledger.notes.append(
                f"{current.metric_name} was as good before and does not tell of what was found; the cure was judged by "
                f"the loss of the training, of which {1 - learnt(current):.2g} times a constant prediction's is left"
            )
            return current
        ahead = _ahead(current, before)
        kept = ledger.at_its_best(current) if falls_back(current) else current
        # The best of many evaluations is ahead by luck more often than the last one is.
        if ahead or (comparable(before, kept) and better(kept, before, among=len(kept.curve))):
            return kept
        ledger.judge(kept, f"rejected: {_shown(kept)} is not better than {_shown(before)} beyond noise")
        return None

    def _worth_its_end(self, ledger: Ledger, before: Attempt, current: Attempt) -> bool:
        """Whether the untreated run has to be gone on with to its end before a cure is believed.

        What was found may have passed by itself: then nothing is known against it. Its end is no part of the budget.
        """
        # In other units losses say little of the figure that decides, which only the end will show.
        moved = bool(current.prescription.of("standardise-targets")) and not comparable(before, current)
        # A suspicion, and no figure to hold the cure against: it may have been no more than a slow start.
        unsure = max((found.confidence for found in serious(before)), default=0.0) < SURE
        if moved or not serious(before) or (unsure and not comparable(before, current)):
            return ledger.program.resumable or ledger.room >= ledger.planned
        return ledger.room >= ledger.planned - before.steps and not out_of_reach(before, current)

    def _given_a_chance(self, ledger: Ledger, before: Attempt, current: Attempt) -> Attempt:
        """The untreated run, gone on with past where the cure itself took off if it was ended before that.

        What was not certain about it may have been no more than a start that every training has.
        """
        if before.whole or before.failed or max((d.confidence for d in serious(before)), default=1.0) >= SURE:
            return before
        step = took_off(before, current)
        if step <= before.steps:
            return before
        steps = min(ledger.planned, round(PAST_TAKE_OFF * step))
        if ledger.room < (steps - before.steps if ledger.program.resumable else steps):
            return before
        return ledger.attempt(Prescription(), max_steps=steps)

    def _gone_on(
        self, ledger: Ledger, untreated: Attempt, current: Attempt, others: list[Attempt], steps: int | None
    ) -> Attempt:
        """Train on; where what was put on top of a cure brings new trouble, the cure without it."""
        further = ledger.attempt(current.prescription, max_steps=steps)
        plain = next((other for other in others if further.prescription.extends(other.prescription)), None)
        if plain is None or ledger.room < ledger.rest(plain.steps):
            return further
        new = ", ".join(sorted(errors(further) - errors(plain)))
        if not new and not falls_back(further):
            return further
        without = ledger.attempt(plain.prescription, max_steps=steps)
        if promise(without, untreated) <= promise(further, untreated):
            return further
        ledger.judge(further, f"rejected: it {f'brings {new}' if new else 'falls back'}")
        return without

    def _combine(self, ledger: Ledger, untreated: Attempt, current: Attempt) -> Attempt:
        """Where one cure uncovers the next problem, or what is left is slow, try cures of that on top."""
        left, most = uncovered(ledger, untreated, current)
        if not left or current.score >= GOOD:
            return current
        further = allowed(ledger, candidates(current.history, left), current.prescription)
        best = current
        for option in list(further)[:most]:
            cure = current.prescription.plus(*option.prescription)
            if ledger.known(cure) is not None:
                continue
            if ledger.room < current.steps + ledger.reserve(current.steps):
                continue
            attempt = ledger.attempt(cure, max_steps=current.steps)
            ahead = lead(left, current, untreated)
            needed = promise(best, untreated) + max(ahead, margin(current) if bounded(current) else 0.0)
            # Of two that have learnt nothing yet none is ahead, whatever their last evaluation said.
            if not attempt.failed and not learnt_nothing(attempt) and promise(attempt, untreated) > needed:
                best = attempt
        return best

    def _give_up(self, ledger: Ledger, at_first: Attempt) -> Outcome:
        """Nothing was proved: the best of what was cut off if it is better all the same, else the untreated model.

        What was found in that ``at_first`` may have passed by itself.
        """
        untreated = ledger.untreated
        assert untreated is not None
        if not untreated.whole and not untreated.failed:
            untreated = ledger.attempt(Prescription())
        made = [
            attempt
            for attempt in ledger.attempts
            if attempt.prescription and attempt.metric_name == untreated.metric_name
        ]
        ahead = [attempt for attempt in made if better(attempt, untreated, among=len(made))]
        if ahead:
            best = max(ahead, key=lambda attempt: attempt.score)
            if not best.whole and ledger.room >= ledger.rest(best.steps):
                further = ledger.attempt(best.prescription)
                holds = not further.failed and better(further, untreated, among=len(made))
                best = further if holds and not better(best, further) else best
            if not best.whole:
                ledger.notes.append(
                    f"the cure was ended after {best.steps} of {ledger.planned} steps, and its figure is from there: "
                    "how it ends is not known"
                )
            clean = best.whole and not left_over(at_first, best) and not left_over(untreated, best)
            return ledger.close(best, "repaired" if clean else "improved")
        if untreated.whole and falls_back(untreated, among=len(untreated.curve)):
            kept = ledger.at_its_best(untreated)
            return ledger.close(kept, "improved" if kept.prescription else "failed")
        well = untreated.whole and not serious(untreated) and not learnt_nothing(untreated)
        suspected = serious(at_first)
        if well and suspected and abs(learnt(untreated)) < LITTLE and not better(untreated, at_first):
            # What was found no longer shows, but next to nothing was learnt: that is no clean bill of health.
            ledger.notes += [f"before its end: {found.sentence or found.problem}" for found in suspected]
            well = False
        if not well:
            ledger.notes += come_to_light(ledger.attempts, untreated)
        return _left_alone(ledger, untreated) if well else ledger.close(untreated, "failed")


def _left_alone(ledger: Ledger, untreated: Attempt) -> Outcome:
    """Nothing to cure: the training is well, or what is wrong with it lies where no remedy reaches."""
    if not incurable(untreated) or ledger.reached(untreated):
        return ledger.close(untreated, "healthy")
    ledger.notes.append("no change to the training cures what was found, so none was tried")
    return ledger.close(untreated, "failed")


def _refuted(untreated: Attempt | None) -> bool:
    """Whether the untreated run has come to its end, and nothing of what was suspected is left."""
    return (
        untreated is not None and untreated.whole and not serious(untreated) and not learnt_nothing(untreated)
    )


def _ahead(current: Attempt, before: Attempt) -> bool:
    """Whether a cure is better by the figure that decides, or by what was learnt where that was not come to."""
    if breaks(before) and (before.metric is None or not math.isfinite(before.metric)):
        return current.metric is not None and not breaks(current) and learnt(current) > 0
    return better(current, before) if comparable(before, current) else learnt_more(current, before)


def _until_sick(ledger: Ledger) -> Attempt:
    """The untreated run, up to where it is known to be sick or to its end."""
    if not ledger.program.resumable or ledger.program.planned_steps is None:
        return ledger.attempt(Prescription(), stop_on_error=True)
    planned = ledger.planned
    attempt = None
    for share in CHECKPOINTS:
        steps = None if share == 1.0 else max(FEWEST_STEPS // 2, round(share * planned))
        attempt = ledger.attempt(Prescription(), max_steps=steps)
        # Whatever is found: what is as good as was asked for already is run to its end before anything is changed.
        sick = serious(attempt) and not ledger.good_enough(attempt)
        if attempt.whole or attempt.failed or sick or (share >= 0.5 and learnt_nothing(attempt)):
            return attempt
    assert attempt is not None
    return attempt


def _at_odds(attempt: Attempt) -> bool:
    """Whether the learning rate is found to be wrong for what a cure has made of the model."""
    return any(found.problem in RATES for found in attempt.diagnoses)


def _to_the_point(attempt: Attempt) -> bool:
    """Whether a cure changes nothing but what breaks: where that helps, it was the cause."""
    return all(edit.remedy in _TO_THE_POINT for edit in attempt.prescription)


def _unchanged(attempt: Attempt) -> bool:
    return len(attempt.refused) >= len(attempt.prescription)


def _shown(attempt: Attempt) -> str:
    return "unknown" if attempt.metric is None else f"{attempt.metric:.4g}"


def _interrupted(ledger: Ledger) -> Outcome:
    """The best so far, at Ctrl-C."""
    usable = [attempt for attempt in ledger.attempts if attempt.metric is not None and not attempt.failed]
    if not usable:
        raise KeyboardInterrupt
    first = ledger.untreated or usable[0]
    best = max(usable, key=lambda attempt: attempt.score)
    if best.prescription and better(best, first, among=len(usable) - 1):
        return ledger.close(best, "improved", interrupted=True)
    return ledger.close(first, "failed", interrupted=True)
