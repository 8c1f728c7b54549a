"""Pictures whose axes were only called something else, put in the order that a network takes them to be in."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from akeso.errors import Refused
from akeso.torch.surgery.attachment import attach_front


class TurnPictures(nn.Module):
    """Moves the axis of colours to the front, where reshaping has only renamed it.

    >>> import torch
    >>> pixels = torch.arange(12).reshape(1, 2, 2, 3)  # height, width, colours
    >>> torch.equal(TurnPictures()(pixels.reshape(1, 3, 2, 2)), pixels.permute(0, 3, 1, 2))
    True
    """

    def forward(self, value: Tensor) -> Tensor:
        """The pictures as they were meant."""
        if value.dim() != 4:
            return value
        samples, colours, height, width = value.shape
        return value.reshape(samples, height, width, colours).permute(0, 3, 1, 2).contiguous()


def turn_pictures(model: nn.Module, args: tuple[Any, ...]) -> str:
    """Let a model put the pictures it is given in order; the model keeps its parameters and their names."""
    if not args or not isinstance(args[0], Tensor) or args[0].dim() != 4:
        raise Refused("the model is not given pictures")
    attach_front(model, "akeso_pictures", TurnPictures())
    return "the colours of the pictures are moved to the axis of channels where they enter the model"
