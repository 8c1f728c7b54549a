"""Looking into steps of Keras on TensorFlow: operation by operation, outside of any compiled function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from akeso.keras.look import Forward, Look, NotLookedInto, State

#: Methods by which variables and generators of TensorFlow's own are changed.
_CHANGES: Final = {
    "tensorflow.python.ops.resource_variable_ops": (
        "BaseResourceVariable",
        ("assign", "assign_add", "assign_sub"),
    ),
    "tensorflow.python.ops.stateful_random_ops": ("Generator", ("_prepare_key_counter", "skip", "reset")),
}


class OnTensorFlow:
    """What is TensorFlow's own about a loop of Keras."""

    trainer: Final = ("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer", "TFEpochIterator")

    def __init__(self) -> None:
        self._tf: Any = import_module("tensorflow")
        self._iterators: Any = import_module("tensorflow.python.data.ops.iterator_ops")
        self._context: Any = import_module("tensorflow.python.eager.context")

    def number(self, value: Any) -> float:
        """A logged value as a number."""
        return float(value.numpy()) if hasattr(value, "numpy") else float(value)

    # batches -----------------------------------------------------------------------------------------

    def taken(self, iterator: Any, most: int) -> list[Any] | None:
        """The next batches of an iterator; ``None`` where it is of a kind that cannot be told apart into batches."""
        if isinstance(iterator, self._tf.distribute.DistributedIterator):
            return None
        out: list[Any] = []
        try:
            while len(out) < most:
                out.append(next(iterator))
        except (StopIteration, self._tf.errors.OutOfRangeError):
            pass
        return out

    def again(self, iterator: Any, batches: Sequence[Any]) -> Any:
        """An iterator of the same kind that gives these batches: nothing is traced anew for it."""
        if not isinstance(iterator, self._tf.data.Iterator):
            return iter(batches)
        try:
            return self._again(iterator, batches)
        except Exception:  # a version of TensorFlow that keeps its iterators differently: Keras takes any
            return iter(batches)

    def _again(self, iterator: Any, batches: Sequence[Any]) -> Any:
        data = None
        for batch in batches:
            one = self._tf.data.Dataset.from_tensors(batch)
            data = one if data is None else data.concatenate(one)
        assert data is not None
        source = iter(data)
        spec = iterator.element_spec
        again = self._iterators.OwnedIterator(components=[source._iterator_resource], element_spec=spec)
        again.akeso_source = source  # which ends the iterator when it goes
        return again

    # looking -----------------------------------------------------------------------------------------

    def state(self, model: Any, given: tuple[Any, ...]) -> State:
        """The values of the variables before the step."""
        return State(
            *(
                [self._tf.convert_to_tensor(variable.value) for variable in part]
                for part in (
                    model.trainable_variables,
                    model.non_trainable_variables,
                    model.optimizer.variables,
                    model.metrics_variables,
                )
            )
        )

    def trained(self, model: Any, outcome: Any) -> list[Any]:
        """The values of what is trained after the step."""
        return [variable.value for variable in model.trainable_variables]

    def keep(self, model: Any, outcome: Any) -> None:
        """Variables are changed by the step itself."""

    def counted(self, model: Any, outcome: Any, metric: Any) -> float:
        """Samples that have gone into a metric."""
        return self.number(metric.count.value)

    def ready(self, model: Any, batch: Any) -> bool:
        """Whether the model can be looked into: Keras makes its variables in the first step."""
        return bool(model.built and all(layer.built for layer in model._flatten_layers()))

    @contextmanager
    def once_ready(self, model: Any, act: Callable[[], None]) -> Iterator[None]:
        """Have something done inside of the block as soon as the model can be looked into, before its first step.

        A function that makes variables is traced, gives them their first values, and runs.
        """
        functions = import_module("tensorflow.python.eager.polymorphic_function.polymorphic_function")
        owner, name = functions.Function, "_initialize_uninitialized_variables"
        original = vars(owner).get(name)
        if original is None:
            yield
            return
        done = False

        @functools.wraps(original)
        def initialize(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            result = original(*args, **kwargs)
            if not done and self.ready(model, None):
                done = True
                with self._context.eager_mode():  # out of whatever else is being traced
                    act()
            return result

        setattr(owner, name, initialize)
        try:
            yield
        finally:
            setattr(owner, name, original)

    def look(self, model: Any, state: State, batch: Any) -> Look:
        """Run forward and back."""
        tf = self._tf
        if tf.distribute.has_strategy() or model.distribute_strategy.num_replicas_in_sync > 1:
            raise NotLookedInto("several devices share a step")
        forward = Forward(model, tf.executing_eagerly)
        values = list(state.trainable)
        with self._nothing_changes():
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(values)
                loss, scale, rate = forward.run(state, batch)
                scaled = loss * tf.cast(scale, loss.dtype)
            raw = [
                None if one is None else tf.convert_to_tensor(one) for one in tape.gradient(scaled, values)
            ]
            gradients = forward.applied(raw, scale)
        return Look(loss, gradients, self.number(rate), forward.captured)

    @contextmanager
    def _nothing_changes(self) -> Iterator[None]:
        """Refuse what would change TensorFlow's own variables and generators: Keras's are kept from it by a scope."""

        def refuse(*_: Any, **__: Any) -> Any:
            raise NotLookedInto("it changes variables of TensorFlow's own")

        wrapped: list[tuple[Any, str, Any]] = []
        drawn = getattr(self._context.context(), "_rng", None)
        before = drawn.getstate() if drawn is not None else None
        for module, (owner_name, names) in _CHANGES.items():
            owner = getattr(import_module(module), owner_name)
            for name in names:
                if name in vars(owner):
                    wrapped.append((owner, name, vars(owner)[name]))
                    setattr(owner, name, refuse)
        try:
            yield
        finally:
            for owner, name, original in reversed(wrapped):
                setattr(owner, name, original)
            if drawn is not None:
                drawn.setstate(before)
