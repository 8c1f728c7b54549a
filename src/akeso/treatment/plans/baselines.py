"""What a treatment has to beat: plain restarts, and remedies drawn at random."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterator

from akeso.remedies.candidates import TABLE
from akeso.treatment.outcome import Outcome
from akeso.treatment.plans._base import Plan, Wishes
from akeso.treatment.plans.judging import serious
from akeso.treatment.plans.ledger import Ledger, better
from akeso.treatment.prescription import Edit, Prescription
from akeso.treatment.program import Attempt, Program


class _Draws(Plan):
    """Whole trainings until the budget is spent; the best on held-out data is handed back."""

    def run(self, program: Program, wishes: Wishes) -> Outcome:
        ledger = Ledger(program, wishes, self.name)
        try:
            untreated = ledger.attempt(Prescription())
            if untreated.whole and not serious(untreated):
                return ledger.close(untreated, "healthy")
            for cure, seed in self.draws(ledger, untreated):
                if ledger.room < ledger.planned:
                    break
                ledger.attempt(cure, seed=seed)
        except KeyboardInterrupt:
            if ledger.untreated is None:
                raise
        first = ledger.untreated
        assert first is not None
        whole = [one for one in ledger.attempts if one.whole]
        best = max(whole, key=lambda one: one.score, default=first)
        if best is first or not better(best, first, among=len(whole) - 1):
            return ledger.close(first, "failed")
        return ledger.close(best, "improved" if serious(best) else "repaired")

    @abstractmethod
    def draws(self, ledger: Ledger, untreated: Attempt) -> Iterator[tuple[Prescription, int | None]]:
        """Prescriptions and seeds, one after the other."""


class ReseedPlan(_Draws):
    """The same program with other seeds."""

    name = "reseed"

    def draws(self, ledger: Ledger, untreated: Attempt) -> Iterator[tuple[Prescription, int | None]]:
        for number in range(1, 100):
            seed = untreated.seed + 1000 * number
            yield Prescription([Edit("reseed", "", {"seed": seed})]), seed


class RandomPlan(_Draws):
    """Remedies drawn at random from all that could be dosed for this run, one or two at a time."""

    name = "random"

    def draws(self, ledger: Ledger, untreated: Attempt) -> Iterator[tuple[Prescription, int | None]]:
        draw = random.Random(untreated.seed)
        remedies = {type(remedy): remedy for line in TABLE.values() for remedy in line}
        doses = [
            dose
            for remedy in remedies.values()
            for dose in remedy.prescribe(untreated.history, untreated.diagnoses)
            if dose and all(ledger.wishes.allows(edit) and not ledger.program.refuses(edit) for edit in dose)
        ]
        for _ in range(100):
            if not doses:
                return
            cure = draw.choice(doses)
            if draw.random() < 0.5:
                cure = cure.plus(*draw.choice(doses))
            if ledger.known(cure) is None:
                yield cure, None
