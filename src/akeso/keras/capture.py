"""What happens in a pass of a model of Keras, in order: layers entered and left, activations, losses compared.

Functions of Keras are wrapped while one pass is looked at, and only then. What is kept are the library's own tensors;
:mod:`akeso.keras.replay` makes torch's of them.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from akeso.torch.keras.layers import is_read, role_of
from akeso.torch.keras.losses import name_of

#: Activations of Keras by torch's names for them, and where Keras keeps them.
_ACTIVATIONS: Final = {
    "nn": {
        "relu": "relu", "relu6": "relu6", "leaky_relu": "leaky_relu", "elu": "elu", "selu": "selu", "celu": "celu",
        "gelu": "gelu", "silu": "silu", "softplus": "softplus", "softsign": "softsign", "sigmoid": "sigmoid",
        "tanh": "tanh", "hard_tanh": "hardtanh", "hard_sigmoid": "hardsigmoid", "hard_silu": "hardswish",
        "log_sigmoid": "logsigmoid", "softmax": "softmax", "log_softmax": "log_softmax", "threshold": "threshold",
    },
    "numpy": {"tanh": "tanh", "exp": "exp"},
}  # fmt: skip
#: Layers that change nothing but the form of what they are given.
_SHAPES: Final = frozenset({"Reshape", "Flatten", "Permute", "RepeatVector", "Identity"})
#: Entries of an output that are kept; of larger ones, some samples.
_ENTRIES: Final = 1 << 18
#: The same for what a loss compares.
_COMPARED: Final = 1 << 22


@dataclass(slots=True)
class Captured:
    """What was seen: ``events`` refer to ``tensors`` by their number, -1 being none."""

    tensors: list[Any] = field(default_factory=list)
    events: list[tuple[Any, ...]] = field(default_factory=list)


def rows_kept(shape: tuple[int, ...], most: int) -> int:
    """How many samples of a tensor have about ``most`` entries."""
    count = 1
    for size in shape:
        count *= size
    return shape[0] if count <= most else max(2, most * shape[0] // count)


class Capture:
    """Sees one pass. ``here`` says whether the code that runs now is part of it, and not of a loop within."""

    def __init__(self, here: Callable[[], bool]) -> None:
        self.found = Captured()
        self._here = here
        self._thread = threading.get_ident()
        self._numbers: dict[tuple[int, int], int] = {}
        self._kept: list[Any] = []  # ids are their own only while the objects live
        self._behind: dict[
            int, tuple[str, str | None]
        ] = {}  # the last function behind a tensor, and that before it
        self._aside = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Wrap Keras while the block runs."""
        modules = sys.modules
        backend = modules["keras.src.backend"]
        wrapped: list[tuple[Any, str, Any]] = []

        def wrap(owner: Any, name: str, around: Callable[[Any], Any]) -> None:
            original = vars(owner).get(name)
            if original is not None:
                wrapped.append((owner, name, original))
                setattr(owner, name, around(original))

        wrap(modules["keras.src.layers.layer"].Layer, "__call__", self._around_layer)
        wrap(modules["keras.src.losses.loss"].Loss, "__call__", self._around_loss)
        for place, names in _ACTIVATIONS.items():
            for name, called in names.items():
                wrap(getattr(backend, place), name, functools.partial(self._around_function, called))
        try:
            yield
        finally:
            for owner, name, original in reversed(wrapped):
                setattr(owner, name, original)

    def _sees(self) -> bool:
        return not self._aside and threading.get_ident() == self._thread and self._here()

    # what is seen ------------------------------------------------------------------------------------

    def _around_layer(self, original: Any) -> Any:
        @functools.wraps(original)
        def __call__(layer: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._sees():
                return original(layer, *args, **kwargs)
            root = not self.found.events
            given = first(args or tuple(kwargs.values()))
            self.found.events.append(("enter", layer, self._keep(given, _COMPARED) if root else -1))
            # Cells are called over and over, often in loops that the library compiles: they are not looked into.
            inside = role_of(layer) == "recurrent"
            self._aside += inside
            try:
                output = original(layer, *args, **kwargs)
            finally:
                self._aside -= inside
            answer = first(output)
            self._note(layer, given, output)
            shown = self._keep(answer, _ENTRIES) if root or is_read(layer) else -1
            self.found.events.append(("leave", layer, shown))
            return output

        return __call__

    def _around_function(self, called: str, original: Any) -> Any:
        @functools.wraps(original)
        def function(x: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._sees() or not self.found.events:
                return original(x, *args, **kwargs)
            self._aside += 1  # some are made of others
            try:
                result = original(x, *args, **kwargs)
            finally:
                self._aside -= 1
            if len(getattr(result, "shape", ())):
                before = self._behind.get(id(x), ("none", None))[0]
                self._mark(result, called, None if before == "none" else before)
                self.found.events.append(("function", called, self._keep(result, _ENTRIES)))
            return result

        return function

    def _around_loss(self, original: Any) -> Any:
        @functools.wraps(original)
        def __call__(loss: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            if not self._sees() or not name_of(loss):
                return original(loss, y_true, y_pred, sample_weight)
            self._aside += 1
            try:
                value = original(loss, y_true, y_pred, sample_weight)
            finally:
                self._aside -= 1
            target, prediction = (self._keep(first(one), _COMPARED) for one in (y_true, y_pred))
            activation, before = self._behind.get(id(first(y_pred)), (None, None))
            whole, weighted = self._keep(value, _COMPARED), sample_weight is not None
            event = ("compared", loss, target, prediction, whole, weighted, activation, before)
            self.found.events.append(event)
            return value

        return __call__

    # what is kept of it ------------------------------------------------------------------------------

    def _note(self, layer: Any, given: Any, output: Any) -> None:
        """A layer's output has its last function behind it, or that of what it only reshaped."""
        for answer in leaves(output):
            if id(answer) not in self._behind:
                shaped = type(layer).__name__ in _SHAPES
                self._mark(
                    answer, *(self._behind.get(id(given), ("none", None)) if shaped else ("none", None))
                )

    def _mark(self, tensor: Any, activation: str, before: str | None) -> None:
        self._kept.append(tensor)
        self._behind[id(tensor)] = (activation, before)

    def _keep(self, tensor: Any, most: int) -> int:
        shape = tuple(getattr(tensor, "shape", None) or ())
        if tensor is None or not hasattr(tensor, "dtype") or any(size is None for size in shape):
            return -1
        number = self._numbers.get((id(tensor), most))
        if number is None:
            self._kept.append(tensor)
            kept = tensor
            if shape and (rows := rows_kept(shape, most)) < shape[0]:
                kept = tensor[:rows]
            number = self._numbers[id(tensor), most] = len(self.found.tensors)
            self.found.tensors.append(kept)
        return number


def leaves(value: Any) -> Iterator[Any]:
    """The tensors in what a layer returned or was given."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from leaves(part)
    elif value is not None and hasattr(value, "shape"):
        yield value


def first(value: Any) -> Any:
    """The first of them."""
    return next(leaves(value), None)
