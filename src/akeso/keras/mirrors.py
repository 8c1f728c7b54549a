"""Layers and variables of Keras on another backend than torch, and the modules and parameters that stand for them."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from akeso.torch.keras.mirror import Mirror, MirroredVariable, hollow, kind_of

#: Kinds of numbers that torch takes as they are: unsigned ones, booleans apart, are made signed.
_TAKEN: Final = "fibc"


def as_tensor(array: Any) -> torch.Tensor | None:
    """A copy of an array; ``None`` for what torch has no tensors of, as strings."""
    try:
        found = np.array(array)
    except (TypeError, ValueError):
        return None
    if found.dtype.kind == "u" and found.dtype != np.uint8:
        found = found.astype(np.int64)
    elif found.dtype.kind == "V" or found.dtype.name.startswith(("bfloat", "float8", "int4", "uint4")):
        found = found.astype(np.float32)
    if found.dtype.kind not in f"{_TAKEN}u":
        return None
    return torch.from_numpy(found)


class Mirrors:
    """Makes one mirror of every layer, and keeps it for as long as the layer lives."""

    def __init__(self) -> None:
        self._kinds: dict[type, type[Mirror]] = {}
        self._layers: weakref.WeakKeyDictionary[Any, Mirror] = weakref.WeakKeyDictionary()
        # Variables are compared number by number and cannot be keys; an id is one's own while it lives.
        self._variables: dict[int, tuple[weakref.ref[Any], nn.Parameter]] = {}
        self._filled: set[int] = set()  # variables that were shown with their values

    def of(self, layer: Any) -> Mirror:
        """The mirror of a layer or model, with everything that is in it by now."""
        return self._of(layer, set())

    def _of(self, layer: Any, seen: set[int]) -> Mirror:
        mirror = self._layers.get(layer)
        if mirror is None:
            kind = self._kinds.get(type(layer))
            if kind is None:
                kind = self._kinds[type(layer)] = kind_of(type(layer))
            form, rate = getattr(layer, "data_format", None), getattr(layer, "rate", None)
            mirror = self._layers[layer] = kind(layer.name, form, rate)
        if id(layer) not in seen:
            seen.add(id(layer))
            mirror._layers = [self._of(part, seen) for part in getattr(layer, "_layers", ())]
            mirror._trainable_variables = [
                MirroredVariable(variable.name, self.parameter(variable))
                for variable in getattr(layer, "_trainable_variables", ())
            ]
        return mirror

    def known(self, layer: Any) -> Mirror:
        """The same as it was made last; one that was not met before is made now."""
        mirror = self._layers.get(layer)
        return mirror if mirror is not None else self.of(layer)

    def parameter(self, variable: Any) -> nn.Parameter:
        """What stands for a variable."""
        known = self._variables.get(id(variable))
        if known is not None and known[0]() is variable:
            parameter = known[1]
        else:
            empty = as_tensor(np.zeros(0, _numpy_name(variable.dtype)))
            dtype = torch.float32 if empty is None else empty.dtype
            parameter = nn.Parameter(hollow(tuple(variable.shape), dtype), requires_grad=False)
            self._variables[id(variable)] = (weakref.ref(variable), parameter)
            self._filled.discard(id(variable))
            if len(self._variables) % 256 == 0:
                self._sweep()
        trained = bool(variable.trainable) and parameter.is_floating_point()
        if parameter.requires_grad != trained:
            parameter.requires_grad_(trained)
        return parameter

    def _sweep(self) -> None:
        """Forget variables that are no more."""
        self._variables = {which: pair for which, pair in self._variables.items() if pair[0]() is not None}
        self._filled &= self._variables.keys()

    def unfilled(self, variables: Iterable[Any]) -> bool:
        """Whether some of these have never been shown with their values."""
        return any(id(variable) not in self._filled for variable in variables)

    def fill(self, variables: Sequence[Any], values: Sequence[Any]) -> None:
        """Show variables with these values."""
        for variable, value in zip(variables, values, strict=True):
            parameter, tensor = self.parameter(variable), as_tensor(value)
            if tensor is not None and tensor.shape == parameter.shape:
                parameter.data = tensor.to(parameter.dtype)
                self._filled.add(id(variable))

    def release(self, variables: Iterable[Any]) -> None:
        """Hold the values of variables no longer."""
        for variable in variables:
            parameter = self.parameter(variable)
            parameter.grad = None
            parameter.data = hollow(tuple(parameter.shape), parameter.dtype)


def _numpy_name(dtype: Any) -> str:
    name = str(dtype)
    return "float32" if name.startswith(("bfloat", "float8")) else name


#: The mirrors of this process.
MIRRORS: Final = Mirrors()


def mirrored(model: Any) -> Any:
    """Models of Keras on TensorFlow or JAX by what stands for them; anything else as it is."""
    keras = sys.modules.get("keras")
    base = getattr(getattr(keras, "layers", None), "Layer", None)
    if base is None or isinstance(model, nn.Module):
        return model
    if isinstance(model, base):
        return MIRRORS.of(model)
    if isinstance(model, list | tuple):
        return [mirrored(one) for one in model]
    return model
