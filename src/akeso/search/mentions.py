"""What the log says, once of a trial or a study, of objectives that lose trials or keep them from being compared."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from akeso.search.attributes import about

#: So many trials of one length are no chance.
_SEVERAL = 4
#: So many trials in an order are no chance, or nearly so: so much less of the pairs are in that order than are not.
_ENOUGH, _REVERSED = 6, -0.7

_one_at_a_time = threading.Lock()
#: What was said in this process, and of which study, trial or change.
_said: set[tuple[object, ...]] = set()
#: Trials that this process ended early with their value.
_ended_early: set[tuple[str, int]] = set()
_log = logging.getLogger("akeso.search")


def first_time(*what: object) -> bool:
    """Whether this was not asked before, in any thread of this process: what is to be said once is said then."""
    with _one_at_a_time:
        if what in _said:
            return False
        _said.add(what)
        return True


def ends_early(study: Any, trial: Any) -> None:
    """Note that this process ends a trial early with its value."""
    with _one_at_a_time:
        _ended_early.add((study.study_name, trial.number))


def value_asked(study: Any, trial: Any) -> None:
    """Note that an objective has gone past the block of a trial that ended early: if it fails, the block is not why."""
    first_time("lost", study.study_name, trial.number)
    with _one_at_a_time:
        _ended_early.discard((study.study_name, trial.number))


def lost(study: Any) -> bool:
    """Say once of each trial that ended early with a value which its objective then did not return.

    One of this process whose objective is known to have failed after its block is left out. Whether one of them was of
    this process: its objective loses such values, and others would be lost too.
    """
    ours = False
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name != "FAIL" or about(trial).get("outcome") != "finished early":
            continue
        lost_here = (study.study_name, trial.number) in _ended_early
        ours = ours or lost_here
        if not first_time("lost", study.study_name, trial.number):
            continue
        _log.warning(
            "trial %d of study %r ended early and was to keep its value, but Optuna counts it as failed: its objective "
            "returned none, or failed after the with block; let `return health.value` stand after the with block, not "
            "inside it%s",
            trial.number,
            study.study_name,
            ". Trials of the study that run in this process are trained to their end from now on"
            if lost_here
            else "",
        )
    return ours


def again(study: Any, trial: Any) -> None:
    """Say once per study that a trial is watched for a second time: Optuna keeps one curve of it, the first."""
    if not first_time("watched again", study.study_name):
        return
    _log.warning(
        "trial %d of study %r is watched for a second time; of each step the study keeps the first report only. Of "
        "several folds or repeats report the mean, inside of one watch",
        trial.number,
        study.study_name,
    )


def backwards(study: Any, trial: Any, step: int, last: int) -> None:
    """Say once per study that a step is reported after a later one: a study has its curves in the order of steps."""
    if not first_time("backwards", study.study_name):
        return
    _log.warning(
        "trial %d of study %r reported step %d after step %d; curves are taken in the order of their steps, and the "
        "last report is that of the highest one, as in Optuna: let steps count upwards",
        trial.number,
        study.study_name,
        step,
        last,
    )


def length(study: Any, ended: Sequence[Any], epochs: int, watched: bool) -> None:
    """Say once per study that none of its finished trials reports as often as planned: no curve is learnt from."""
    if watched:
        told = [about(trial) for trial in ended]
        told = [one for one in told if one.get("outcome") == "finished" and one.get("epochs") == epochs]
        reports = [one.get("reports") for one in told]
    else:
        whole = [trial for trial in ended if trial.state.name == "COMPLETE" and trial.intermediate_values]
        reports = [len(trial.intermediate_values) for trial in whole if "reports" not in about(trial)]
    lengths = sorted({int(count) for count in reports if count is not None})
    # Trials of several lengths may be few of many: it takes more of them to know that none is whole.
    enough = _SEVERAL if len(lengths) == 1 else _ENOUGH
    if len(reports) < enough or not lengths or epochs in lengths:
        return
    if not first_time("length", study.study_name):
        return
    _log.warning(
        "the finished trials of study %r reported %s times each, but their %s was told epochs=%d; curves are "
        "compared only where epochs is the number of reports of a whole trial%s",
        study.study_name,
        lengths[0] if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}",
        "watch" if watched else "DiagnosisPruner",
        epochs,
        "" if len(lengths) == 1 else ", and an objective that ends its trials by itself leaves none",
    )


def beside(study: Any, ended: Sequence[Any], epochs: int) -> None:
    """Say once per study that its trials report to it beside their watch: their curves are then longer than planned."""
    if len(study.directions) > 1:
        return
    told = [(about(trial), len(trial.intermediate_values)) for trial in ended]
    counts = [
        (said.get("reports"), reports)
        for said, reports in told
        if said.get("outcome") == "finished" and said.get("epochs") == epochs
    ]
    if len(counts) < _SEVERAL or any(watched != epochs or reports == epochs for watched, reports in counts):
        return
    if not first_time("beside", study.study_name):
        return
    _log.warning(
        "the finished trials of study %r have %d reports, of which health.report made %d: their objective calls "
        "trial.report with steps of its own too, so that their curves are compared with none; leave trial.report out, "
        "for health.report reports to the study",
        study.study_name,
        counts[0][1],
        epochs,
    )


def opposite(study: Any, ended: Sequence[Any]) -> None:
    """Say once per study that its trials report what goes the other way than what they return: losses, not accuracies.

    A report is judged by the direction of the study, by Optuna's pruners too. Then the best are given up.
    """
    if ("opposite", study.study_name) in _said or len(study.directions) > 1:
        return
    known = []
    for trial in ended:
        reports = [value for _, value in sorted(trial.intermediate_values.items())]
        if trial.state.name == "COMPLETE" and reports and trial.value not in reports:
            known.append((reports[-1], trial.value))
    if len(known) < _ENOUGH:
        return
    last, ends = np.array(known, np.float64).T
    with np.errstate(invalid="ignore"):  # between infinities
        agree = np.sign(last[:, None] - last) * np.sign(ends[:, None] - ends)
    pairs = len(known) * (len(known) - 1)
    if not np.nansum(agree) <= _REVERSED * pairs:
        return
    if not first_time("opposite", study.study_name):
        return
    _log.warning(
        "the trials of study %r that report more return less; reports are judged by the direction of the study, so "
        "that its best trials are given up: report what the objective returns, or the negative of what is reported now",
        study.study_name,
    )
