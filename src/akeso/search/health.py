"""``akeso.search.watch``: one trial of an Optuna study, reported, diagnosed, and ended when it is hopeless."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from akeso.diagnosis import Diagnosis
from akeso.errors import BadInput
from akeso.search import _optional, attributes, memory, mentions
from akeso.search._safely import safely
from akeso.search.curves import ValueOf
from akeso.search.informed import inform
from akeso.search.inspection import Ending, Inspection, models_of, optimizers_of
from akeso.search.opinion import Opinion
from akeso.search.profiles import SearchProfile, search_profile
from akeso.search.recorded import PRUNED
from akeso.search.recording import TrialRecording
from akeso.search.repair import Repair
from akeso.search.reports import Reports
from akeso.search.values import as_count, as_number
from akeso.search.verdict import Verdict

OnProblem = Literal["stop", "shadow", "repair"]
_MODES = ("stop", "shadow", "repair")


def watch(
    trial: Any,
    model: Any = None,
    optimizer: Any = None,
    *,
    epochs: int,
    on_problem: OnProblem | None = None,
    profile: str | SearchProfile | None = None,
    value: ValueOf | None = None,
    planned_steps: int | None = None,
) -> Health:
    """Watch one trial of an Optuna study.

    Report once per epoch inside the ``with`` block and return ``health.value`` after it::

        with akeso.search.watch(trial, model, optimizer, epochs=20) as health:
            for epoch in range(20):
                train_one_epoch(model, optimizer)
                health.report(validate(model))
        return health.value

    A hopeless trial leaves the block with ``optuna.TrialPruned``, within a step where the network is dead,
    exploding or no longer finite, else at a report. A trial with nothing more to gain leaves the block
    quietly and completes with its value.

    Args:
        trial: The trial that Optuna hands to the objective.
        model: The network in training, a list of several, or None to judge by reported values alone.
        optimizer: Its optimizer, or a list of them.
        epochs: How many reports a whole trial makes.
        on_problem: ``stop``; ``shadow`` only notes what would have been done; ``repair`` tries a light remedy
            first. By default that of the study's :class:`DiagnosisPruner`, else ``stop``.
        profile: ``akeso``, ``bttackler`` or a :class:`SearchProfile`; by default the pruner's, else ``akeso``.
        value: Whether a trial is worth its ``last`` reported value (the default) or its ``best``.
        planned_steps: Optimizer steps of a whole trial, where known.
    """
    _optional.optuna("akeso.search.watch")
    return Health(trial, model, optimizer, epochs, on_problem, profile, value, planned_steps)


class Health:
    """The state of one watched trial; made by :func:`watch`."""

    def __init__(
        self,
        trial: Any,
        model: Any,
        optimizer: Any,
        epochs: int,
        on_problem: OnProblem | None,
        profile: str | SearchProfile | None,
        value: ValueOf | None,
        planned_steps: int | None,
    ) -> None:
        from akeso.search.pruner import DiagnosisPruner

        if not hasattr(trial, "set_user_attr") or not hasattr(trial, "report"):
            raise BadInput(f"watch takes the trial of an Optuna study, but got {type(trial).__name__}")
        self.epochs = as_count(epochs, "epochs")
        self._trial = trial
        # A FixedTrial, with which people try an objective out, belongs to no study.
        self._study: Any = getattr(trial, "study", None)
        pruner = getattr(self._study, "pruner", None)
        ours = pruner if isinstance(pruner, DiagnosisPruner) else None
        self._wrapped = ours.wrapped if ours is not None else memory.chosen_pruner(pruner)
        self.mode: str = on_problem or (ours.on_problem if ours is not None else "stop")
        value_of: ValueOf = value or (ours.value_of if ours is not None else "last")
        if self.mode not in _MODES:
            raise BadInput(f"on_problem is one of {', '.join(_MODES)}, but {on_problem=}")
        if value_of not in ("last", "best"):
            raise BadInput(f"value is 'last' or 'best', but {value=}")
        chosen = profile if profile is not None else (ours.profile if ours is not None else "akeso")
        self.profile = search_profile(chosen)
        maximize = attributes.is_maximize(self._study) if self._study is not None else (False,)
        self._reports = Reports(maximize, value_of, in_study=self._study is not None)
        self._opinion = Opinion(self._study, self.profile, value_of, self.epochs, self._reports)
        self._ending: Verdict | None = None
        self._would: list[Verdict] = []
        self._known: list[Diagnosis] = []
        self._loses = False  # the objective, the value of a trial that ends early
        self._entered = self._closed = False
        self._first = False  # of the watches of this trial that are open
        self._treated = False  # since the last report: what was found before says nothing any more
        self._recording = TrialRecording.of(trial, self._study, self.profile, self.epochs)
        if self._recording is not None:
            self.mode = "shadow"  # a recorded trial is trained to its end
        models, optimizers = models_of(model), optimizers_of(optimizer)
        self._repair = Repair(models, optimizers) if self.mode == "repair" else None
        self._inspection = Inspection(
            models,
            optimizers,
            self.profile,
            self._found,
            run=self._run_folder(),
            planned_steps=as_count(planned_steps, "planned_steps") if planned_steps is not None else None,
            epochs=self.epochs,
        )

    def _run_folder(self) -> Path | None:
        return self._recording.journal if self._recording is not None else None

    # ---- the context -------------------------------------------------------------------------------------

    def __enter__(self) -> Health:
        if self._entered:
            raise BadInput(
                "this watch has been used already; write `with akeso.search.watch(...) as health:` once per trial"
            )
        if self._study is not None:
            memory.remember_profile(self._study, self.profile)
            self._loses = mentions.lost(self._study)
            self._go_on()
        self._entered = True
        self._refresh()
        if self._repair is not None:
            self._repair.open()
        try:
            self._inspection.start()
        except BaseException:
            if self._repair is not None:
                self._repair.close()
            if self._first:
                memory.closed(self._study, self._trial)
            raise
        return self

    def _go_on(self) -> None:
        """Take over what the trial reported before, where Optuna lets one that was cut off go on under a new number."""
        self._first = memory.open_once(self._study, self._trial)
        if not self._first or attributes.about(self._trial).get("outcome"):
            mentions.again(self._study, self._trial)
            return
        self._reports.take_over(attributes.reported(self._study, self._trial))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if isinstance(error, _optional.optuna().TrialPruned):
            self._pruned_by_objective(str(error))
            return False
        # Who caught our signal, or made another error of it, has not changed what was decided; an interruption has.
        verdict = self._ending if error is None or isinstance(error, Exception | Ending) else None
        self._close(
            "" if verdict is not None or kind is None else f"{kind.__name__}: {error}".rstrip(": ")[:300]
        )
        if verdict is None:
            return False
        if verdict.action == "stop":
            raise _optional.optuna().TrialPruned(verdict.sentence) from None
        return True

    def _pruned_by_objective(self, why: str) -> None:
        """The objective has asked a pruner by itself, or has reasons of its own."""
        said = attributes.reason_of(self._study, self._trial)
        if not said:
            sentence = f"The objective pruned the trial: {why}".rstrip(": .") + "."
            verdict = Verdict("stop", "objective", "pruned", epoch=len(self._reports) - 1, sentence=sentence)
            said = attributes.foreseen(verdict)
            self._write_reason(self._timed(verdict))
        self._close("", said)

    def _close(self, crashed: str, stopped: Mapping[str, Any] | None = None) -> None:
        if self._closed:
            return
        self._closed = True
        if self._first:
            memory.closed(self._study, self._trial)
        overhead = self._inspection.overhead
        history = self._inspection.history if self._recording is not None else None
        self._inspection.close()
        if self._repair is not None:
            self._repair.close()
        if crashed:
            outcome = "crashed"
        elif stopped is not None:
            outcome = "stopped"
        elif self._ending is not None:
            outcome = attributes.OUTCOMES[self._ending.action]
        else:
            outcome = "repaired" if self._repair is not None and self._repair.done else "finished"
        about: dict[str, Any] = {
            "outcome": outcome,
            "profile": self.profile.title,
            "mode": self.mode,
            "epochs": self.epochs,
            "guarded": self._opinion.guarded and self.mode != "shadow",
            "overhead": round(overhead, 5),
            **self._reports.about(),
        }
        if stopped is not None:
            about |= stopped
        elif self._ending is not None:
            about |= attributes.foreseen(self._ending)
        if crashed:
            about["error"] = crashed
        self._trial.set_user_attr(attributes.TRIAL, about)
        if len(self._reports.maximize) > 1:
            self._trial.set_user_attr(attributes.CURVE, [list(row) for row in self._reports.rows])
        if self._repair is not None and self._repair.done:
            self._trial.set_user_attr(attributes.USED, self._repair.used)
        if self._recording is not None:
            why = PRUNED if stopped is not None else crashed
            self._recording.finish(why, overhead, history)

    # ---- reports -----------------------------------------------------------------------------------------

    def report(self, value: Any, step: int | None = None, *, loss: float = math.nan) -> None:
        """Report the value after an epoch; leaves the ``with`` block when the trial is to end.

        ``step`` counts from 0 and is the one after the last when left out; reports are taken in the order of their
        steps, as in Optuna. ``loss`` is the mean training loss since
        the last report, for a trial without a model to watch. Of two reports with the same step the first counts, as
        with Optuna. With several objectives ``value`` is a list. A value that is not
        finite is never handed on: the trial is stopped, or, when it stood among the best, ends with the value
        it had.
        """
        if not self._entered or self._closed:
            when = "after the with block of its trial had ended" if self._closed else "without a with block"
            raise BadInput(
                f"health.report was called {when}; train inside `with akeso.search.watch(...) as health:`"
            )
        self._again()
        if self._treated:
            self._treated = False
            self._known.clear()
            self._inspection.start_afresh()
        row = self._reports.read(value)
        given = as_number(loss, "the loss of health.report")
        at = self._reports.step(step)
        if at in self._reports.steps:
            return
        if at < self._reports.last_step and self._study is not None:
            mentions.backwards(self._study, self._trial, at, self._reports.last_step)
        self._reports.add(at, row)
        finite = self._reports.finite
        if finite and len(row) == 1:
            self._trial.report(row[0], at)
        # Reading the study costs a query: ten times in a trial is often enough, at the same reports for everybody.
        if len(self._reports.steps) % math.ceil(self.epochs / 10) == 0:
            self._refresh()
        seen = self._inspection.epoch_ended()
        loss = given if math.isnan(seen) else seen
        if finite:
            self._reports.add_loss(loss)
            if self._inspection.unsettled:
                self._reports.unsettled = len(self._reports)
        if self._recording is not None:
            self._recording.report(row[0], self._inspection.steps, loss, unsettled=self._inspection.unsettled)
        self._act(self._judge_epoch())
        if finite:
            self._ask_wrapped()

    @property
    def value(self) -> Any:
        """What the trial is worth, for the objective to return: one number, or a list with several objectives.

        A trial that reported nothing finite has no value, nor has one that is worth its last report when that is not
        finite: it ends as PRUNED when it reported at all, and with an error when it never did.
        """
        if self._closed and self._ending is not None and self._study is not None:
            mentions.value_asked(self._study, self._trial)
        return self._reports.value(ended=self._ending is not None)

    @property
    def would_have(self) -> tuple[Verdict, ...]:
        """In shadow mode: the verdicts that would have ended the trial, the first one first."""
        return tuple(self._would)

    # ---- decisions ---------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        if self._opinion.refresh() and self.mode != "shadow":
            # Others may have stopped them: another worker, or this one before the study was resumed.
            inform(self._study)

    def _judge_epoch(self) -> Verdict:
        repaired = self._repair is not None and self._repair.done
        verdict = self._opinion.of_curve(None if repaired else self._trial.params)
        if verdict:
            return verdict
        # Benign findings are not told of within steps, so the history is asked.
        known = self._inspection.diagnoses if self.profile.finishes else tuple(self._known)
        return self._counted(self._opinion.of_findings(known))

    def _found(self, diagnosis: Diagnosis) -> None:
        """Called by the probe as soon as a problem is known, within a step."""
        if self._treated:
            return
        self._known.append(diagnosis)
        if self._recording is not None:
            self._recording.found(diagnosis, self._inspection.steps)
        verdict = self._opinion.of_findings([diagnosis], within_epoch=True)
        self._act(self._counted(verdict))

    def _counted(self, verdict: Verdict) -> Verdict:
        """A verdict on a finding, with its step among all that the trial made: a repaired one is watched anew."""
        before = self._inspection.before
        if not verdict or not before:
            return verdict
        step = verdict.step + before if verdict.step >= 0 else verdict.step
        return replace(verdict, step=step, sentence=f"Counted from its repair: {verdict.sentence}")

    def _ask_wrapped(self) -> None:
        if self._study is None or self._wrapped is None or len(self._reports.maximize) > 1:
            return
        trial = self._trial.storage.get_trial(self._trial._trial_id)
        if not self._wrapped.prune(self._study, trial):
            return
        self._act(Verdict.of_pruner(self._wrapped, len(self._reports), self.epochs))

    def _act(self, verdict: Verdict) -> None:
        if not verdict:
            return
        if self.mode == "shadow":
            self._note(verdict)
            return
        if verdict.action == "finish" and self._loses:
            if verdict.problem != "non-finite":
                return
            verdict = replace(verdict, action="stop")
        if verdict.action == "stop" and self._treat(verdict.problem):
            return
        self._ending = verdict = self._timed(verdict)
        if self._study is not None:
            inform(self._study)
            if verdict.action == "finish":
                mentions.ends_early(self._study, self._trial)
        self._write_reason(verdict)
        self._again()

    def _treat(self, problem: str) -> bool:
        """Whether a light remedy was tried; one that fails is none, and the trial is stopped."""
        repair = self._repair
        if repair is None or not safely(lambda: repair.treat(problem), False):
            return False
        self._treated = True
        self._reports.begin_anew()
        return True

    def _timed(self, verdict: Verdict) -> Verdict:
        """The verdict with the step at which it was made: of the optimizer, or of the reports where none is seen."""
        if verdict.step >= 0:
            return verdict
        models, reported = self._inspection.models, self._reports.last_step
        return replace(verdict, step=self._inspection.steps if models else reported)

    def _write_reason(self, verdict: Verdict) -> None:
        for key, item in attributes.reason_attributes(verdict).items():
            self._trial.set_user_attr(key, item)

    def _note(self, verdict: Verdict) -> None:
        verdict = self._timed(verdict)
        if not self._would:
            self._trial.set_user_attr(attributes.SHADOW, verdict.to_dict())
        if all(known.indicator != verdict.indicator for known in self._would):
            self._would.append(verdict)

    def _again(self) -> None:
        """Ends the trial; also when a bare ``except:`` in the loop swallowed the first try."""
        if self._ending is not None:
            raise Ending(self._ending)
