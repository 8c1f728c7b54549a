"""Optuna's own pruners as stopping rules of the simulator: their code, run on a study that is only memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from typing import Any

from akeso.history import Floats
from akeso.search import _optional
from akeso.search.recorded import RecordedTrial
from akeso.search.rules import Rule, Seen
from akeso.search.verdict import CONTINUE, Verdict


class _Storage:
    """The one thing pruners write: system attributes of a trial."""

    def __init__(self, study: _Study) -> None:
        self._study = study

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._study.by_id[trial_id].system_attrs[key] = value


class _Study:
    """As much of a study as a pruner asks for."""

    def __init__(self, direction: Any) -> None:
        self.direction = direction
        self.directions = [direction]
        self.study_name = "simulated"
        self.by_id: dict[int, Any] = {}
        self._storage = _Storage(self)

    def get_trials(self, deepcopy: bool = False, states: Container[Any] | None = None) -> list[Any]:
        trials = self.by_id.values()
        return [trial for trial in trials if states is None or trial.state in states]

    def part(self, belongs: Callable[[Any], bool]) -> _Study:
        """The study as one bracket sees it."""
        bracket = _Study(self.direction)
        bracket.by_id = {number: trial for number, trial in self.by_id.items() if belongs(trial)}
        return bracket

    @property
    def trials(self) -> list[Any]:
        return self.get_trials()


class PrunerRule(Rule):
    """An Optuna pruner, asked after every epoch.

    Costs are handed on as values to minimise, whatever the direction of the study.
    """

    def __init__(self, pruner: Any, name: str = "") -> None:
        self._optuna = _optional.optuna("simulating an Optuna pruner")
        if not isinstance(pruner, self._optuna.pruners.BasePruner):
            from akeso.errors import BadInput

            raise BadInput(f"a pruner of Optuna is needed, but got {type(pruner).__name__}")
        self.name = name or type(pruner).__name__  # type: ignore[misc]
        self._pruner = pruner
        if isinstance(pruner, self._optuna.pruners.HyperbandPruner):
            # Its brackets are studies that see a part of the trials; ours are too, only in memory.
            pruner._create_bracket_study = lambda study, bracket: study.part(
                lambda trial: pruner._get_bracket_id(study, trial) == bracket
            )
        self._study: Any = None

    def judge(self, trial: RecordedTrial, costs: Floats, seen: Seen) -> Verdict:
        if self._study is None:
            self._study = _Study(self._optuna.study.StudyDirection.MINIMIZE)
        frozen = self._frozen(trial.number)
        frozen.intermediate_values[len(costs) - 1] = (
            float(costs[-1]) if math.isfinite(costs[-1]) else math.nan
        )
        self._close_ended(seen)
        if not self._pruner.prune(self._study, frozen):
            if len(costs) == seen.epochs:
                self._end(frozen, "COMPLETE", float(costs[-1]))
            return CONTINUE
        self._end(frozen, "PRUNED", float(costs[-1]))
        text = f"{self.name} stopped the trial after {len(costs)} epochs."
        return Verdict("stop", "pruner", self.name, epoch=len(costs) - 1, sentence=text)

    def _frozen(self, number: int) -> Any:
        trials = self._study.by_id
        if number not in trials:
            trials[number] = self._optuna.trial.FrozenTrial(
                number=number,
                trial_id=number,
                state=self._optuna.trial.TrialState.RUNNING,
                value=None,
                datetime_start=None,
                datetime_complete=None,
                params={},
                distributions={},
                user_attrs={},
                system_attrs={},
                intermediate_values={},
            )
        return trials[number]

    def _close_ended(self, seen: Seen) -> None:
        for number, curve in seen.ended.items():
            frozen = self._study.by_id.get(number)
            if frozen is not None and frozen.state.name == "RUNNING":
                self._end(
                    frozen, "PRUNED" if curve.stopped else "COMPLETE", curve.costs[-1] if curve.costs else 0.0
                )

    def _end(self, frozen: Any, state: str, cost: float) -> None:
        frozen.value = cost if math.isfinite(cost) else None
        frozen.state = self._optuna.trial.TrialState[state]
