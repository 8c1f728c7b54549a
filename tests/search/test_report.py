"""``akeso search report`` on what is no storage, and the JSON of the search commands."""

from __future__ import annotations

import json
import math
import sqlite3
from pathlib import Path
from typing import Any

import optuna
import pytest
from click.testing import CliRunner

from akeso.errors import BadInput
from akeso.search import attributes
from akeso.search.cli import search
from akeso.search.recorded import Finding, RecordedTrial, StudyRecorder
from akeso.search.report import as_json, of_recorded, of_storage, of_study, shown_report

optuna.logging.set_verbosity(optuna.logging.ERROR)


def strict(text: str) -> Any:
    """The document as a parser reads it that knows no NaN."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_files_that_are_no_storage_are_clear_errors_and_stay_as_they_are(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("create table mine (x)")
    connection.close()
    script, empty, torn = tmp_path / "s.py", tmp_path / "empty.log", tmp_path / "torn.log"
    script.write_text("import akeso\nprint(1)\n")
    empty.write_text("")
    torn.write_bytes(b"\xff\xfe\x00\n" * 3)
    for path in (foreign, script, torn):
        before = path.read_bytes()
        with pytest.raises(BadInput, match=r"cannot be read as a storage of Optuna .*; give the URL"):
            of_storage(str(path), None)
        assert path.read_bytes() == before
    with pytest.raises(BadInput, match="holds no study; give the URL"):
        of_storage(str(empty), None)


@pytest.mark.parametrize("where", ["missing.db", "sqlite:///missing.db", "sqlite:///deep/er/missing.db"])
def test_what_is_not_there_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="there is no study at"):
        of_storage(where, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["nothing://x", "redis://localhost:1", "://"])
def test_urls_of_no_storage_are_clear_errors(where: str) -> None:
    with pytest.raises(BadInput, match="cannot be read as a storage"):
        of_storage(where, None)


def test_a_storage_is_read_by_its_url_its_path_and_its_study(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    for name in ("one", "two"):
        study = optuna.create_study(study_name=name, storage=f"sqlite:///{path}")
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    for where in (str(path), f"sqlite:///{path}"):
        assert len(of_storage(where, "two")) == 2
        with pytest.raises(BadInput, match="one, two; name one"):
            of_storage(where, None)
        with pytest.raises(BadInput, match="holds no study 'three', but one, two"):
            of_storage(where, "three")


@pytest.mark.parametrize("name", ["50%20off.db", "which?.db", "run#3.db", "a+b {c}.db"])
def test_a_file_is_read_whatever_it_is_called_and_no_other_is_made(tmp_path: Path, name: str) -> None:
    plain = tmp_path / "plain.db"
    optuna.create_study(storage=f"sqlite:///{plain}").optimize(lambda trial: 1.0, n_trials=3)
    plain.rename(tmp_path / name)
    assert len(of_storage(str(tmp_path / name), None)) == 3
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_of_a_damaged_database_it_is_said_what_is_wrong_with_it(tmp_path: Path) -> None:
    path = tmp_path / "torn.db"
    optuna.create_study(storage=f"sqlite:///{path}")
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(BadInput, match=r"\(DatabaseError: database disk image is malformed\)"):
        of_storage(str(path), None)


def test_an_error_of_several_lines_takes_one_line_of_the_report() -> None:
    study = optuna.create_study()
    crashed = {"outcome": "crashed", "error": "RuntimeError: no memory\n  tried 2 GB\n  free 1 GB"}
    study.add_trial(
        optuna.trial.create_trial(state=optuna.trial.TrialState.FAIL, user_attrs={attributes.TRIAL: crashed})
    )
    shown = shown_report(of_study(study)).splitlines()
    assert shown[1:] == ["    0  crashed        RuntimeError: no memory tried 2 GB free 1 GB"]


def test_numbers_that_are_not_finite_are_null_in_json(tmp_path: Path) -> None:
    assert strict(as_json({"a": [math.nan, {"b": -math.inf}], "c": (1.5, True, None, "NaN")})) == {
        "a": [None, {"b": None}],
        "c": [1.5, True, None, "NaN"],
    }
    folder = tmp_path / "recorded"
    recorder = StudyRecorder(folder, name="broken", maximize=False, epochs=2, value_of="last")
    for number in range(2):
        recorder.add(RecordedTrial(number, {}, (math.nan, math.inf), (1.0, 2.0)))
    rows = strict(CliRunner().invoke(search, ["report", str(folder), "--json"]).output)
    assert [row["values"] for row in rows] == [[None], [None]]
    shown = strict(CliRunner().invoke(search, ["simulate", str(folder), "--json"]).output)
    assert (shown["best"], shown["best_without"], shown["best_lost"]) == (None, None, None)
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    optuna.create_study(storage=storage).optimize(lambda trial: math.inf, n_trials=1)
    rows = strict(CliRunner().invoke(search, ["report", storage, "--json"]).output)
    assert rows[0]["values"] == [None]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_of_a_study_in_shadow_it_is_said_how_many_stops_would_have_been_wrong(sign: float) -> None:
    """Costs 0 to 7: the best quarter are 0 and 1. The trials 1, 5 and 6 would have been stopped, 2 ended early."""
    study = optuna.create_study(direction="minimize" if sign > 0 else "maximize")
    for number in range(8):
        action = {1: "stop", 5: "stop", 6: "stop", 2: "finish"}.get(number)
        would = {"akeso:would_have": {"action": action, "sentence": "Hopeless."}} if action else {}
        study.add_trial(optuna.trial.create_trial(value=sign * number, user_attrs=would))
    for _ in range(4):
        study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.FAIL))
    rows = of_study(study)
    assert [row["number"] for row in rows if row["best_quarter"]] == [0, 1]
    assert shown_report(rows).splitlines()[1] == (
        "in shadow: 3 would have been stopped, 1 of these ended in the best quarter; 1 would have ended early, "
        "keeping their value"
    )
    several = optuna.create_study(directions=["minimize", "maximize"])
    several.add_trial(optuna.trial.create_trial(values=[1.0, 2.0]))
    assert not of_study(several)[0]["best_quarter"]


@pytest.mark.parametrize("maximize", [False, True])
def test_of_a_recorded_study_the_best_quarter_and_what_trials_are_worth(
    tmp_path: Path, maximize: bool
) -> None:
    recorder = StudyRecorder(tmp_path, name="s", maximize=maximize, epochs=3, value_of="best")
    for number in range(8):
        recorder.add(RecordedTrial(number, {}, (1 - number / 10, 1 + number / 10, 1.0), (1.0, 2.0, 3.0)))
    recorder.add(RecordedTrial(8, {}, (9.0 if maximize else -9.0,), (1.0,), crashed="RuntimeError: boom"))
    rows = of_recorded(tmp_path)
    assert [row["number"] for row in rows if row["best_quarter"]] == [5, 6, 7]
    best = 1.7 if maximize else 0.3
    assert (rows[7]["values"], rows[8]["values"]) == ([pytest.approx(best)], None)


def test_what_was_found_in_a_recorded_network_is_not_said_to_have_crashed_its_trial(tmp_path: Path) -> None:
    recorder = StudyRecorder(tmp_path, name="s", maximize=False, epochs=2)
    found = Finding("akeso", "non-finite", 0.5, "net.0", 3, sentence="The weight became NaN in step 3.")
    recorder.add(RecordedTrial(0, {}, (0.5,), (1.0,), (found,), crashed="OSError: no room left."))
    rows = of_recorded(tmp_path)
    assert (rows[0]["outcome"], rows[0]["problem"], rows[0]["layer"]) == ("crashed", "", "")
    shown = shown_report(rows).splitlines()[1]
    assert shown == (
        "    0  crashed        OSError: no room left. Found before: The weight became NaN in step 3."
    )
