"""The epochs that BTTackler's indicators name: those of the run, or none where they were not seen."""

from __future__ import annotations

import optuna
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import akeso
from akeso.detectors.bttackler import UnexpectedLossChanges
from akeso.detectors.epochs import are_seen
from akeso.history import Event, History
from tests.search.trials import build, train_epoch

STEPS, EPOCHS = 12, 8


def jumping(*, epochs_seen: bool, planned: int | None = STEPS * EPOCHS) -> History:
    """A loss that jumps up and down from one epoch of 12 steps to the next."""
    history = History(planned_steps=planned)
    for step in range(STEPS * EPOCHS):
        if epochs_seen and step % STEPS == 0:
            history.events.append(Event(step, "epoch"))
        history.add(step, "loss", "", 1.0 + 0.3 * (step // STEPS % 2))
    return history


def test_an_epoch_is_named_where_epochs_were_seen() -> None:
    (symptom,) = UnexpectedLossChanges().detect(jumping(epochs_seen=True))
    assert symptom.evidence["epoch"] == 5  # the first of the second half
    assert symptom.sentence == "BTTackler's indicator ULC is positive in epoch 5."
    assert symptom.step == 5 * STEPS - 1


def test_no_epoch_is_named_where_none_was_seen() -> None:
    for planned in (None, STEPS * EPOCHS):
        history = jumping(epochs_seen=False, planned=planned)
        assert not are_seen(history)
        (symptom,) = UnexpectedLossChanges().detect(history)
        assert "in epoch" not in symptom.sentence
        assert f"positive in step {symptom.step}, at the end of part" in symptom.sentence
        assert "the epochs of the run were not seen" in symptom.sentence


def test_the_size_of_the_data_set_tells_the_epochs() -> None:
    history = jumping(epochs_seen=False)
    history.facts["dataset_size"] = STEPS * 16
    history.add(0, "batch_size", "", 16.0)
    assert are_seen(history)
    (symptom,) = UnexpectedLossChanges().detect(history)
    assert symptom.sentence.endswith("positive in epoch 5.")


def test_passes_over_a_data_loader_are_epochs() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8)
    with akeso.watch(model, optimizer, run=None) as watch:
        for _ in range(3):
            for x, y in loader:
                optimizer.zero_grad()
                F.mse_loss(model(x), y).backward()
                optimizer.step()
    assert are_seen(watch.history)


def test_in_a_search_the_reports_are_the_epochs() -> None:
    def slow(trial: optuna.Trial) -> float:
        model, optimizer = build(1e-6)
        with akeso.search.watch(trial, model, optimizer, epochs=8, profile="bttackler") as health:
            for _ in range(8):
                health.report(train_epoch(model, optimizer))
        return float(health.value)

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(pruner=optuna.pruners.NopPruner())
    study.optimize(slow, n_trials=1)
    trial = study.trials[0]
    assert len(trial.intermediate_values) == 2
    assert trial.user_attrs["akeso:sentence"] == "BTTackler's indicator PLC is positive in epoch 2."
    assert trial.user_attrs["akeso:step"] == 2 * STEPS - 1
