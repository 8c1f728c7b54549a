"""Ray Tune, in the driver: a ``Stopper`` that ends trials by what they report."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akeso.errors import BadInput
from akeso.extras import require
from akeso.search._safely import safely
from akeso.search.curves import Curve, Knowledge, ValueOf, costs_so_far, running_costs
from akeso.search.judge import Judge
from akeso.search.profiles import SearchProfile, search_profile
from akeso.search.results import WORST, maximizes, metric_at, number_or_none, plain_params
from akeso.search.traits import Traits
from akeso.search.values import as_count
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
        require("ray.tune", "ray", "DiagnosisStopper")
        self.metric, self.maximize = metric, maximizes(mode)
        self.epochs = as_count(epochs, "epochs")
        self.profile = search_profile(profile, **changes)
        if value not in ("last", "best"):
            raise BadInput(f"value is 'last' or 'best', but {value=}")
        self.value_of: ValueOf = value
        self.reasons: dict[str, Verdict] = {}
        self._log = _writable(Path(log)) if log is not None else None
        self._values: dict[str, list[float]] = {}
        self._losses: dict[str, list[float]] = {}
        self._unsettled: dict[str, int] = {}
        self._params: dict[str, Mapping[str, Any]] = {}
        self._guarded: set[str] = set()
        self._ended: dict[str, Curve] = {}
        self._begun: dict[str, int] = {}  # at which of its iterations each trial was first seen
        self._results = 0  # so many have come
        self._came: dict[str, int] = {}  # with which of them each trial
        self._heard: dict[str, int] = {}  # and with which its last report
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
        value = number_or_none(metric_at(result, self.metric))
        if value is None:
            self._miss(trial_id, result)
            return False
        self._results += 1
        self._came.setdefault(trial_id, self._results)
        self._heard[trial_id] = self._results
        # A trial that was perturbed or restored reports an earlier iteration again: it goes on from there.
        values = self._values.setdefault(trial_id, [])
        losses = self._losses.setdefault(trial_id, [])
        del values[max(0, at - 1) :], losses[max(0, at - 1) :]
        values.append(math.nan if abs(value) == WORST else value)  # what ray_report puts in the place of NaN
        loss = result.get("akeso_loss")
        losses.append(float(loss) if isinstance(loss, Real) else math.nan)
        if result.get("akeso_unsettled"):
            self._unsettled[trial_id] = len(values)
        self._params[trial_id] = plain_params(result.get("config"))
        verdict = self._of_columns(result) or safely(lambda: self._of_curve(trial_id, values), None)
        if verdict:
            self.reasons[trial_id] = verdict
            safely(partial(self._say, trial_id, verdict), None)
        made = at if self._restored(trial_id) else len(values)
        if verdict or made >= self.epochs or result.get("done"):
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
        ray = require("ray.tune", "ray", "DiagnosisStopper")
        by_ray = {*ray.result.AUTO_RESULT_KEYS, "done", "trial_id", "experiment_tag"}
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
        unsettled = self._unsettled.get(trial_id, 0)
        return Traits.of(self._params[trial_id], self._losses[trial_id], unsettled)

    def _current(self) -> Judge:
        silent = self._silent()
        count = len(self._ended) + len(silent)
        if self._judge is None or count >= self._made_for + max(1, self._made_for // 10):
            others = [self._curve(name, full=False, stopped=True) for name in silent]
            knowledge = Knowledge([*self._ended.values(), *others], self.epochs)
            self._judge, self._made_for = Judge(self.profile, knowledge, maximize=self.maximize), count
        return self._judge

    def _silent(self) -> list[str]:
        """Trials that others have overtaken which came after their last report: most were ended by a scheduler.

        A stopper is not told of these. Left out, the few that a scheduler lets through would be taken for the whole
        study, and good ones be given up for not coming up to its best. One that is only slow counts with the end that
        is foreseen for it until it is heard of again.
        """
        since = max((came for name, came in self._came.items() if len(self._values[name]) > 1), default=0)
        return [name for name, heard in self._heard.items() if heard < since and name not in self._ended]

    def _curve(self, trial_id: str, *, full: bool, stopped: bool, verdict: Verdict | None = None) -> Curve:
        costs = running_costs(self._values[trial_id], maximize=self.maximize, value_of=self.value_of)
        return Curve(
            tuple(costs.tolist()),
            full,
            stopped,
            trial_id in self._guarded,
            verdict is not None and verdict.indicator == "no-more-gain",
            verdict.expected(self.maximize) if verdict is not None else math.nan,
            self._traits(trial_id),
        )

    def _end(self, trial_id: str, verdict: Verdict | None) -> None:
        stopped = verdict is not None and verdict.action == "stop"
        full = verdict is None and len(self._values[trial_id]) == self.epochs and not self._restored(trial_id)
        self._ended[trial_id] = self._curve(trial_id, full=full, stopped=stopped, verdict=verdict)

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
