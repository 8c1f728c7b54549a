"""How the trials of a study ended, read from its storage."""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from akeso.errors import AkesoError, BadInput
from akeso.search import _optional, attributes
from akeso.search.recorded import PRUNED, load
from akeso.search.tally import finals_of, goal_among, goal_of

_WANTED = "give the URL of a storage, an SQLite or journal file, or the folder of a recorded study"


def of_study(study: Any) -> list[dict[str, Any]]:
    """One row per trial of an Optuna study."""
    rows = []
    trials = study.get_trials(deepcopy=False)
    best = _best_quarter(study, trials)
    for trial in trials:
        said = trial.user_attrs
        about = attributes.about(trial)
        would = said.get(attributes.SHADOW)
        outcome, sentence = _ended(trial.state.name, said, about)
        rows.append(
            {
                "number": trial.number,
                "state": trial.state.name,
                "values": trial.values,
                "outcome": outcome,
                "problem": said.get("akeso:problem", ""),
                "layer": said.get("akeso:layer", ""),
                "step": said.get("akeso:step", -1),
                "sentence": sentence,
                "would_have": would.get("sentence", "") if isinstance(would, Mapping) else "",
                "would_do": would.get("action", "") if isinstance(would, Mapping) else "",
                "best_quarter": trial.number in best,
                "used": said.get(attributes.USED),
                "profile": about.get("profile", ""),
                "overhead": about.get("overhead"),
            }
        )
    return rows


def _best_quarter(study: Any, trials: Sequence[Any]) -> set[int]:
    """The numbers of the trials that ended in the best quarter; none where there are several objectives."""
    if len(study.directions) > 1:
        return set()
    maximize = attributes.is_maximize(study)[0]
    ended = [trial for trial in trials if trial.state.name in ("COMPLETE", "PRUNED")]
    counts = {t.number: t.state.name == "COMPLETE" and attributes.is_feasible(t) for t in ended}
    ends = {trial.number: trial.value if counts[trial.number] else math.nan for trial in ended}
    goal = goal_among(list(ends.values()), maximize=maximize)
    return {number for number, end in ends.items() if (end >= goal if maximize else end <= goal)}


def _ended(state: str, said: Mapping[str, Any], about: Mapping[str, Any]) -> tuple[str, str]:
    """How a trial ended, and the sentence about it."""
    outcome = about.get("outcome") or said.get("akeso:outcome") or _plain(state)
    sentence = said.get("akeso:sentence", "")
    if outcome == "crashed":
        sentence = about.get("error", "") or sentence
    if state == "COMPLETE" and outcome == "crashed":
        # The objective caught the error, or left the block on purpose, and has returned a value.
        return "finished", f"completed, although its with block was left by {sentence}"
    if state == "FAIL" and outcome != "crashed":
        # The watch had ended well: what failed came after it, or no value was returned.
        return "crashed", f"failed outside of the watch (there: {outcome})" + (
            f". {sentence}" if sentence else ""
        )
    if state == "COMPLETE" and outcome == "stopped":
        return "finished", f"went on and completed, although it was to be stopped. {sentence}".rstrip()
    if state == "PRUNED" and outcome not in ("stopped", "crashed"):
        # Nothing ended it, but it came to no value: in shadow, or for reasons that lie outside of the watch.
        if not sentence and attributes.SHADOW in said:
            sentence = "ran on in shadow, and came to no finite value or was pruned outside of the watch"
        return "stopped", sentence or "pruned outside of the watch, or without a finite value at its end"
    return outcome, sentence


def _plain(state: str) -> str:
    return {"COMPLETE": "finished", "PRUNED": "stopped", "FAIL": "crashed"}.get(state, state.lower())


def of_storage(where: str, name: str | None) -> list[dict[str, Any]]:
    """One row per trial of a study in a storage, given by its URL or its file; nothing is written to it."""
    optuna = _optional.optuna("akeso search report")
    try:
        storage = _opened(optuna, where)
        names = optuna.get_all_study_names(storage)
    except AkesoError:
        raise
    except Exception as raised:  # each kind of storage has its own ways of not being one
        error: BaseException = raised
        while error.__cause__ is not None:  # Optuna has the same words for everything that a database refuses
            error = error.__cause__
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BadInput(f"{where} cannot be read as a storage of Optuna ({said}); {_WANTED}") from raised
    if not names:
        raise BadInput(f"{where} holds no study; {_WANTED}")
    if name is None and len(names) != 1:
        raise BadInput(f"{where} holds the studies {', '.join(names)}; name one with --name")
    if name is not None and name not in names:
        raise BadInput(f"{where} holds no study {name!r}, but {', '.join(names)}")
    return of_study(optuna.load_study(study_name=name or names[0], storage=storage))


def _opened(optuna: Any, where: str) -> Any:
    """The storage at a URL or in a file, opened as one that is there already: no tables are made in it."""
    is_url = "://" in where
    path = _file_of(where) if is_url else Path(where)
    if path is not None and not path.is_file():
        raise BadInput(f"there is no study at {where!r}; {_WANTED}")
    if is_url:
        return optuna.storages.RDBStorage(where, skip_table_creation=True)
    assert path is not None
    if _is_sqlite(path):
        # By its path, for in a URL a name with a % or ? in it would be that of another file, which SQLite makes.
        by_path = {"creator": partial(sqlite3.connect, path)}
        return optuna.storages.RDBStorage("sqlite:///", by_path, skip_table_creation=True)
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))


def _file_of(url: str) -> Path | None:
    """The file in which the database of a URL lies; None where it is none."""
    from sqlalchemy.engine import make_url

    parsed = make_url(url)
    database = parsed.database or ""
    return Path(database) if parsed.drivername.startswith("sqlite") and database[:5] != "file:" else None


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(15) == b"SQLite format 3"


def of_recorded(folder: Path) -> list[dict[str, Any]]:
    """One row per trial of a recorded study."""
    rows = []
    recorded = load(folder)
    ends, goal = finals_of(recorded), goal_of(recorded)
    for trial in recorded.trials:
        end = ends[trial.number]
        first = trial.findings[0] if trial.findings else None
        said = first.sentence if first else ""
        state, outcome = ("FAIL", "crashed") if trial.crashed else ("COMPLETE", "recorded")
        if trial.crashed == PRUNED:
            state, outcome = "PRUNED", "stopped"
        if trial.crashed:  # what was found in its network is no reason for how it ended
            said = f"{trial.crashed.rstrip('.')}. Found before: {said}" if said else trial.crashed
            first = None
        rows.append(
            {
                "number": trial.number,
                "state": state,
                "values": [end] if trial.values and not trial.crashed else None,
                "outcome": outcome,
                "problem": first.problem if first else "",
                "layer": first.layer if first else "",
                "step": first.step if first else -1,
                "sentence": said,
                "would_have": "",
                "would_do": "",
                "best_quarter": end >= goal if recorded.maximize else end <= goal,
                "used": None,
                "profile": first.profile if first else "",
                "overhead": trial.overhead,
            }
        )
    return rows


def as_json(content: Any) -> str:
    """The content as one JSON document; a number that is not finite, which JSON does not know, is ``null``."""
    return json.dumps(_finite(content), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def shown_report(rows: list[dict[str, Any]]) -> str:
    """The rows as text: totals, then one line per trial that did not simply finish."""
    if not rows:
        return "The study has no trials yet."
    totals = Counter(row["outcome"] for row in rows)
    lines = [f"{len(rows)} trials: " + ", ".join(f"{count} {name}" for name, count in totals.most_common())]
    would = [row for row in rows if row["would_do"] == "stop"]
    early = sum(row["would_do"] == "finish" for row in rows)
    if would or early:
        wrongly = sum(row["best_quarter"] for row in would)
        lines.append(
            f"in shadow: {len(would)} would have been stopped, {wrongly} of these ended in the best quarter"
            + (f"; {early} would have ended early, keeping their value" if early else "")
        )
    for row in rows:
        where = f" in {row['layer']}" if row["layer"] else ""
        when = f" at step {row['step']}" if isinstance(row["step"], int) and row["step"] >= 0 else ""
        if row["sentence"]:
            about = f"{row['problem']}{where}{when}: " if row["problem"] else ""
            said = " ".join(row["sentence"].split())  # errors may have several lines
            lines.append(f"{row['number']:5d}  {row['outcome']:14} {about}{said}")
        if row["would_have"]:
            lines.append(f"{row['number']:5d}  would have been ended: {row['would_have']}")
        if row["used"]:
            lines.append(f"{row['number']:5d}  really used: {row['used']}")
    return "\n".join(lines)
