"""Stand-ins for layers of Keras that another library than torch runs: modules that look like them, and run nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class MirroredVariable:
    """A variable of Keras, shown the way its torch backend keeps one."""

    name: str
    _value: nn.Parameter


class Mirror(nn.Module):
    """One layer: its name, what is in it, and parameters that hold its weights for as long as a step is looked at."""

    mirrored: type = object
    """The class of the layer."""

    def __init__(self, name: str, data_format: str | None, rate: Any) -> None:
        super().__init__()
        self.name = name
        self.data_format = data_format
        self.rate = rate
        self._layers: list[Mirror] = []
        self._trainable_variables: list[MirroredVariable] = []


def kind_of(layer: type) -> type[Mirror]:
    """The class of mirrors of a class of layers: it goes by the same name."""
    return type(layer.__name__, (Mirror,), {"__module__": layer.__module__, "mirrored": layer})


def hollow(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of this shape that takes no memory."""
    return torch.zeros((), dtype=dtype).expand(shape)
