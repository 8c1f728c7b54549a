"""Where akeso listens to Keras on TensorFlow and JAX: the functions that take its steps, and what it evaluates."""

from __future__ import annotations

import functools
import sys
import weakref
from importlib import import_module
from typing import Any, Final

from akeso.keras.loop import Loop
from akeso.keras.mirrors import as_tensor
from akeso.torch.events import Figures
from akeso.torch.taps import Taps

#: Samples by which it is seen whether an evaluation is on training data.
_SAMPLES: Final = 128


class Loops:
    """Puts the taps in, and knows the loop of every model."""

    def __init__(self, taps: Taps, backend: str) -> None:
        self._taps = taps
        if backend == "jax":
            from akeso.keras.on_jax import OnJAX

            self._backend: Any = OnJAX()
        else:
            from akeso.keras.on_tensorflow import OnTensorFlow

            self._backend = OnTensorFlow()
        self._loops: weakref.WeakKeyDictionary[Any, Loop] = weakref.WeakKeyDictionary()
        self._figures: dict[str, float] | None = None
        self._by_hand = False

    def install(self) -> None:
        """Listen, until the taps are taken out."""
        name, trainer, iterator = self._backend.trainer
        module, replace = import_module(name), self._taps.replace
        replace(getattr(module, trainer), "make_train_function", self._wrap_make)
        replace(getattr(module, trainer), "evaluate", self._wrap_evaluate)
        replace(module, "pythonify_logs", self._wrap_logs)
        replace(getattr(module, iterator), "__iter__", self._wrap_iterator)
        replace(import_module("keras.src.trainers.trainer").Trainer, "reset_metrics", self._wrap_reset)
        optimizer = import_module("keras.src.optimizers.base_optimizer").BaseOptimizer
        for name in ("apply", "stateless_apply"):
            replace(optimizer, name, self._wrap_apply)
        self._taps.at_removal(self._remove)

    def _remove(self) -> None:
        for model, loop in list(self._loops.items()):
            if model.train_function is loop:
                model.train_function = loop.original
        self._loops.clear()

    def _safely(self, act: Any, *args: Any) -> None:
        """Do something of our own; an error in it is said, and never reaches the training."""
        try:
            act(*args)
        except Exception as error:
            self._taps.tell("failed", f"keras.{act.__name__.strip('_')}", error)

    def _wrap_make(self, original: Any) -> Any:
        @functools.wraps(original)
        def make_train_function(model: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(model, *args, **kwargs)
            self._safely(self._stand_in, model)
            return result

        return make_train_function

    def _stand_in(self, model: Any) -> None:
        made = model.train_function
        if self._taps.listening and made is not None and not isinstance(made, Loop):
            model.train_function = self._loops[model] = Loop(self._taps, self._backend, model)

    def _wrap_apply(self, original: Any) -> Any:
        @functools.wraps(original)
        def apply(*args: Any, **kwargs: Any) -> Any:
            # In the loops of Keras this runs once, when the step is traced.
            if not self._by_hand and not any(loop.running for loop in self._loops.values()):
                self._by_hand = True
                self._taps.tell("by_hand")
            return original(*args, **kwargs)

        return apply

    def _wrap_reset(self, original: Any) -> Any:
        @functools.wraps(original)
        def reset_metrics(model: Any) -> Any:
            loop = self._loops.get(model)
            if loop is not None:
                self._safely(loop.epoch_ends)
            return original(model)

        return reset_metrics

    # epochs ------------------------------------------------------------------------------------------

    def _wrap_iterator(self, original: Any) -> Any:
        @functools.wraps(original)
        def __iter__(iterator: Any) -> Any:
            # Evaluations and predictions make their way through data as well, and models are built with a glance at it.
            frame = sys._getframe(1)
            if frame.f_code.co_name == "fit":
                self._safely(self._epoch, iterator, frame.f_locals.get("self"))
            return original(iterator)

        return __iter__

    def _epoch(self, iterator: Any, model: Any) -> None:
        adapter = iterator.data_adapter
        batches, samples = iterator.num_batches, getattr(adapter, "_num_samples", None)
        size = getattr(adapter, "batch_size", None)
        loop = self._loops.get(model)
        if loop is not None:
            # Data that is to last for several epochs goes on after this one.
            loop.left = batches if iterator.steps_per_epoch is None else None
        self._taps.tell("epoch", batches, samples, size)

    # evaluations -------------------------------------------------------------------------------------

    def _wrap_logs(self, original: Any) -> Any:
        @functools.wraps(original)
        def pythonify_logs(logs: Any) -> Any:
            found = original(logs)
            self._figures = found
            return found

        return pythonify_logs

    def _wrap_evaluate(self, original: Any) -> Any:
        @functools.wraps(original)
        def evaluate(model: Any, x: Any = None, *args: Any, **kwargs: Any) -> Any:
            self._figures = None
            result = original(model, x, *args, **kwargs)
            figures, self._figures = self._figures, None
            if self._taps.listening and isinstance(figures, dict):
                self._safely(self._evaluated, x, figures)
            return result

        return evaluate

    def _evaluated(self, x: Any, figures: dict[str, Any]) -> None:
        first = next(iter(x.values())) if isinstance(x, dict) and x else x
        first = first[0] if isinstance(first, list | tuple) and first else first
        shape = getattr(first, "shape", None)
        known = shape is not None and len(shape) > 0 and shape[0] is not None
        right = [value for name, value in figures.items() if _is_accuracy(name)]
        self._taps.tell(
            "evaluated",
            Figures(
                _number(figures.get("loss")),
                _number(right[0]) if right else None,
                samples=int(shape[0]) if shape is not None and known else 0,
                inputs=as_tensor(first[:_SAMPLES]) if known else None,
            ),
        )


def _is_accuracy(name: str) -> bool:
    """Whether a metric is a share of right answers, by the name that Keras gives it."""
    return name in ("accuracy", "acc") or name.endswith(("_accuracy", "_acc"))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
