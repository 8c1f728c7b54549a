"""What an answer of a sequence model depends on: one look at where its gradient goes.

A model that is to say the next token must not see it, and what it says of one sample must not depend on others. Both
can be read off the graph of one pass: the answer at one position, led back to the tokens that were looked up, reaches
some of them and leaves others alone. That takes a backward pass of its own, in which nothing is accumulated, so it is
done once in a run, where the targets of a step turn out to be the tokens that its model was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as _module

from akeso.torch.naming import NORMS
from akeso.torch.places import answers_of, blind_to_places, places_on, told_apart

#: Sampled steps before the look: weights that start at zero have begun to let something through by then.
_AFTER: Final = 5
#: Sampled steps in which it is tried.
_TRIES: Final = 4
#: Lookups of tokens that are held for it in a step.
_LOOKUPS: Final = 8
#: Positions with a target that are compared with the tokens, at least.
_COUNTED: Final = 32
#: Shares of the targets that are the token in question, and that are so by accident at most.
_ALL, _MOST, _ACCIDENT = 0.999, 0.95, 0.5
#: What reaches a token counts from this share of what reaches those it is held against.
_REACHES: Final = 0.1
_OWN: Final = 0.01
#: What reaches the tokens ahead, as a share of what reaches those before, where none is to.
_NOTHING: Final = 1e-3
#: Nodes of a graph up to which it is asked whether they are all torch's own.
_NODES: Final = 20_000
#: Share of the pairs of places with the same token whose targets differ, from which on places must be known.
_APART: Final = 0.5
#: Samples, and tokens of each, that tell whether answers come from the first one alone.
_LONG: Final = 8
#: Evaluations in which it is seen whether places are known, where dropout hides that in training.
_EVALUATIONS: Final = 4
#: Free memory of a card, as a share of what is in use, for a backward pass that keeps the graph.
_ROOM: Final = 0.25


class Lookup(NamedTuple):
    """Tokens that an embedding was asked for, and what it gave, with its graph."""

    tokens: torch.Tensor
    vectors: torch.Tensor


@dataclass(frozen=True, slots=True)
class Alignment:
    """How targets lie to the tokens: they are the ``next`` ones along ``axis``, or the ``same``.

    ``targets`` are arranged like the tokens, perhaps with one less along the axis; ``counted`` are those that count.
    """

    kind: str
    axis: int
    targets: torch.Tensor
    counted: torch.Tensor


@dataclass(frozen=True, slots=True)
class Dependences:
    """What one answer was seen to depend on."""

    ahead: bool
    """The very token that it is to say, or later ones."""
    copied: bool
    """The token that stands where it stands, which is all it is to say."""
    others: bool
    """Tokens of other samples."""
    beyond: int = 0
    """How many places on the tokens lie that are to be said, where that is more than one."""
    first: int = 0
    """Nothing but the first of so many tokens."""
    padding: bool = False
    """Nothing but what fills up sequences that are shorter than others."""
    unplaced: bool = False
    """All tokens of the sample, but not where they stand, although the targets do depend on that."""


class Dependence:
    """Holds what the look needs while a sampled step runs forward, and takes it once."""

    def __init__(self) -> None:
        self.wanted = False
        self._left = _TRIES
        self._steps = 0
        self._lookups: list[Lookup] = []
        self._answer: tuple[torch.Tensor, torch.Tensor, int] | None = None
        self._asked: list[torch.Tensor] = []
        self._evaluations = 0  # in which it is still to be seen whether places are known
        self._unplaced = False

    def never(self) -> None:
        """Take no look at all."""
        self._left = 0

    def begin(self) -> None:
        """A sampled step begins."""
        self._steps += 1
        self.wanted = self._left > 0 and self._steps > _AFTER

    def clear(self) -> None:
        """Hold nothing of the script any longer."""
        self._lookups.clear()
        self._asked.clear()
        self._answer = None

    def looked_up(self, module: nn.Module, tokens: torch.Tensor | None, vectors: Any) -> None:
        """An embedding has run."""
        if not isinstance(module, nn.Embedding) or tokens is None or not isinstance(vectors, torch.Tensor):
            return
        if tokens.dim() == 2 and vectors.requires_grad and len(self._lookups) < _LOOKUPS:
            self._lookups.append(Lookup(tokens.detach(), vectors))

    def answered(self, prediction: Any, target: Any, ignored: int) -> None:
        """A loss was given scores of classes and a target."""
        if isinstance(prediction, torch.Tensor) and isinstance(target, torch.Tensor):
            self._answer = (prediction, target.detach(), ignored)
            if not target.is_floating_point():
                self._asked.append(target.detach())

    def evaluated(self, given: torch.Tensor | None, answer: torch.Tensor) -> None:
        """A model in evaluation has answered: dropout no longer hides whether it knows one place from another."""
        if not self._evaluations or given is None or given.dim() != 2 or given.is_floating_point():
            return
        answers = answers_of(answer, given.shape)
        if answers is not None:
            self._evaluations -= 1
            self._unplaced = self._unplaced or blind_to_places(given, answers)

    def seen_since(self) -> Dependences | None:
        """What evaluations have shown since."""
        found, self._unplaced = self._unplaced, False
        self._evaluations = 0 if found else self._evaluations
        return Dependences(ahead=False, copied=False, others=False, unplaced=True) if found else None

    def look(self, modules: list[nn.Module]) -> Dependences | None:
        """What an answer in the middle of a sequence depends on; None where that is not to be told."""
        if not self.wanted or self._answer is None or not self._lookups:
            return None
        prediction, target, ignored = self._answer
        self._left -= 1
        if prediction.grad_fn is None or not _may_look(prediction, modules):
            return None
        if target.is_floating_point():
            return self._yes_or_no(prediction, self._lookups[0])
        found = [(one, alignment(one.tokens, target, ignored)) for one in self._lookups]
        pairs = [(one, how) for one, how in found if how is not None]
        # A decoder is given the tokens before those that it is to say, whatever its encoder is given.
        pairs.sort(key=lambda pair: pair[1].kind != "next")
        if not pairs:
            return self._by_places(prediction, target, ignored)
        lookup, aligned = pairs[0]
        at = _middle(aligned)
        size = self._reached(prediction, lookup, aligned, at)
        return None if size is None else _read(size, aligned, at)

    def _reached(
        self, prediction: torch.Tensor, lookup: Lookup, aligned: Alignment, at: tuple[int, int]
    ) -> torch.Tensor | None:
        """How much of the answer at one position comes back to each token."""
        chosen = _chosen(prediction, aligned, at)
        return None if chosen is None else self._led_back(prediction, lookup, chosen)

    def _led_back(
        self, prediction: torch.Tensor, lookup: Lookup, chosen: torch.Tensor
    ) -> torch.Tensor | None:
        """How much of what is ``chosen`` of the answers comes back to each token."""
        try:
            with torch.enable_grad():
                # A number: for anything else torch would load its symbolic shapes first, which takes a second.
                one = torch.dot(prediction.reshape(-1), chosen.reshape(-1))
            (reached,) = torch.autograd.grad(one, lookup.vectors, retain_graph=True, allow_unused=True)
        except RuntimeError:  # a part of the graph can be gone through once only, or not like this
            self._left = 0
            return None
        if reached is None:
            return None
        self._left = 0
        return reached.detach().float().abs().amax(-1).nan_to_num(0.0, 0.0, 0.0).cpu()

    def _by_places(self, prediction: torch.Tensor, target: torch.Tensor, ignored: int) -> Dependences | None:
        """What is to be told where targets are neither the next tokens nor the same."""
        shifts = [places_on(one.tokens, self._asked, ignored) for one in self._lookups]
        if shifts and all(shifts):
            self._left = 0
            return Dependences(ahead=False, copied=False, others=False, beyond=min(shifts))
        for lookup in self._lookups[:1]:
            tokens = lookup.tokens
            if len(prediction) == target.numel() == len(tokens) and prediction.dim() == 2:
                return self._of_the_first(prediction, lookup)
            answers = answers_of(prediction, tokens.shape)
            if answers is None or target.numel() != tokens.numel():
                continue
            targets = target.reshape(tokens.shape)
            if told_apart(tokens, targets, ignored) < _APART:
                continue
            aligned = Alignment("other", 1, targets, targets != ignored)
            at = _middle(aligned)
            size = self._reached(prediction, lookup, aligned, at)
            own = size[at[0]] if size is not None else None
            if own is None or not int((own > _OWN * own.max()).sum()) > 1:
                continue  # it looks at nothing but the token itself, and knows why
            if blind_to_places(tokens, answers):
                return Dependences(ahead=False, copied=False, others=False, unplaced=True)
            self._evaluations = _EVALUATIONS
        return None

    def _yes_or_no(self, prediction: torch.Tensor, lookup: Lookup) -> Dependences | None:
        """One answer for each sequence, yes or no."""
        if (
            not prediction.dim()
            or prediction.numel() != len(prediction)
            or len(prediction) != len(lookup.tokens)
        ):
            return None
        return self._of_the_first(prediction, lookup)

    def _of_the_first(self, prediction: torch.Tensor, lookup: Lookup) -> Dependences | None:
        """Whether one answer for each sequence comes from its first token alone, or from what it is filled up with."""
        rows, columns = lookup.tokens.shape
        if columns < _LONG or rows < _LONG:
            return None
        classes = prediction.numel() // rows
        along = (
            torch.linspace(-1.0, 1.0, classes, device=prediction.device) if classes > 1 else torch.ones(())
        )
        along = along.to(prediction.device, prediction.dtype)
        size = self._led_back(prediction, lookup, along.expand_as(prediction))
        if size is None:
            return None
        if bool((size[:, 0] > 0).all()) and not bool((size[:, 1:] > 0).any()):
            return Dependences(ahead=False, copied=False, others=False, first=columns)
        if _padding_alone(lookup.tokens.cpu(), size > 0):
            return Dependences(ahead=False, copied=False, others=False, padding=True)
        return None


def _padding_alone(tokens: torch.Tensor, reached: torch.Tensor) -> bool:
    """Whether all that is reached is one token, which stands at one end of sequences, in a row, and nowhere else."""
    kinds = tokens[reached].unique()
    if len(kinds) != 1:
        return False
    filled = tokens == kinds[0]
    steps = filled.int().diff(dim=1)
    at_one_end = not bool((steps > 0).any()) or not bool((steps < 0).any())
    partly = filled.any(1) & ~filled.all(1)
    return at_one_end and bool((filled.sum(1)[partly] > 1).any())


def alignment(tokens: torch.Tensor, target: torch.Tensor, ignored: int) -> Alignment | None:
    """How the targets of a step lie to the tokens; None where they are neither the next ones nor the same."""
    rows, columns = tokens.shape
    for axis in (1, 0):
        for short in (0, 1):
            shape = (rows, columns - short) if axis else (rows - short, columns)
            if min(shape) < 2 or target.numel() != shape[0] * shape[1]:
                continue
            if target.dim() == 2 and tuple(target.shape) != shape:
                continue
            targets = target.reshape(shape)
            here, there = _beside(tokens, axis)
            same = targets.narrow(axis, 0, tokens.shape[axis] - 1)
            # Where a token is followed by itself, it says nothing.
            telling = (same != ignored) & (here != there)
            count = int(telling.sum())
            if count < _COUNTED:
                continue
            follows = float(((same == there) & telling).sum()) / count
            equals = float(((same == here) & telling).sum()) / count
            if follows >= _MOST and equals <= _ACCIDENT:
                return Alignment("next", axis, targets, targets != ignored)
            if equals >= _ALL and follows <= _ACCIDENT and axis == 1:
                return Alignment("same", axis, targets, targets != ignored)
    return None


def _beside(tokens: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and those that follow them."""
    last = tokens.shape[axis] - 1
    return tokens.narrow(axis, 0, last), tokens.narrow(axis, 1, last)


def _middle(aligned: Alignment) -> tuple[int, int]:
    """The position in the middle of what counts in the sample in which most does."""
    along = aligned.counted.transpose(0, 1) if aligned.axis == 0 else aligned.counted
    # The last one of several: what runs along the samples, and looks back only, reaches the most from there.
    count = along.sum(1)
    sample = len(count) - 1 - int(count.flip(0).argmax())
    times = along[sample].nonzero().reshape(-1)
    time = int(times[len(times) // 2])
    return (time, sample) if aligned.axis == 0 else (sample, time)


def _chosen(prediction: torch.Tensor, aligned: Alignment, at: tuple[int, int]) -> torch.Tensor | None:
    """What picks the answer at one position out of all; scores that sum to 1 must not cancel out in it."""
    rows, columns = aligned.targets.shape
    chosen = torch.zeros_like(prediction)
    if prediction.dim() == 2 and len(prediction) == rows * columns:
        place = chosen[at[0] * columns + at[1]]
    elif prediction.dim() == 3 and (prediction.shape[0], prediction.shape[2]) == (rows, columns):
        place = chosen[at[0], :, at[1]]
    else:
        return None
    place.copy_(torch.linspace(-1.0, 1.0, len(place), dtype=place.dtype, device=place.device))
    return chosen


def _read(size: torch.Tensor, aligned: Alignment, at: tuple[int, int]) -> Dependences | None:
    """What the sizes of the gradients at all tokens say."""
    counted = aligned.counted.cpu()
    if aligned.axis == 0:
        size, counted, at = size.transpose(0, 1), counted.transpose(0, 1), (at[1], at[0])
    sample, time = at
    own = size[sample]
    last = int(counted[sample].nonzero().max())
    most = float(own.max())
    rest = float(size.sum(0).sum() - own.sum())
    if most <= 0:
        return Dependences(ahead=False, copied=False, others=True) if rest > 0 else None
    before = float(own[:time].max()) if time else 0.0
    after = float(own[time + 1 : last + 2].max()) if time + 1 < len(own) else 0.0
    back = before or float(own[time])
    itself = float(own[time]) > _OWN * most
    # A model that sees all of a sequence may be given it whole to say it again, but not to say a part of it.
    blind = after <= _NOTHING * back
    copied = aligned.kind == "same" and itself and (blind or _has_gaps(counted))
    others = [row for row in range(len(size)) if row != sample]
    mixed = bool(others) and float(size[others].max()) > _OWN * most
    # What looks ahead alone has nothing before it to be held against; its own token goes straight past all attention.
    ahead = after > (_REACHES * before if before > _NOTHING * most else _NOTHING * most)
    return Dependences(aligned.kind == "next" and ahead, copied, mixed)


def _has_gaps(counted: torch.Tensor) -> bool:
    """Whether most samples have places that do not count between those that do; what is padded lies at the ends."""
    places = torch.arange(counted.shape[1])
    first = torch.where(counted, places, counted.shape[1]).amin(1)
    last = torch.where(counted, places, -1).amax(1)
    gaps = counted.sum(1) < last - first + 1
    return float(gaps[last >= 0].float().mean()) > 0.5


def _all_of_torch(node: Any) -> bool:
    """Whether a graph is made of torch's own operations: others may work in place, or only once."""
    seen, waiting = {node}, [node]
    while waiting:
        node = waiting.pop()
        if (
            isinstance(node, torch.autograd.function.BackwardCFunction)
            or type(node).__name__ == "CppFunction"
        ):
            return False
        fresh = [parent for parent, _ in node.next_functions if parent is not None and parent not in seen]
        seen.update(fresh)
        waiting += fresh
        if len(seen) > _NODES:
            return False
    return True


def _may_look(prediction: torch.Tensor, modules: list[nn.Module]) -> bool:
    """Whether a backward pass more would be noticed by nobody, tell anything, and have room."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return False
    if torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
        return False
    if _module._global_backward_hooks or _module._global_backward_pre_hooks:
        return False
    if any(module._backward_hooks or module._backward_pre_hooks for module in modules):
        return False
    if any(isinstance(module, NORMS[:1]) and module.training for module in modules):
        return False  # every position has a part in what all others are normalised by
    if not _all_of_torch(prediction.grad_fn):
        return False
    if prediction.is_cuda:
        used = torch.cuda.memory_allocated(prediction.device)
        free = torch.cuda.mem_get_info(prediction.device)[0]
        free += torch.cuda.memory_reserved(prediction.device) - used
        return free > _ROOM * used
    return True
