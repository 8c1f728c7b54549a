"""What a study remembers, and where: attributes of its trials in its own storage.

Every worker reads the same ended trials and therefore comes to the same verdicts; a resumed study goes on where
it stood. Per trial there are as many writes as reports, one more when it ends, and five when it was ended by a
verdict, however many layers, steps or trials there are.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from akeso.search.curves import Curve, Knowledge, ValueOf, running_costs
from akeso.search.judge import Judge
from akeso.search.profiles import SearchProfile
from akeso.search.traits import NOTHING, Traits
from akeso.search.verdict import Verdict

#: One entry per trial that says how it was run and how it ended.
TRIAL = "akeso:trial"
#: The curves of a study with several objectives, which Optuna has no reports for.
CURVE = "akeso:curve"
PROFILE = "akeso:profile"
SHADOW = "akeso:would_have"
USED = "akeso:used"

#: How a trial has ended on which somebody decided.
OUTCOMES: Final[Mapping[str, str]] = {"stop": "stopped", "finish": "finished early"}
#: Where the number of epochs is a hyperparameter, judges are kept for so many of its values.
_LENGTHS = 8

_one_at_a_time = threading.Lock()
#: Trials that were mentioned as lost in this process, and those that it ended early with their value.
_mentioned: set[tuple[str, int]] = set()
_ended_early: set[tuple[str, int]] = set()
#: Trials that are being watched in this process, by their storage and their number in it.
_open: set[tuple[int, int]] = set()
#: Studies of which it was said that their trials are watched more than once.
_watched_again: set[str] = set()
#: Studies of which it was said that a trial reported a step after a later one.
_backwards: set[str] = set()
#: Changes of profile that were mentioned: workers with different ones take turns.
_changes: set[tuple[str, str, str]] = set()
#: Studies of which it was said that their trials report otherwise than planned.
_otherwise: set[str] = set()
#: Studies of which it was said that their objective reports to them beside its watch.
_beside: set[str] = set()
#: So many trials of one length are no chance.
_SEVERAL = 4
#: Studies of which it was said that their trials return the opposite of what they report.
_opposite: set[str] = set()
#: So many trials in an order are no chance, or nearly so: so much less of the pairs are in that order than are not.
_ENOUGH, _REVERSED = 6, -0.7
#: By study, as long as somebody holds it: one pruner may serve several, and a study may have none of ours.
_memories: WeakKeyDictionary[Any, dict[tuple[str, str], Memory]] = WeakKeyDictionary()
_log = logging.getLogger("akeso.search")


def is_maximize(study: Any) -> tuple[bool, ...]:
    """For each objective whether it is maximised."""
    return tuple(direction.name == "MAXIMIZE" for direction in study.directions)


def reason_attributes(verdict: Verdict) -> dict[str, Any]:
    """What is written to a trial that was ended: one readable attribute each."""
    return {
        "akeso:outcome": OUTCOMES[verdict.action],
        "akeso:problem": verdict.problem,
        "akeso:layer": verdict.layer,
        "akeso:step": verdict.step,
        "akeso:sentence": verdict.sentence,
    }


def foreseen(verdict: Verdict) -> dict[str, Any]:
    """What a study remembers of a verdict: the rule that spoke, and the value that was expected, if it said one."""
    expected = verdict.expected(maximize=False)
    known = {"expected": expected} if math.isfinite(expected) else {}
    return {"indicator": verdict.indicator, **known}


def about(trial: Any) -> Mapping[str, Any]:
    """What a trial that was watched, or stopped by our pruner, says of itself; nothing where it was neither."""
    said = trial.user_attrs.get(TRIAL)
    return said if isinstance(said, Mapping) else {}


def constraints_of(trial: Any) -> Mapping[str, float]:
    """The constraints that a trial has set, by name; before Optuna 5 by their place."""
    known: Mapping[str, float] | None = getattr(trial, "constraints", None)
    if known is not None:
        return known
    return {str(place): value for place, value in enumerate(trial.system_attrs.get("constraints") or ())}


def is_feasible(trial: Any) -> bool:
    """Whether a trial violates none of the constraints that it has set."""
    return all(value <= 0 for value in constraints_of(trial).values())


def reason_of(study: Any, trial: Any) -> dict[str, Any]:
    """What our pruner remembered of its verdict on a trial under way; nothing when it did not stop it."""
    if study is None:
        return {}
    # It was given a frozen trial and wrote to the storage: the trial itself does not know.
    known = about(study._storage.get_trial(trial._trial_id))
    if known.get("outcome") != "stopped":
        return {}
    return {key: known[key] for key in ("indicator", "expected") if key in known}


def reported(study: Any, trial: Any) -> list[tuple[int, float]]:
    """The steps and values that a trial under way has reported to its study."""
    return sorted(study._storage.get_trial(trial._trial_id).intermediate_values.items())


def reports_of(trial: Any, objectives: int) -> list[Sequence[float]]:
    """The values a trial reported, in order of its steps, one sequence per report."""
    if objectives > 1:
        return [tuple(map(float, row)) for row in trial.user_attrs.get(CURVE, ())]
    return [(float(value),) for _, value in sorted(trial.intermediate_values.items())]


def curve_of(trial: Any, objective: int, maximize: Sequence[bool], epochs: int, value_of: ValueOf) -> Curve:
    """One objective of an ended trial as a curve."""
    reports = reports_of(trial, len(maximize))
    costs = running_costs(
        [row[objective] for row in reports], maximize=maximize[objective], value_of=value_of
    )
    said = about(trial)
    complete = trial.state.name == "COMPLETE"
    # One that a pruner was to stop and that has completed went on all the same,
    # and so may one whose objective left the block by an error of its own.
    whole = said.get("outcome") != "finished early"
    full = complete and len(costs) == epochs and whole
    if complete and not len(costs):
        # Returned without a report: its value still counts for what the best of the study are.
        value = float(trial.values[objective])
        costs = running_costs([value], maximize=maximize[objective])
    settled = complete and said.get("indicator") == "no-more-gain"
    sign = -1.0 if maximize[objective] else 1.0
    return Curve(
        tuple(costs.tolist()),
        full,
        not complete,
        bool(said.get("guarded", False)),
        settled,
        sign * _number(said.get("expected")),
        traits_of(trial),
        is_feasible(trial),
    )


def traits_of(trial: Any) -> Traits:
    """What is known of an ended trial beside its reports; of one that was repaired, nothing that it began with."""
    said = about(trial)
    if said.get("outcome") == "repaired":
        return NOTHING
    return Traits(trial.params, tuple(map(_number, said.get("losses", ()))), int(said.get("unsettled", 0)))


def _number(known: Any) -> float:
    return math.nan if known is None else float(known)


class Memory:
    """The ended trials of one study as knowledge, read again only when there are more of them.

    Reading and fitting are done anew when the ended trials have grown by a tenth, so that their cost over a
    study of ``n`` trials grows like ``log n`` fits, not ``n``.
    """

    def __init__(self, profile: SearchProfile, *, value_of: ValueOf = "last") -> None:
        self.profile = profile
        self.value_of = value_of
        self._made: dict[int, tuple[int, list[Judge]]] = {}  # by planned epochs: of how many ended trials
        self._one_at_a_time = threading.Lock()  # the trials of a study may run in threads of one process

    def judges(self, study: Any, epochs: int, *, watched: bool = True) -> list[Judge]:
        """One judge per objective that knows the ended trials of the study, which are ``watched`` or not."""
        ended = _ended(study)
        with self._one_at_a_time:
            known, judges = self._made.pop(epochs, (-1, []))
            if len(ended) >= known + max(1, known // 10):
                _mention_length(study, ended, epochs, watched)
                _mention_beside(study, ended, epochs)
                _mention_opposite(study, ended)
                known, judges = len(ended), self._judges(study, ended, epochs)
            while len(self._made) >= _LENGTHS:
                self._made.pop(next(iter(self._made)))
            self._made[epochs] = (known, judges)
        return judges

    def _judges(self, study: Any, ended: Sequence[Any], epochs: int) -> list[Judge]:
        maximize = is_maximize(study)
        made = []
        for objective, up in enumerate(maximize):
            curves = [curve_of(trial, objective, maximize, epochs, self.value_of) for trial in ended]
            made.append(Judge(self.profile, Knowledge(curves, epochs), maximize=up))
        return made


def of_study(study: Any, profile: SearchProfile, value_of: ValueOf) -> Memory:
    """What this process has read of a study; shared by the trials that it runs, in threads too."""
    with _one_at_a_time:
        known = _memories.setdefault(study, {})
        return known.setdefault((profile.digest, value_of), Memory(profile, value_of=value_of))


def _ended(study: Any) -> list[Any]:
    trials = study.get_trials(deepcopy=False)
    return [trial for trial in trials if trial.state.name in ("COMPLETE", "PRUNED")]


def planned_epochs(study: Any) -> int | None:
    """The number of reports of the longest completed trial, where nobody said how many are planned."""
    lengths = [len(t.intermediate_values) for t in _ended(study) if t.state.name == "COMPLETE"]
    return max(lengths, default=0) or None


def remember_profile(study: Any, profile: SearchProfile) -> None:
    """Note in the study under which profile it runs; say once when it ran under another one before.

    The change is allowed: curves do not depend on the profile, and every trial notes its own.
    """
    now = {"name": profile.name, "digest": profile.digest}
    with _one_at_a_time:
        known = study.user_attrs.get(PROFILE)
        if known == now:
            return
        change = (
            study.study_name,
            str(known.get("digest")) if isinstance(known, Mapping) else "",
            profile.digest,
        )
        if isinstance(known, Mapping) and change not in _changes:
            _changes.add(change)
            _log.warning(
                "study %r ran under search profile %r so far and goes on under %r%s; each trial notes its own",
                study.study_name,
                known.get("name"),
                profile.name,
                _changed(*change[1:]) if known.get("name") == profile.name else "",
            )
        study.set_user_attr(PROFILE, now)


def _changed(before: str, now: str) -> str:
    """The fields in which a profile differs from one of the same name."""
    return f" with {', '.join(part for part in now.split(';') if part not in before.split(';'))}"


def chosen_pruner(pruner: Any) -> Any:
    """The pruner of a study, or None for the median rule that Optuna puts there when nobody names one.

    In Optuna that one does nothing before an objective asks for it, and it gives up good trials too. It is asked where
    it was wrapped in a :class:`~akeso.search.DiagnosisPruner`, or made otherwise than by default.
    """
    from optuna.pruners import MedianPruner

    unnamed = type(pruner) is MedianPruner and vars(pruner) == vars(MedianPruner())
    return None if unnamed else pruner


def ends_early(study: Any, trial: Any) -> None:
    """Note that this process ends a trial early with its value."""
    with _one_at_a_time:
        _ended_early.add((study.study_name, trial.number))


def value_asked(study: Any, trial: Any) -> None:
    """Note that an objective has gone past the block of a trial that ended early: if it fails, the block is not why."""
    with _one_at_a_time:
        _mentioned.add((study.study_name, trial.number))
        _ended_early.discard((study.study_name, trial.number))


def mention_lost(study: Any) -> bool:
    """Say once of each trial that ended early with a value which its objective then did not return.

    One of this process whose objective is known to have failed after its block is left out. Whether one of them was of
    this process: its objective loses such values, and others would be lost too.
    """
    ours = False
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name != "FAIL" or about(trial).get("outcome") != "finished early":
            continue
        with _one_at_a_time:
            named = (study.study_name, trial.number)
            lost_here, known = named in _ended_early, named in _mentioned
            _mentioned.add(named)
        ours = ours or lost_here
        if known:
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


def open_once(study: Any, trial: Any) -> bool:
    """Note that a watch of a trial begins; False where another one of the same trial is still open."""
    with _one_at_a_time:
        named = (id(study._storage), trial._trial_id)
        if named in _open:
            return False
        _open.add(named)
        return True


def closed(study: Any, trial: Any) -> None:
    """Note that the watch of a trial which was opened first is over."""
    with _one_at_a_time:
        _open.discard((id(study._storage), trial._trial_id))


def mention_again(study: Any, trial: Any) -> None:
    """Say once per study that a trial is watched for a second time: Optuna keeps one curve of it, the first."""
    with _one_at_a_time:
        if study.study_name in _watched_again:
            return
        _watched_again.add(study.study_name)
    _log.warning(
        "trial %d of study %r is watched for a second time; of each step the study keeps the first report only. Of "
        "several folds or repeats report the mean, inside of one watch",
        trial.number,
        study.study_name,
    )


def mention_backwards(study: Any, trial: Any, step: int, last: int) -> None:
    """Say once per study that a step is reported after a later one: a study has its curves in the order of steps."""
    with _one_at_a_time:
        if study.study_name in _backwards:
            return
        _backwards.add(study.study_name)
    _log.warning(
        "trial %d of study %r reported step %d after step %d; curves are taken in the order of their steps, and the "
        "last report is that of the highest one, as in Optuna: let steps count upwards",
        trial.number,
        study.study_name,
        step,
        last,
    )


def _mention_length(study: Any, ended: Sequence[Any], epochs: int, watched: bool) -> None:
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
    if len(reports) < enough or not lengths or epochs in lengths or study.study_name in _otherwise:
        return
    _otherwise.add(study.study_name)
    _log.warning(
        "the finished trials of study %r reported %s times each, but their %s was told epochs=%d; curves are "
        "compared only where epochs is the number of reports of a whole trial%s",
        study.study_name,
        lengths[0] if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}",
        "watch" if watched else "DiagnosisPruner",
        epochs,
        "" if len(lengths) == 1 else ", and an objective that ends its trials by itself leaves none",
    )


def _mention_beside(study: Any, ended: Sequence[Any], epochs: int) -> None:
    """Say once per study that its trials report to it beside their watch: their curves are then longer than planned."""
    if study.study_name in _beside or len(study.directions) > 1:
        return
    told = [(about(trial), len(trial.intermediate_values)) for trial in ended]
    counts = [
        (said.get("reports"), reports)
        for said, reports in told
        if said.get("outcome") == "finished" and said.get("epochs") == epochs
    ]
    if len(counts) < _SEVERAL or any(watched != epochs or reports == epochs for watched, reports in counts):
        return
    _beside.add(study.study_name)
    _log.warning(
        "the finished trials of study %r have %d reports, of which health.report made %d: their objective calls "
        "trial.report with steps of its own too, so that their curves are compared with none; leave trial.report out, "
        "for health.report reports to the study",
        study.study_name,
        counts[0][1],
        epochs,
    )


def _mention_opposite(study: Any, ended: Sequence[Any]) -> None:
    """Say once per study that its trials report what goes the other way than what they return: losses, not accuracies.

    A report is judged by the direction of the study, by Optuna's pruners too. Then the best are given up.
    """
    if study.study_name in _opposite or len(study.directions) > 1:
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
    _opposite.add(study.study_name)
    _log.warning(
        "the trials of study %r that report more return less; reports are judged by the direction of the study, so "
        "that its best trials are given up: report what the objective returns, or the negative of what is reported now",
        study.study_name,
    )
