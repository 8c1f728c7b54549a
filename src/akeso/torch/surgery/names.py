"""Inputs that are numbers of names (words, items), looked up instead of multiplied."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from akeso.errors import Refused
from akeso.torch.surgery.anatomy import Anatomy
from akeso.torch.surgery.rewiring import replace


class NameEmbedding(nn.Module):
    """In place of a linear layer that multiplied names: the mean of what is learnt for each of them.

    Names beyond the last one known share its row, so that none is out of range.
    """

    def __init__(self, names: int, features: int) -> None:
        super().__init__()
        self.names = names
        self.table = nn.EmbeddingBag(names + 1, features, mode="mean")
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, value: Tensor) -> Tensor:
        """One row per sample."""
        rows: Tensor = self.table(value.long().clamp(0, self.names))
        # A mean over many names hardly differs from sample to sample: brought to the size of one of them.
        return rows.to(self.bias.dtype) * math.sqrt(value.shape[-1]) + self.bias


def embed_names(
    model: nn.Module, anatomy: Anatomy, names: int, args: tuple[Any, ...]
) -> tuple[str, list[nn.Parameter]]:
    """Let the first layer of a model look its inputs up; what was done, and the new parameters."""
    given = args[0] if args else None
    first = anatomy.weighted[0] if anatomy.weighted else None
    if not isinstance(given, Tensor) or given.dim() != 2 or first is None:
        raise Refused("inputs are no table of numbers")
    if not isinstance(first.module, nn.Linear) or first.input_shape != tuple(given.shape):
        raise Refused("the inputs do not go into a linear layer first")
    if any(use.module is first.module for use in anatomy.weighted[1:]):
        raise Refused("the first layer is used more than once")
    if given.is_floating_point() and not bool((given == given.round()).all()):
        raise Refused("the inputs are no whole numbers")
    weight = first.module.weight
    new = NameEmbedding(names, first.module.out_features).to(weight.device, weight.dtype)
    replace(model, first.name, new)
    return f"{names + 1} names are looked up in {first.name}", list(new.parameters())
