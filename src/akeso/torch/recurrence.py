"""Whether a recurrent layer, or an attention, runs along the samples of a batch instead of along time."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

#: Shares of tokens that are the next ones along an axis, from which on time runs there, and below which it does not.
_NEXT, _NOT_NEXT = 0.9, 0.5


class Recurrence(NamedTuple):
    """A layer that runs along one of its axes and has run: its name, and the first two lengths of what it was given."""

    name: str
    batch_first: bool
    lengths: tuple[int, int]

    @classmethod
    def of(cls, name: str, module: nn.Module, given: torch.Tensor | None) -> Recurrence | None:
        """The layer that has just run; None where it is none that runs along an axis."""
        if not isinstance(module, nn.RNNBase | nn.MultiheadAttention) or given is None or given.dim() != 3:
            return None
        return cls(name, module.batch_first, (len(given), given.shape[1]))

    @property
    def _time(self) -> int:
        return 1 if self.batch_first else 0

    def astray(self, given: torch.Tensor | None, target: torch.Tensor) -> bool:
        """Whether ``given`` to the model and ``target`` show that its samples lie where the layer expects time.

        Either there are as many targets, one for a sample, as the layer takes for moments; or targets are the next
        tokens, and those come along the other axis.
        """
        if given is None or not given.dim() or not target.dim() or 1 in self.lengths:
            return False
        tokens = not given.is_floating_point() and tuple(given.shape) == self.lengths
        if tokens and not target.is_floating_point() and target.numel() == given.numel():
            return _time_of(given, target.reshape(given.shape)) == 1 - self._time
        samples, other = self.lengths[self._time], self.lengths[1 - self._time]
        if not len(given) == len(target) == samples or samples == other:
            return False
        if tuple(target.shape[:2]) == self.lengths:
            return False  # a target for every moment of every sample: either may come first
        return not self.batch_first or tuple(given.shape[1:2]) == (other,)


def _time_of(tokens: torch.Tensor, following: torch.Tensor) -> int:
    """The axis along which each token is followed by its target; -1 where that is not clear."""
    along = [
        float((following[:-1] == tokens[1:]).float().mean()),
        float((following[:, :-1] == tokens[:, 1:]).float().mean()),
    ]
    for axis in (0, 1):
        if along[axis] >= _NEXT and along[1 - axis] < _NOT_NEXT:
            return axis
    return -1
