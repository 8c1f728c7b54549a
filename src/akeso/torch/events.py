"""What can be told of a training that torch does not run: what happened in a step, and how an evaluation went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from akeso.torch.losses import LossCall


@dataclass(frozen=True, slots=True)
class Entered:
    """A layer began to run."""

    layer: nn.Module
    given: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Left:
    """A layer has run."""

    layer: nn.Module
    given: torch.Tensor | None
    output: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Called:
    """A function was called inside of a layer; it goes by torch's name for it."""

    name: str
    result: torch.Tensor


@dataclass(frozen=True, slots=True)
class Compared:
    """A loss was computed."""

    call: LossCall


Seen = Entered | Left | Called | Compared


@dataclass(frozen=True, slots=True)
class Figures:
    """What an evaluation came to."""

    loss: float | None
    accuracy: float | None
    samples: int = 0
    batches: int = 0
    inputs: torch.Tensor | None = None
    """The first samples of the data, by which those that were trained on are recognised."""
