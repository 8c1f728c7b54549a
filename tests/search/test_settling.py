"""Reports of models whose running statistics have not left their start are not judged by."""

from __future__ import annotations

import numpy as np
import optuna
import torch
from torch import nn

import akeso
from akeso.search.profiles import AKESO
from akeso.search.recorded import RecordedStudy, RecordedTrial, of_trials
from akeso.search.rules import ProfileRule
from akeso.search.simulation import in_order, simulate
from akeso.search.tally import is_wrong
from akeso.torch.settling import Settling


def trained(model: nn.Module, steps: int) -> None:
    model.train()
    for _ in range(steps):
        model(torch.randn(8, 4))


def test_statistics_have_settled_when_a_hundredth_of_their_start_is_left() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    settling = Settling([model])
    seen = []
    for _ in range(6):
        trained(model, 10)
        seen.append(settling.unsettled())
    assert seen == [True] * 4 + [False] * 2
    assert not settling._norms, "nothing is read any more"


def test_what_stands_still_or_averages_over_all_batches_has_settled() -> None:
    for norm in (
        nn.BatchNorm1d(4, momentum=None),
        nn.BatchNorm1d(4, track_running_stats=False),
        nn.LayerNorm(4),
    ):
        settling = Settling([nn.Sequential(nn.Linear(4, 4), norm)])
        trained(nn.Sequential(norm), 1)
        assert not settling.unsettled()
    model = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4))
    settling = Settling([model])
    model.train()
    model[1](torch.randn(8, 4))
    assert settling.unsettled()
    assert not settling.unsettled(), "frozen from now on"


def test_a_trial_says_how_many_of_its_reports_say_nothing() -> None:
    def objective(trial: optuna.Trial) -> float:
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=trial.suggest_float("lr", 0.01, 0.02))
        with akeso.search.watch(trial, model, optimizer, epochs=8, on_problem="shadow") as health:
            for _ in range(8):
                for x in torch.randn(10, 16, 4):
                    optimizer.zero_grad()
                    nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
                    optimizer.step()
                health.report(1.0)
        return float(health.value)

    study = optuna.create_study()
    study.optimize(objective, n_trials=1)
    assert study.trials[0].user_attrs["akeso:trial"]["unsettled"] == 4


def study_with_late_figures(*, told: bool) -> RecordedStudy:
    """Every sixth trial stands at chance until its statistics have settled, and then leads or lags behind all."""
    draw, trials, t = np.random.default_rng(0), [], np.arange(1, 21)
    for number in range(120):
        late = number % 6 == 5
        end = draw.choice([0.85, 0.4]) if late else draw.uniform(0.5, 0.8)
        values = end * (1 - 0.6**t) + draw.normal(0, 0.004, len(t))
        if late:
            values[:8] = 0.1 + 0.01 * draw.random(8)
        unsettled = 8 if late and told else 0
        trials.append(
            RecordedTrial(number, {}, tuple(values.tolist()), tuple(t.tolist()), unsettled=unsettled)
        )
    return of_trials(trials, maximize=True, epochs=20)


def test_figures_of_statistics_that_have_not_settled_give_up_no_trial_and_mislead_about_none() -> None:
    searches = [simulate(study_with_late_figures(told=told), ProfileRule(AKESO), in_order(range(120))).ended
                for told in (True, False)]  # fmt: skip
    goal = sorted((one.would for one in searches[0]), reverse=True)[29]
    assert not any(is_wrong(one, goal, True) for one in searches[0])
    stopped = [one for one in searches[0] if one.number % 6 == 5 and one.verdict.action == "stop"]
    assert len(stopped) > 3, "those that are hopeless once they can be judged"
    assert min(one.epochs for one in stopped) > 8
    others, untold = (np.mean([one.epochs for one in ended if one.number % 6 != 5]) for ended in searches)
    assert others < 0.8 * untold, "what is taken for trials that wake up late makes all forecasts unsure"
