"""Recording a study, reading it again, replaying it: the files, the simulator and the commands."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import optuna
import pytest
from click.testing import CliRunner

from akeso.errors import BadInput
from akeso.search import load, recorded
from akeso.search.cli import arrival, make_rule, search
from akeso.search.optuna_rules import PrunerRule
from akeso.search.profiles import AKESO, BTTACKLER
from akeso.search.recorded import Finding, RecordedTrial, StudyRecorder, of_trials
from akeso.search.recording import record
from akeso.search.rules import ExtrapolationRule, NanRule, NoRule, ProfileRule, power_law_end
from akeso.search.simulation import in_order, simulate
from akeso.search.tally import goal_of, is_wrong, tally
from tests.search.synthetic import accuracy_study
from tests.search.trials import objective

optuna.logging.set_verbosity(optuna.logging.ERROR)


def write(folder: Path, study: recorded.RecordedStudy) -> Path:
    recorder = StudyRecorder(
        folder, name=study.name, maximize=study.maximize, epochs=study.epochs, value_of=study.value_of
    )
    for trial in study.trials:
        recorder.add(trial)
    return folder


def test_a_recorded_study_reads_back_as_it_was(tmp_path: Path) -> None:
    finding = Finding("akeso", "non-finite", 1.25, "net.0", 17, "error", 0.9, "It became NaN.")
    odd = RecordedTrial(7, {"lr": 0.1, "act": "ReLU"}, (0.5, math.nan, math.inf), (1.0, 2.0, 3.0), (finding,))
    study = of_trials([*accuracy_study(3, 0, epochs=3).trials, odd], maximize=True, epochs=3)
    again = load(write(tmp_path, study))
    assert [t.number for t in again.trials] == [0, 1, 2, 7]
    assert again.trials[3].findings == (finding,)
    assert math.isnan(again.trials[3].values[1])
    assert again.trials[0].values == study.trials[0].values
    assert (again.maximize, again.epochs) == (True, 3)


def test_a_torn_last_line_is_dropped_and_recording_goes_on(tmp_path: Path) -> None:
    write(tmp_path, accuracy_study(3, 0))
    path = tmp_path / "trials.jsonl"
    path.write_text(path.read_text()[:-40])
    assert len(load(tmp_path).trials) == 2
    with pytest.raises(BadInput, match="record into another folder"):
        StudyRecorder(tmp_path, name="x", maximize=False, epochs=20)
    with pytest.raises(BadInput, match="no recorded study"):
        load(tmp_path / "nothing")
    with pytest.raises(BadInput, match="2 values but 1 times"):
        RecordedTrial(0, {}, (0.1, 0.2), (1.0,))


def test_a_study_is_recorded_without_stopping_anything_and_replayed(tmp_path: Path) -> None:
    made = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=3))
    for lr in (0.1, 9e4, 0.02):
        made.enqueue_trial({"lr": lr})
    record(made, lambda trial: objective(trial, epochs=3), tmp_path, epochs=3, trials=3)
    study = load(tmp_path)
    assert [len(t.values) for t in study.trials] == [3, 3, 3]  # the diverged one was trained to its end too
    diverged = study.trials[1]
    assert not math.isfinite(diverged.values[-1])
    assert diverged.findings[0].problem == "non-finite"
    assert diverged.findings[0].epochs < 1
    assert list((tmp_path / "journals" / "00001").iterdir())
    replayed = simulate(study, ProfileRule(AKESO), in_order([0, 1, 2]))
    ended = {e.number: e for e in replayed.ended}
    assert ended[1].verdict.problem == "non-finite"
    assert ended[1].epochs < 1
    assert ended[0].value == pytest.approx(study.trials[0].values[-1])


def test_without_a_rule_the_simulated_search_is_the_recorded_one() -> None:
    study = accuracy_study(12, 0)
    alone = simulate(study, NoRule(), in_order(range(12)))
    assert len(alone.ended) == 12
    assert alone.seconds == pytest.approx(sum(t.seconds[-1] for t in study.trials))
    assert all(e.value == e.would for e in alone.ended)
    four = simulate(study, NoRule(), in_order(range(12)), workers=4)
    assert alone.seconds / 4 <= four.seconds < alone.seconds
    budget = four.seconds / 2
    part = simulate(study, NoRule(), in_order(range(12)), workers=4, budget=budget)
    assert [e.number for e in part.ended] == [e.number for e in four.ended if e.seconds <= budget]


def test_the_simulator_refuses_orders_that_cannot_be() -> None:
    study = accuracy_study(4, 0)
    with pytest.raises(BadInput, match="came already"):
        simulate(study, NoRule(), in_order([0, 0]))
    with pytest.raises(BadInput, match="came already"):
        simulate(study, NoRule(), in_order([99]))
    with pytest.raises(BadInput, match="at least one worker"):
        simulate(study, NoRule(), in_order([0]), workers=0)


def test_a_trial_that_crashed_ends_without_a_value() -> None:
    crashed = RecordedTrial(1, {}, (0.4,), (1.0,), crashed="OutOfMemoryError")
    study = of_trials([accuracy_study(1, 0, epochs=3).trials[0], crashed], maximize=True, epochs=3)
    ended = simulate(study, NoRule(), in_order([0, 1])).ended
    assert ended[1].verdict.indicator == "crashed"
    assert math.isnan(ended[1].value)


def test_bttacklers_findings_are_acted_upon_at_the_end_of_their_epoch() -> None:
    values = tuple(np.linspace(0.1, 0.6, 20).tolist())
    seconds = tuple(float(i + 1) for i in range(20))
    stop = RecordedTrial(
        0, {}, values, seconds, (Finding("bttackler", "vanishing-gradient", 3.0, confidence=0.5),)
    )
    nmg = Finding("bttackler", "no-more-gain", 12.0, severity="info", confidence=0.5)
    study = of_trials([stop, RecordedTrial(1, {}, values, seconds, (nmg,))], maximize=True, epochs=20)
    ended = simulate(study, ProfileRule(BTTACKLER), in_order([0, 1])).ended
    assert (ended[0].verdict.action, ended[0].epochs) == ("stop", 3.0)
    assert (ended[1].verdict.action, ended[1].epochs) == ("finish", 12.0)
    assert ended[1].value == values[11]
    assert not any(e.verdict for e in simulate(study, ProfileRule(AKESO), in_order([0, 1])).ended)


def test_optunas_pruners_decide_in_the_simulator_as_in_a_study() -> None:
    study = accuracy_study(25, 2)
    simulated = simulate(study, PrunerRule(optuna.pruners.MedianPruner()), in_order(range(25)))
    real = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner())
    for trial in study.trials:
        asked = real.ask()
        for epoch, value in enumerate(np.maximum.accumulate(trial.values)):
            asked.report(float(value), epoch)
            if asked.should_prune():
                real.tell(asked, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            real.tell(asked, float(max(trial.values)))
    pruned = {t.number: len(t.intermediate_values) for t in real.trials if t.state.name == "PRUNED"}
    assert pruned == {e.number: round(e.epochs) for e in simulated.ended if e.verdict}
    for pruner in (optuna.pruners.SuccessiveHalvingPruner(), optuna.pruners.HyperbandPruner(max_resource=20)):
        assert any(e.verdict for e in simulate(study, PrunerRule(pruner), in_order(range(25))).ended)
    with pytest.raises(BadInput, match="pruner of Optuna"):
        PrunerRule("median")


def test_power_laws_are_extrapolated() -> None:
    t = np.arange(1, 9)
    assert power_law_end(0.3 + 2.0 * t**-0.5, 100) == pytest.approx(0.5, abs=1e-6)
    study = accuracy_study(20, 1)
    assert any(e.verdict for e in simulate(study, ExtrapolationRule(), in_order(range(20))).ended)


def test_the_tally_tells_right_from_wrong() -> None:
    study = accuracy_study(40, 3)
    goal = goal_of(study)
    assert sum(max(t.values) >= goal for t in study.trials) == 10
    plain = tally(study, simulate(study, NoRule(), in_order(range(40))))
    assert (plain.rows, plain.wrongly, plain.share_of_time, plain.best_lost) == ((), 0, 1.0, 0.0)
    search_ = simulate(study, PrunerRule(optuna.pruners.SuccessiveHalvingPruner()), in_order(range(40)))
    found = tally(study, search_)
    wrong = [e for e in search_.ended if e.would >= goal and not e.value >= goal]
    assert found.wrongly == len(wrong) > 0
    assert all(is_wrong(e, goal, True) for e in wrong)
    assert found.share_of_time < 0.6
    assert sum(row.trials for row in found.rows) + found.whole == 40
    assert json.dumps(found.to_dict())


def test_nan_rule_stops_at_the_first_value_that_is_not_finite() -> None:
    broken = RecordedTrial(0, {}, (math.nan, math.nan), (1.0, 2.0))
    study = of_trials([broken], maximize=True, epochs=2)
    assert simulate(study, NanRule(), in_order([0])).ended[0].epochs == 1.0


OBJECTIVE = """
import math
import akeso

def objective(trial):
    top = trial.suggest_float("top", 0.1, 0.9)
    with akeso.search.watch(trial, epochs=4) as health:
        for epoch in range(4):
            health.report(math.nan if trial.number == 2 else top * (1 - 0.5 ** (epoch + 1)))
    return health.value
"""


def test_the_commands(tmp_path: Path) -> None:
    script, folder, run = tmp_path / "mine.py", tmp_path / "recorded", CliRunner()
    script.write_text(OBJECTIVE)
    arguments = ["record", f"{script}:objective", str(folder), "--trials", "6", "--epochs", "4"]
    done = run.invoke(search, [*arguments, "--direction", "maximize"])
    assert done.exit_code == 0, done.output
    assert "6 trials recorded" in done.output
    for options in (["--profile", "akeso"], ["--profile", "bttackler"], ["--pruner", "median"], ["--pruner", "nan"],
                    ["--pruner", "asha"], ["--pruner", "hyperband"], ["--pruner", "extrapolation"]):  # fmt: skip
        shown = run.invoke(search, ["simulate", str(folder), *options, "--order", "random", "--seed", "1"])
        assert shown.exit_code == 0, shown.output
        assert "wrongly ended" in shown.output
    document = json.loads(run.invoke(search, ["simulate", str(folder), "--json", "--workers", "2"]).output)
    assert document["trials"] == 6
    assert {row["indicator"] for row in document["indicators"]} >= {"non-finite-value"}
    assert "recorded" in run.invoke(search, ["report", str(folder)]).output
    assert "either a profile or a pruner" in str(
        run.invoke(search, ["simulate", str(folder), "--profile", "akeso", "--pruner", "nan"]).exception
    )
    assert "file.py:function" in str(
        run.invoke(search, ["record", "x", str(folder), *arguments[3:], "--direction", "maximize"]).exception
    )


def test_orders_of_arrival() -> None:
    study = accuracy_study(8, 0)
    best = arrival(study, "best-first", 0)
    finals = [max(study.trials[n].values) for n in best]
    assert finals == sorted(finals, reverse=True)
    assert arrival(study, "worst-first", 0) == best[::-1]
    assert sorted(arrival(study, "random", 1)) == list(range(8))
    assert arrival(study, "random", 1) == arrival(study, "random", 1)
    assert make_rule("none", "none", 20).name == "none"
