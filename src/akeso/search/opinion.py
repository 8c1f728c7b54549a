"""What a study says of one of its trials under way: the judges that know its trials, asked about its reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from akeso.diagnosis import Diagnosis
from akeso.history import Floats
from akeso.search import memory
from akeso.search._safely import safely
from akeso.search.curves import Knowledge, ValueOf
from akeso.search.judge import Judge
from akeso.search.multi import among_best, judge_many
from akeso.search.profiles import SearchProfile
from akeso.search.reports import Reports
from akeso.search.traits import NOTHING, Traits
from akeso.search.verdict import CONTINUE, Verdict


class Opinion:
    """A judge for every objective; before any is known, and outside of a study, such as know no other trial."""

    def __init__(
        self, study: Any, profile: SearchProfile, value_of: ValueOf, epochs: int, reports: Reports
    ) -> None:
        self._study, self._profile, self._value_of, self._epochs = study, profile, value_of, epochs
        self._reports = reports
        self._judges: list[Judge] = []
        #: Whether a curve could have been stopped at any time so far.
        self.guarded = False

    def refresh(self) -> bool:
        """Read the study, and say whether any of its trials was given up."""
        if self._study is None:
            return False
        known = memory.of_study(self._study, self._profile, self._value_of)
        self._judges = safely(lambda: known.judges(self._study, self._epochs), self._judges)
        self.guarded = self.guarded or any(judge.guarding for judge in self._judges)
        return any(judge.knowledge.given_up for judge in self._judges)

    def of_findings(self, found: Sequence[Diagnosis], *, within_epoch: bool = False) -> Verdict:
        """What follows from problems, as soon as one is known or at the end of an epoch."""
        judges, costs = self._judges or self._alone(), self._reports.costs()
        if within_epoch:
            costs = self._reports.finite_costs()
        epoch = len(self._reports) - (not within_epoch)
        safe = among_best(judges, costs)
        return judges[0].of_findings(found, costs[0], epoch=epoch, within_epoch=within_epoch, safe=safe)

    def of_curve(self, params: Mapping[str, Any] | None) -> Verdict:
        """What follows from the reports so far, and from the hyperparameters: None where others are in use by now."""
        alone, costs = self._alone(), self._reports.costs()
        # Whatever becomes of the comparison with others: a value that is not finite is told without it.
        curve = safely(lambda: self._of_curve(self._judges or alone, costs, params), CONTINUE)
        return curve or (CONTINUE if self._reports.finite else self._of_curve(alone, costs, params))

    def _alone(self) -> list[Judge]:
        """Judges that know no other trial."""
        return [
            Judge(self._profile, Knowledge((), self._epochs), maximize=up) for up in self._reports.maximize
        ]

    def _of_curve(
        self, judges: Sequence[Judge], costs: Sequence[Floats], params: Mapping[str, Any] | None
    ) -> Verdict:
        reports = self._reports
        if reports.finite and len(reports.steps) >= self._epochs:
            return CONTINUE  # it has come to its end, also where it began anew on the way
        traits = NOTHING if params is None else Traits.of(params, reports.losses, reports.unsettled)
        if len(costs) == 1:
            verdict = judges[0].of_curve(costs[0], traits)
        else:
            verdict = judge_many(judges, costs, self._epochs, traits)
        if verdict and reports.repaired:
            verdict = replace(verdict, sentence=f"Counted from its repair: {verdict.sentence}")
        return verdict
