"""Repair on the fly: what the remedy touches, what it leaves alone, and what is noted of it."""

from __future__ import annotations

import math
from typing import Any

import optuna
import pytest
import torch
from optuna.trial import TrialState
from torch import nn
from torch.nn.utils import parametrizations

import akeso
from akeso.search import attributes
from akeso.search.repair import Repair
from tests.search.trials import build, data, objective, train_epoch

optuna.logging.set_verbosity(optuna.logging.ERROR)


def study() -> optuna.Study:
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))


def test_repair_lets_a_diverging_trial_complete_and_notes_what_was_used() -> None:
    made = study()
    made.enqueue_trial({"lr": 3e3})
    made.optimize(lambda trial: objective(trial, epochs=8, on_problem="repair"), n_trials=1)
    trial = made.trials[0]
    used = trial.user_attrs[attributes.USED]
    assert trial.params["lr"] == pytest.approx(3e3)
    assert used["repaired"]
    assert used["learning_rate"][0] < trial.params["lr"]
    assert trial.user_attrs[attributes.TRIAL]["outcome"] == "repaired"
    assert trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


def test_a_repaired_rate_works_under_a_schedule_and_leaves_no_hook() -> None:
    model, optimizer = build(0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    repair = Repair([model], [optimizer])
    assert repair.treat("constant-prediction")
    for _ in range(6):
        loss = train_epoch(model, optimizer)
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(
        0.5 * 0.5**6
    )  # the schedule's own rate is untouched
    assert math.isfinite(loss)
    assert repair.treat("non-finite")
    assert not repair.treat("non-finite")  # patience is over
    assert not Repair([model], [optimizer]).treat("overfitting")
    repair.close()
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


class Shifted(nn.Module):
    """A network with a weight of its own, as positions are embedded."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.full((6,), 0.5))
        self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x + self.shift)


def broken(model: nn.Module) -> tuple[Repair, torch.optim.Optimizer]:
    """A model all of whose trained weights were lost, and the repair that has seen it begin."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1)
    repair = Repair([model], [optimizer])
    repair.open()
    for parameter in trained:
        parameter.grad = torch.full_like(parameter, math.nan)
    optimizer.step()
    return repair, optimizer


@pytest.mark.parametrize(
    "make",
    [
        Shifted,
        lambda: parametrizations.weight_norm(nn.Linear(6, 2)),
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).bfloat16(),
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).double(),
        lambda: nn.TransformerEncoderLayer(6, 2, 8, batch_first=True),
        lambda: nn.LSTM(6, 4, batch_first=True),
        lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)),
    ],
)
def test_every_lost_weight_is_renewed(make: Any) -> None:
    model = make()
    repair, _ = broken(model)
    assert not any(torch.isfinite(parameter).all() for parameter in model.parameters())
    assert repair.treat("non-finite")
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    repair.close()


def test_weights_that_are_not_trained_stay_what_they_are() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    model[0].requires_grad_(False)
    model[2].weight.requires_grad_(False)  # only its bias is trained
    frozen = [(p, p.clone()) for p in model.parameters() if not p.requires_grad]
    bias = model[2].bias.detach().clone()
    repair, _ = broken(model)
    assert repair.treat("non-finite")
    assert all(torch.equal(parameter, before) for parameter, before in frozen)
    assert torch.equal(model[2].bias, bias)
    assert torch.isfinite(model[4].weight).all()


def test_gradients_are_gone_but_can_still_be_looked_at() -> None:
    model = Shifted()
    repair, _ = broken(model)
    assert repair.treat("exploding-gradient")
    assert all(
        float(parameter.grad.norm()) == 0 for parameter in model.parameters() if parameter.grad is not None
    )
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_rate_that_is_noted_is_the_one_before_schedules() -> None:
    model, optimizer = build(0.5)
    optimizer.param_groups[0]["lr"] = torch.tensor(0.5)
    repair = Repair([model], [optimizer])
    repair.open()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.1)
    repair.treat("exploding-gradient")
    for _ in range(3):
        train_epoch(model, optimizer)
        schedule.step()
    assert repair.used["learning_rate"] == [pytest.approx(0.5 * 0.3)]
    assert type(repair.used["learning_rate"][0]) is float  # a storage takes no tensors


class Stubborn(nn.Linear):
    """A layer whose weights can be drawn once."""

    drawn = False

    def reset_parameters(self) -> None:
        if self.drawn:
            raise RuntimeError("this layer is drawn once")
        self.drawn = True
        super().reset_parameters()


def breaking(trial: optuna.Trial, layer: type[nn.Linear], values: list[float]) -> Any:
    """Reports these values; in its third epoch a batch holds an infinity."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), layer(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = data()
    with akeso.search.watch(trial, model, optimizer, epochs=len(values), on_problem="repair") as health:
        for epoch, value in enumerate(values):
            for start in range(0, len(x), 16):
                batch = x[start : start + 16] * (math.inf if (epoch, start) == (2, 32) else 1.0)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(batch), y[start : start + 16]).backward()
                optimizer.step()
            health.report(value)
    return health.value


def test_a_remedy_that_fails_stops_the_trial_and_does_not_crash_it() -> None:
    made = study()
    made.optimize(lambda trial: breaking(trial, Stubborn, [1.0] * 5), n_trials=1)
    assert made.trials[0].state == TrialState.PRUNED
    assert made.trials[0].user_attrs["akeso:problem"] == "non-finite"


def test_where_a_trial_stood_before_its_repair_does_not_end_it() -> None:
    values = [1.0, 0.1, *[0.9 - 0.05 * epoch for epoch in range(10)]]
    made = study()
    made.optimize(lambda trial: breaking(trial, nn.Linear, values), n_trials=1)
    about = made.trials[0].user_attrs[attributes.TRIAL]
    assert (about["outcome"], about["reports"]) == ("repaired", 12)
    assert made.trials[0].value == pytest.approx(values[-1])
