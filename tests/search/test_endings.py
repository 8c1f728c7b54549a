"""How trials end where the objective has a say in it: it prunes by itself, catches signals, goes on after a break."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState, create_trial

import akeso
from akeso.search import DiagnosisPruner, attributes, memory
from akeso.search.report import of_study, shown_report

optuna.logging.set_verbosity(optuna.logging.ERROR)


def study(**options: Any) -> optuna.Study:
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), **options)


def test_a_trial_that_its_objective_prunes_is_stopped_and_says_why() -> None:
    made = study()

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=5) as health:
            health.report(1.0)
            raise optuna.TrialPruned("too slow." if trial.number else "")

    made.optimize(run, n_trials=2)
    assert [row["outcome"] for row in of_study(made)] == ["stopped", "stopped"]
    assert [row["sentence"] for row in of_study(made)] == [
        "The objective pruned the trial.",
        "The objective pruned the trial: too slow.",
    ]
    assert "2 trials: 2 stopped" in shown_report(of_study(made))


def test_what_our_pruner_said_is_kept_where_the_objective_asks_it_inside_a_watch() -> None:
    made = study(pruner=DiagnosisPruner())

    def run(trial: optuna.Trial) -> Any:
        x = trial.suggest_float("x", 0, 1) if trial.number < 8 else trial.suggest_float("x", 5, 6)
        with akeso.search.watch(trial, epochs=8) as health:
            for epoch in range(8):
                value = x + 1 / (epoch + 1)
                trial.report(value, 2 * epoch)
                if trial.should_prune():
                    raise optuna.TrialPruned
                health.report(value, 2 * epoch + 1)
        return health.value

    made.optimize(run, n_trials=9)
    last = made.trials[-1]
    assert last.state == TrialState.PRUNED
    assert last.user_attrs["akeso:problem"] == "hopeless-curve"
    about = last.user_attrs[attributes.TRIAL]
    assert (about["outcome"], about["indicator"]) == ("stopped", "forecast")
    assert about["expected"] > 1


@pytest.mark.parametrize("then", ["nothing", "another error"])
def test_a_trial_that_was_ended_stays_so_whatever_is_made_of_the_signal(then: str) -> None:
    made = study()

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=3) as health:
            health.report(1.0)
            try:
                health.report(float("nan"))
            except BaseException as error:
                if then == "another error":
                    raise RuntimeError("the trainer failed") from error
        return health.value

    made.optimize(run, n_trials=1)
    assert made.trials[0].state == TrialState.PRUNED
    assert made.trials[0].user_attrs[attributes.TRIAL]["outcome"] == "stopped"


def test_an_interruption_is_none_of_ours() -> None:
    made = study()

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=3) as health:
            try:
                health.report(float("nan"))
            except BaseException:
                raise KeyboardInterrupt from None

    with pytest.raises(KeyboardInterrupt):
        made.optimize(run, n_trials=1)
    assert made.trials[0].user_attrs[attributes.TRIAL]["outcome"] == "crashed"
    assert [(row["outcome"], row["sentence"]) for row in of_study(made)] == [("crashed", "KeyboardInterrupt")]


@pytest.mark.parametrize("numbered", [False, True])
def test_a_trial_that_was_cut_off_goes_on_where_it_stood(numbered: bool) -> None:
    made = study()
    # As optuna.storages.RetryHeartbeatStaleTrialCallback(inherit_intermediate_values=True) puts it there.
    half = {0: 2.0, 1: 1.5, 2: 1.2}
    made.add_trial(create_trial(state=TrialState.WAITING, intermediate_values=half))
    seen = []

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=6) as health:
            for epoch in range(3, 6):
                health.report(1.2 - 0.1 * epoch, *([epoch] if numbered else []))
            seen.extend(health._reports.rows)
        return health.value

    made.optimize(run, n_trials=1)
    trial = made.trials[0]
    assert sorted(trial.intermediate_values) == list(range(6))
    assert [row[0] for row in seen] == [trial.intermediate_values[step] for step in range(6)]
    assert trial.user_attrs[attributes.TRIAL]["reports"] == 6


def test_a_second_watch_of_a_trial_is_mentioned_once(caplog: pytest.LogCaptureFixture) -> None:
    made = study()

    def folds(trial: optuna.Trial) -> Any:
        values = []
        for fold in range(3):
            with akeso.search.watch(trial, epochs=2) as health:
                health.report(1.0 + fold, step=2 * fold)
                health.report(0.5 + fold, step=2 * fold + 1)
            values.append(health.value)
        return sum(values) / 3

    with caplog.at_level(logging.WARNING, "akeso.search"):
        made.optimize(folds, n_trials=2)
    assert ["report the mean" in message for message in caplog.messages] == [True]
    assert made.best_value == 1.5


def test_a_watch_inside_of_one_of_the_same_trial_is_mentioned_and_none_beside_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def nested(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=2) as outer:
            with akeso.search.watch(trial, epochs=2) as inner:
                inner.report(0.5)
                inner.report(0.4)
            outer.report(0.3, step=2)
            outer.report(0.2, step=3)
        return outer.value

    made, beside = study(), study()
    with caplog.at_level(logging.WARNING, "akeso.search"):
        one, other = beside.ask(), beside.ask()
        with akeso.search.watch(one, epochs=1), akeso.search.watch(other, epochs=1):
            assert not caplog.messages
        made.optimize(nested, n_trials=2)
    assert ["watched for a second time" in message for message in caplog.messages] == [True]
    assert [trial.value for trial in made.trials] == [0.2, 0.2]


def test_steps_that_are_reported_after_later_ones_are_taken_in_their_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As of an evaluation that runs beside the training: the study has its curves in the order of steps."""
    made = study()

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=5) as health:
            for step in (0, 2, 1, 4, 3):
                health.report(1 - 0.1 * step, step, loss=float(step))
        return health.value

    with caplog.at_level(logging.WARNING, "akeso.search"):
        made.optimize(run, n_trials=2)
    assert [trial.value for trial in made.trials] == [0.6, 0.6]
    assert made.trials[0].user_attrs[attributes.TRIAL]["losses"] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert ["step 1 after step 2" in message for message in caplog.messages] == [True]


def test_a_trial_that_completes_although_an_error_left_its_block_has_finished() -> None:
    """An error of its own ends the training of trial 0, a generator that is let go of that of trial 1."""
    made = study()

    def run(trial: optuna.Trial) -> Any:
        def training() -> Any:
            with akeso.search.watch(trial, epochs=3) as health:
                for epoch in range(3):
                    health.report(1.0 - epoch)
                    yield health.value
                if not trial.number:
                    raise RuntimeError("enough")

        values, epochs = [], training()
        try:
            while len(values) < (3 if trial.number else 4):
                values.append(next(epochs))
        except RuntimeError:
            pass
        epochs.close()
        return values[-1]

    made.optimize(run, n_trials=2)
    rows = of_study(made)
    assert [(row["state"], row["outcome"]) for row in rows] == [("COMPLETE", "finished")] * 2
    assert [row["sentence"] for row in rows] == [
        "completed, although its with block was left by RuntimeError: enough",
        "completed, although its with block was left by GeneratorExit",
    ]
    # They ran to their end: others are compared with them.
    assert all(attributes.curve_of(trial, 0, (False,), 3, "last").full for trial in made.trials)


def test_an_objective_that_fails_after_its_block_ends_no_other_trial_at_its_own_expense(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def run(trial: optuna.Trial) -> float:
        with akeso.search.watch(trial, epochs=20) as health:
            for value in [1.0, 0.5, 0.2, 0.1, *[0.1] * 16]:
                health.report(value)
        value = float(health.value)
        if trial.number == 0:
            raise OSError("no room for the model")
        return value

    made = study()
    made.optimize(run, n_trials=3, catch=(OSError,))
    assert [trial.state.name for trial in made.trials] == ["FAIL", "COMPLETE", "COMPLETE"]
    assert [attributes.about(trial)["outcome"] for trial in made.trials] == ["finished early"] * 3
    assert not caplog.records


def test_attributes_that_somebody_else_wrote_under_our_names_break_nothing() -> None:
    made = study(pruner=DiagnosisPruner())
    made.set_user_attr(memory.PROFILE, "mine")

    def run(trial: optuna.Trial) -> Any:
        for name in (attributes.TRIAL, attributes.SHADOW, "akeso:step"):
            trial.set_user_attr(name, "mine")
        with akeso.search.watch(trial, epochs=3) as health:
            for value in (1.0, 0.5, 0.4):
                health.report(value)
        trial.set_user_attr(attributes.TRIAL, "mine")
        return health.value

    made.optimize(run, n_trials=4)
    assert [trial.state for trial in made.trials] == [TrialState.COMPLETE] * 4
    assert shown_report(of_study(made)) == "4 trials: 4 finished"


def test_in_shadow_a_trial_that_ends_with_nan_is_pruned_and_one_that_recovers_is_not() -> None:
    made = study(pruner=DiagnosisPruner(on_problem="shadow"))

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=3, value="best" if trial.number == 2 else "last") as health:
            for value in ([0.5, 0.4, math.nan], [0.5, math.nan, 0.4], [0.5, 0.4, math.nan])[trial.number]:
                health.report(value)
        return health.value

    made.optimize(run, n_trials=3)
    assert [trial.state.name for trial in made.trials] == ["PRUNED", "COMPLETE", "COMPLETE"]
    assert [row["outcome"] for row in of_study(made)] == ["stopped", "finished", "finished"]
    assert made.trials[2].value == 0.4


def test_without_a_model_the_step_is_that_of_the_report() -> None:
    made = study(pruner=DiagnosisPruner(on_problem="stop"))

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=5, on_problem=("stop", "shadow")[trial.number]) as health:
            for step, value in ((100, 0.5), (200, 0.4), (300, math.nan), (400, 0.3)):
                health.report(value, step)
        return health.value

    made.optimize(run, n_trials=2)
    assert made.trials[0].user_attrs["akeso:step"] == 300
    assert made.trials[1].user_attrs[attributes.SHADOW]["step"] == 300


def test_an_objective_can_be_tried_out_whatever_it_returns() -> None:
    def several(trial: Any) -> Any:
        x = trial.suggest_float("x", 0, 1)
        with akeso.search.watch(trial, epochs=np.int64(3)) as health:  # type: ignore[arg-type]
            for epoch in range(3):
                health.report([x - 0.1 * epoch, x + 0.1 * epoch])
        return health.value

    assert several(optuna.trial.FixedTrial({"x": 0.5})) == pytest.approx([0.3, 0.7])
    made = optuna.create_study(directions=["minimize", "maximize"])
    made.optimize(several, n_trials=1)
    assert several(made.best_trials[0]) == made.best_trials[0].values


@pytest.mark.parametrize(("epochs", "said"), [(3, True), (9, True), (6, False)])
def test_trials_that_report_otherwise_than_planned_are_mentioned_once(
    epochs: int, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    made = study()

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=epochs) as health:
            for epoch in range(6):
                health.report(1 / (epoch + 1))
        return health.value

    with caplog.at_level(logging.WARNING, "akeso.search"):
        made.optimize(run, n_trials=7)
    assert [
        f"reported 6 times each, but their watch was told epochs={epochs}" in m for m in caplog.messages
    ] == [True] * said


@pytest.mark.parametrize(("patient", "said"), [(7, True), (5, False)])
def test_an_objective_that_ends_all_its_trials_by_itself_hears_that_no_curve_is_whole(
    patient: int, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    made = study()

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=10) as health:
            for epoch in range(10):
                health.report(1 / (epoch + 1))
                if trial.number < patient and epoch >= 4 + trial.number % 3:
                    break
        return health.value

    with caplog.at_level(logging.WARNING, "akeso.search"):
        made.optimize(run, n_trials=9)
    ours = "reported 5 to 7 times each, but their watch was told epochs=10"
    assert [ours in message for message in caplog.messages] == [True] * said


@pytest.mark.filterwarnings(
    "ignore:The reported value is ignored"
)  # Optuna's own, of a step that is there already
@pytest.mark.parametrize(("first", "said"), [(1, True), (0, False), (None, False)])
def test_reports_that_an_objective_makes_beside_its_watch_are_mentioned_once(
    first: int | None, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    made = study()

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=6) as health:
            for epoch in range(6):
                if first is not None:
                    trial.report(1 / (epoch + 1), epoch + first)
                health.report(1 / (epoch + 1))
        return health.value

    with caplog.at_level(logging.WARNING, "akeso.search"):
        made.optimize(run, n_trials=7)
    assert ["have 7 reports, of which health.report made 6" in message for message in caplog.messages] == [
        True
    ] * said


@pytest.mark.parametrize(("epochs", "said"), [(3, True), (9, True), (6, False), (None, False)])
def test_a_pruner_that_was_told_otherwise_than_trials_report_says_so_once(
    epochs: int | None, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    made = optuna.create_study(pruner=DiagnosisPruner(epochs=epochs))

    def run(trial: optuna.Trial) -> float:
        for epoch in range(6):
            trial.report(1 / (epoch + 1), epoch)
            trial.should_prune()
        return 1 / 6

    with caplog.at_level(logging.WARNING, "akeso.search"):
        made.optimize(run, n_trials=7)
    assert [
        f"reported 6 times each, but their DiagnosisPruner was told epochs={epochs}" in m
        for m in caplog.messages
    ] == [True] * said


@pytest.mark.parametrize(("kind", "said"), [("loss", True), ("scaled", False), ("same", False)])
def test_reports_that_go_the_other_way_than_values_are_mentioned_once(
    kind: str, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    made = study(direction="maximize")

    def run(trial: optuna.Trial) -> Any:
        x = trial.suggest_float("x", 0, 1)
        with akeso.search.watch(trial, epochs=3) as health:
            for epoch in range(3):
                health.report((1 - x if kind == "loss" else x) + 0.1 / (epoch + 1))
        return {"loss": x, "scaled": 100 * x, "same": health.value}[kind]

    with caplog.at_level(logging.WARNING, "akeso.search"):
        made.optimize(run, n_trials=30)
    assert ["that report more return less" in message for message in caplog.messages] == [True] * said
