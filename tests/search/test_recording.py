"""Recording into a folder again, with the wrong objective, or with the wrong study: by function and by command."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import click
import optuna
import pytest
from click.testing import CliRunner

import akeso
from akeso.errors import BadInput
from akeso.search import load, record
from akeso.search.cli import search
from akeso.search.profiles import BTTACKLER
from akeso.search.recorded import RecordedTrial, StudyRecorder
from akeso.search.recording import RECORDED
from akeso.search.rules import NoRule, ProfileRule
from akeso.search.simulation import in_order, simulate
from akeso.search.tally import tally
from tests.search.trials import build, train_epoch
from tests.search.trials import objective as training

optuna.logging.set_verbosity(optuna.logging.CRITICAL)


def new_study(seed: int = 0, direction: str = "minimize", **options: Any) -> optuna.Study:
    sampler = optuna.samplers.RandomSampler(seed=seed)
    return optuna.create_study(direction=direction, sampler=sampler, **options)


def watched(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", 0, 1)
    with akeso.search.watch(trial, epochs=3) as health:
        for epoch in range(3):
            health.report(x + 1 / (epoch + 1))
    return float(health.value)


def test_recording_a_new_study_into_a_folder_adds_to_the_trials_there(tmp_path: Path) -> None:
    first = new_study(seed=0)
    record(first, watched, tmp_path, epochs=3, trials=6)
    before = load(tmp_path).trials
    second = new_study(seed=1)
    record(second, watched, tmp_path, epochs=3, trials=6)
    trials = load(tmp_path).trials
    assert [trial.number for trial in trials] == list(range(12))
    assert trials[:6] == before
    assert [t.params["x"] for t in trials[6:]] == [t.params["x"] for t in second.trials]
    assert [t.user_attrs[RECORDED] for t in second.trials] == list(range(6, 12))


def test_a_study_that_goes_on_keeps_the_numbers_of_its_trials(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    for _ in range(2):
        study = new_study(study_name="one", storage=storage, load_if_exists=True)
        record(study, watched, tmp_path / "recorded", epochs=3, trials=2)
    assert [t.user_attrs[RECORDED] for t in study.trials] == [0, 1, 2, 3]
    assert len(load(tmp_path / "recorded").trials) == 4


def test_journals_of_different_studies_do_not_share_a_folder(tmp_path: Path) -> None:
    for seed in (0, 1):
        record(new_study(seed), lambda t: training(t, epochs=1), tmp_path, epochs=1, trials=1)
    journals = [tmp_path / "journals" / name for name in ("00000", "00001")]
    assert all(list(journal.iterdir()) for journal in journals)
    assert load(tmp_path).trials[0].params != load(tmp_path).trials[1].params


def test_a_number_is_claimed_by_one_worker_only(tmp_path: Path) -> None:
    recorder = StudyRecorder(tmp_path, name="one", maximize=False, epochs=3)
    recorder.add(RecordedTrial(2, {}, (), ()))  # without a journal
    claimed: list[int] = []
    workers = [threading.Thread(target=lambda: claimed.append(recorder.claim(0))) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(claimed) == [0, 1, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("direction", "epochs", "value_of"),
    [("maximize", 3, "last"), ("minimize", 4, "last"), ("minimize", 3, "best")],
)
def test_a_study_of_another_kind_is_refused_before_it_trains(
    tmp_path: Path, direction: str, epochs: int, value_of: str
) -> None:
    record(new_study(), watched, tmp_path, epochs=3, trials=1)
    other = new_study(direction=direction)
    with pytest.raises(
        BadInput, match=r"minimizes the last value of 3 epochs, not one that .* another folder"
    ):
        record(other, watched, tmp_path, epochs=epochs, trials=2, value_of=value_of)
    assert other.trials == []
    assert len(load(tmp_path).trials) == 1


def test_an_objective_without_watch_is_refused_after_its_first_trial(tmp_path: Path) -> None:
    study = new_study()
    with pytest.raises(BadInput, match=r"does not use akeso\.search\.watch: trial 0 completed without it"):
        record(study, lambda trial: trial.suggest_float("x", 0, 1), tmp_path, epochs=3, trials=5)
    assert len(study.trials) == 1


def test_a_trial_that_ends_before_watch_is_left_out(tmp_path: Path) -> None:
    def sometimes(trial: optuna.Trial) -> float:
        if trial.number == 0:
            raise optuna.TrialPruned  # a combination that makes no network
        return 0.5 if trial.number == 2 else watched(trial)  # and one whose value is known

    record(new_study(), sometimes, tmp_path, epochs=3, trials=4)
    assert [trial.number for trial in load(tmp_path).trials] == [1, 3]


def test_when_no_trial_gets_as_far_as_watch_the_error_says_why(tmp_path: Path) -> None:
    def broken(trial: optuna.Trial) -> float:
        raise RuntimeError("no data")

    with pytest.raises(BadInput, match=r"none of 2 got as far .*trial 0 ended with RuntimeError: no data"):
        record(new_study(), broken, tmp_path, epochs=3, trials=2)


def test_wrong_values_and_foreign_folders_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="value_of is 'last' or 'best', but value_of='first'"):
        record(new_study(), watched, tmp_path, epochs=3, trials=1, value_of="first")
    for text in ("not JSON", "[1]", '{"name": "x"}'):
        (tmp_path / "study.json").write_text(text)
        with pytest.raises(BadInput, match=r"study\.json does not describe a recorded study"):
            load(tmp_path)
        with pytest.raises(BadInput, match=r"study\.json does not describe a recorded study"):
            record(new_study(), watched, tmp_path, epochs=3, trials=1)
    with pytest.raises(BadInput, match=r"kept in a folder, but '.*study\.json' cannot be one"):
        record(new_study(), watched, tmp_path / "study.json", epochs=3, trials=1)


OBJECTIVES = """
import akeso

def watched(trial):
    x = trial.suggest_float("x", 0, 1)
    if trial.number == 3:
        raise RuntimeError("before")
    with akeso.search.watch(trial, epochs=2) as health:
        health.report(x)
        if trial.number == 1:
            raise RuntimeError("within")
        health.report(x)
    return health.value

def unwatched(trial):
    return trial.suggest_float("x", 0, 1)

def odd(trial):
    with akeso.search.watch(trial, epochs=2) as health:
        if trial.number == 1:
            import optuna
            raise optuna.TrialPruned("enough")
    return 1.0
"""


def test_the_command_counts_what_is_new_and_fails_when_nothing_is(tmp_path: Path) -> None:
    script, folder = tmp_path / "mine.py", tmp_path / "recorded"
    script.write_text(OBJECTIVES)

    def run(function: str, trials: int, *options: str) -> Any:
        common = ["--trials", str(trials), "--epochs", "2"]
        return CliRunner().invoke(search, ["record", f"{script}:{function}", str(folder), *common, *options])

    done = run("watched", 3, "--direction", "minimize")
    assert (done.exit_code, "3 trials recorded" in done.output) == (0, True)
    assert "1 of these crashed" in done.output
    done = run("watched", 5, "--direction", "minimize", "--seed", "1")
    assert "7 trials recorded" in done.output
    assert "4 of them now" in done.output
    assert "1 of 5 trials ended before akeso.search.watch" in done.output
    done = run("watched", 2, "--direction", "maximize")
    assert done.exit_code != 0
    assert "record into another folder" in str(done.exception)
    done = run("unwatched", 2, "--direction", "minimize")
    assert done.exit_code != 0
    assert "does not use akeso.search.watch" in str(done.exception)
    assert len(load(folder).trials) == 7


def test_the_commands_tell_trials_apart_that_have_no_values(tmp_path: Path) -> None:
    script, folder = tmp_path / "mine.py", tmp_path / "recorded"
    script.write_text(OBJECTIVES)

    def run(*options: str) -> str:
        return CliRunner().invoke(search, options).output

    done = run(
        "record", f"{script}:odd", str(folder), "--trials", "3", "--epochs", "2", "--direction", "minimize"
    )
    assert "1 of these crashed or were pruned by the objective" in done
    assert "2 of these reported nothing" in done
    assert load(folder).name == "recorded"
    assert "1  stopped        pruned by its objective" in run("report", str(folder))
    shown = run("simulate", str(folder))
    assert "best value: none, for no trial came to a finite one" in shown
    assert "nan" not in shown
    assert "-0.0" not in shown
    by = {line.split()[0]: line.split()[2] for line in shown.splitlines() if " stop " in line}
    assert by == {"no-report": "2", "objective": "1"}


def test_a_folder_in_which_no_trial_began_is_free_for_another_kind_of_study(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="recorded with 9 epochs"):
        record(new_study(), watched, tmp_path, epochs=9, trials=1)
    record(new_study(), watched, tmp_path, epochs=3, trials=1)
    assert (load(tmp_path).epochs, len(load(tmp_path).trials)) == (3, 1)
    with pytest.raises(BadInput, match="record into another folder"):
        record(new_study(), watched, tmp_path, epochs=9, trials=1)


@pytest.mark.parametrize("command", ["record", "simulate", "report"])
def test_every_option_says_what_it_is(command: str) -> None:
    options = [one for one in search.commands[command].params if isinstance(one, click.Option)]
    assert [one.name for one in options if not one.help] == []


def test_an_objective_may_import_what_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "helper_of_the_objective.py").write_text("VALUE = 0.5\n")
    (tmp_path / "objective.py").write_text(
        "import akeso\nfrom helper_of_the_objective import VALUE\n\n\ndef run(trial):\n"
        "    trial.suggest_float('x', 0, 1)\n"
        "    with akeso.search.watch(trial, epochs=2) as health:\n"
        "        health.report(VALUE)\n        health.report(VALUE)\n    return health.value\n"
    )
    options = ["--trials", "1", "--epochs", "2", "--direction", "minimize"]
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(objective: str) -> Any:
        return CliRunner().invoke(search, ["record", objective, str(tmp_path / "out"), *options])

    assert run(f"{tmp_path / 'objective.py'}:run").exit_code == 0
    assert "there is no file 'nofile.py'" in str(run("nofile.py:run").exception)


def test_epochs_that_differ_between_recording_and_watch_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"recorded with 9 epochs, but trial 0 is watched with epochs=3; give both"
    ):
        record(new_study(), watched, tmp_path, epochs=9, trials=2)


def test_a_trial_that_ends_itself_early_is_replayed_with_its_value(tmp_path: Path) -> None:
    def patient(trial: optuna.Trial) -> float:
        with akeso.search.watch(trial, epochs=6) as health:
            for epoch in range(3 if trial.number == 1 else 6):
                health.report(1 / (epoch + 1) - 0.5 * (trial.number == 1))
            if trial.number == 2:
                raise optuna.TrialPruned
        return float(health.value)

    record(new_study(), patient, tmp_path, epochs=6, trials=3)
    study = load(tmp_path)
    assert [trial.crashed for trial in study.trials] == ["", "", "pruned by its objective"]
    ended = simulate(study, NoRule(), in_order([0, 1, 2])).ended
    assert [bool(one.verdict) for one in ended] == [False, False, False]
    assert ended[1].value == ended[1].would == pytest.approx(1 / 3 - 0.5)
    assert tally(study, simulate(study, NoRule(), in_order([1]))).best_lost == 0


def test_an_objective_may_lie_in_a_file_of_any_name(tmp_path: Path) -> None:
    script = tmp_path / "train"
    script.write_text(
        "import akeso\n\ndef objective(trial):\n    with akeso.search.watch(trial, epochs=1) as health:\n"
        "        health.report(0.5)\n    return health.value\n"
    )
    options = ["--trials", "1", "--epochs", "1", "--direction", "minimize"]
    done = CliRunner().invoke(search, ["record", f"{script}:objective", str(tmp_path / "r"), *options])
    assert "1 trials recorded" in done.output


def test_nobody_else_records_what_a_process_records(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    study = new_study(study_name="one", storage=storage)
    other = optuna.load_study(
        study_name="one", storage=storage
    )  # another worker, or whoever goes on after a kill

    def both(trial: optuna.Trial) -> float:
        if trial.number == 0:
            other.optimize(watched, n_trials=1)
        return watched(trial)

    record(study, both, tmp_path / "recorded", epochs=3, trials=2)
    assert [RECORDED in trial.user_attrs for trial in study.trials] == [True, False, True]
    modes = [trial.user_attrs["akeso:trial"]["mode"] for trial in study.trials]
    assert modes == ["shadow", "stop", "shadow"]
    assert len(load(tmp_path / "recorded").trials) == 2


def test_hyperparameters_of_every_kind_are_recorded_whenever_they_are_suggested(tmp_path: Path) -> None:
    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=2) as health:
            trial.suggest_categorical("loss", [abs])
            health.report(1.0)
            health.report(trial.suggest_float("x", 0, 1))
        return health.value

    study = new_study()
    with pytest.warns(UserWarning, match="Choices for a categorical distribution"):
        record(study, run, tmp_path, epochs=2, trials=1)
    assert study.trials[0].state.name == "COMPLETE"
    assert load(tmp_path).trials[0].params == {"loss": str(abs), "x": study.trials[0].params["x"]}


@pytest.mark.parametrize("profile", [None, "bttackler"])
def test_what_is_recorded_under_any_profile_can_be_simulated_under_bttackler(
    tmp_path: Path, profile: str | None
) -> None:
    def slow(trial: optuna.Trial) -> Any:
        model, optimizer = build(1e-6)
        with akeso.search.watch(trial, model, optimizer, epochs=8, profile=profile) as health:
            for _ in range(8):
                health.report(train_epoch(model, optimizer))
        return health.value

    record(new_study(), slow, tmp_path, epochs=8, trials=1)
    held = load(tmp_path)
    found = [finding.problem for finding in held.trials[0].findings if finding.profile == "bttackler"]
    assert sorted(found) == sorted(set(found))
    (ended,) = simulate(held, ProfileRule(BTTACKLER), in_order([0])).ended
    assert (ended.verdict.problem, ended.verdict.action, ended.epochs) == ("slow-convergence", "stop", 2.0)
    assert ended.verdict.sentence == "BTTackler's indicator PLC is positive in epoch 2."


def test_what_is_no_study_or_no_objective_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="got NoneType and function"):
        record(None, training, tmp_path / "one", epochs=2, trials=1)
    with pytest.raises(BadInput, match="got Study and str"):
        record(optuna.create_study(), "objective", tmp_path / "two", epochs=2, trials=1)
    assert not list(tmp_path.iterdir())
