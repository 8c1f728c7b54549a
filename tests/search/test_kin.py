"""What trials have in common beside their curves, and what the forecast learns from it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import optuna
import pytest

from akeso.search import attributes, load, record
from akeso.search.curves import Curve, Knowledge
from akeso.search.forecast import Forecast
from akeso.search.kin import Kin
from akeso.search.profiles import AKESO
from akeso.search.recorded import RecordedStudy, RecordedTrial, of_trials
from akeso.search.rules import ProfileRule
from akeso.search.simulation import Simulated, in_order, simulate
from akeso.search.tally import goal_of, is_wrong
from akeso.search.traits import Hyperparameters, Losses, Traits
from tests.search.trials import objective

optuna.logging.set_verbosity(optuna.logging.CRITICAL)


def sleepers_study(trials: int, seed: int, *, telling: bool = True, epochs: int = 20) -> RecordedStudy:
    """Half of the trials stand at chance at first: most for good, a few wake up and end among the best.

    What tells them apart is in their training losses, and in a hyperparameter; or nothing does.
    """
    draw = np.random.default_rng(seed)
    t = np.arange(1, epochs + 1)
    made = []
    for number in range(trials):
        kind = draw.choice(["dead", "sleeper", "plain"], p=[0.45, 0.04, 0.51])
        wakes = {"dead": 99, "sleeper": int(draw.integers(3, 7)), "plain": 0}[str(kind)]
        end = 0.6 + 0.2 * draw.random() if kind == "sleeper" else 0.2 + 0.6 * draw.beta(2, 2.2)
        rise = 1 - np.exp(-np.exp(draw.normal(-1.0, 0.4)) * np.maximum(t - wakes, 0) ** 0.8)
        values = np.clip(0.1 + (end - 0.1) * rise + draw.normal(0, 0.008, epochs), 0, 1)
        losses = 2.3 - 1.5 * (end - 0.1) * rise + draw.normal(0, 1e-4, epochs)
        if kind == "sleeper" and telling:
            losses -= 0.004 * np.minimum(t, wakes)
        rate = 10 ** (draw.uniform(-5, -4) if kind == "dead" and telling else draw.uniform(-4, -1))
        params = {"lr": float(rate), "kind": str(draw.choice(["a", "b"]))}
        seconds = tuple(float(s) for s in t)
        made.append(
            RecordedTrial(number, params, tuple(values.tolist()), seconds, losses=tuple(losses.tolist()))
        )
    return of_trials(made, maximize=True, epochs=epochs)


def searched(study: RecordedStudy) -> Simulated:
    return simulate(study, ProfileRule(AKESO), in_order([t.number for t in study.trials]))


def blind(study: RecordedStudy) -> RecordedStudy:
    return replace(study, trials=tuple(replace(t, params={}, losses=()) for t in study.trials))


def epochs_of_the_dead(search: Simulated) -> float:
    return float(np.mean([e.epochs for e in search.ended[30:] if e.would < 0.15]))


def lost(study: RecordedStudy, search: Simulated) -> int:
    goal = goal_of(study)
    return sum(is_wrong(e, goal, True) and e.verdict.action == "stop" for e in search.ended)


def test_dead_trials_are_told_from_sleepers_by_what_else_is_known_of_them() -> None:
    seen, unseen, wrong, trials = [], [], 0, 0
    for seed in range(3):
        study = sleepers_study(120, seed)
        search = searched(study)
        seen.append(epochs_of_the_dead(search))
        unseen.append(epochs_of_the_dead(searched(blind(study))))
        wrong, trials = wrong + lost(study, search), trials + len(study.trials)
    assert np.mean(seen) < 0.75 * np.mean(unseen)
    assert wrong <= 0.03 * trials  # above the bound: no study foresees its first sleepers


def test_what_says_nothing_costs_no_good_trials() -> None:
    wrong = trials = 0
    for seed in range(3):
        study = sleepers_study(120, seed, telling=False)
        wrong, trials = wrong + lost(study, searched(study)), trials + len(study.trials)
    assert wrong <= 0.03 * trials


def test_trials_that_stood_still_for_long_are_company_for_one_that_does() -> None:
    def still(reports: int, *, rise: float = 0.0, stopped: bool = True, kind: str = "dead") -> Curve:
        costs = np.full(reports, -0.1)
        costs[-1] -= rise
        losses = (2.3,) * reports
        traits = Traits({"kind": kind, "rate": 0.1}, losses)
        return Curve(
            tuple(costs), not stopped, stopped, expected=-0.1 if stopped else math.nan, traits=traits
        )

    ends = np.linspace(0.3, 0.9, 8)
    well = [
        Curve(
            tuple(-end * (1 - 0.8**t) for t in range(1, 11)),
            True,
            traits=Traits({"kind": "well", "rate": 0.001 * k}, tuple(2 - end + 0.8**t for t in range(10))),
        )
        for k, end in enumerate(ends)
    ]
    young, losses = np.full(2, -0.1), (2.3, 2.3)

    def company(*others: Curve) -> int:
        return Forecast(Knowledge([*well, *others], 10)).company(
            young, Traits({"kind": "dead", "rate": 0.1}, losses), 4.0
        )

    assert company() == 0
    assert company(still(10, stopped=False), still(10, stopped=False)) == 2
    assert company(still(4), still(7)) == 2
    assert company(still(3), still(2)) == 0, "too young to say what becomes of them"
    assert company(still(6, rise=0.4)) == 0, "it had moved"
    assert company(still(4, kind="other")) == 0, "it was not like this one"


def test_a_number_is_placed_by_its_rank_and_anything_else_is_a_choice() -> None:
    seen: list[dict[str, Any]] = [
        {"lr": 1e-5, "act": "relu", "bias": True},
        {"lr": 1e-3, "act": "tanh", "bias": False},
        {"lr": 1e-1, "act": "relu", "bias": True},
    ]
    points = Hyperparameters(seen)
    logs = Hyperparameters([{**params, "lr": math.log(params["lr"])} for params in seen])
    there = points.points(seen)
    assert np.allclose(there, logs.points([{**params, "lr": math.log(params["lr"])} for params in seen]))
    apart = [np.linalg.norm(there[i] - there[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert apart[1] < apart[0] == pytest.approx(apart[2])
    assert np.median(apart) == pytest.approx(1.0)
    odd = points.points([{}, {"lr": "auto", "act": ["relu"], "new": 3}, {"lr": math.nan}])
    assert odd.shape == (3, there.shape[1])
    assert np.all(np.isfinite(odd))
    assert not Hyperparameters([{}, {}])


def test_what_some_configurations_lack_sets_them_apart() -> None:
    seen = [{"momentum": 0.9}, {"momentum": 0.8}, {}, {}]
    there = Hyperparameters(seen).points(seen)
    assert np.allclose(there[2], there[3])
    assert np.linalg.norm(there[0] - there[2]) > np.linalg.norm(there[0] - there[1])


def test_losses_count_by_rank_whatever_their_scale() -> None:
    losses = np.array([[2.3, 2.3], [2.3, 2.299], [2.1, 1.4], [math.inf, math.nan]])
    there = Losses(losses).points(losses)
    with np.errstate(invalid="ignore"):
        assert np.allclose(there, Losses(1e3 * losses - 7).points(1e3 * losses - 7))
    assert there[0, 0] > there[1, 0] > there[2, 0]
    assert there[3, 0] == there[:, 0].max()
    assert Losses(losses[:, :1]).points(losses[:, :1]).shape == (4, 1)


def test_kin_say_what_was_missed_and_how_surely() -> None:
    draw = np.random.default_rng(0)
    curve, params = draw.normal(size=(60, 3)), draw.random((60, 2))
    missed = 2 * np.sin(4 * params[:, 0]) + draw.normal(0, 0.1, 60)
    blocks, everyone = [curve, params, np.zeros((60, 0))], np.ones(60, bool)
    kin = Kin(blocks, missed, everyone)
    there = draw.random((40, 2))
    said, error = kin([draw.normal(size=(40, 3)), there, np.zeros((40, 0))])
    truth = 2 * np.sin(4 * there[:, 0])
    assert np.mean((said - truth) ** 2) < 0.25 * np.var(truth)
    assert np.mean(np.abs(said - truth) < 2 * error) > 0.85
    far, unsure = kin([curve[:1], params[:1] + 50, np.zeros((1, 0))])
    assert abs(float(far[0])) < 0.1
    assert float(unsure[0]) > 2 * float(np.median(error))


def test_kin_left_out_are_forecast_from_the_others_alone() -> None:
    draw = np.random.default_rng(1)
    curve = draw.normal(size=(40, 3))
    missed = curve[:, 0] + draw.normal(0, 0.3, 40)
    blocks, everyone = [curve, np.zeros((40, 0)), np.zeros((40, 0))], np.ones(40, bool)
    kin = Kin(blocks, missed, everyone)
    spoilt = missed.copy()
    spoilt[7] += 3.0
    assert Kin(blocks, spoilt, everyone).left_out[7] == pytest.approx(kin.left_out[7], abs=0.6)
    assert np.corrcoef(kin.left_out, missed)[0, 1] > 0.7


def test_kin_of_noise_say_next_to_nothing() -> None:
    draw = np.random.default_rng(2)
    blocks = [draw.normal(size=(80, 3)), draw.random((80, 5)), draw.random((80, 3))]
    kin = Kin(blocks, draw.normal(size=80), np.ones(80, bool))
    said, error = kin([draw.normal(size=(50, 3)), draw.random((50, 5)), draw.random((50, 3))])
    assert np.abs(said).max() < 0.8
    assert 0.7 < float(np.median(error)) < 1.4


def test_a_study_keeps_training_losses_and_reads_them_again(tmp_path: Any) -> None:
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    study = optuna.create_study(study_name="kept", storage=storage)
    study.optimize(lambda trial: objective(trial, epochs=4), n_trials=2)
    again = optuna.load_study(study_name="kept", storage=storage)
    for trial in again.trials:
        if trial.state.name != "COMPLETE":
            continue
        traits = attributes.traits_of(trial)
        assert traits.params == trial.params
        assert len(traits.losses) == len(trial.intermediate_values)
        assert all(map(math.isfinite, traits.losses))
        curve = attributes.curve_of(trial, 0, (False,), 4, "last")
        assert curve.traits == traits
        assert math.isnan(curve.expected)


def test_what_a_given_up_trial_was_expected_to_come_to_is_kept() -> None:
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))

    def run(trial: optuna.Trial) -> float:
        import akeso

        end = trial.suggest_float("end", 0.1, 0.9)
        with akeso.search.watch(trial, epochs=20) as health:
            for epoch in range(20):
                health.report(end * (1 - 0.5**epoch))
        return float(health.value)

    study.optimize(run, n_trials=25)
    given_up = [t for t in study.trials if t.user_attrs[attributes.TRIAL].get("indicator") == "forecast"]
    assert given_up
    for trial in given_up:
        expected = attributes.curve_of(trial, 0, (True,), 20, "last").expected
        assert -expected == pytest.approx(trial.params["end"], abs=0.15)


def test_recorded_studies_keep_losses_and_old_ones_are_read_without(tmp_path: Any) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.enqueue_trial({"lr": 0.1})
    record(study, lambda trial: objective(trial, epochs=3), tmp_path, epochs=3, trials=2)
    for trial in load(tmp_path).trials[:1]:
        assert len(trial.losses) == len(trial.values) == 3
        assert trial.traits.until(1) == Traits(trial.params, trial.losses[:1])
        assert RecordedTrial.from_dict(trial.to_dict()) == trial
        old = {key: value for key, value in trial.to_dict().items() if key != "losses"}
        assert RecordedTrial.from_dict(old).losses == ()
