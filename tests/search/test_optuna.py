"""Optuna for real: outcomes told apart, modes, bad input, several objectives."""

from __future__ import annotations

import contextlib
import logging
import math
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from optuna.trial import TrialState

import akeso
from akeso.errors import BadInput
from akeso.search import DiagnosisPruner, attributes
from akeso.search.report import of_study, shown_report
from tests.search.trials import build, data, objective, train_epoch

optuna.logging.set_verbosity(optuna.logging.ERROR)


def study(**options: Any) -> optuna.Study:
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), **options)


def reporting(curve: list[Any], epochs: int = 20, **options: Any) -> Any:
    """An objective without a model that reports given values."""

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=epochs, **options) as health:
            for value in curve:
                health.report(value)
        return health.value

    return run


def test_a_diverging_trial_is_pruned_within_an_epoch_with_its_reason() -> None:
    made = study(pruner=DiagnosisPruner(optuna.pruners.MedianPruner()))
    made.enqueue_trial({"lr": 0.1})
    made.enqueue_trial({"lr": 9e4})
    made.optimize(objective, n_trials=2)
    healthy, diverged = made.trials
    assert healthy.state == TrialState.COMPLETE
    assert healthy.value == healthy.intermediate_values[4]
    assert diverged.state == TrialState.PRUNED
    assert not diverged.intermediate_values  # it ended within its first epoch
    said = diverged.user_attrs
    assert said["akeso:outcome"] == "stopped"
    assert said["akeso:problem"] == "non-finite"
    assert said["akeso:layer"]
    assert 0 <= said["akeso:step"] < 12
    assert said["akeso:sentence"].endswith(".")
    assert said[attributes.TRIAL]["outcome"] == "stopped"
    text = shown_report(of_study(made))
    assert "1 finished" in text
    assert said["akeso:sentence"] in text


def test_the_sampler_never_sees_a_value_that_is_not_finite() -> None:
    made = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=4))
    made.optimize(objective, n_trials=14)
    assert all(t.state in (TrialState.COMPLETE, TrialState.PRUNED) for t in made.trials)
    assert any(t.state == TrialState.PRUNED for t in made.trials)
    for trial in made.trials:
        assert all(math.isfinite(v) for v in trial.intermediate_values.values())
        assert trial.value is None or math.isfinite(trial.value)


def test_a_trial_with_nothing_more_to_gain_completes_early_and_can_be_best() -> None:
    curve = [1.0, 0.5, 0.3, 0.2, 0.15, 0.12] + [0.13] * 14
    made = study()
    made.optimize(reporting(curve, value="best"), n_trials=1)
    trial = made.best_trial
    assert trial.state == TrialState.COMPLETE
    assert trial.value == 0.12
    assert len(trial.intermediate_values) < 20
    assert trial.user_attrs["akeso:outcome"] == "finished early"


def test_hopeless_curves_are_stopped_by_what_the_study_has_seen() -> None:
    made = study(direction="maximize", pruner=DiagnosisPruner())
    t = np.arange(10)

    def run(trial: optuna.Trial) -> float:
        top = 0.9 - 0.02 * trial.number if trial.number < 8 else 0.2
        noise = np.random.default_rng(trial.number).normal(0, 0.005, 10)
        with akeso.search.watch(trial, epochs=10) as health:
            for value in 0.1 + (top - 0.1) * (1 - np.exp(-0.5 * (t + 1))) + noise:
                health.report(value)
        return health.value

    made.optimize(run, n_trials=9)
    last = made.trials[8]
    assert last.state == TrialState.PRUNED
    assert last.user_attrs["akeso:problem"] == "hopeless-curve"
    assert len(last.intermediate_values) < 10
    assert made.best_trial.number == 0


def test_shadow_stops_nothing_and_says_what_it_would_have_done() -> None:
    made = study(pruner=DiagnosisPruner(on_problem="shadow"))
    made.enqueue_trial({"lr": 9e4})
    made.optimize(objective, n_trials=1)
    trial = made.trials[0]
    assert trial.state == TrialState.PRUNED  # it never had a finite value, so there is none to complete with
    assert trial.user_attrs[attributes.SHADOW]["problem"] == "non-finite"
    assert "akeso:outcome" not in trial.user_attrs
    assert trial.user_attrs[attributes.TRIAL]["outcome"] == "finished"
    assert of_study(made)[0]["sentence"].startswith("ran on in shadow, and came to no finite value")
    made.optimize(reporting([0.5, math.nan, 0.4], epochs=3), n_trials=1)
    assert made.trials[1].value == 0.4


def test_a_crash_stays_a_crash_and_is_noted() -> None:
    made = study()

    def run(trial: optuna.Trial) -> float:
        with akeso.search.watch(trial, epochs=3) as health:
            health.report(0.5)
            raise RuntimeError("out of memory")

    made.optimize(run, n_trials=1, catch=(RuntimeError,))
    assert made.trials[0].state == TrialState.FAIL
    assert made.trials[0].user_attrs[attributes.TRIAL]["outcome"] == "crashed"
    assert "out of memory" in made.trials[0].user_attrs[attributes.TRIAL]["error"]


def test_a_bare_except_in_the_loop_cannot_swallow_the_end_for_good() -> None:
    made = study()

    def run(trial: optuna.Trial) -> float:
        with akeso.search.watch(trial, epochs=5) as health:
            for _ in range(5):
                with contextlib.suppress(BaseException):
                    health.report(math.nan)
            health.report(0.1)
        return health.value

    made.optimize(run, n_trials=1)
    assert made.trials[0].state == TrialState.PRUNED


def test_no_hook_is_left_on_the_model() -> None:
    made = study()
    kept: list[Any] = []

    def run(trial: optuna.Trial) -> Any:
        model, optimizer = build(0.1)
        kept.extend([model, optimizer])
        with akeso.search.watch(trial, model, optimizer, epochs=1) as health:
            health.report(train_epoch(model, optimizer))
        return health.value

    made.optimize(run, n_trials=1)
    model, optimizer = kept
    assert not any(m._forward_hooks or m._backward_hooks for m in model.modules())
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0.5", "takes a number"),
        (None, "takes a number"),
        (torch.ones(3), "reduce them first"),
        (np.ones((2, 2)), "reduce them first"),
        ({}, "takes a number"),
        (1 + 2j, "takes a number"),
        (torch.empty((), device="meta"), "takes a number"),
    ],
)
def test_what_is_not_a_number_is_a_clear_error(value: Any, message: str) -> None:
    made = study()
    with pytest.raises(BadInput, match=message):
        made.optimize(reporting([value]), n_trials=1)


def test_tensors_and_numpy_scalars_of_one_element_are_numbers() -> None:
    made = study()
    made.optimize(
        reporting([torch.tensor(0.5), np.float32(0.25), torch.tensor([[0.125]])], epochs=3), n_trials=1
    )
    assert list(made.trials[0].intermediate_values.values()) == [0.5, 0.25, 0.125]


def test_a_loss_can_be_reported_where_no_model_is_watched_and_has_to_be_a_number() -> None:
    made = study()

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=3) as health:
            with pytest.raises(BadInput, match=r"the loss of health\.report takes a number, but got 'low'"):
                health.report(0.5, loss="low")  # type: ignore[arg-type]
            health.report(0.5, loss=2.0)
            health.report(0.4)
            health.report(0.3, loss=torch.tensor(0.5))  # type: ignore[arg-type]
        return health.value

    made.optimize(run, n_trials=1)
    assert made.trials[0].intermediate_values == {0: 0.5, 1: 0.4, 2: 0.3}
    assert made.trials[0].user_attrs["akeso:trial"]["losses"] == [2.0, None, 0.5]


def test_of_two_reports_with_the_same_step_the_first_counts() -> None:
    made = study()

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=2) as health:
            health.report(0.5, step=0)
            health.report(0.1, step=0)
            with pytest.raises(BadInput, match="step of a report"):
                health.report(0.1, step=-1)
        return health.value

    made.optimize(run, n_trials=1)
    assert made.trials[0].value == 0.5


def test_an_objective_that_never_reports() -> None:
    made = study()
    with pytest.raises(BadInput, match="nothing was reported"):
        made.optimize(reporting([]), n_trials=1)
    assert [row["outcome"] for row in of_study(made)] == ["crashed"]
    assert "    0  crashed        failed outside of the watch (there: finished)" in shown_report(
        of_study(made)
    )

    def own_value(trial: optuna.Trial) -> float:
        with akeso.search.watch(trial, epochs=3):
            pass
        return 0.7

    made.optimize(own_value, n_trials=1)
    assert made.trials[-1].value == 0.7


def test_reports_after_the_block_and_wrong_arguments_are_errors() -> None:
    trial = study().ask()
    with akeso.search.watch(trial, epochs=2) as health:
        health.report(0.5)
    with pytest.raises(BadInput, match="had ended"):
        health.report(0.4)
    with pytest.raises(BadInput, match="used already"), health:
        pass
    with pytest.raises(BadInput, match="epochs must be a whole number"):
        akeso.search.watch(trial, epochs=0)
    with pytest.raises(BadInput, match="on_problem"):
        akeso.search.watch(trial, epochs=1, on_problem="ignore")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="trial of an Optuna study"):
        akeso.search.watch(object(), epochs=1)
    with pytest.raises(BadInput, match=r"torch\.nn\.Module, several of them in a list, or None, but got str"):
        akeso.search.watch(trial, "model", epochs=1)
    with pytest.raises(
        BadInput, match=r"torch\.optim\.Optimizer, several of them in a list, or None, but got str"
    ):
        akeso.search.watch(trial, optimizer="adam", epochs=1)
    with pytest.raises(BadInput, match="Optuna pruner"):
        DiagnosisPruner("median")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["stop", "repair"])
def test_a_watch_that_cannot_begin_leaves_nothing_behind(mode: Any) -> None:
    from torch.optim.optimizer import _global_optimizer_pre_hooks

    from akeso.torch.taps import TAPS

    model, _ = build(0.1)
    wrong = akeso.search.search_profile("akeso", detectors="nobody's")
    with (
        pytest.raises(BadInput),
        akeso.search.watch(study().ask(), model, epochs=1, profile=wrong, on_problem=mode),
    ):
        pass
    assert not _global_optimizer_pre_hooks
    assert not TAPS._listeners


def test_a_fixed_trial_can_be_watched() -> None:
    value = objective(optuna.trial.FixedTrial({"lr": 0.1}), epochs=2)
    assert 0 < value < 1


def test_a_study_resumed_with_another_profile_goes_on_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    made = study()
    made.optimize(reporting([0.5, 0.4], epochs=2), n_trials=1)
    with caplog.at_level(logging.WARNING, "akeso.search"):
        made.optimize(reporting([0.5, 0.4], epochs=2, profile="bttackler"), n_trials=2)
    assert sum("'akeso' so far" in message for message in caplog.messages) == 1
    assert [t.user_attrs[attributes.TRIAL]["profile"] for t in made.trials] == [
        "akeso",
        "bttackler",
        "bttackler",
    ]


def test_a_changed_profile_of_the_same_name_is_told_by_its_fields_and_workers_that_differ_only_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = study()
    strict = akeso.search.search_profile("akeso", false_stops=0.01, confidence=0.9)
    with caplog.at_level(logging.WARNING, "akeso.search"):
        for _ in range(3):  # as two workers take turns
            made.optimize(reporting([0.5, 0.4], epochs=2), n_trials=1)
            made.optimize(reporting([0.5, 0.4], epochs=2, profile=strict), n_trials=1)
    assert len(caplog.messages) == 2
    assert "goes on under 'akeso' with confidence=0.9, false_stops=0.01;" in caplog.messages[0]
    noted = [trial.user_attrs[attributes.TRIAL]["profile"] for trial in made.trials]
    assert noted == ["akeso", "akeso with confidence=0.9, false_stops=0.01"] * 3


def test_several_objectives() -> None:
    made = optuna.create_study(
        directions=["minimize", "maximize"], sampler=optuna.samplers.RandomSampler(seed=0)
    )
    epochs = 6

    def run(trial: optuna.Trial) -> Any:
        good = 1.0 if trial.number < 8 else 0.2
        with akeso.search.watch(trial, epochs=epochs) as health:
            for epoch in range(epochs):
                rise = 1 - 0.5 ** (epoch + 1)
                wiggle = 0.002 * math.sin(7 * epoch + trial.number)
                health.report([2 - good * rise + wiggle, 0.01 * trial.number * good * rise + wiggle])
        return health.value

    made.optimize(run, n_trials=9)
    assert [t.state for t in made.trials[:8]] == [TrialState.COMPLETE] * 8
    assert made.trials[8].state == TrialState.PRUNED
    assert made.trials[8].user_attrs["akeso:problem"] == "hopeless-curve"
    assert len(made.trials[0].user_attrs[attributes.CURVE]) == epochs

    def broken(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=epochs) as health:
            health.report([0.5, math.nan])
        return health.value

    made.optimize(broken, n_trials=1)
    assert made.trials[9].state == TrialState.PRUNED
    with pytest.raises(BadInput, match="2 objectives"):
        made.optimize(lambda trial: reporting([0.5], epochs=epochs)(trial), n_trials=1)
    made.optimize(reporting([np.array([1.0, 2.0]), torch.tensor([0.5, 0.25])], epochs=2), n_trials=1)
    assert made.trials[-1].values == [0.5, 0.25]


def test_healthy_trainings_with_a_frozen_layer_accumulation_or_mixed_precision_are_not_stopped() -> None:
    x, y = data()

    def frozen(model: torch.nn.Module) -> None:
        model[0].weight.requires_grad_(False)  # type: ignore[index, union-attr]

    def plain(model: torch.nn.Module) -> None:
        pass

    for prepare, micro, autocast in ((frozen, 1, False), (plain, 4, False), (plain, 1, True)):
        made = study()

        def run(
            trial: optuna.Trial, prepare: Any = prepare, micro: int = micro, autocast: bool = autocast
        ) -> Any:
            model, optimizer = build(0.3)
            prepare(model)
            with akeso.search.watch(trial, model, optimizer, epochs=8) as health:
                for _ in range(8):
                    for batch in torch.arange(len(x)).split(16):
                        optimizer.zero_grad()
                        for part in batch.split(16 // micro):
                            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                                loss = torch.nn.functional.cross_entropy(model(x[part]), y[part])
                            (loss / micro).backward()
                        optimizer.step()
                    with torch.no_grad():
                        health.report(torch.nn.functional.cross_entropy(model(x), y))
            return health.value

        made.optimize(run, n_trials=1)
        trial = made.trials[0]
        assert trial.state == TrialState.COMPLETE
        assert trial.user_attrs[attributes.TRIAL]["outcome"] == "finished"
        assert trial.value < 0.5


@pytest.mark.parametrize(
    ("pruner", "asked"),
    [
        (None, False),
        (optuna.pruners.MedianPruner(n_startup_trials=2), True),
        (DiagnosisPruner(optuna.pruners.MedianPruner(n_startup_trials=2)), True),
        (DiagnosisPruner(optuna.pruners.MedianPruner()), True),
    ],
)
def test_the_pruner_that_optuna_puts_there_unasked_is_not_asked(pruner: Any, asked: bool) -> None:
    made = study(pruner=pruner)
    for number in range(8):
        # The first reports of each are worse than those before; akeso waits for more of them.
        values = [2.0 + 0.1 * number, *(1.0 - 0.01 * t for t in range(9))]
        made.optimize(reporting(values, epochs=10), n_trials=1)
    stopped_by = {trial.user_attrs.get("akeso:problem") for trial in made.trials}
    assert ("MedianPruner" in stopped_by) is asked


def test_an_objective_that_returns_inside_the_block_loses_one_trial_and_hears_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def inside(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=20) as health:
            for value in [1.0, 0.5, 0.2, 0.1, *[0.1] * 16]:
                health.report(value)
            return health.value

    made = study()
    made.optimize(inside, n_trials=3)
    assert [trial.state.name for trial in made.trials] == ["FAIL", "COMPLETE", "COMPLETE"]
    assert [trial.value for trial in made.trials[1:]] == [0.1, 0.1]
    said = [record.message for record in caplog.records if "return health.value" in record.message]
    assert ["trial 0" in text and "trained to their end from now on" in text for text in said] == [True]


def test_a_best_trial_that_breaks_is_pruned_where_its_value_would_be_lost() -> None:
    def inside(trial: optuna.Trial) -> Any:
        lost = [1.0, 0.5, 0.2, 0.1, *[0.1] * 16]
        with akeso.search.watch(trial, epochs=20) as health:
            for value in lost if trial.number < 4 else [0.05, math.nan]:
                health.report(value)
            return health.value

    made = study()
    made.optimize(inside, n_trials=5)
    assert [trial.state.name for trial in made.trials] == ["FAIL", *["COMPLETE"] * 3, "PRUNED"]
    assert made.trials[-1].value == 0.05


def test_reports_without_a_with_block_are_refused_before_they_can_end_a_study() -> None:
    def without(trial: optuna.Trial) -> Any:
        health = akeso.search.watch(trial, epochs=5)
        health.report(1.0)

    made = study()
    made.optimize(without, n_trials=1, catch=(BadInput,))
    assert made.trials[0].state == TrialState.FAIL
    with pytest.raises(BadInput, match="without a with block"):
        made.optimize(without, n_trials=1)
