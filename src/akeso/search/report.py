"""How the trials of a study ended, read from its storage."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from akeso.errors import BadInput
from akeso.search import _optional, memory
from akeso.search.recorded import load


def of_study(study: Any) -> list[dict[str, Any]]:
    """One row per trial of an Optuna study."""
    rows = []
    for trial in study.get_trials(deepcopy=False):
        attributes = trial.user_attrs
        about = attributes.get(memory.TRIAL, {})
        would = attributes.get(memory.SHADOW)
        rows.append(
            {
                "number": trial.number,
                "state": trial.state.name,
                "values": trial.values,
                "outcome": about.get("outcome")
                or attributes.get("akeso:outcome")
                or _plain(trial.state.name),
                "problem": attributes.get("akeso:problem", ""),
                "layer": attributes.get("akeso:layer", ""),
                "step": attributes.get("akeso:step", -1),
                "sentence": attributes.get("akeso:sentence", "") or about.get("error", ""),
                "would_have": would["sentence"] if would else "",
                "used": attributes.get(memory.USED),
                "profile": about.get("profile", ""),
                "overhead": about.get("overhead"),
            }
        )
    return rows


def _plain(state: str) -> str:
    return {"COMPLETE": "finished", "PRUNED": "stopped", "FAIL": "crashed"}.get(state, state.lower())


def of_storage(where: str, name: str | None) -> list[dict[str, Any]]:
    """One row per trial of a study in a storage, given by its URL or its file."""
    optuna = _optional.optuna("akeso search report")
    storage: Any = where
    if "://" not in where:
        path = Path(where)
        if not path.is_file():
            raise BadInput(
                f"there is no study at {where!r}; give the URL of a storage, an SQLite or journal file, or the "
                "folder of a recorded study"
            )
        with path.open("rb") as file:
            is_sqlite = file.read(15) == b"SQLite format 3"
        if is_sqlite:
            storage = f"sqlite:///{path}"
        else:
            journal = optuna.storages.journal
            storage = optuna.storages.JournalStorage(journal.JournalFileBackend(str(path)))
    names = optuna.get_all_study_names(storage)
    if name is None and len(names) != 1:
        raise BadInput(f"{where} holds the studies {', '.join(names) or '(none)'}; name one with --name")
    if name is not None and name not in names:
        raise BadInput(f"{where} holds no study {name!r}, but {', '.join(names) or 'none at all'}")
    return of_study(optuna.load_study(study_name=name or names[0], storage=storage))


def of_recorded(folder: Path) -> list[dict[str, Any]]:
    """One row per trial of a recorded study."""
    rows = []
    for trial in load(folder).trials:
        first = trial.findings[0] if trial.findings else None
        rows.append(
            {
                "number": trial.number,
                "state": "FAIL" if trial.crashed else "COMPLETE",
                "values": [trial.values[-1]] if trial.values else None,
                "outcome": "crashed" if trial.crashed else "recorded",
                "problem": first.problem if first else "",
                "layer": first.layer if first else "",
                "step": first.step if first else -1,
                "sentence": trial.crashed or (first.sentence if first else ""),
                "would_have": "",
                "used": None,
                "profile": first.profile if first else "",
                "overhead": trial.overhead,
            }
        )
    return rows


def shown_report(rows: list[dict[str, Any]]) -> str:
    """The rows as text: totals, then one line per trial that did not simply finish."""
    if not rows:
        return "The study has no trials yet."
    totals = Counter(row["outcome"] for row in rows)
    lines = [f"{len(rows)} trials: " + ", ".join(f"{count} {name}" for name, count in totals.most_common())]
    for row in rows:
        where = f" in {row['layer']}" if row["layer"] else ""
        when = f" at step {row['step']}" if row["step"] >= 0 else ""
        if row["sentence"]:
            lines.append(
                f"{row['number']:5d}  {row['outcome']:14} {row['problem']}{where}{when}: {row['sentence']}"
            )
        if row["would_have"]:
            lines.append(f"{row['number']:5d}  would have been ended: {row['would_have']}")
        if row["used"]:
            lines.append(f"{row['number']:5d}  really used: {row['used']}")
    return "\n".join(lines)
