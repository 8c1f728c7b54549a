"""Ray Tune: what a trial reports, and a ``Stopper`` that reads it.

In the worker, :func:`ray_watch` watches the training and reports metrics together with what was found. In the
driver, :class:`DiagnosisStopper` ends trials by these columns and by their curves. Either works alone, and both
go together with any scheduler and searcher: a NaN never reaches them, for it is replaced by a finite worst
value (schedulers compare, and every comparison with NaN is false).
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from functools import partial
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from akeso.diagnosis import Diagnosis
from akeso.errors import BadInput
from akeso.extras import require
from akeso.search._safely import safely
from akeso.search.curves import Curve, Knowledge, ValueOf, costs_so_far, running_costs
from akeso.search.inspection import Ending, Inspection, models_of, optimizers_of
from akeso.search.judge import Judge
from akeso.search.profiles import SearchProfile, search_profile
from akeso.search.traits import Traits
from akeso.search.values import as_count, as_number
from akeso.search.verdict import Verdict

if TYPE_CHECKING:
    from ray.tune import Stopper
else:
    try:
        from ray.tune import Stopper
    except ModuleNotFoundError:

        class Stopper:
            """Stands in for Ray's base class where Ray is not installed."""


_log = logging.getLogger("akeso.search")

#: What takes the place of a value that is not finite: far beyond any metric, near enough to be computed with.
WORST = 1e12


def _tune(purpose: str) -> Any:
    return require("ray.tune", "ray", purpose)


def _columns(verdict: Verdict | None, loss: float) -> dict[str, Any]:
    """The diagnosis columns of a result; the same in every report, as loggers want them."""
    return {
        "akeso_loss": loss,
        "akeso_action": verdict.action if verdict is not None else "continue",
        "akeso_problem": verdict.problem if verdict is not None else "",
        "akeso_layer": verdict.layer if verdict is not None else "",
        "akeso_step": verdict.step if verdict is not None else -1,
        "akeso_sentence": verdict.sentence if verdict is not None else "",
    }


def _plain_params(config: Any, under: str = "") -> dict[str, Any]:
    """The hyperparameters of a result, those of nested groups by their path; what is no plain value is left out."""
    found: dict[str, Any] = {}
    for name, value in config.items() if isinstance(config, Mapping) else ():
        if isinstance(value, Mapping):
            found |= _plain_params(value, f"{under}{name}/")
        elif isinstance(value, bool | int | float | str):
            found[f"{under}{name}"] = value
    return found


def _at(metrics: Mapping[str, Any], name: str) -> Any:
    """The metric of that name; that of nested metrics is its path, as Ray's schedulers and searchers have it."""
    if name in metrics:
        return metrics[name]
    group, _, rest = name.partition("/")
    return _at(metrics[group], rest) if rest and isinstance(metrics.get(group), Mapping) else None


def _with(metrics: Mapping[str, Any], name: str, value: float) -> dict[str, Any]:
    """The metrics with another value in that place."""
    group, _, rest = name.partition("/")
    if name in metrics or not rest:
        return {**metrics, name: value}
    inner = metrics.get(group)
    return {**metrics, group: _with(inner if isinstance(inner, Mapping) else {}, rest, value)}


def _number(value: Any) -> float | None:
    """A metric as a number; None where it is none. In the driver an error would end the search, not the trial."""
    try:
        return as_number(value)
    except BadInput:
        return None


def _check_mode(mode: str) -> bool:
    if mode not in ("min", "max"):
        raise BadInput(f"mode is 'min' or 'max', but {mode=}")
    return mode == "max"


def ray_report(
    metrics: Mapping[str, Any],
    *,
    metric: str,
    mode: str,
    verdict: Verdict | None = None,
    loss: float = math.nan,
    **options: Any,
) -> None:
    """``tune.report`` with diagnosis columns, and with a finite worst value where ``metric`` is not finite.

    ``loss`` is the mean training loss since the last report, where it is known: it helps the stopper to judge.
    """
    maximize = _check_mode(mode)
    given = _at(metrics, metric)
    if given is None:
        raise BadInput(
            f"the metric {metric!r} is not among the reported ones: {', '.join(map(str, metrics))}; that of nested "
            "metrics is named by its path, such as 'val/loss'"
        )
    value = as_number(given, "ray_report")
    finite = math.isfinite(value)
    if not finite and verdict is None:
        text = f"The reported {metric} is not finite."
        verdict = Verdict("stop", "non-finite-value", "non-finite", sentence=text)
    shown = value if finite else (-WORST if maximize else WORST)
    _tune("ray_report").report({**_with(metrics, metric, shown), **_columns(verdict, loss)}, **options)


def ray_watch(
    model: Any,
    optimizer: Any = None,
    *,
    metric: str,
    mode: str,
    profile: str | SearchProfile = "akeso",
    planned_steps: int | None = None,
) -> RayHealth:
    """Watch the training function of one Ray Tune trial.

    ::

        with akeso.search.ray_watch(model, optimizer, metric="loss", mode="min") as health:
            for epoch in range(20):
                train_one_epoch(model, optimizer)
                health.report({"loss": validate(model)})

    A network that is dead, exploding or not finite ends the block within a step, after a last report that says
    why. Curves are judged across trials by :class:`DiagnosisStopper` in the driver.
    """
    _tune("akeso.search.ray_watch")
    return RayHealth(model, optimizer, metric, mode, search_profile(profile), planned_steps)


class RayHealth:
    """One watched Ray Tune trial; made by :func:`ray_watch`."""

    def __init__(
        self, model: Any, optimizer: Any, metric: str, mode: str, profile: SearchProfile, planned: int | None
    ) -> None:
        self.metric, self.mode = metric, mode
        self._judge = Judge(profile, Knowledge((), 1), maximize=_check_mode(mode))
        self._values: list[float] = []
        self._last: dict[str, Any] = {}
        self._ending: Verdict | None = None
        self._entered = False
        self._inspection = Inspection(
            models_of(model), optimizers_of(optimizer), profile, self._found, planned_steps=planned
        )

    def __enter__(self) -> RayHealth:
        if self._entered:
            raise BadInput(
                "this watch has been used already; write `with akeso.search.ray_watch(...)` once per trial"
            )
        self._entered = True
        self._inspection.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._inspection.close()
        # Who caught our signal has not changed what was decided; an interruption has.
        ending = self._ending if error is None or isinstance(error, Exception | Ending) else None
        if ending is None:
            return False
        # Without a finite value so far it is the worst one that is shown.
        metrics = self._last or _with({}, self.metric, math.nan)
        ray_report(metrics, metric=self.metric, mode=self.mode, verdict=ending)
        return True

    def report(self, metrics: Mapping[str, Any], **options: Any) -> None:
        """Report after an epoch, as ``tune.report`` does, with what has been found."""
        if not self._entered:
            raise BadInput(
                "health.report was called without a with block; train inside `with akeso.search.ray_watch(...) as "
                "health:`"
            )
        if self._ending is not None:
            raise Ending(self._ending)
        loss = self._inspection.epoch_ended()
        ray_report(metrics, metric=self.metric, mode=self.mode, loss=loss, **options)
        value = as_number(_at(metrics, self.metric), "health.report")
        self._values.append(value)
        if math.isfinite(value):
            self._last = dict(metrics)
        profile = self._judge.profile
        if profile.finishes or profile.stops - profile.at_steps:  # these wait for the end of an epoch
            self._act(self._inspection.diagnoses, within_epoch=False)

    def _found(self, diagnosis: Diagnosis) -> None:
        self._act((diagnosis,), within_epoch=True)

    def _act(self, findings: tuple[Diagnosis, ...], *, within_epoch: bool) -> None:
        finite = [value for value in self._values if math.isfinite(value)]
        costs = running_costs(finite, maximize=self._judge.maximize)
        verdict = self._judge.of_findings(
            findings, costs, epoch=len(finite) - (not within_epoch), within_epoch=within_epoch
        )
        if verdict:
            self._ending = verdict
            raise Ending(verdict)


class DiagnosisStopper(Stopper):
    """Ends Ray Tune trials by what they report: diagnosis columns, values that are not finite, and curves.

    Pass it as ``tune.RunConfig(stop=DiagnosisStopper("loss", "min", epochs=20))``; combine it with others by
    ``tune.stopper.CombinedStopper``. Why a trial ended is in ``reasons`` by trial id, and in ``log`` when a file
    is given. The ``akeso_*`` columns of a result are written by the trial itself, by :func:`ray_watch` or
    :func:`ray_report`: they tell of its network and of values that are not finite, and say ``continue`` where
    the stopper ended it for its curve, for a stopper cannot change a result.

    Results without ``metric``, or with something else than a number there, are let pass; where none had it so far,
    that is said once in the log.

    Ray has one kind of early end: a trial that is stopped keeps its last result. ``reasons[id].action`` tells
    hopeless (``stop``) from no more gain (``finish``).
    """

    def __init__(
        self,
        metric: str,
        mode: str,
        *,
        epochs: int,
        profile: str | SearchProfile = "akeso",
        value: ValueOf = "last",
        log: str | Path | None = None,
        **changes: Any,
    ) -> None:
        _tune("DiagnosisStopper")
        self.metric, self.maximize = metric, _check_mode(mode)
        self.epochs = as_count(epochs, "epochs")
        self.profile = search_profile(profile, **changes)
        if value not in ("last", "best"):
            raise BadInput(f"value is 'last' or 'best', but {value=}")
        self.value_of: ValueOf = value
        self.reasons: dict[str, Verdict] = {}
        self._log = _writable(Path(log)) if log is not None else None
        self._values: dict[str, list[float]] = {}
        self._losses: dict[str, list[float]] = {}
        self._params: dict[str, Mapping[str, Any]] = {}
        self._guarded: set[str] = set()
        self._ended: dict[str, Curve] = {}
        self._begun: dict[str, int] = {}  # at which of its iterations each trial was first seen
        self._judge: Judge | None = None
        self._made_for = -1
        self._said_missing = False

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Whether the trial ends with this result."""
        if trial_id in self.reasons:
            return True
        # In the driver an error would end the search, not the trial.
        return safely(lambda: self._ends(trial_id, result), False)

    def _ends(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        at = int(result.get("training_iteration", len(self._values.get(trial_id, ())) + 1))
        if trial_id not in self._begun:
            self._begun[trial_id] = at
        value = _number(_at(result, self.metric))
        if value is None:
            self._miss(trial_id, result)
            return False
        # A trial that was perturbed or restored reports an earlier iteration again: it goes on from there.
        values = self._values.setdefault(trial_id, [])
        losses = self._losses.setdefault(trial_id, [])
        del values[max(0, at - 1) :], losses[max(0, at - 1) :]
        values.append(math.nan if abs(value) == WORST else value)  # what ray_report puts in the place of NaN
        loss = result.get("akeso_loss")
        losses.append(float(loss) if isinstance(loss, Real) else math.nan)
        self._params[trial_id] = _plain_params(result.get("config"))
        verdict = self._of_columns(result) or safely(lambda: self._of_curve(trial_id, values), None)
        if verdict:
            self.reasons[trial_id] = verdict
            safely(partial(self._say, trial_id, verdict), None)
        if (
            verdict
            or max(len(values), at if self._restored(trial_id) else 0) >= self.epochs
            or result.get("done")
        ):
            self._end(trial_id, verdict)
        return bool(verdict)

    def stop_all(self) -> bool:
        """The search as a whole is never ended."""
        return False

    def _miss(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Say that the metric is not reported: its name may be mistyped, and then no trial would ever end."""
        if self._said_missing or self._values:
            return
        self._said_missing = True
        by_ray = {*_tune("DiagnosisStopper").result.AUTO_RESULT_KEYS, "done", "trial_id", "experiment_tag"}
        there = [name for name in result if name not in by_ray and not name.startswith("akeso_")]
        _log.warning(
            "DiagnosisStopper judges by the metric %r, but trial %s reported %s without a number of that name; the "
            "stopper ends no trial before it is reported: correct the name if it is mistyped",
            self.metric,
            trial_id,
            ", ".join(there) or "no metric",
        )

    def _of_columns(self, result: Mapping[str, Any]) -> Verdict | None:
        action = result.get("akeso_action", "continue")
        if action not in ("stop", "finish"):
            return None
        text = {key: str(result.get(f"akeso_{key}", "")) for key in ("problem", "layer", "sentence")}
        step = int(result.get("akeso_step", -1))
        return Verdict(
            action, text["problem"], text["problem"], text["layer"], step, sentence=text["sentence"]
        )

    def _of_curve(self, trial_id: str, values: list[float]) -> Verdict | None:
        judge = self._current()
        if self._restored(trial_id):
            # Of one that was restored nobody knows how it came to where it stands, nor how much it has left.
            judge = Judge(self.profile, Knowledge((), 1), maximize=self.maximize)
            values = [*values[:1] * (self._begun[trial_id] - 1), *values]
        if judge.guarding:
            self._guarded.add(trial_id)
        costs = costs_so_far(values, maximize=self.maximize, value_of=self.value_of)
        verdict = judge.of_curve(costs, self._traits(trial_id))
        return verdict if verdict else None

    def _restored(self, trial_id: str) -> bool:
        return self._begun[trial_id] > 1

    def _traits(self, trial_id: str) -> Traits:
        return Traits.of(self._params[trial_id], self._losses[trial_id])

    def _current(self) -> Judge:
        count = len(self._ended)
        if self._judge is None or count >= self._made_for + max(1, self._made_for // 10):
            knowledge = Knowledge(self._ended.values(), self.epochs)
            self._judge, self._made_for = Judge(self.profile, knowledge, maximize=self.maximize), count
        return self._judge

    def _end(self, trial_id: str, verdict: Verdict | None) -> None:
        values = self._values[trial_id]
        costs = running_costs(values, maximize=self.maximize, value_of=self.value_of)
        stopped = verdict is not None and verdict.action == "stop"
        full = verdict is None and len(values) == self.epochs and not self._restored(trial_id)
        settled = verdict is not None and verdict.indicator == "no-more-gain"
        expected = verdict.expected(self.maximize) if verdict is not None else math.nan
        self._ended[trial_id] = Curve(
            tuple(costs.tolist()),
            full,
            stopped,
            trial_id in self._guarded,
            settled,
            expected,
            self._traits(trial_id),
        )

    def _say(self, trial_id: str, verdict: Verdict) -> None:
        if self._log is not None:
            with self._log.open("a") as file:
                file.write(json.dumps({"trial": trial_id, **verdict.to_dict()}) + "\n")


def _writable(log: Path) -> Path:
    """The path of a file that can be written: better known now than when the first trial is ended."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.open("a").close()
    except OSError as error:
        raise BadInput(
            f"the log of a DiagnosisStopper is a file to write to, but {str(log)!r}: {error}"
        ) from error
    return log.absolute()
