"""Recording a study: every trial is trained to its end, with its journal, values, times and findings."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from akeso.diagnosis import Diagnosis
from akeso.errors import BadInput
from akeso.history import History
from akeso.search import attributes
from akeso.search._safely import safely
from akeso.search.indicators import SEVEN, indicators
from akeso.search.profiles import SearchProfile
from akeso.search.recorded import Finding, RecordedTrial, StudyRecorder
from akeso.search.traits import Traits

#: In the attributes of a trial: the number under which it was recorded.
RECORDED = "akeso:recorded"
#: The studies that this process records.
_recorders: WeakKeyDictionary[Any, StudyRecorder] = WeakKeyDictionary()


class TrialRecording:
    """One trial of a study that is being recorded."""

    def __init__(self, recorder: StudyRecorder, trial: Any, detectors: str) -> None:
        self._recorder, self._trial, self._detectors = recorder, trial, detectors
        self._number = recorder.claim(trial.number)
        self.journal: Path = recorder.journal(self._number)
        self._begun = time.perf_counter()
        self._values: list[float] = []
        self._seconds: list[float] = []
        self._losses: list[float] = []
        self._unsettled = 0
        self._findings: list[tuple[float, int, Diagnosis]] = []
        self._steps_at_epochs = [0]
        self._steps = 0

    @classmethod
    def of(cls, trial: Any, study: Any, profile: SearchProfile, epochs: int) -> TrialRecording | None:
        """The recording of this trial, when its study is one that is recorded."""
        recorder = _recorders.get(study) if study is not None else None
        if recorder is None:
            return None
        if recorder.epochs != epochs:
            raise BadInput(
                f"the study is recorded with {recorder.epochs} epochs, but trial {trial.number} is watched with "
                f"{epochs=}; give both the number of reports that a whole trial makes"
            )
        return cls(recorder, trial, profile.detectors)

    def report(
        self, value: float, steps: int = 0, loss: float = math.nan, *, unsettled: bool = False
    ) -> None:
        """One epoch ended with this value, which may be not finite, and this mean training loss."""
        self._values.append(value)
        if unsettled:
            self._unsettled = len(self._values)
        self._losses.append(loss)
        self._seconds.append(time.perf_counter() - self._begun)
        self._steps_at_epochs.append(max(steps, self._steps))

    def found(self, diagnosis: Diagnosis, steps: int) -> None:
        """A problem was found after so many steps."""
        self._steps = max(self._steps, steps)
        self._findings.append((len(self._values), steps, diagnosis))

    def finish(self, crashed: str, overhead: float, history: History | None = None) -> None:
        """Append the trial to the recorded study.

        From what was read of its network the indicators of BTTackler are told too: under the other profile they would
        be missing, and a simulation would take the trial for healthy.
        """
        findings = [self._finding(*found) for found in self._findings]
        if history is not None:
            seven: list[Finding] = safely(lambda: indicators(history), [])
            findings = [found for found in findings if found.profile != SEVEN] + seven
        params = dict(self._trial.params)  # some may have been suggested on the way
        trial = RecordedTrial(
            self._number,
            params,
            tuple(self._values),
            tuple(self._seconds),
            tuple(findings),
            crashed,
            round(overhead, 5),
            Traits.of(params, self._losses).losses,
            self._unsettled,
        )
        self._recorder.add(trial)
        self._trial.set_user_attr(RECORDED, self._number)

    def _finding(self, epoch: float, steps: int, diagnosis: Diagnosis) -> Finding:
        """The finding with its moment in epochs, from the steps of the epoch in which it was made."""
        at = int(epoch)
        begun = self._steps_at_epochs[min(at, len(self._steps_at_epochs) - 1)]
        ends = self._steps_at_epochs[at + 1] if at + 1 < len(self._steps_at_epochs) else 0
        within = (steps - begun) / (ends - begun) if ends > begun else 0.0
        return Finding(
            self._detectors,
            diagnosis.problem,
            at + min(max(within, 0.0), 0.999),
            diagnosis.layer,
            diagnosis.step,
            diagnosis.severity,
            round(diagnosis.confidence, 3),
            diagnosis.sentence[:300],
        )


def record(
    study: Any, objective: Any, folder: str | Path, *, epochs: int, trials: int, value_of: str = "last"
) -> Path:
    """Run a study without stopping anything and keep what the simulator needs.

    The objective is the ordinary one with :func:`akeso.search.watch` in it; while the study is being recorded
    no verdict ends a trial. Trials that crash while they are watched are kept as such. Recording again into the
    same folder adds trials to those that are there; under which number one was recorded is noted in it as
    ``akeso:recorded``. A folder with a study of another direction, other epochs or another ``value_of`` is refused
    before anything is trained, and it is an error when no trial was recorded at all.
    """
    if not hasattr(study, "directions") or not callable(objective):
        raise BadInput(
            f"record takes an Optuna study and its objective, a function of a trial, but got {type(study).__name__} "
            f"and {type(objective).__name__}"
        )
    if len(study.directions) > 1:
        raise BadInput("a study with several objectives cannot be recorded; record one objective at a time")
    if trials < 1 or epochs < 1:
        raise BadInput(f"trials and epochs must be at least 1, but {trials=} and {epochs=}")
    if value_of not in ("last", "best"):
        raise BadInput(f"value_of is 'last' or 'best', but {value_of=}")
    target = Path(folder).resolve()
    attempt = _Attempt(objective)
    try:
        recorder = StudyRecorder(
            target,
            name=study.study_name,
            maximize=attributes.is_maximize(study)[0],
            epochs=epochs,
            value_of=value_of,
        )
    except OSError as error:
        raise BadInput(
            f"a recorded study is kept in a folder, but {str(folder)!r} cannot be one: {error}"
        ) from error
    # Known to this process alone: were it written to the study, others would record what they optimise meanwhile, and
    # whoever goes on with it after this one was killed.
    _recorders[study] = recorder
    try:
        study.optimize(attempt, n_trials=trials, catch=(Exception,), callbacks=[attempt.ended])
    finally:
        _recorders.pop(study, None)  # what is optimised later is no longer recorded
    if not attempt.recorded:
        raise BadInput(
            f"no trial was recorded in {target}: none of {trials} got as far as akeso.search.watch"
            f"{attempt.why}; run the objective by itself to see what keeps it from there"
        )
    return target


class _Attempt:
    """An objective that is being recorded, and whether its trials are."""

    def __init__(self, objective: Any) -> None:
        self._objective = objective
        self.recorded = 0
        self.why = ""

    def __call__(self, trial: Any) -> Any:
        try:
            return self._objective(trial)
        except Exception as error:
            self.why = self.why or f" (trial {trial.number} ended with {type(error).__name__}: {error})"
            raise

    def ended(self, study: Any, trial: Any) -> None:
        """Called after each trial: one that completes unwatched shows that there is nothing to record."""
        self.recorded += RECORDED in trial.user_attrs
        if trial.state.name == "COMPLETE" and not self.recorded:
            raise BadInput(
                f"the objective does not use akeso.search.watch: trial {trial.number} completed without it, so that "
                "there is nothing to record; train inside `with akeso.search.watch(trial, model, optimizer, "
                "epochs=...) as health:` and call health.report after each epoch"
            )
