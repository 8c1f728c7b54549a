"""Tests of Keras on one backend after the other: one process runs all trainings, the tests look at what came of it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from tests.script.commands import akeso, python, write

ROOT = Path(__file__).parents[2]
Results = dict[str, dict[str, Any]]
#: One thread each: the trainings are small, and tests run side by side. What XLA compiles for JAX runs once or twice:
#: it is not worth much of an effort, and the same program need not be compiled again for a training without a watch.
SETTINGS = {
    "PYTHONPATH": str(ROOT / "src"),
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0 "
    "--xla_llvm_disable_expensive_passes=true",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


def needs(package: str) -> pytest.MarkDecorator:
    """Leave the tests out, with a word, where a package is not installed."""
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None,
        reason=f"{package} is not installed here: pip install -c constraints.txt 'akeso[{package}]'",
    )


def of(found: Results, name: str) -> dict[str, Any]:
    """What came of one of them."""
    if name not in found:
        pytest.skip("takes too long to compile here to be tried at every turn")
    return found[name]


class BackendTests:
    """What holds on every backend."""

    backend = ""

    @pytest.fixture(scope="class")
    @classmethod
    def found(cls, tmp_path_factory: pytest.TempPathFactory) -> Results:
        """What came of all trainings."""
        folder = tmp_path_factory.mktemp(cls.backend)
        script = str(Path(__file__).with_name("trainings.py"))
        kept = {"JAX_COMPILATION_CACHE_DIR": str(folder / "compiled")}
        done = python(folder, script, "found.json", KERAS_BACKEND=cls.backend, **SETTINGS, **kept)
        assert done.returncode == 0, done.stderr.decode()[-4000:]
        found: Results = json.loads((folder / "found.json").read_text())
        return found

    @pytest.mark.parametrize("name", ["a convolution with a norm", "a recurrence", "attention"])
    def test_a_healthy_training_is_seen_as_such(self, found: Results, name: str) -> None:
        one = of(found, f"healthy: {name}")
        assert not [entry for entry in one["diagnoses"] if entry[2] != "info"]
        assert not one["off"]
        assert "no gradients per layer seen" not in one["not_checked"]
        assert "no activations seen" not in one["not_checked"]

    @pytest.mark.parametrize(
        ("name", "problem", "layer"),
        [
            ("no softmax", "improper-output-activation", ""),
            ("class numbers as values", "improper-loss", ""),
            ("sigmoids in a row", "vanishing-gradient", "dense"),
            ("a rate too high", "learning-rate-too-high", ""),
            ("dead units", "dying-relu", "dense.relu"),
            ("a gap in the data", "abnormal-data", ""),
        ],
    )
    def test_what_is_wrong_is_named_first(self, found: Results, name: str, problem: str, layer: str) -> None:
        one = of(found, name)
        assert one["diagnoses"]
        assert one["diagnoses"][0][:2] == [problem, layer], one["diagnoses"]

    def test_a_layer_that_is_never_called_is_named(self, found: Results) -> None:
        assert any("dense_1" in name for name in found["a forgotten layer"]["detached"])

    def test_layers_losses_and_epochs_are_those_of_keras(self, found: Results) -> None:
        one = found["healthy: a convolution with a norm"]
        assert [entry[:2] for entry in one["layers"]] == [
            ["conv2d", "convolution"],
            ["batch_normalization", "norm"],
            ["re_lu", "activation"],
            ["dense", "output"],
        ]
        assert one["layers"][0][2:] == [[8, 1, 3, 3]]
        assert one["layers"][3][2:] == [[2, 8], [2]]
        assert one["steps"] == 6 * 8
        assert one["rate"] == pytest.approx([0.01])
        assert one["epochs"] == 6 * [{"batches": 8, "samples": 256, "batch_size": 32}]
        log = one["log"]
        assert one["val_loss"] == pytest.approx(log["val_loss"], rel=1e-5)
        assert one["val_accuracy"] == pytest.approx(log["val_accuracy"], abs=1e-6)
        # The mean of the steps of an epoch is what Keras gives for it: batches are of one size here.
        means = [sum(one["loss"][at : at + 8]) / 8 for at in range(0, 48, 8)]
        assert means == pytest.approx(log["loss"], rel=1e-3)

    @pytest.mark.parametrize(
        ("name", "steps"),
        [
            ("one fit after another", 2 * 7 + 3 * 10 + 10),
            ("a pipeline in half precision", None),
        ],
    )
    def test_the_same_bits_and_nothing_left_behind(
        self, found: Results, name: str, steps: int | None
    ) -> None:
        one = found[name]
        assert one["watched"] == one["plain"]
        assert one["restored"]
        assert one["looks"] >= 2
        assert not one["off"]
        assert steps is None or one["steps"] == steps

    def test_a_script_is_watched_from_its_first_step(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            "train.py",
            """
            import keras, numpy as np
            keras.utils.set_random_seed(0)
            x = np.random.normal(size=(320, 8)).astype("float32")
            y = (x[:, 0] > 0).astype("int64")
            model = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(2)])
            model.compile("sgd", "sparse_categorical_crossentropy")
            model.fit(x, y, epochs=3, verbose=0)
            """,
        )
        done = akeso(tmp_path, "run", "train.py", KERAS_BACKEND=self.backend, **SETTINGS)
        assert done.returncode == 1, done.stderr.decode()
        assert b"30 steps" in done.stderr
        assert b"say `from_logits=True`" in b" ".join(done.stderr.split())

    loop = ""

    def test_a_loop_by_hand_is_said_to_be_unwatched(self, tmp_path: Path) -> None:
        write(tmp_path, "train.py", self.loop)
        done = akeso(tmp_path, "run", "train.py", KERAS_BACKEND=self.backend, **SETTINGS)
        said = b" ".join(done.stderr.split())
        assert b"no training was watched" in said, said
        assert b"written by hand" in said
        assert b"healthy" not in said
