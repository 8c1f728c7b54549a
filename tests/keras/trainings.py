"""Trainings of Keras on whatever backend it runs on, each under a watch; what came of them goes to a file as JSON.

Run as a script: Keras has one backend per process, and TensorFlow takes long to import.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers

import akeso

Data = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
BACKEND = keras.config.backend()
SPARSE = "sparse_categorical_crossentropy"


def logits() -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def classes(count: int = 400) -> Data:
    """Four classes that a small network tells apart."""
    random = np.random.default_rng(0)
    x = random.normal(size=(count, 12)).astype("float32")
    return x, (x[:, 0] > 0).astype("int64") * 2 + (x[:, 1] * x[:, 2] > 0)


def images() -> Data:
    """Bright spots on the left or on the right."""
    random = np.random.default_rng(0)
    x = random.normal(size=(320, 8, 8, 1)).astype("float32") * 0.3
    y = random.integers(0, 2, 320)
    x[y == 0, 2:5, :4] += 1.0
    x[y == 1, 2:5, 4:] += 1.0
    return x, y


def sequences() -> Data:
    random = np.random.default_rng(0)
    x = random.normal(size=(320, 6, 1)).astype("float32")
    return x, x[:, -3:, 0].sum(1)


def tokens() -> Data:
    random = np.random.default_rng(0)
    x = random.integers(0, 20, (320, 8))
    return x, (x == 3).any(1).astype("int64")


def with_a_gap() -> Data:
    x, y = classes()
    x[7::40, 3] = np.nan
    return x, y


def dense(output: int, activation: str | None, hidden: str = "relu", **options: Any) -> Any:
    return keras.Sequential(
        [layers.Dense(24, hidden, **options), layers.Dense(24, hidden), layers.Dense(output, activation)]
    )


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


def recurrent() -> Any:
    return keras.Sequential([layers.LSTM(12), layers.Dense(1)])


def transformer() -> Any:
    given = keras.Input((8,), dtype="int64")
    x = layers.Embedding(20, 16)(given)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(16)(layers.Dense(32, "gelu")(x)))
    return keras.Model(given, layers.Dense(2)(layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(x))))


def sigmoids() -> Any:
    small = keras.initializers.RandomNormal(stddev=0.05)
    stack = [layers.Dense(16, "sigmoid", kernel_initializer=small) for _ in range(6)]
    return keras.Sequential([*stack, layers.Dense(4, "softmax")])


class Forgetful(keras.Model):  # type: ignore[misc]
    """A model with a layer that it never calls."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.forgotten, self.last = layers.Dense(24, "relu"), layers.Dense(24), layers.Dense(4)

    def build(self, shape: Any) -> None:
        self.first.build(shape)
        self.forgotten.build((None, 24))
        self.last.build((None, 24))
        self.built = True

    def call(self, x: Any) -> Any:
        return self.last(self.first(x))


def adam(rate: float = 1e-2) -> Any:
    return keras.optimizers.Adam(rate)


def sgd(rate: float, **options: Any) -> Any:
    return keras.optimizers.SGD(rate, **options)


Case = tuple[Callable[[], Data], Callable[[], Any], Callable[[], Any], Callable[[], Any]]
DEAD = keras.initializers.Constant(-20.0)
CASES: dict[str, Case] = {
    "healthy: a convolution with a norm": (images, convolutional, lambda: SPARSE, adam),
    "healthy: a recurrence": (sequences, recurrent, lambda: "mse", adam),
    "healthy: attention": (tokens, transformer, logits, lambda: adam(3e-3)),
    "no softmax": (classes, lambda: dense(4, None), lambda: SPARSE, lambda: adam(1e-3)),
    "class numbers as values": (classes, lambda: dense(1, None), lambda: "mse", lambda: adam(1e-3)),
    "sigmoids in a row": (classes, sigmoids, lambda: SPARSE, lambda: sgd(0.01)),
    "a rate too high": (classes, lambda: dense(4, "softmax", "tanh"), lambda: SPARSE, lambda: sgd(50.0)),
    "dead units": (classes, lambda: dense(4, None, bias_initializer=DEAD), logits, lambda: sgd(1e-2)),
    "a gap in the data": (with_a_gap, lambda: dense(4, None), logits, lambda: adam(1e-3)),
    "a forgotten layer": (classes, Forgetful, logits, adam),
}

#: What JAX takes too long to compile for, with nothing in it that the others do not have.
SLOW = (
    "healthy: a recurrence",
    "healthy: attention",
    "class numbers as values",
    "sigmoids in a row",
    "a gap in the data",
)


def fitted(case: Case, validated: float) -> tuple[Any, dict[str, list[float]]]:
    """The model and what Keras has logged."""
    data, build, loss, optimizer = case
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    x, y = data()
    model = build()
    scored = y.dtype == np.int64 and loss() != "mse"
    model.compile(optimizer(), loss(), metrics=["accuracy"] if scored else None)
    log = model.fit(x, y, batch_size=32, epochs=6, validation_split=validated, verbose=0)
    return model, log.history


def verdict(name: str) -> dict[str, Any]:
    with akeso.watch() as watch:
        _, log = fitted(CASES[name], 0.2 if name.startswith("healthy") else 0.0)
    history = watch.history
    return {
        "diagnoses": [[found.problem, found.layer, found.severity] for found in watch.diagnoses],
        "not_checked": list(watch.examination.not_checked),
        "off": [event.data for event in history.events_of("probe-off")],
        "steps": watch.steps,
        "layers": [
            [layer.name, layer.role, *(list(p.shape) for p in layer.parameters)] for layer in history.layers
        ],
        "loss": history.series("loss").values.tolist(),
        "val_loss": history.series("val_loss").values.tolist(),
        "val_accuracy": history.series("val_accuracy").values.tolist(),
        "epochs": [event.data for event in history.events_of("epoch")],
        "detached": [event.scope for event in history.events_of("detached")],
        "rate": sorted(set(history.series("lr", "0").values.tolist())),
        "log": log,
    }


# the same bits ---------------------------------------------------------------------------------------


def noisy() -> Any:
    return keras.Sequential(
        [layers.Dense(16, "relu"), layers.BatchNormalization(), layers.Dropout(0.3), layers.Dense(4)]
    )


def compiled(model: Any, optimizer: Any = None, **options: Any) -> Any:
    model.compile(optimizer or adam(), logits(), metrics=["accuracy"], **options)
    return model


def one_fit_after_another() -> Any:
    x, y = classes(200)
    model = compiled(noisy(), jit_compile=False)
    model.fit(x, y, batch_size=32, epochs=2, verbose=0)
    model.evaluate(x, y, verbose=0)
    model.layers[0].trainable = False
    compiled(model, sgd(0.1, momentum=0.9, global_clipnorm=0.5), steps_per_execution=4)
    model.fit(x, y, batch_size=20, epochs=3, verbose=0)
    for at in range(0, 200, 20):
        model.train_on_batch(x[at : at + 20], y[at : at + 20])
    return model


def a_pipeline() -> Any:
    """Batches that a library of its own shuffles, or a generator that ends too early."""
    x, y = classes(200)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(200).batch(24).prefetch(2)
        keras.mixed_precision.set_dtype_policy("mixed_float16")
    else:
        data = ((x[at : at + 24], y[at : at + 24]) for at in range(0, 200, 24))
        keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    try:
        model = compiled(noisy())
        model.fit(data, epochs=2, verbose=0)
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    return model


SAME: dict[str, Callable[[], Any]] = {
    "one fit after another": one_fit_after_another,
    "a pipeline in half precision": a_pipeline,
}


def digest(train: Callable[[], Any]) -> str:
    """Everything that a training leaves behind, generators among it."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = train()
    found = hashlib.sha256()
    for variable in (*model.variables, *model.optimizer.variables):
        found.update(np.asarray(variable.value).tobytes())
    found.update(np.random.random(2).tobytes())
    return found.hexdigest()


def same(name: str) -> dict[str, Any]:
    before = keras.Model.make_train_function, keras.Model.evaluate, keras.optimizers.SGD.apply
    plain = digest(SAME[name])
    with akeso.watch() as watch:
        watched = digest(SAME[name])
    return {
        "plain": plain,
        "watched": watched,
        "steps": watch.steps,
        "looks": len(watch.history.series("batch_size")),
        "off": [event.data for event in watch.history.events_of("probe-off")],
        "restored": before
        == (keras.Model.make_train_function, keras.Model.evaluate, keras.optimizers.SGD.apply),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    found = {name: verdict(name) for name in CASES if BACKEND != "jax" or name not in SLOW}
    found |= {name: same(name) for name in SAME}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(found, file)
