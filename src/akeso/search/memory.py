"""What a study remembers: its ended trials, read from their attributes in its own storage.

Every worker reads the same ended trials and therefore comes to the same verdicts; a resumed study goes on where
it stood.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from akeso.search import mentions
from akeso.search.attributes import curve_of, is_maximize
from akeso.search.curves import Knowledge, ValueOf
from akeso.search.judge import Judge
from akeso.search.profiles import SearchProfile

PROFILE = "akeso:profile"

#: Where the number of epochs is a hyperparameter, judges are kept for so many of its values.
_LENGTHS = 8

_one_at_a_time = threading.Lock()
#: Trials that are being watched in this process, by their storage and their number in it.
_open: set[tuple[int, int]] = set()
#: By study, as long as somebody holds it: one pruner may serve several, and a study may have none of ours.
_memories: WeakKeyDictionary[Any, dict[tuple[str, str], Memory]] = WeakKeyDictionary()
_log = logging.getLogger("akeso.search")


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
                mentions.length(study, ended, epochs, watched)
                mentions.beside(study, ended, epochs)
                mentions.opposite(study, ended)
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
        if isinstance(known, Mapping) and mentions.first_time(*change):
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
