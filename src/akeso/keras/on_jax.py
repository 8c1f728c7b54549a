"""Looking into steps of Keras on JAX: one compiled function, which gives out what was seen on the way."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from itertools import islice
from typing import Any, Final

from akeso.keras.capture import Captured
from akeso.keras.look import Forward, Look, NotLookedInto, State

#: What a step of Keras on JAX gives, by the names under which it is kept.
_PARTS: Final = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")
#: Work, in operations on numbers, that takes milliseconds however it is compiled; and how to compile for that.
_LITTLE: Final = 1e7
_QUICKLY: Final = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class OnJAX:
    """What is JAX's own about a loop of Keras."""

    trainer: Final = ("keras.src.backend.jax.trainer", "JAXTrainer", "JAXEpochIterator")

    def __init__(self) -> None:
        self._jax: Any = import_module("jax")
        self._known: weakref.WeakKeyDictionary[Any, _Compiled] = weakref.WeakKeyDictionary()

    def number(self, value: Any) -> float:
        """A logged value as a number."""
        return float(value)

    # batches -----------------------------------------------------------------------------------------

    def taken(self, iterator: Any, most: int) -> list[Any] | None:
        """The next batches of an iterator."""
        return list(islice(iterator, most))

    def again(self, iterator: Any, batches: Sequence[Any]) -> Any:
        """An iterator that gives these batches."""
        return iter(batches)

    # looking -----------------------------------------------------------------------------------------

    def state(self, model: Any, given: tuple[Any, ...]) -> State:
        """The values of the variables before the step, as Keras hands them to it."""
        trainable, others, optimizer, metrics = given[0]
        return State(trainable, others, optimizer, metrics)

    def trained(self, model: Any, outcome: Any) -> list[Any]:
        """The values of what is trained after the step."""
        return list(outcome[1][0])

    def keep(self, model: Any, outcome: Any) -> None:
        """Put the outcome where Keras would next, and takes it from if its loop ends early."""
        model._jax_state = dict(zip(_PARTS, outcome[1], strict=True))

    def counted(self, model: Any, outcome: Any, metric: Any) -> float:
        """Samples that have gone into a metric."""
        if outcome is None:
            return self.number(metric.count.value)
        place = next(at for at, one in enumerate(model.metrics_variables) if one is metric.count)
        return self.number(outcome[1][3][place])

    def ready(self, model: Any, batch: Any) -> bool:
        """Whether a look is worth it: for a batch of another shape than the first all would be compiled again."""
        known = self._known.get(model)
        return known is None or known.train_function is not model.train_function or known.fits(batch)

    def once_ready(self, model: Any, act: Callable[[], None]) -> AbstractContextManager[None]:
        """Models are made before their first step here: what is not ready now will not be within it."""
        return nullcontext()

    def look(self, model: Any, state: State, batch: Any) -> Look:
        """Run forward and back."""
        if self._jax.device_count() > 1 and import_module("keras").distribution.distribution() is not None:
            raise NotLookedInto("several devices share a step")
        known, once = self._known.get(model), 0.0
        if known is None or known.train_function is not model.train_function:
            began = time.perf_counter()
            known = self._known[model] = _Compiled(self._jax, model, state, batch)
            once = time.perf_counter() - began
        loss, gradients, rate, tensors = known(state, batch)
        return Look(loss, gradients, float(rate), Captured(tensors, known.events), once)


class _Compiled:
    """A look, compiled for batches of one shape."""

    def __init__(self, jax: Any, model: Any, state: State, batch: Any) -> None:
        self._jax = jax
        self.train_function = model.train_function
        self.events: list[tuple[Any, ...]] = []
        self._shapes = self._described(batch)
        # Weakly: the model is the key under which this is kept.
        self._model = weakref.ref(model)
        self._function = self._compiled(jax.jit(self._run).lower(*self._given(state, batch)))

    def _compiled(self, lowered: Any) -> Any:
        """A function for a few dozen calls: where each is little work, compiling it well costs more than they."""
        work = (lowered.cost_analysis() or {}).get("flops", math.inf)
        if self._jax.default_backend() == "cpu" and work < _LITTLE:
            try:
                return lowered.compile(compiler_options=_QUICKLY)
            except Exception:  # options come and go
                pass
        return lowered.compile()

    def _given(self, state: State, batch: Any) -> tuple[Any, ...]:
        return (list(state.trainable), list(state.others), list(state.optimizer), list(state.metrics), batch)

    def _described(self, batch: Any) -> Any:
        return self._jax.tree.map(lambda one: (tuple(one.shape), str(one.dtype)), batch)

    def fits(self, batch: Any) -> bool:
        """Whether a batch is of the shape that this was compiled for."""
        return bool(self._described(batch) == self._shapes)

    def __call__(self, state: State, batch: Any) -> Any:
        return self._function(*self._given(state, batch))

    def _run(self, trainable: Any, others: Any, optimizer: Any, metrics: Any, batch: Any) -> Any:
        state_now, model = import_module("jax.extend.core").get_opaque_trace_state, self._model()
        out: list[Forward] = []

        def scaled(values: Any) -> Any:
            at = state_now(convention="akeso")
            forward = Forward(model, lambda: bool(state_now(convention="akeso") == at))
            out.append(forward)
            loss, scale, rate = forward.run(State(values, others, optimizer, metrics), batch)
            return loss * scale, (loss, scale, rate, forward.captured.tensors)

        raw, (loss, scale, rate, tensors) = self._jax.grad(scaled, has_aux=True)(list(trainable))
        gradients = out[-1].applied(raw, scale)
        self.events = out[-1].captured.events
        return loss, gradients, rate, tensors
