"""Validation as the script does it: phases without training in which outputs meet targets.

A phase begins when the script switches gradients off or the model to evaluation, and ends with the next
backward pass. Within it the functions applied to the model's outputs are followed: loss functions give the
validation loss; ``argmax``, ``>``, ``round`` … followed by ``==`` give the accuracy just as the script counts it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from akeso.torch.losses import LossCall
from akeso.torch.mailbox import Mailbox, Tag
from akeso.torch.task import hits

#: What keeps a tensor a prediction of the same kind.
_KEEPS: Final = frozenset(
    {"view", "reshape", "squeeze", "flatten", "unsqueeze", "detach", "cpu", "to", "float", "double", "cuda",
     "contiguous", "clone", "sigmoid", "softmax", "log_softmax", "exp", "type", "long", "int", "bool", "permute",
     "transpose", "view_as", "reshape_as", "expand_as", "__getitem__", "cat", "stack", "squeeze_", "byte"}
)  # fmt: skip
#: What makes classes out of scores.
_DECIDES: Final = frozenset(
    {"argmax", "round", "gt", "ge", "__gt__", "__ge__", "sign", "lt", "le", "__lt__", "__le__"}
)
_COMPARES: Final = frozenset({"eq", "__eq__", "ne", "__ne__"})


@dataclass(slots=True)
class Group:
    """Batches of one kind of data within a phase."""

    batches: int = 0
    samples: int = 0
    losses: list[tuple[torch.Tensor, int]] = field(default_factory=list)
    counted: list[tuple[torch.Tensor, int | torch.Tensor]] = field(default_factory=list)  # by the script
    scored: list[tuple[torch.Tensor, int | torch.Tensor]] = field(
        default_factory=list
    )  # by us, from the loss call
    training_mode: bool = False
    gradients: bool = False
    seen_before: int = 0
    marks: int = 0
    kind: tuple[str, str] = ("", "")  # loss function and reduction


class Phase:
    """One stretch of evaluation."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.groups: dict[Any, Group] = {}
        self._current: Group | None = None
        self._compared = False  # whether this batch has been counted: a second count is of something else
        self._kinds: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}

    def output(
        self, tensor: torch.Tensor, key: Any, rows: int, training: bool, seen: tuple[int, int]
    ) -> None:
        """A model has given an output for a batch of the data ``key``."""
        group = self.groups.setdefault(key, Group())
        group.batches += 1
        group.samples += rows
        group.training_mode |= training
        group.gradients |= torch.is_grad_enabled()
        group.seen_before += seen[0]
        group.marks += seen[1]
        self._current = group
        self._compared = False
        self._kinds.clear()
        self._mark(tensor, "score")

    def _mark(self, value: Any, kind: str) -> None:
        if isinstance(value, torch.Tensor):
            self._kinds[id(value)] = (weakref.ref(value), kind)

    def _kind(self, value: Any) -> str:
        found = self._kinds.get(id(value))
        return found[1] if found is not None and found[0]() is value else ""

    def called(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        """The script has called a torch function."""
        if not args:
            return
        if name in _COMPARES and len(args) > 1:
            kinds = self._kind(args[0]), self._kind(args[1])
            both = isinstance(args[0], torch.Tensor) and isinstance(args[1], torch.Tensor)
            if self._compared or not both or "class" not in kinds:
                return
            if self._current is not None and isinstance(result, torch.Tensor):
                self._compared = True
                right = result.detach().sum()
                if name in ("ne", "__ne__"):
                    right = result.numel() - right
                self._current.counted.append((right, result.numel()))
            return
        first = args[0][0] if isinstance(args[0], list | tuple) and args[0] else args[0]
        kind = self._kind(first)
        if not kind:
            return
        if name in _DECIDES:
            self._mark(result, "class")
        elif name in ("max", "topk", "sort") and isinstance(result, tuple) and len(result) > 1:
            self._mark(result[1], "class")
        elif name in _KEEPS:
            self._mark(result, kind)

    def loss(self, call: LossCall, target_kind: str) -> None:
        """The script has computed a loss."""
        group = self._current
        if group is None or call.value is None:
            return
        rows = int(call.target.shape[0]) if call.target.dim() else 1
        group.kind = (call.name, call.reduction)
        if call.value.dim() > 0:
            group.losses.append((call.value.mean(), rows))
        else:
            group.losses.append((call.value / rows if call.reduction == "sum" else call.value, rows))
        if target_kind:
            found = hits(call, target_kind)
            if found is not None:
                group.scored.append((found[0], found[1]))

    def close(
        self, mailbox: Mailbox, deliver: Callable[[Any, Group, float | None, float | None], None]
    ) -> None:
        """Send the sums; ``deliver`` gets (key, group, loss, accuracy) for each group with either."""
        for key, group in self.groups.items():
            counted = group.counted or group.scored
            if not group.losses and not counted:
                continue
            items: list[tuple[Tag, torch.Tensor]] = [
                (("loss", i), value) for i, (value, _) in enumerate(group.losses)
            ]
            for i, (right, total) in enumerate(counted):
                items.append((("right", i), right))
                if isinstance(total, torch.Tensor):
                    items.append((("total", i), total))
            mailbox.post(items, _receiver(key, group, counted, deliver))
            group.losses = [(_NOTHING, rows) for _, rows in group.losses]


_NOTHING = torch.zeros(())


def _receiver(
    key: Any,
    group: Group,
    counted: list[tuple[torch.Tensor, int | torch.Tensor]],
    deliver: Callable[[Any, Group, float | None, float | None], None],
) -> Callable[[dict[Any, Any]], None]:
    totals = [total if isinstance(total, int) else None for _, total in counted]
    rows = [count for _, count in group.losses]

    def receive(delivery: dict[Any, Any]) -> None:
        loss = accuracy = None
        if rows:
            loss = sum(delivery["loss", i] * count for i, count in enumerate(rows)) / max(sum(rows), 1)
        right = sum(delivery["right", i] for i in range(len(totals)))
        total = sum(delivery["total", i] if known is None else known for i, known in enumerate(totals))
        if total:
            accuracy = right / total
        deliver(key, group, loss, accuracy)

    return receive
