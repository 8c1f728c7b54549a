"""Validation as the script does it: phases without training in which outputs meet targets.

A phase begins when the script switches gradients off or the model to evaluation, and ends with the next
backward pass. Within it the functions applied to the model's outputs are followed: loss functions give the
validation loss; ``argmax``, ``>``, ``round`` … followed by ``==`` give the accuracy just as the script counts it.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch
from torch.autograd.graph import Node

from akeso.torch.accounts import spread_of
from akeso.torch.losses import DIFFERENCES, LossCall
from akeso.torch.mailbox import Delivery, Mailbox, Tag
from akeso.torch.task import hits, spread_items

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
#: What joins comparisons of answers and of targets with one class.
_JOINS: Final = frozenset({"__and__", "logical_and", "bitwise_and"})
#: What makes a count or a share out of comparisons.
_COUNTS: Final = frozenset({"sum", "mean", "count_nonzero"})
_COMPARES: Final = frozenset({"eq", "__eq__", "ne", "__ne__"})
#: What makes a distance out of a difference.
_SIZES: Final = frozenset(
    {"pow", "__pow__", "square", "abs", "absolute", "__abs__", "norm", "mul", "__mul__"}
)


class Loss(NamedTuple):
    """The mean loss of so many samples, by a function with a reduction."""

    value: torch.Tensor
    rows: int
    kind: tuple[str, str]


@dataclass(slots=True)
class Group:
    """Batches of one kind of data within a phase."""

    loader: int
    marks: torch.Tensor | None = None
    batches: int = 0
    samples: int = 0
    losses: list[Loss] = field(default_factory=list)
    counted: list[tuple[torch.Tensor, int | torch.Tensor]] = field(default_factory=list)  # by the script
    scored: list[tuple[torch.Tensor, int | torch.Tensor]] = field(
        default_factory=list
    )  # by us, from the loss call
    training_mode: bool = False
    gradients: bool = False
    copy: bool = False  # of a model that nobody trains, an average of another one say
    tallied: bool = False  # whether it was counted how often one class is answered, as for a recall
    own: list[Loss] = field(default_factory=list)  # that the model gave
    targets: list[tuple[int, torch.Tensor, torch.Tensor]] = field(default_factory=list)  # rows, sums, squares

    @property
    def scored_at_all(self) -> bool:
        """Whether anything was made of the answers."""
        return bool(self.losses or self.own or self.counted or self.scored)

    def settle(self) -> None:
        """What the model gave counts where the script computed nothing."""
        self.losses = self.losses or self.own


@dataclass(slots=True)
class Outcome:
    """What a phase says about one kind of data."""

    familiar: bool  # whether it is the data the model is trained on
    known: int = 0  # samples, of those looked at, that training has seen
    looked_at: int = 0
    batches: int = 0
    samples: int = 0
    training_mode: bool = False
    gradients: bool = False
    copies: int = 0  # batches that were given to a model that nobody trains
    tallied: bool = False
    kind: tuple[str, str] = ("", "")
    _loss: float = 0.0
    _rows: int = 0
    _right: float = 0.0
    _total: float = 0.0
    _targets: int = 0
    _sums: list[float] = field(default_factory=list)
    _squares: list[float] = field(default_factory=list)

    @property
    def target_spread(self) -> float:
        """Standard deviation of the targets that the loss was given; 0 where it is not for values."""
        return spread_of(self._targets, self._sums, self._squares)

    @property
    def loss(self) -> float | None:
        """The mean loss of a sample, where the script computed one."""
        return self._loss / self._rows if self._rows else None

    @property
    def accuracy(self) -> float | None:
        """The share that was right, where anything was compared."""
        return self._right / self._total if self._total else None

    def take(self, loss: float | None, accuracy: float | None) -> None:
        """Take in what somebody else has found."""
        if loss is not None:
            self._loss, self._rows = loss, 1
        if accuracy is not None:
            self._right, self._total = accuracy, 1.0

    def add(self, number: int, group: Group, delivery: Delivery, known: tuple[int, int]) -> None:
        """Take in a group, ``number`` of its phase, with the values that have arrived."""
        self.known += known[0]
        self.looked_at += known[1]
        self.batches += group.batches
        self.samples += group.samples
        self.training_mode |= group.training_mode
        self.gradients |= group.gradients
        self.copies += group.batches if group.copy else 0
        self.tallied |= group.tallied
        for at, loss in enumerate(group.losses):
            self._loss += delivery["loss", number, at] * loss.rows
            self._rows += loss.rows
            self.kind = loss.kind
        for at, (rows, _, _) in enumerate(group.targets):
            sums, squares = delivery["sums", number, at], delivery["squares", number, at]
            if len(sums) != len(self._sums):
                self._targets, self._sums, self._squares = 0, [0.0] * len(sums), [0.0] * len(sums)
            self._targets += rows
            self._sums = [a + b for a, b in zip(self._sums, sums, strict=True)]
            self._squares = [a + b for a, b in zip(self._squares, squares, strict=True)]
        for at, (_, total) in enumerate(group.counted or group.scored):
            self._right += delivery["right", number, at]
            self._total += total if isinstance(total, int) else delivery["total", number, at]


def _several(scores: torch.Tensor, answers: torch.Tensor) -> bool:
    """Whether more than one answer is taken of each sample: one of them being right is another figure."""
    return [size for size, of in zip(answers.shape, scores.shape, strict=False) if size != of] != [1]


def _with_one_class(first: Any, second: Any) -> bool:
    """Whether several answers are compared with a single class rather than with a target each."""
    values = [value for value in (first, second) if isinstance(value, torch.Tensor) and value.dim()]
    single = [
        value
        for value in (first, second)
        if isinstance(value, (int, float)) or (isinstance(value, torch.Tensor) and not value.dim())
    ]
    return len(values) == len(single) == 1


class Phase:
    """One stretch of evaluation."""

    def __init__(self, step: int, ignored: int) -> None:
        self.step = step
        self._ignored = ignored  # the target that the loss leaves out in training
        self.announced = False  # by a model that was put into evaluation mode
        # By a model that was put back into training mode, gradients being switched off yet, or since gradients are on
        # again and nobody has announced an evaluation: the next pass with gradients is training.
        self.dismissed = False
        self.beyond = (
            False  # listened to after gradients were on again, though nobody has announced an evaluation
        )
        self.over = False  # training has begun again
        self.closed = False  # what came of it is on its way
        self.groups: list[Group] = []
        self._current: Group | None = None
        self.by_distance = False  # whether outputs were compared with targets by their difference
        self._rows = 1
        self._compared = False  # whether this batch has been counted: a second count is of something else
        self._kinds: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        # The last outputs: the difference of two of them is no distance to a target.
        self._outputs: deque[weakref.ref[torch.Tensor]] = deque(maxlen=16)

    def output(
        self,
        tensor: torch.Tensor,
        loader: int,
        rows: int,
        training: bool,
        marks: torch.Tensor | None,
        *,
        copy: bool,
    ) -> None:
        """A model has given an output for a batch; by its ``marks`` it may turn out to be training data.

        Batches with marks are kept apart until those have arrived from the device; the others go with the
        last one of the same loader.
        """
        gradients = tensor.requires_grad
        kind = (loader, gradients, copy)
        same = (one for one in reversed(self.groups) if (one.loader, one.gradients, one.copy) == kind)
        group = next(same, None)
        if group is None or marks is not None:
            group = Group(loader, marks, gradients=gradients, copy=copy)
            self.groups.append(group)
        group.batches += 1
        group.samples += rows
        self._rows = rows
        group.training_mode |= training
        self._current = group
        self._compared = False
        self._kinds.clear()
        self._outputs.append(weakref.ref(tensor))
        self._mark(tensor, "score")

    @property
    def without_gradients(self) -> bool:
        """Whether the last answer was given without gradients."""
        return self._current is not None and not self._current.gradients

    @property
    def unscored(self) -> bool:
        """Whether a model has answered and nothing has been made of that yet.

        One that is in training mode although another was put into evaluation mode belongs to the training.
        """
        group = self._current
        if group is None or (self.announced and group.training_mode):
            return False
        return not group.scored_at_all

    def _is_output(self, value: torch.Tensor) -> bool:
        return any(reference() is value for reference in self._outputs)

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
            if "class" in kinds and _with_one_class(*args[:2]):
                self._mark(result, "one class")
                return
            both = isinstance(args[0], torch.Tensor) and isinstance(args[1], torch.Tensor)
            if self._compared or not both or "class" not in kinds or all(kinds):
                return  # answers that are compared with each other are not scored
            if self._current is not None and isinstance(result, torch.Tensor):
                self._compared = True
                right = ~result.detach() if name in ("ne", "__ne__") else result.detach()
                self._current.counted.append(self._counted(right, args[1 if kinds[0] else 0]))
            return
        first = args[0][0] if isinstance(args[0], list | tuple) and args[0] else args[0]
        if name in DIFFERENCES and len(args) > 1 and not self._kind(first):
            args = (args[1], args[0], *args[2:])  # a target minus an output is as good
            first = args[0]
        kind = self._kind(first)
        if name in _JOINS and len(args) > 1 and "one class" in (kind, self._kind(args[1])):
            self._mark(result, "one class")
            return
        if not kind:
            return
        if kind == "one class" and name in _COUNTS and self._current is not None:
            self._current.tallied = True
        elif kind == "difference":
            self.by_distance |= name in _SIZES
        elif name in DIFFERENCES and len(args) > 1 and isinstance(args[1], torch.Tensor):
            if kind == "score" and args[0].shape == args[1].shape and not self._is_output(args[1]):
                self._mark(result, "difference")
        elif name in _DECIDES:
            self._mark(result, "class")
        elif name in ("max", "topk", "sort") and isinstance(result, tuple) and len(result) > 1:
            several = name != "max" and _several(first, result[1])
            self._mark(result[1], "classes" if several else "class")
        elif name in _KEEPS:
            chosen = kind == "classes" and name == "__getitem__" and result.dim() < first.dim()
            self._mark(result, "class" if chosen else kind)

    def _counted(self, right: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, int | torch.Tensor]:
        """How many are right, and of how many: a padded place is none, whether the script leaves it out yet or not."""
        if target.dtype != torch.int64 or target.shape != right.shape:
            return right.sum(), right.numel()
        asked = target.detach() != self._ignored
        return (right & asked).sum(), asked.sum()

    def loss(self, call: LossCall, target_kind: str, node: Node | None = None) -> None:
        """The script has computed a loss, whose gradient would begin at ``node``."""
        group = self._current
        if group is None or call.value is None:
            return
        rows = int(call.target.shape[0]) if call.target.dim() else 1
        if call.value.dim() > 0:
            # A divergence is a sum over classes for each sample; of everything else, entries are averaged.
            summed = call.name == "kl_div" and call.value.dim() > 1
            value = call.value.sum() / rows if summed else call.value.mean()
        else:
            value = call.value / rows if call.reduction == "sum" else call.value
        before = len(group.losses), len(group.targets), len(group.scored)
        group.losses.append(Loss(value, rows, (call.name, call.reduction)))
        spread = spread_items(call)
        self.by_distance |= spread is not None
        if spread is not None:
            group.targets.append(spread)
        if target_kind:
            found = hits(call, target_kind)
            if found is not None:
                group.scored.append((found[0], found[1]))
        if node is not None:
            self._unless_differentiated(node, group, before)

    def _unless_differentiated(self, node: Node, group: Group, before: tuple[int, int, int]) -> None:
        """A loss that a gradient is asked of after all evaluates nothing: noise that attacks a model is looked for."""
        losses, targets, scored = before
        made = group.losses[losses:], group.targets[targets:], group.scored[scored:]
        here = weakref.ref(self)

        def take_back(_: Any) -> None:
            phase = here()
            if phase is None or phase.closed:
                return
            group.losses = [one for one in group.losses if all(one is not own for own in made[0])]
            group.targets = [one for one in group.targets if all(one is not own for own in made[1])]
            group.scored = [one for one in group.scored if all(one is not own for own in made[2])]

        node.register_prehook(take_back)

    def given(self, value: torch.Tensor, kind: tuple[str, str]) -> None:
        """The model itself has given the loss of this batch beside its answers."""
        group = self._current
        if group is not None:
            group.own.append(Loss(value, self._rows, kind))

    def _settle(self, trained: str) -> None:
        """Of losses by several functions, those by the one that is trained on are the validation loss."""
        for group in self.groups:
            group.settle()
        if any(one.kind[0] == trained for group in self.groups for one in group.losses):
            for group in self.groups:
                group.losses = [one for one in group.losses if one.kind[0] == trained]

    def close(
        self,
        mailbox: Mailbox,
        familiar: Callable[[list[float]], tuple[int, bool]],
        deliver: Callable[[Outcome], None],
        trained: str,
    ) -> None:
        """Send the sums; ``deliver`` gets the outcome for every kind of data with a loss or an accuracy.

        ``familiar`` says of marks how many are known, and whether that makes it the training data; ``trained`` is
        the function that the loss of training comes from, where it is one.
        """
        self.closed = True
        if any(group.scored_at_all for group in self.groups if not group.copy):
            self.groups = [group for group in self.groups if not (group.copy and group.scored_at_all)]
        items: list[tuple[Tag, torch.Tensor]] = []
        self._settle(trained)
        for number, group in enumerate(self.groups):
            items += [(("loss", number, at), loss.value) for at, loss in enumerate(group.losses)]
            for at, (_, sums, squares) in enumerate(group.targets):
                items += [(("sums", number, at), sums), (("squares", number, at), squares)]
            for at, (right, total) in enumerate(group.counted or group.scored):
                items.append((("right", number, at), right))
                if isinstance(total, torch.Tensor):
                    items.append((("total", number, at), total))
        if not items and not any(group.tallied for group in self.groups):
            return
        items += [
            (("marks", number), group.marks)
            for number, group in enumerate(self.groups)
            if group.marks is not None
        ]
        groups = self.groups

        def receive(delivery: Delivery) -> None:
            outcomes: dict[tuple[int, bool], Outcome] = {}
            for number, group in enumerate(groups):
                marks = delivery.get(("marks", number), [])
                known, same = familiar(marks)
                outcome = outcomes.setdefault((group.loader, same), Outcome(same))
                outcome.add(number, group, delivery, (known, len(marks)))
            for outcome in outcomes.values():
                if outcome.loss is not None or outcome.accuracy is not None or outcome.tallied:
                    deliver(outcome)

        mailbox.post(items, receive)
