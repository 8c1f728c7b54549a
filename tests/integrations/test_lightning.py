"""Lightning's trainer under the watch of a trial."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch

import akeso
from akeso.errors import BadInput
from akeso.integrations.lightning import HealthCallback
from tests.test_docs import ROOT, blocks_of

pytestmark = pytest.mark.filterwarnings(
    "ignore"
)  # Lightning warns of few workers, short epochs and its own parts


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of the example in the docs."""
    monkeypatch.chdir(tmp_path)
    (block,) = (b for b in blocks_of(ROOT / "docs/search.md") if "integrations.lightning" in b.code)
    names: dict[str, Any] = {}
    exec(block.code, names)
    return names


def fit(shown: dict[str, Any], callback: HealthCallback, module: Any, **options: Any) -> None:
    import lightning.pytorch as pl

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(shown["x"], shown["y"]), 64)
    trainer = pl.Trainer(
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        accelerator="cpu",
        **options,
    )
    trainer.fit(module, data, data)


def test_the_example_of_the_docs_searches_and_stops_what_diverges_within_steps(shown: dict[str, Any]) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(shown["objective"], n_trials=6)
    well = [trial for trial in study.trials if trial.params["rate"] < 0.5]
    diverged = [trial for trial in study.trials if trial.params["rate"] > 2]
    assert len(well) + len(diverged) == 6
    assert diverged
    assert well
    for trial in well:
        assert trial.state.name == "COMPLETE"
        assert len(trial.intermediate_values) == 8  # not the values of the check before training
        assert trial.value == trial.intermediate_values[7] < 1
        assert len(trial.user_attrs["akeso:trial"]["losses"]) == 8
    for trial in diverged:
        assert trial.state.name == "PRUNED"
        assert trial.user_attrs["akeso:step"] < 12, "within the first epoch"
        assert "NaN or infinite" in trial.user_attrs["akeso:sentence"]


def test_only_epochs_with_validation_are_reported(shown: dict[str, Any]) -> None:
    trial = optuna.create_study().ask()
    module = shown["Net"](0.05)
    with akeso.search.watch(trial, module, epochs=2) as health:
        fit(shown, HealthCallback(health, "val_loss"), module, max_epochs=5, check_val_every_n_epoch=2)
    frozen = trial.study.get_trials(deepcopy=False)[0]
    assert sorted(frozen.intermediate_values) == [0, 1]
    assert frozen.intermediate_values[1] < frozen.intermediate_values[0]


def test_a_metric_that_is_not_logged_is_named_beside_those_that_are(shown: dict[str, Any]) -> None:
    trial = optuna.create_study().ask()
    module = shown["Net"](0.05)
    with (
        pytest.raises(BadInput, match="logged no 'val_acc' by the end of epoch 0, only val_loss"),
        akeso.search.watch(trial, module, epochs=2) as health,
    ):
        fit(shown, HealthCallback(health, "val_acc"), module, max_epochs=2)


def test_what_cannot_work_is_refused(shown: dict[str, Any]) -> None:
    trial = optuna.create_study().ask()
    with pytest.raises(BadInput, match=r"takes what akeso\.search\.watch gives, but got Trial"):
        HealthCallback(trial, "val_loss")  # type: ignore[arg-type]
    callback = HealthCallback(akeso.search.watch(trial, epochs=2), "val_loss")
    several = shown["pl"].Trainer(accelerator="cpu", devices=2, strategy="ddp", logger=False)
    with pytest.raises(BadInput, match="trained by one process, but this trainer has 2"):
        callback.on_fit_start(several, None)
