"""One pass of a model of Keras, forward and back, that changes nothing: what a step is about to do."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from akeso.keras.capture import Capture, Captured


class NotLookedInto(Exception):
    """A model does something of which nothing would be left as it was."""


@dataclass(frozen=True, slots=True)
class State:
    """The values of a model's variables, by what part they play."""

    trainable: Sequence[Any]
    others: Sequence[Any]
    optimizer: Sequence[Any]
    metrics: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Look:
    """What a pass has shown."""

    loss: Any
    gradients: list[Any]
    """As the optimizer will apply them; ``None`` for variables that nobody read."""
    rate: float
    captured: Captured
    once: float = 0.0
    """Seconds that went into preparing this look and those that follow."""


class Forward:
    """The forward half: the loss of a batch under given values of the variables."""

    def __init__(self, model: Any, here: Callable[[], bool]) -> None:
        self._model = model
        self._capture = Capture(here)
        self._read: set[int] = set()

    @property
    def captured(self) -> Captured:
        """What happened on the way."""
        return self._capture.found

    def run(self, state: State, batch: Any) -> tuple[Any, Any, Any]:
        """The loss, what it is multiplied by before gradients are computed, and the optimizer's rate."""
        model, keras = self._model, sys.modules["keras"]
        x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
        scope = _noting(self._read)(_mapping(model, state), collect_losses=True)
        with _same_random_numbers(), self._capture.watching(), scope:
            answer = model(x, training=True) if model._call_has_training_arg else model(x)
            loss = model._compute_loss(x=x, y=y, y_pred=answer, sample_weight=weights, training=True)
            scale = model.optimizer.scale_loss(keras.ops.ones(()))
            rate = keras.ops.convert_to_tensor(model.optimizer.learning_rate)
        for layer in model._flatten_layers():
            layer._losses.clear()
            layer._loss_ids.clear()
        return loss, scale, rate

    def applied(self, gradients: Sequence[Any], scale: Any) -> list[Any]:
        """Gradients as the optimizer will apply them."""
        model = self._model
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        places = [
            place
            for place, (variable, gradient) in enumerate(
                zip(model.trainable_variables, gradients, strict=True)
            )
            if gradient is not None and id(variable) in self._read
        ]
        out: list[Any] = [None] * len(gradients)
        clipped = optimizer._clip_gradients([gradients[place] / scale for place in places])
        for place, gradient in zip(places, clipped, strict=True):
            out[place] = gradient
        return out


def _mapping(model: Any, state: State) -> list[tuple[Any, Any]]:
    known = model.optimizer.variables
    return [
        *zip(model.trainable_variables, state.trainable, strict=True),
        *zip(model.non_trainable_variables, state.others, strict=True),
        *zip(known, state.optimizer, strict=True),
        *zip(model.metrics_variables, state.metrics, strict=True),
    ]


def _noting(read: set[int]) -> Any:
    """Keras's scope in which nothing is assigned, which notes what variables are read."""
    base: Any = sys.modules["keras"].StatelessScope

    class Noting(base):  # type: ignore[misc]
        def get_current_value(self, variable: Any) -> Any:
            read.add(id(variable))
            return super().get_current_value(variable)

    return Noting


@contextmanager
def _same_random_numbers() -> Iterator[None]:
    """Whatever a layer draws with Python or NumPy, the script finds their generators as they were."""
    plain, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(plain)
        np.random.set_state(numpy)
