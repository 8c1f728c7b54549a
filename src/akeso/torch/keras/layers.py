"""Layers of Keras: modules of torch whose parts and weights are kept where torch does not look for them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import nn

from akeso.torch.keras.mirror import Mirror

#: What part a layer plays, by the class of Keras that it is or is derived from.
_ROLES: Final = {
    "Dense": "linear", "EinsumDense": "linear",
    "BaseConv": "convolution", "BaseConvTranspose": "convolution", "BaseDepthwiseConv": "convolution",
    "BaseSeparableConv": "convolution",
    "BatchNormalization": "norm", "LayerNormalization": "norm", "GroupNormalization": "norm",
    "RMSNormalization": "norm", "UnitNormalization": "norm",
    "Embedding": "embedding", "RNN": "recurrent", "MultiHeadAttention": "attention",
    "GroupedQueryAttention": "attention",
    "Dropout": "dropout", "BaseSpatialDropout": "dropout", "AlphaDropout": "dropout", "GaussianDropout": "dropout",
}  # fmt: skip
#: Those whose output is read.
_READ: Final = frozenset({"linear", "convolution", "norm", "embedding", "recurrent"})


def is_layer(module: Any) -> bool:
    """Whether a module is a layer or model of Keras, or stands for one."""
    if isinstance(module, Mirror):
        return True
    keras = sys.modules.get("keras")
    base = getattr(getattr(keras, "layers", None), "Layer", None)
    return base is not None and isinstance(module, base)


def role_of(layer: nn.Module) -> str:
    """What part a layer plays, in a word; nothing for those that are none of Keras's own."""
    for kind in (layer.mirrored if isinstance(layer, Mirror) else type(layer)).__mro__:
        if kind.__module__.startswith("keras.") and kind.__name__ in _ROLES:
            return _ROLES[kind.__name__]
    return ""


def is_read(layer: nn.Module) -> bool:
    """Whether the output of a layer is looked at."""
    return role_of(layer) in _READ


def named_layers(root: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layer and all layers in it, each once; cells belong to the recurrent layer that repeats them."""
    yield from _named(root, prefix, set())


def _named(layer: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, nn.Module]]:
    if id(layer) in seen:
        return
    seen.add(id(layer))
    yield prefix, layer
    if role_of(layer) == "recurrent":
        return
    for part in getattr(layer, "_layers", ()):
        yield from _named(part, f"{prefix}.{part.name}" if prefix else part.name, seen)


def own_weights(layer: Any) -> Iterator[tuple[str, nn.Parameter]]:
    """The weights of a layer itself that are there to be trained, frozen ones among them.

    Averages and states of generators are parameters to torch as well, and are left out.
    """
    if role_of(layer) == "recurrent":
        for cell in getattr(layer, "_layers", ()):
            for _, part in named_layers(cell):
                yield from own_weights(part)
    for variable in getattr(layer, "_trainable_variables", ()):
        if isinstance(variable._value, nn.Parameter):
            yield variable.name, variable._value


def named_weights(root: nn.Module, *, recurse: bool = True) -> Iterator[tuple[str, nn.Parameter]]:
    """The same for a layer and, unless told otherwise, all layers in it; each weight once."""
    seen: set[int] = set()
    for prefix, layer in named_layers(root) if recurse else (("", root),):
        for name, weight in own_weights(layer):
            if id(weight) not in seen:
                seen.add(id(weight))
                yield f"{prefix}.{name}" if prefix else name, weight


def shape_of(layer: nn.Module, weight: torch.Tensor) -> tuple[int, ...]:
    """The shape of a weight with the outputs first, then the inputs, as torch has it."""
    shape = tuple(weight.shape)
    role = role_of(layer)
    if role == "convolution" and len(shape) > 2:
        return (shape[-1], shape[-2], *shape[:-2])
    if role in ("linear", "recurrent") and len(shape) == 2:
        return shape[::-1]
    return shape


def dropped_by(layer: Any) -> float | None:
    """The share that a layer drops; ``None`` for one that drops nothing."""
    rate = getattr(layer, "rate", None)
    return float(rate) if role_of(layer) == "dropout" and isinstance(rate, int | float) else None


def units_last(layer: Any) -> bool:
    """Whether the units of an image lie in the last dimension of a layer's output."""
    keras = sys.modules["keras"]
    form = getattr(layer, "data_format", None) or keras.config.image_data_format()
    return bool(form != "channels_first")
