"""AUTOTRAINER's scheduler to the letter: one solution after the other until no symptom fires."""

from __future__ import annotations

import random

from akeso.diagnosis import Diagnosis
from akeso.examination import examine
from akeso.remedies.autotrainer import ORDERS, solution
from akeso.treatment.outcome import Outcome
from akeso.treatment.plans._base import Plan, Wishes
from akeso.treatment.plans.judging import serious
from akeso.treatment.plans.ledger import Ledger, better
from akeso.treatment.prescription import Prescription
from akeso.treatment.program import Attempt, Program

#: Shares of a training after which the paper's rules are asked; it looks every three epochs.
LOOKS = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0)


class AutotrainerPlan(Plan):
    """Train under the paper's rules; end the training at the first symptom, change one thing, train again.

    The same problem again takes the next solution, another problem keeps what was changed and is treated in
    its turn. What ends without symptoms counts as repaired and is handed back, as in the paper: nothing holds
    it against the untreated run.
    """

    name = "autotrainer"

    def run(self, program: Program, wishes: Wishes) -> Outcome:
        ledger = Ledger(program, wishes, self.name)
        draw = random.Random(wishes.seed or 0)
        try:
            return self._run(ledger, draw)
        except KeyboardInterrupt:
            usable = [attempt for attempt in ledger.attempts if attempt.metric is not None]
            if not usable:
                raise
            return ledger.close(max(usable, key=lambda attempt: attempt.score), "failed", interrupted=True)

    def _run(self, ledger: Ledger, draw: random.Random) -> Outcome:
        attempt = _until_symptom(ledger, Prescription())
        kept = Prescription()
        waiting: dict[str, list[Prescription]] = {}
        current = _symptom(attempt)
        if current is None and attempt.whole:
            # The paper's rules see nothing; whether there is nothing, ours say.
            return ledger.close(attempt, "failed" if serious(attempt) else "healthy")
        last = ""
        while current is not None or attempt.failed:
            problem = current.problem if current is not None else "exploding-gradient"
            if problem != last and last:
                kept = attempt.prescription  # the solution that removed the last problem stays
            if problem not in waiting:
                waiting[problem] = [
                    dose
                    for code in ORDERS[problem]
                    for dose in solution(code, problem, attempt.history, draw.randrange(1000))
                    if all(ledger.wishes.allows(edit) and not ledger.program.refuses(edit) for edit in dose)
                ]
            if not waiting[problem] or ledger.room < ledger.planned * LOOKS[0]:
                return _best(ledger)
            last = problem
            cure = kept.plus(*waiting[problem].pop(0))
            if ledger.known(cure) is not None:
                continue
            attempt = _until_symptom(ledger, cure)
            current = _symptom(attempt)
            if not attempt.whole and current is None and not attempt.failed:
                return _best(ledger)  # the budget is spent
        return ledger.close(attempt, "repaired")


def _until_symptom(ledger: Ledger, cure: Prescription) -> Attempt:
    """Train until a symptom of the paper is seen, to the end, or as far as the budget goes."""
    if not ledger.program.resumable or ledger.program.planned_steps is None:
        return ledger.attempt(cure)
    attempt = None
    for share in LOOKS:
        steps = None if share == 1.0 else max(1, round(share * ledger.planned))
        further = share * ledger.planned - (0 if attempt is None else attempt.steps)
        if cure and ledger.room < further:
            break
        attempt = ledger.attempt(cure, max_steps=steps)
        if attempt.whole or attempt.failed or _symptom(attempt) is not None:
            return attempt
    return attempt if attempt is not None else ledger.attempt(cure, max_steps=1)


def _symptom(attempt: Attempt) -> Diagnosis | None:
    """The first problem to show by the paper's rules."""
    found = [one for one in examine(attempt.history, "autotrainer").diagnoses if one.problem in ORDERS]
    return min(found, key=lambda one: one.step) if found else None


def _best(ledger: Ledger) -> Outcome:
    """None of the solutions is left: the best model of all that were trained."""
    usable = [attempt for attempt in ledger.attempts if attempt.metric is not None]
    untreated = ledger.untreated
    assert untreated is not None
    best = max(usable, key=lambda attempt: attempt.score, default=untreated)
    ahead = best.prescription and better(best, untreated, among=len(usable) - 1)
    return ledger.close(best, "improved" if ahead else "failed")
