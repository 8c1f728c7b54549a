"""``InformedSampler``: shows trials that ended early to samplers that look at completed ones only.

Optuna's Gaussian process learns nothing from a pruned trial. What it suggested, and what was given up after an epoch or
two, it suggests again, for to it nothing has happened. Shown with the end that was foreseen for it, a stopped trial
says as much as a completed one. One that ended early with its value is compared with others that ran to their end: it,
too, is shown with the end foreseen for it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Container, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from akeso.errors import BadInput
from akeso.search import attributes

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState
else:
    try:
        from optuna.samplers import BaseSampler
    except ModuleNotFoundError:  # akeso.search is importable without Optuna; the sampler is of no use then

        class BaseSampler:
            """Stands in for Optuna's base class where Optuna is not installed."""


#: Samplers that look at completed trials alone and would suggest what was given up once more.
_UNAWARE = ("GPSampler", "BoTorchSampler")
_log = logging.getLogger("akeso.search")


class InformedSampler(BaseSampler):
    """A sampler that is shown stopped trials as completed ones, with the end that was foreseen for them.

    Where no end was foreseen, it is the last report, and without any the worst completed value; never worse than that,
    so that a diverged trial does not dwarf the others. Where an objective returns something else than it reports, as an
    error in other units, the end is shown as the value in its place among the completed trials. A trial that ended
    early with its value is shown with the end foreseen for it as well. In a study with constraints those stopped trials
    are shown that have set them. In the study itself stopped trials stay PRUNED, and values what they are. Searches for
    several objectives are passed on as they are. Optuna's ``GPSampler`` is wrapped by itself when akeso first stops a
    trial of its study, or finds one that was stopped.

    >>> import optuna
    >>> study = optuna.create_study(sampler=InformedSampler(optuna.samplers.CmaEsSampler()))

    Args:
        wrapped: The sampler that suggests.
    """

    def __init__(self, wrapped: BaseSampler) -> None:
        from akeso.search import _optional

        base = _optional.optuna("InformedSampler").samplers.BaseSampler
        if not isinstance(wrapped, base):
            raise BadInput(f"InformedSampler wraps a sampler of Optuna, but got {type(wrapped).__name__}")
        self.wrapped = wrapped

    def reseed_rng(self) -> None:
        """Seed the random numbers of the wrapped sampler anew."""
        self.wrapped.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The hyperparameters that are sampled together."""
        space: dict[str, BaseDistribution] = self.wrapped.infer_relative_search_space(shown(study), trial)
        return space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values for these hyperparameters."""
        values: dict[str, Any] = self.wrapped.sample_relative(shown(study), trial, search_space)
        return values

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A value for one hyperparameter by itself."""
        return self.wrapped.sample_independent(shown(study), trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Told by Optuna when a trial begins."""
        self.wrapped.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Told by Optuna when a trial has ended."""
        self.wrapped.after_trial(study, trial, state, values)


def inform(study: Any) -> None:
    """See to it that the sampler of a study in which a trial is stopped will hear of it."""
    sampler: Any = getattr(study, "sampler", None)
    if not _unaware(sampler) or len(study.directions) > 1:
        return
    study.sampler = InformedSampler(sampler)
    _log.info(
        "%s looks at completed trials only; from now on it is shown stopped ones too, with the end foreseen for them",
        type(sampler).__name__,
    )


def _unaware(sampler: Any) -> bool:
    """Whether a sampler, or the one that it fixes some hyperparameters for, looks at completed trials alone."""
    return type(sampler).__name__ in _UNAWARE or (
        hasattr(sampler, "_base_sampler") and _unaware(sampler._base_sampler)
    )


def shown(study: Any) -> Any:
    """The study as its sampler is to see it."""
    return study if len(study.directions) > 1 else _Shown(study)


class _Shown:
    """A study in whose lists of trials the stopped ones have completed."""

    def __init__(self, study: Any) -> None:
        self._study = study

    def __getattr__(self, name: str) -> Any:
        return getattr(self._study, name)

    @property
    def trials(self) -> list[Any]:
        """All trials."""
        return self.get_trials()

    def get_trials(self, deepcopy: bool = True, states: Container[Any] | None = None) -> list[Any]:
        """As Optuna has it."""
        return self._get_trials(deepcopy, states)

    def _get_trials(
        self, deepcopy: bool = True, states: Container[Any] | None = None, use_cache: bool = False
    ) -> list[Any]:
        # Optuna's samplers ask by this name, to read the storage once per trial.
        trials = self._study._get_trials(deepcopy=deepcopy, use_cache=use_cache)
        seen = _completed(trials, maximize=attributes.is_maximize(self._study)[0])
        return [trial for trial in seen if states is None or trial.state in states]


def _completed(trials: list[Any], *, maximize: bool) -> list[Any]:
    """The trials, those that ended early as if they had completed with what they were to come to."""
    sign = -1.0 if maximize else 1.0
    completed = [trial for trial in trials if trial.state.name == "COMPLETE"]
    costs = [sign * trial.value for trial in completed if trial.value is not None]
    costs = [cost for cost in costs if math.isfinite(cost)]
    if not costs:
        return trials
    worst = max(costs)
    # Whether a trial is feasible is mostly known at its end, so that of a stopped one nobody can say. Samplers refuse
    # completed trials that differ in their constraints.
    wanted = {frozenset(attributes.constraints_of(trial)) for trial in completed}
    returned = _returned(completed)

    def seen(trial: Any) -> Any:
        if trial.state.name == "PRUNED":
            if frozenset(attributes.constraints_of(trial)) not in wanted:
                return trial
            end = _end(trial)
            cost = worst if end is None else min(worst, sign * returned(end))
            return _ended_with(trial, sign * cost)
        more = _settled_for(trial)
        better = more is not None and sign * more < sign * trial.value
        return _ended_with(trial, more) if better and more is not None else trial

    return [seen(trial) for trial in trials]


def _settled_for(trial: Any) -> float | None:
    """What a trial that ended early with a value it had reported was to come to; None for all others."""
    said = attributes.about(trial)
    expected = said.get("expected")
    if trial.state.name != "COMPLETE" or said.get("indicator") != "no-more-gain" or expected is None:
        return None
    # An objective may return something else than it reports, which is no forecast of that.
    own = trial.value in trial.intermediate_values.values()
    return float(expected) if own and math.isfinite(expected) else None


def _returned(completed: list[Any]) -> Callable[[float], float]:
    """What a trial returns that comes to a report: the same, where the completed trials return what they report.

    Where they do not, the value that has the place among theirs which the report has among their last ones.
    """
    known = [(trial.value, reports) for trial in completed if (reports := _reports(trial))]
    known = [(value, reports) for value, reports in known if math.isfinite(value)]
    if all(value in reports for value, reports in known):
        return float
    values, last = sorted(value for value, _ in known), sorted(reports[-1] for _, reports in known)
    return lambda end: float(np.interp(end, last, values))


def _reports(trial: Any) -> list[float]:
    """What a trial has reported, in the order of its steps, as far as it is finite."""
    return [value for _, value in sorted(trial.intermediate_values.items()) if math.isfinite(value)]


def _end(trial: Any) -> float | None:
    """What the reports of a stopped trial were to come to, as far as anybody knows."""
    for known in (attributes.about(trial).get("expected"), *_reports(trial)[-1:]):
        if known is not None and math.isfinite(known):
            return float(known)
    return None


def _ended_with(trial: Any, value: float) -> Any:
    from optuna.trial import TrialState

    completed = copy(trial)
    completed.state, completed.values = TrialState.COMPLETE, [value]
    return completed
