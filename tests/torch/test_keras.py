"""Keras on its torch backend under a watch: the same readings and verdicts as of a model of torch's own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np
import pytest
import torch
from keras import layers
from torch.nn import functional

import akeso
from akeso.torch.keras.losses import call_of
from akeso.torch.watching import watch_everything
from tests.script.commands import akeso_at_once, write

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Keras warns of its own parts
    pytest.mark.skipif(keras.config.backend() != "torch", reason="Keras runs on another backend here"),
]
Data = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def classes(count: int = 600, features: int = 12) -> Data:
    """Four classes that a small network tells apart."""
    random = np.random.default_rng(0)
    x = random.normal(size=(count, features)).astype("float32")
    return x, (x[:, 0] > 0).astype("int64") * 2 + (x[:, 1] * x[:, 2] > 0)


def values() -> Data:
    random = np.random.default_rng(0)
    x = random.normal(size=(600, 6)).astype("float32")
    return x, (np.sin(x[:, 0]) + x[:, 1] * x[:, 2]).astype("float32")


def images() -> Data:
    """Bright spots on the left or on the right."""
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 8, 8, 1)).astype("float32") * 0.3
    y = random.integers(0, 2, 400)
    x[y == 0, 2:5, :4] += 1.0
    x[y == 1, 2:5, 4:] += 1.0
    return x, y


def sequences() -> Data:
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 8, 1)).astype("float32")
    return x, x[:, -3:, 0].sum(1)


def dense(output: int, activation: str | None, *, hidden: str = "relu") -> Any:
    return keras.Sequential(
        [layers.Dense(24, hidden), layers.Dense(24, hidden), layers.Dense(output, activation)]
    )


class OwnStep(keras.Model):  # type: ignore[misc]
    """A training step as the guides of Keras write it out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = layers.Dense(24, "gelu"), layers.LayerNormalization()
        self.last = layers.Dense(4)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.last(self.norm(self.first(x)))

    def train_step(self, data: Any) -> Any:
        x, y = data
        self.zero_grad()
        answer = self(x, training=True)
        loss = self.compute_loss(y=y, y_pred=answer)
        loss.backward()
        weights = list(self.trainable_weights)
        gradients = [weight.value.grad for weight in weights]
        with torch.no_grad():
            self.optimizer.apply(gradients, weights)
        return {"loss": loss}


def convolutional() -> Any:
    return keras.Sequential(
        [
            layers.Conv2D(8, 3, use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2, "softmax"),
        ]
    )


def sigmoids() -> Any:
    small = keras.initializers.RandomNormal(stddev=0.05)
    stack = [layers.Dense(16, "sigmoid", kernel_initializer=small) for _ in range(10)]
    return keras.Sequential([*stack, layers.Dense(4, "softmax")])


SPARSE = "sparse_categorical_crossentropy"
LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
Case = tuple[Callable[[], Data], Callable[[], Any], Any, Any]
HEALTHY: dict[str, Case] = {
    "probabilities": (classes, lambda: dense(4, "softmax"), SPARSE, keras.optimizers.Adam(1e-2)),
    "logits": (classes, lambda: dense(4, None), LOGITS, "rmsprop"),
    "values": (values, lambda: dense(1, None), "mse", keras.optimizers.Adam(3e-3)),
    "a convolution with a norm": (images, convolutional, SPARSE, keras.optimizers.Adam(1e-2)),
    "a recurrence": (
        sequences,
        lambda: keras.Sequential([layers.LSTM(12), layers.Dense(1)]),
        "mse",
        keras.optimizers.Adam(1e-2),
    ),
    "a step of one's own": (classes, OwnStep, LOGITS, keras.optimizers.AdamW(1e-2)),
}
SICK: dict[str, tuple[str, Case]] = {
    "no softmax": ("improper-output-activation", (classes, lambda: dense(4, None), SPARSE, "adam")),
    "a softmax too many": (
        "improper-output-activation",
        (classes, lambda: dense(4, "softmax"), LOGITS, "adam"),
    ),
    "a ReLU that cuts off": ("improper-output-activation", (values, lambda: dense(1, "relu"), "mse", "adam")),
    "class numbers as values": ("improper-loss", (classes, lambda: dense(1, None), "mse", "adam")),
    "sigmoids in a row": ("vanishing-gradient", (classes, sigmoids, SPARSE, "sgd")),
    "a rate too high": (
        "learning-rate-too-high",
        (classes, lambda: dense(4, "softmax", hidden="tanh"), SPARSE, keras.optimizers.SGD(50.0)),
    ),
}


def trained(case: Case, *, epochs: int = 8, seed: int = 0, **options: Any) -> tuple[Any, Any]:
    """The model and what Keras has logged."""
    data, build, loss, optimizer = case
    keras.utils.set_random_seed(seed)
    if not isinstance(optimizer, str):
        optimizer = type(optimizer).from_config(optimizer.get_config())
    x, y = data()
    model = build()
    model.compile(optimizer, loss, metrics=["accuracy"] if loss in (SPARSE, LOGITS) else None)
    log = model.fit(x, y, batch_size=32, epochs=epochs, validation_split=0.2, verbose=0, **options)
    return model, log.history


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_training_is_seen_as_such(name: str) -> None:
    with akeso.watch() as watch:
        _, log = trained(HEALTHY[name])
    assert not [d for d in watch.diagnoses if d.severity != "info"], watch.diagnoses
    history = watch.history
    assert "no gradients per layer seen" not in watch.examination.not_checked
    assert not history.events_of("probe-off")
    if "own" not in name:  # which logs none
        assert history.series("val_loss").values.tolist() == pytest.approx(log["val_loss"], rel=1e-4)
    if "val_accuracy" in log:
        assert history.series("val_accuracy").values.tolist() == pytest.approx(log["val_accuracy"], abs=1e-6)


@pytest.mark.parametrize("name", SICK)
def test_what_is_wrong_is_named_first(name: str) -> None:
    problem, case = SICK[name]
    with akeso.watch() as watch:
        trained(case)
    assert watch.diagnoses
    assert watch.diagnoses[0].problem == problem, watch.diagnoses
    if problem.startswith("improper"):
        assert (
            "cross_entropy" not in watch.diagnoses[0].sentence.partition(":")[0]
        )  # it is called something else


def test_layers_weights_and_rates_are_those_of_keras() -> None:
    with akeso.watch() as watch:
        keras.backend.clear_session()
        trained((images, convolutional, SPARSE, keras.optimizers.SGD(0.125, momentum=0.5)), epochs=2)
    history = watch.history
    found = {layer.name: layer for layer in history.layers}
    assert list(found) == ["conv2d", "batch_normalization", "re_lu", "dense"]
    assert [layer.role for layer in found.values()] == ["convolution", "norm", "activation", "output"]
    kernel, *_ = found["conv2d"].parameters
    assert (kernel.name, kernel.shape) == ("conv2d.kernel", (8, 1, 3, 3))
    assert [p.name for p in found["batch_normalization"].parameters] == [
        "batch_normalization.gamma",
        "batch_normalization.beta",
    ]
    assert found["dense"].parameters[0].shape == (2, 8)
    assert history.facts["optimizers"][0]["name"] == "SGD"
    assert history.facts["optimizers"][0]["momentum"] == 0.5
    assert set(history.series("lr", "0").values) == {0.125}
    assert history.steps == 2 * 10
    assert set(history.scopes("grad_l2")) == {p.name for p in history.parameters}


def test_gradients_are_read_as_they_are_applied() -> None:
    with akeso.watch() as watch:
        trained((classes, lambda: dense(4, "softmax"), SPARSE, keras.optimizers.SGD(0.1, clipnorm=1e-3)))
    norms = [watch.history.series("grad_l2", name).values for name in watch.history.scopes("grad_l2")]
    assert norms
    assert max(map(max, norms)) <= 1.001e-3


def test_gradients_that_are_gathered_make_one_step() -> None:
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)
    with akeso.watch() as watch:
        trained((classes, lambda: dense(4, "softmax"), SPARSE, optimizer), epochs=3)
    assert watch.steps == 3 * 15 // 3


def test_units_of_an_image_that_died_are_counted_by_channel() -> None:
    def half_dead() -> Any:
        model = keras.Sequential([layers.Conv2D(8, 3, activation="relu"), layers.Flatten(), layers.Dense(2)])
        model.build((None, 8, 8, 1))
        model.layers[0].bias.assign(np.repeat([-100.0, 0.1], 4))
        return model

    with akeso.watch() as watch:
        trained((images, half_dead, LOGITS, keras.optimizers.SGD(1e-3)), epochs=2)
    (site,) = watch.history.scopes("act_dead")
    assert set(watch.history.series("act_dead", site).values) == {0.5}


def test_a_model_that_was_given_before_it_has_weights_is_watched() -> None:
    model = dense(4, "softmax")
    with akeso.watch(model) as watch:
        trained((classes, lambda: model, SPARSE, "adam"), epochs=2)
        beside = keras.Sequential([layers.Dense(1)])
        trained((values, lambda: beside, "mse", "sgd"), epochs=1)
    assert watch.steps == 2 * 15
    assert len(watch.history.layers) == 3


def test_the_same_bits_and_nothing_left_behind() -> None:
    case: Case = (classes, lambda: dense(4, "softmax"), SPARSE, keras.optimizers.Adam(1e-3))
    before = keras.losses.Loss.__call__, keras.optimizers.SGD._backend_update_step
    plain, _ = trained(case, epochs=3)
    with akeso.watch():
        watched, _ = trained(case, epochs=3)
        assert keras.losses.Loss.__call__ is not before[0]
    assert (keras.losses.Loss.__call__, keras.optimizers.SGD._backend_update_step) == before
    for one, other in zip(plain.get_weights(), watched.get_weights(), strict=True):
        assert np.array_equal(one, other)


def test_metrics_are_computed_as_without_a_watch() -> None:
    modes: list[int] = []

    def looks_around(y: Any, answer: Any) -> Any:
        modes.append(len(torch.overrides._get_current_function_mode_stack()))
        return (y - answer).square().mean()

    x, y = values()
    model = dense(1, None)
    model.compile("adam", "mse", metrics=[looks_around])
    with akeso.watch() as watch:
        model.fit(x, y, 32, epochs=2, validation_split=0.2, verbose=0)
    assert set(modes) == {0}
    assert watch.history.facts["loss"] == "mse_loss"
    assert "loss_terms" not in watch.history.facts


@pytest.mark.parametrize(
    "loss",
    [
        keras.losses.SparseCategoricalCrossentropy(),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        keras.losses.CategoricalCrossentropy(),
        keras.losses.CategoricalCrossentropy(from_logits=True),
        keras.losses.BinaryCrossentropy(),
        keras.losses.BinaryCrossentropy(from_logits=True),
        keras.losses.MeanSquaredError(),
        keras.losses.MeanAbsoluteError(),
        keras.losses.Huber(delta=0.7),
        keras.losses.Poisson(),
    ],
    ids=lambda loss: f"{loss.fn.__name__}-{loss._fn_kwargs.get('from_logits', '')}",
)
def test_a_loss_is_the_call_of_torch_that_gives_the_same(loss: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(6, 5, 3, generator=generator)
    plain = loss._fn_kwargs.get("from_logits") or loss.fn.__name__.startswith("mean")
    given = scores if plain else scores.softmax(-1)
    target: torch.Tensor = torch.randint(0, 3, (6, 5), generator=generator)
    if not loss.fn.__name__.startswith("sparse"):
        target = functional.one_hot(target, 3)
    value = loss(target, given)
    call = call_of(loss, target, given, value, weighted=False)
    assert call is not None
    extra = {key: call.arguments[key] for key in ("delta", "log_input") if key in call.arguments}
    same = getattr(functional, call.name)(call.prediction, call.target, **extra)
    assert same.item() == pytest.approx(value.item(), rel=1e-4)


def test_keras_is_met_after_a_training_of_torchs_own(tmp_path: Path) -> None:
    write(
        tmp_path,
        "train.py",
        """
        import os, torch
        os.environ["KERAS_BACKEND"] = "torch"
        torch.manual_seed(0)
        x = torch.randn(64, 8)
        y = x[:, :1]
        plain = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(plain.parameters(), 0.05)
        for _ in range(100):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(plain(x), y).backward()
            optimizer.step()
        import keras
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(x.numpy(), y.numpy(), batch_size=16, epochs=10, verbose=0)
        """,
    )
    done = akeso_at_once(tmp_path, "run", "--json", "out.json", "train.py")
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["steps"] == 100 + 40, done.stderr.decode()
    assert "what another optimizer trained in the first 100 steps" in document["not_checked"]


def test_a_script_is_watched_from_its_first_step(tmp_path: Path) -> None:
    write(
        tmp_path,
        "train.py",
        """
        import os
        os.environ["KERAS_BACKEND"] = "torch"
        import keras, numpy as np
        keras.utils.set_random_seed(0)
        x = np.random.normal(size=(320, 8)).astype("float32")
        y = (x[:, 0] > 0).astype("int64")
        model = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(2)])
        model.compile("sgd", "sparse_categorical_crossentropy")
        model.fit(x, y, epochs=3, verbose=0)
        """,
    )
    done = akeso_at_once(tmp_path, "run", "train.py")
    assert done.returncode == 1
    assert b"30 steps" in done.stderr
    assert b"say `from_logits=True`" in b" ".join(done.stderr.split())


def test_a_model_that_is_built_while_another_one_runs_is_no_obstacle() -> None:
    class Block(layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = keras.Sequential([layers.Dense(12, activation="relu"), layers.Dense(12)])

        def call(self, x: Any) -> Any:
            return x + self.inner(x)

    keras.utils.set_random_seed(0)
    x, y = classes()
    with watch_everything() as watch:
        given = layers.Input((12,))
        model = keras.Model(given, layers.Dense(4, activation="softmax")(Block()(given)))
        model.compile("adam", "sparse_categorical_crossentropy")
        model.fit(x, y, epochs=2, verbose=0)
    assert not watch.history.events_of("probe-off")
    assert watch.history.steps == 38
