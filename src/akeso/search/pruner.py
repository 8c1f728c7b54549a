"""``DiagnosisPruner``: akeso's judgement as an Optuna pruner, alone or on top of another one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from akeso.errors import BadInput
from akeso.search import attributes, memory
from akeso.search._safely import safely
from akeso.search.curves import ValueOf, costs_so_far
from akeso.search.informed import inform
from akeso.search.profiles import SearchProfile, search_profile
from akeso.search.traits import Traits
from akeso.search.values import as_count
from akeso.search.verdict import Verdict

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
else:
    try:
        from optuna.pruners import BasePruner
    except ModuleNotFoundError:  # akeso.search is importable without Optuna; using the pruner is not possible

        class BasePruner:
            """Stands in for Optuna's base class where Optuna is not installed."""

            def __init_subclass__(cls) -> None:
                pass


class DiagnosisPruner(BasePruner):
    """Prunes trials that are hopeless by their curve, and hands the rest to another pruner.

    With :func:`akeso.search.watch` in the objective the trial is also judged by the health of its network, in
    the middle of epochs too, and may complete early. Without it, in an objective that calls ``trial.report``
    and ``trial.should_prune`` by itself, the pruner judges by reported values alone: values that are not
    finite, and curves. Trials are then never finished early, for only the objective could return their value.

    >>> import optuna
    >>> pruner = DiagnosisPruner(optuna.pruners.MedianPruner())
    >>> study = optuna.create_study(pruner=pruner)

    Args:
        wrapped: A pruner that is asked when akeso has no objection.
        profile: ``akeso``, ``bttackler`` or a :class:`SearchProfile`.
        on_problem: What :func:`akeso.search.watch` does by default; in ``shadow`` this pruner prunes
            nothing either, nor does the one that it wraps.
        epochs: Reports of a whole trial, for objectives without :func:`akeso.search.watch`; by default those of
            the longest completed trial.
        value: Whether a trial is worth its ``last`` or its ``best`` report.
        changes: Fields of the profile to change, such as ``false_stops=0.01``.
    """

    def __init__(
        self,
        wrapped: BasePruner | None = None,
        *,
        profile: str | SearchProfile = "akeso",
        on_problem: str = "stop",
        epochs: int | None = None,
        value: ValueOf = "last",
        **changes: Any,
    ) -> None:
        from akeso.search import _optional

        base = _optional.optuna("DiagnosisPruner").pruners.BasePruner
        if wrapped is not None and not isinstance(wrapped, base):
            raise BadInput(f"wrapped must be an Optuna pruner or None, but got {type(wrapped).__name__}")
        if on_problem not in ("stop", "shadow", "repair"):
            raise BadInput(f"on_problem is one of stop, shadow, repair, but {on_problem=}")
        if value not in ("last", "best"):
            raise BadInput(f"value is 'last' or 'best', but {value=}")
        self.wrapped = wrapped
        self.profile = search_profile(profile, **changes)
        self.on_problem: Any = on_problem
        self.value_of: ValueOf = value
        self._epochs = as_count(epochs, "epochs") if epochs is not None else None

    def prune(self, study: Any, trial: Any) -> bool:
        """Whether the trial should be pruned for what it reported."""
        if trial.intermediate_values and safely(lambda: self._hopeless(study, trial), False):
            return True
        if self.wrapped is None or not self.wrapped.prune(study, trial):
            return False
        verdict = Verdict.of_pruner(self.wrapped, len(trial.intermediate_values))
        if self.on_problem == "shadow":
            safely(lambda: self._noted(study, trial, verdict), None)
            return False
        safely(lambda: self._stopped(study, trial, verdict), None)
        return True

    def _hopeless(self, study: Any, trial: Any) -> bool:
        values = [value for _, value in sorted(trial.intermediate_values.items())]
        epochs = self._epochs or memory.planned_epochs(study) or len(values) + 1
        maximize = attributes.is_maximize(study)[0]
        judge = memory.of_study(study, self.profile, self.value_of).judges(study, epochs, watched=False)[0]
        if self.on_problem != "shadow" and judge.knowledge.given_up:
            inform(study)  # also of those that another worker stopped
        if judge.guarding and self.on_problem != "shadow" and not attributes.about(trial):
            # Of the trials that ran under a threshold only those are seen that did not cross it.
            self._write(study, trial, {attributes.TRIAL: {"profile": self.profile.title, "guarded": True}})
        costs = costs_so_far(values, maximize=maximize, value_of=self.value_of)
        verdict = judge.of_curve(costs, Traits(trial.params))
        if verdict.action != "stop":
            return False
        if self.on_problem == "shadow":
            self._noted(study, trial, verdict)
            return False
        self._stopped(study, trial, verdict)
        inform(study)
        return True

    def _noted(self, study: Any, trial: Any, verdict: Verdict) -> None:
        """Keep the first verdict of a trial that nothing ends."""
        if attributes.SHADOW not in trial.user_attrs:
            self._write(study, trial, {attributes.SHADOW: _at_report(verdict, trial).to_dict()})

    def _stopped(self, study: Any, trial: Any, verdict: Verdict) -> None:
        """Say why, once: an objective may ask again and again, and go on whatever it hears."""
        if attributes.about(trial).get("outcome") == "stopped":
            return
        verdict = _at_report(verdict, trial)
        about = {"outcome": "stopped", "profile": self.profile.title, **attributes.foreseen(verdict)}
        self._write(study, trial, {**attributes.reason_attributes(verdict), attributes.TRIAL: about})

    def _write(self, study: Any, trial: Any, known: dict[str, Any]) -> None:
        # A pruner is given a frozen trial; the storage is the only way to say why, as for Optuna's own ones. What the
        # trial itself remembers is not read again before it ends: without a note there, all would be written anew at
        # every report.
        for key, value in known.items():
            study._storage.set_trial_user_attr(trial._trial_id, key, value)
            trial.user_attrs[key] = value


def _at_report(verdict: Verdict, trial: Any) -> Verdict:
    return replace(verdict, step=max(trial.intermediate_values, default=-1))
