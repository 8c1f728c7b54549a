"""Networks that compute nothing end their trial in a study of any age; repaired ones go on."""

from __future__ import annotations

import optuna
import pytest
import torch
from torch import nn
from torch.nn import functional

import akeso
from akeso.torch.cadence import Cadence

EPOCHS, STEPS = 12, 32


def _network(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "sigmoids":
        parts: list[nn.Module] = [nn.Linear(8, 16), nn.Sigmoid()]
        parts += [part for _ in range(9) for part in (nn.Linear(16, 16), nn.Sigmoid())]
        return nn.Sequential(*parts, nn.Linear(16, 2))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    with torch.no_grad():
        for layer in (model[0], model[2]):
            assert isinstance(layer, nn.Linear)
            if kind == "zero":
                layer.weight.zero_()
                layer.bias.zero_()
            if kind == "dead":
                layer.bias.fill_(-20.0)
    return model


def _study(kind: str, rate: float, mode: akeso.search.OnProblem = "stop") -> optuna.trial.FrozenTrial:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1024, 8, generator=generator)
    y = (x[:, 0] * x[:, 1] > 0).long()

    def objective(trial: optuna.Trial) -> float:
        model = _network(kind)
        optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
        with akeso.search.watch(trial, model, optimizer, epochs=EPOCHS, on_problem=mode) as health:
            for _ in range(EPOCHS):
                for rows in torch.randperm(1024, generator=generator).split(1024 // STEPS):
                    optimizer.zero_grad()
                    functional.cross_entropy(model(x[rows]), y[rows]).backward()
                    optimizer.step()
                with torch.no_grad():
                    health.report(functional.cross_entropy(model(x), y))
        return float(health.value)

    study = optuna.create_study(pruner=optuna.pruners.NopPruner())
    study.optimize(objective, n_trials=1)
    return study.trials[0]


@pytest.mark.parametrize("kind", ["zero", "dead", "sigmoids"])
def test_a_dead_network_ends_the_first_trial_of_a_study(kind: str) -> None:
    trial = _study(kind, 0.05)
    assert trial.state == optuna.trial.TrialState.PRUNED
    assert trial.user_attrs["akeso:problem"] in ("dying-relu", "vanishing-gradient", "constant-prediction")


def test_a_busy_machine_finds_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where looking is so dear that nothing but what is given can be had."""
    usual = Cadence.sampled
    monkeypatch.setattr(Cadence, "sampled", lambda self, step, seconds: usual(self, step, seconds + 10.0))
    assert _study("sigmoids", 0.05).state == optuna.trial.TrialState.PRUNED


def test_one_that_learns_goes_on() -> None:
    assert _study("good", 0.05).state == optuna.trial.TrialState.COMPLETE


def test_a_repaired_trial_is_not_held_to_what_was_found_before() -> None:
    trial = _study("good", 300.0, "repair")
    assert trial.state == optuna.trial.TrialState.COMPLETE
    assert trial.user_attrs["akeso:trial"]["outcome"] == "repaired"


def test_what_is_found_after_a_repair_counts_all_steps_of_the_trial() -> None:
    """The third of three poisoned batches is one more than is repaired."""

    def run(trial: optuna.Trial) -> float:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(256, 8, generator=generator)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        with akeso.search.watch(trial, model, optimizer, epochs=6, on_problem="repair") as health:
            for epoch in range(6):
                for at, batch in enumerate(x.split(16)):
                    optimizer.zero_grad()
                    poison = torch.inf if epoch % 2 and at == 3 else 1.0
                    (functional.cross_entropy(model(batch), (batch[:, 0] > 0).long()) * poison).backward()
                    optimizer.step()
                health.report(1.0 / (epoch + 1))
        return float(health.value)

    study = optuna.create_study()
    study.optimize(run, n_trials=1)
    (trial,) = study.trials
    assert trial.state == optuna.trial.TrialState.PRUNED
    assert trial.user_attrs["akeso:used"]["repaired"] == ["non-finite", "non-finite"]
    assert trial.user_attrs["akeso:step"] == 5 * 16 + 3
    assert trial.user_attrs["akeso:sentence"].startswith("Counted from its repair: ")


def _poisoned(trial: optuna.Trial, *, given: bool, several: bool) -> float:
    """A training that repair puts right: one batch holds an infinity."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 8, generator=generator)
    y = (x[:, 0] > 0).long()
    encoder, head = nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Linear(16, 2)
    optimizers = [torch.optim.SGD(part.parameters(), 0.1) for part in (encoder, head)]
    models = [encoder, head] if several else nn.Sequential(encoder, head)
    with akeso.search.watch(
        trial, models, optimizers if given else None, epochs=4, on_problem="repair"
    ) as health:
        for epoch in range(4):
            for at, rows in enumerate(torch.arange(256).split(16)):
                batch = x[rows].clone()
                batch[0, 0] = torch.inf if (epoch, at) == (1, 3) else batch[0, 0]
                for optimizer in optimizers:
                    optimizer.zero_grad()
                functional.cross_entropy(head(encoder(batch)), y[rows]).backward()
                for optimizer in optimizers:
                    optimizer.step()
            with torch.no_grad():
                health.report(functional.cross_entropy(head(encoder(x)), y))
    return float(health.value)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_several_models_are_watched_and_repaired_with_the_optimizers_that_train_them(
    given: bool, several: bool
) -> None:
    from torch.optim.optimizer import _global_optimizer_pre_hooks

    study = optuna.create_study(pruner=optuna.pruners.NopPruner())
    study.optimize(lambda trial: _poisoned(trial, given=given, several=several), n_trials=1)
    used = study.trials[0].user_attrs["akeso:used"]
    assert used["repaired"] == ["non-finite"]
    assert used["learning_rate"] == pytest.approx([0.01, 0.01])
    assert not _global_optimizer_pre_hooks
