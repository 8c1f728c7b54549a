"""Losses that models compute themselves and give beside their answers, as language models do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

#: Operations that may lie between such a loss and what backward runs from: a division, a cast.
_BETWEEN = 4


class OwnLoss:
    """Learns in training which of a model's outputs is its loss, and finds it again in an evaluation."""

    def __init__(self) -> None:
        self._given: list[tuple[int | str, torch.Tensor]] = []
        self._place: int | str | None = None

    def gave(self, output: Any) -> None:
        """A model in training has given this: single numbers in it may be trained on."""
        self._given += _numbers(output)

    def clear(self) -> None:
        """Hold nothing of a model any longer."""
        self._given.clear()

    def trained_on(self, loss: torch.Tensor) -> None:
        """Backward runs from ``loss``: it may be one of those numbers, or a share of it."""
        node = loss.grad_fn
        for _ in range(_BETWEEN):
            for place, value in self._given:
                if value is loss or (node is not None and value.grad_fn is node):
                    self._place = place
                    return
            parents = [parent for parent, _ in node.next_functions if parent is not None] if node else []
            if len(parents) != 1:
                return
            node = parents[0]

    def within(self, output: Any) -> torch.Tensor | None:
        """The loss among what a model gave in an evaluation; ``None`` where it is known to give none."""
        if self._place is None:
            return None
        return next((value.detach() for place, value in _numbers(output) if place == self._place), None)


def answer_of(output: Any, first: torch.Tensor) -> torch.Tensor:
    """What a model answers: the first of its outputs that is more than a number, else the ``first``."""
    return next((part for _, part in _parts(output) if part.dim()), first)


def answers_in(output: Any) -> list[torch.Tensor]:
    """All that a model gives side by side which is more than a number."""
    if isinstance(output, torch.Tensor):
        return [output]
    return [part for _, part in _parts(output) if part.dim()]


def _parts(output: Any) -> Iterator[tuple[int | str, torch.Tensor]]:
    """The tensors that a model gives side by side, with their places."""
    given: Iterable[tuple[int | str, Any]] = ()
    if isinstance(output, Mapping):
        given = output.items()
    elif isinstance(output, tuple | list) and len(output) > 1:
        given = enumerate(output)
    return ((place, part) for place, part in given if isinstance(part, torch.Tensor))


def _numbers(output: Any) -> list[tuple[int | str, torch.Tensor]]:
    return [(place, part) for place, part in _parts(output) if part.dim() == 0 and part.is_floating_point()]
