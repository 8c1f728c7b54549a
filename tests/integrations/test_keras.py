"""Keras under the watch of a trial."""

from __future__ import annotations

import math
import os
import sys
from functools import partial
from importlib import import_module
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import optuna
import pytest

import akeso
from akeso.errors import BadInput, MissingExtra
from akeso.integrations.keras import HealthCallback
from tests.test_docs import ROOT, blocks_of

pytestmark = pytest.mark.filterwarnings("ignore")  # Keras warns of its own parts


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    """The names of the example in the docs."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    (block,) = (b for b in blocks_of(ROOT / "docs/search.md") if "integrations.keras" in b.code)
    names: dict[str, Any] = {}
    exec(block.code, names)
    return names


def model_of(shown: dict[str, Any]) -> Any:
    model = shown["keras"].Sequential([shown["keras"].layers.Dense(1)])
    model.compile("sgd", loss="mse")
    return model


def test_the_example_of_the_docs_searches_and_stops_what_diverges(shown: dict[str, Any]) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(shown["objective"], n_trials=6)
    well = [trial for trial in study.trials if trial.params["rate"] < 0.5]
    diverged = [trial for trial in study.trials if trial.params["rate"] > 10]
    assert diverged
    assert well
    for trial in well:
        assert trial.state.name == "COMPLETE"
        assert trial.value == trial.intermediate_values[5] < 2
        losses = trial.user_attrs["akeso:trial"]["losses"]
        assert len(losses) == 6
        assert losses[-1] < losses[0]
    for trial in diverged:
        assert trial.state.name == "PRUNED"
        assert trial.user_attrs["akeso:problem"] == "non-finite"
        assert all(map(math.isfinite, trial.intermediate_values.values()))


def test_a_network_that_is_given_is_ended_within_steps(shown: dict[str, Any]) -> None:
    def objective(trial: optuna.Trial) -> float:
        model = model_of(shown)
        model.optimizer.learning_rate = trial.suggest_float("rate", 1e-2, 1e4, log=True)
        with akeso.search.watch(trial, model, epochs=3) as health:
            callbacks = [HealthCallback(health, "val_loss")]
            model.fit(
                shown["x"], shown["y"], 4, epochs=3, validation_split=0.25, verbose=0, callbacks=callbacks
            )
        return float(health.value)

    study = optuna.create_study()
    study.enqueue_trial({"rate": 0.05})
    study.enqueue_trial({"rate": 5000.0})
    study.optimize(objective, n_trials=2)
    well, broken = study.trials
    assert well.state.name == "COMPLETE"
    assert len(well.intermediate_values) == 3
    assert broken.state.name == "PRUNED"
    assert not broken.intermediate_values
    assert broken.user_attrs["akeso:step"] < 3 * 48 // 2


def test_only_epochs_with_validation_are_reported(shown: dict[str, Any]) -> None:
    trial = optuna.create_study().ask()
    with akeso.search.watch(trial, epochs=2) as health:
        callbacks = [HealthCallback(health)]
        data = {"validation_split": 0.25, "validation_freq": 2}
        model_of(shown).fit(shown["x"], shown["y"], epochs=5, verbose=0, callbacks=callbacks, **data)
    frozen = trial.study.get_trials(deepcopy=False)[0]
    assert sorted(frozen.intermediate_values) == [0, 1]


@pytest.mark.parametrize(
    ("data", "monitor"), [({"validation_split": 0.25}, "val_acc"), ({}, "val_loss"), ({}, "acc")]
)
def test_a_metric_that_is_not_logged_is_named_beside_those_that_are(
    shown: dict[str, Any], data: dict[str, float], monitor: str
) -> None:
    trial = optuna.create_study().ask()
    health = akeso.search.watch(trial, epochs=2)
    fit = partial(model_of(shown).fit, callbacks=[HealthCallback(health, monitor)], **data)
    with pytest.raises(BadInput, match=f"logged no '{monitor}', only loss"), health:
        fit(shown["x"], shown["y"], epochs=2, verbose=0)


def test_what_is_no_watch_is_refused() -> None:
    with pytest.raises(BadInput, match=r"takes what akeso\.search\.watch gives, but got NoneType"):
        HealthCallback(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["keras", "lightning"])
def test_without_its_package_the_error_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, {"lightning": "lightning.pytorch"}.get(name, name), None)
    monkeypatch.delitem(sys.modules, "pytorch_lightning", raising=False)
    monkeypatch.delitem(sys.modules, f"akeso.integrations.{name}", raising=False)
    with pytest.raises(MissingExtra, match=rf"akeso\[{name}\]"):
        import_module(f"akeso.integrations.{name}")
