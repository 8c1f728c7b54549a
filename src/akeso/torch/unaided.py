"""Loops without an optimizer of torch: the script changes its weights by itself, once per backward pass.

Whether it does shows in the weights: they are different at each of the first backward passes. From then on a stand-in
takes an optimizer's place. It is told of as if it had stepped between one backward pass and the next time a model runs,
for in between the script does what an optimizer would have done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from akeso.torch.naming import Names
from akeso.torch.taps import ForwardTap

#: Parameters by which it is seen whether anything changes, and entries of each.
_PARAMETERS, _ENTRIES = 8, 256
#: Changes in a row that show it, and backward passes that are compared at most.
_ENOUGH, _MOST = 3, 16


class StandIn:
    """In the place of an optimizer, with all that is asked of one; what it holds is changed by somebody else.

    It is none: making one of torch's for the first time takes seconds.
    """

    kind = "by hand"

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": parameters}]


class Unaided:
    """Finds out whether a script changes its weights by itself, and when it has."""

    def __init__(self, names: Names, moved_on: Callable[[nn.Module, Any], None]) -> None:
        self._names = names
        self._seen: list[tuple[nn.Parameter, torch.Tensor]] = []
        self._changes = self._looks = 0
        self._tap = ForwardTap(moved_on, lambda *_: None)
        self.stand: torch.optim.Optimizer | None = None
        """Takes the optimizer's place; None where there is one, or nothing is known yet."""

    @property
    def waiting(self) -> bool:
        """Whether the script is changing its weights just now, for all that is known."""
        return self._tap.on

    def found(self) -> torch.optim.Optimizer | None:
        """At a backward pass before which no optimizer has ever stepped: the stand-in, as soon as it is sure."""
        if self.stand is not None or self._looks == _MOST:
            return None
        self._looks += 1
        last = self._seen
        given = [one for _, one in self._names.parameters() if one.requires_grad and one.numel()]
        self._seen = [(one, _part(one)) for one in given[:_PARAMETERS]]
        same = bool(last) and [id(one) for one, _ in last] == [id(one) for one, _ in self._seen]
        moved = same and not all(
            torch.equal(part, before) for (_, part), (_, before) in zip(self._seen, last, strict=True)
        )
        self._changes = self._changes + 1 if moved else 0
        if self._changes < _ENOUGH:
            return None
        self._seen = []
        self.stand = cast(torch.optim.Optimizer, StandIn(given))
        return self.stand

    def wait(self) -> None:
        """A backward pass is over: from here to the next time a model runs the script changes its weights."""
        self._tap.open()

    def over(self) -> None:
        """It has."""
        self._tap.close()

    def leave(self) -> None:
        """There is an optimizer after all."""
        self._tap.close()
        self.stand, self._looks = None, _MOST


def _part(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.detach().reshape(-1)[:_ENTRIES].clone()
