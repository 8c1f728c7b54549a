"""What is worth a try: candidates for what was found, or for what must be behind it, and what cures leave over."""

from __future__ import annotations

from collections.abc import Iterable

from akeso.diagnosis import Diagnosis
from akeso.remedies.candidates import Candidate, candidates, treatable
from akeso.remedies.chart import chart
from akeso.treatment.plans.judging import NEAR, learnt_nothing, removes_fault
from akeso.treatment.plans.ledger import Ledger
from akeso.treatment.plans.race import learnt
from akeso.treatment.prescription import Prescription
from akeso.treatment.program import Attempt
from akeso.treatment.script_metric import FOUND

#: Share of a plain training after which candidates are first compared, and the last two once more.
FIRST_RUNG, SECOND_RUNG = 0.1, 0.25
#: A comparison after fewer steps than this says nothing.
FEWEST_STEPS = 30
#: How much more promising anything on top of a cure has to be.
AHEAD = 0.05
#: What to look for when nothing was learnt and nothing was found.
SUSPECTS = ("improper-loss", "slow-convergence", "vanishing-gradient", "learning-rate-too-high")
#: What stands in the way of any cure, however mildly it is put.
RATES = ("learning-rate-too-low", "learning-rate-too-high")
#: Share of a constant prediction's loss below which a cure that works has learnt little by its first rungs.
SLOW = 0.25


def options(ledger: Ledger, untreated: Attempt) -> list[Candidate]:
    """What to try on a run, in the order in which to try it."""
    found = candidates(untreated.history, treatable(untreated.diagnoses))
    if learnt_nothing(untreated):
        # Whatever is named, the held-out metric says that nothing was learnt: what goes in where that is odd,
        # what is compared with what, and at which rate, come first among the usual reasons.
        names = ("abnormal-data", *SUSPECTS) if chart(untreated.history).odd_inputs else SUSPECTS
        if untreated.metric_name.rpartition("_")[2] in FOUND:
            names = ("class-imbalance", *names)  # nothing was found of a class that may be rare
        usual = candidates(untreated.history, [_suspicion(name) for name in names])
        suspected = [option for option in usual if not _same_loss(option)]
        found = [*found[:1], *suspected[:1], *found[1:], *suspected[1:]]
    kept = list(allowed(ledger, found, Prescription()))
    cures = [option.prescription for option in kept]
    return [option for number, option in enumerate(kept) if option.prescription not in cures[:number]]


def uncovered(ledger: Ledger, untreated: Attempt, current: Attempt) -> tuple[list[Diagnosis], int]:
    """What a cure has left to cure, and how many remedies that is worth."""
    found = treatable(current.diagnoses)
    # What an error is put down to is what has to be cured, however mildly it is put itself.
    causes = {cause for error in found if error.severity == "error" for cause in error.because_of}
    left = [one for one in found if one.severity == "error" or one.problem in {*RATES, *causes}]
    if left:
        return left, 2
    early = current.steps <= max(FEWEST_STEPS, round(SECOND_RUNG * ledger.planned))
    if not early or current.prescription.of("find-learning-rate"):
        return [], 0
    if as_meant(current, untreated) and current.steps < round(SECOND_RUNG * ledger.planned) // 2:
        return [], 0
    if learnt_nothing(current):
        return [_suspicion("slow-convergence")], 2
    return ([_suspicion("slow-convergence")], 1) if learnt(current) < SLOW else ([], 0)


def as_meant(current: Attempt, untreated: Attempt) -> bool:
    """Whether what was wrong is gone, and the rate is an ordinary one of the program's own.

    A higher one is ahead after a few steps anyway, and may well end behind.
    """
    facts = chart(current.history)
    return removes_fault(current, untreated) and facts.usual_rate / 10 <= facts.lr <= facts.usual_rate * 10


def lead(left: Iterable[Diagnosis], current: Attempt, untreated: Attempt) -> float:
    """How far ahead something on top of a cure has to be: beyond doubt where it was only suspected to be of use."""
    suspected = all(found.confidence == 0.0 for found in left)
    return NEAR if suspected and as_meant(current, untreated) else AHEAD


def allowed(ledger: Ledger, found: Iterable[Candidate], base: Prescription) -> Iterable[Candidate]:
    """Those of which nothing is forbidden by the user or refused by the program, put on top of ``base``."""
    for option in found:
        edits = [edit for edit in option.prescription if edit not in base]
        if not edits or not all(ledger.wishes.allows(edit) for edit in edits):
            continue
        if any(ledger.program.refuses(edit) for edit in edits):
            continue
        yield option


def untried(ledger: Ledger, cure: Prescription) -> bool:
    """Whether anything is left of a cure, and anything untried, once impossible edits are taken out."""
    refused = [edit for edit, _ in ledger.program.refusals(cure)]
    refused += [edit for other in ledger.attempts for edit, _ in other.refused if edit in cure]
    left = Prescription(edit for edit in cure if edit not in refused)
    if refused:
        ledger.notes += [
            f"{edit.describe()} was refused: {why}" for edit, why in ledger.program.refusals(cure)
        ]
    return bool(left) and (not refused or ledger.known(left) is None)


def _same_loss(option: Candidate) -> bool:
    """Whether all that is offered is the loss that is there already: worth a trial where it was found wrong."""
    return all(
        edit.remedy in ("substitute-loss", "substitute-activation")
        and edit.values.get("from") == edit.values["to"]
        and "log_input" not in edit.values
        for edit in option.prescription
    )


def _suspicion(problem: str) -> Diagnosis:
    return Diagnosis(problem, "error", 0.0, "", 0, {}, (), (), "")
