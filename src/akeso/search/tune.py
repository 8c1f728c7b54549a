"""Ray Tune, in the worker: what a trial reports of itself.

:func:`ray_watch` watches the training and reports metrics together with what was found. In the driver,
:class:`akeso.search.DiagnosisStopper` ends trials by these columns and by their curves. Either works alone, and both
go together with any scheduler and searcher: a NaN never reaches them, for it is replaced by a finite worst
value (schedulers compare, and every comparison with NaN is false).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from akeso.diagnosis import Diagnosis
from akeso.errors import BadInput
from akeso.extras import require
from akeso.search.curves import Knowledge, running_costs
from akeso.search.inspection import Ending, Inspection, models_of, optimizers_of
from akeso.search.judge import Judge
from akeso.search.profiles import SearchProfile, search_profile
from akeso.search.results import WORST, maximizes, metric_at, with_metric
from akeso.search.values import as_count, as_number
from akeso.search.verdict import Verdict


def _tune(purpose: str) -> Any:
    return require("ray.tune", "ray", purpose)


def _columns(verdict: Verdict | None, loss: float, unsettled: bool) -> dict[str, Any]:
    """The diagnosis columns of a result; the same in every report, as loggers want them."""
    return {
        "akeso_loss": loss,
        "akeso_unsettled": int(unsettled),
        "akeso_action": verdict.action if verdict is not None else "continue",
        "akeso_problem": verdict.problem if verdict is not None else "",
        "akeso_layer": verdict.layer if verdict is not None else "",
        "akeso_step": verdict.step if verdict is not None else -1,
        "akeso_sentence": verdict.sentence if verdict is not None else "",
    }


def ray_report(
    metrics: Mapping[str, Any],
    *,
    metric: str,
    mode: str,
    verdict: Verdict | None = None,
    loss: float = math.nan,
    unsettled: bool = False,
    **options: Any,
) -> None:
    """``tune.report`` with diagnosis columns, and with a finite worst value where ``metric`` is not finite.

    ``loss`` is the mean training loss since the last report, where it is known: it helps the stopper to judge. A report
    of a model whose running statistics have not left their start is ``unsettled``: it is not judged by.
    """
    maximize = maximizes(mode)
    if not isinstance(metrics, Mapping):
        raise BadInput(
            f"a report to Ray takes its metrics by name, such as {{{metric!r}: 0.5}}, but got {metrics!r}"
        )
    given = metric_at(metrics, metric)
    if given is None:
        raise BadInput(
            f"the metric {metric!r} is not among the reported ones: {', '.join(map(str, metrics))}; that of nested "
            "metrics is named by its path, such as 'val/loss'"
        )
    value = as_number(given, f"the metric {metric!r}")
    finite = math.isfinite(value)
    if not finite and verdict is None:
        text = f"The reported {metric} is not finite."
        verdict = Verdict("stop", "non-finite-value", "non-finite", sentence=text)
    shown = value if finite else (-WORST if maximize else WORST)
    _tune("ray_report").report(
        {**with_metric(metrics, metric, shown), **_columns(verdict, loss, unsettled)}, **options
    )


def ray_watch(
    model: Any,
    optimizer: Any = None,
    *,
    metric: str,
    mode: str,
    profile: str | SearchProfile = "akeso",
    planned_steps: int | None = None,
    others: Mapping[str, Any] | None = None,
) -> RayHealth:
    """Watch the training function of one Ray Tune trial.

    ::

        with akeso.search.ray_watch(model, optimizer, metric="loss", mode="min") as health:
            for epoch in range(20):
                train_one_epoch(model, optimizer)
                health.report({"loss": validate(model)})

    A network that is dead, exploding or not finite ends the block within a step, after a last report that says
    why. Curves are judged across trials by :class:`akeso.search.DiagnosisStopper` in the driver.

    Ray ends a whole search when a result lacks what its scheduler or searcher goes by. Where that is not ``metric``,
    name it in ``others``, such as ``{"accuracy": 0.0}``: what a trial that breaks before its first report shows there.
    """
    _tune("akeso.search.ray_watch")
    return RayHealth(model, optimizer, metric, mode, search_profile(profile), planned_steps, others)


class RayHealth:
    """One watched Ray Tune trial; made by :func:`ray_watch`."""

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        metric: str,
        mode: str,
        profile: SearchProfile,
        planned: int | None,
        others: Mapping[str, Any] | None,
    ) -> None:
        if others is not None and not isinstance(others, Mapping):
            raise BadInput(f"others are metrics by name, such as {{'accuracy': 0.0}}, but got {others!r}")
        self._others = dict(others or {})
        self.metric, self.mode = metric, mode
        self._judge = Judge(profile, Knowledge((), 1), maximize=maximizes(mode))
        self._values: list[float] = []
        self._last: dict[str, Any] = {}
        self._ending: Verdict | None = None
        self._entered = False
        steps = as_count(planned, "planned_steps") if planned is not None else None
        self._inspection = Inspection(
            models_of(model), optimizers_of(optimizer), profile, self._found, planned_steps=steps
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
        metrics = self._last or with_metric(self._others, self.metric, math.nan)
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
        unsettled = self._inspection.unsettled
        ray_report(metrics, metric=self.metric, mode=self.mode, loss=loss, unsettled=unsettled, **options)
        value = as_number(metric_at(metrics, self.metric), "health.report")
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
