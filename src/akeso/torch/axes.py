"""Axes that change places inside of a model: a reshape for a transposition, an attention along the wrong axis.

All of it is told by shapes and by which axis a softmax went over; no value is read.
"""

from __future__ import annotations

import math
import weakref
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from akeso.torch.losses import stem_of

RESHAPES: Final = frozenset({"view", "reshape"})
_PRODUCTS: Final = frozenset({"matmul", "__matmul__", "bmm"})
_FUSED: Final = "scaled_dot_product_attention"
_WRITTEN: Final = "einsum"
#: What hands on the weights of an attention as they are, but for some that are left out.
_PASSES_ON: Final = frozenset({"dropout"})
_TURNS: Final = "transpose"
#: What runs along the last axis and takes the one before it for channels.
_CONVOLVES: Final = "conv1d"
#: What makes shares that sum to one over an axis; none but the first give the weights of an attention.
_SHARES: Final = frozenset({"softmax", "log_softmax"})
#: Functions that are of interest here.
HEARD: Final = RESHAPES | _PRODUCTS | _PASSES_ON | _SHARES | {_FUSED, _WRITTEN, _TURNS, _CONVOLVES}
#: Nodes that may lie between the product of queries and keys and the softmax over it: scaling, masks, forms.
_BETWEEN: Final = frozenset(
    {"Mul", "Div", "Add", "Sub", "MaskedFill", "Where", "View", "UnsafeView", "ReshapeAlias", "Expand", "Clone",
     "ToCopy", "Unsqueeze", "Squeeze", "Permute"}
)  # fmt: skip
#: Nodes that are such a product.
_SCORES: Final = frozenset({"Bmm", "Baddbmm"})
#: How many nodes are looked at on the way.
_FAR: Final = 24


class Astray(NamedTuple):
    """Something that mixes axes up, in the module ``owner``, with the shapes that show it.

    ``order``: a reshape that gives the same lengths in another order; ``states``: one that puts units of the last
    states of different samples together; ``softmax``: weights that sum to one over the axis ``after``, while sums are
    taken over another one; ``heads``: an attention of such a form for what was given to the model; ``samples``:
    answers that sum to one over the samples.
    """

    kind: str
    owner: str
    before: tuple[int, ...]
    after: tuple[int, ...]


class _Weights(NamedTuple):
    """What a softmax has given, and the axis it went over."""

    made: weakref.ref[torch.Tensor]
    axis: int


class _Shaped(NamedTuple):
    """What a view or a reshape has made, of which it shows later whether values are where they belong."""

    made: weakref.ref[torch.Tensor]
    before: tuple[int, ...]
    after: tuple[int, ...]


class _Across(NamedTuple):
    """What a softmax over the first of two axes has given, and in which module."""

    made: weakref.ref[torch.Tensor]
    owner: str


class Axes:
    """Follows what is done with axes in the passes of one sampled step."""

    def __init__(self) -> None:
        self.found: list[Astray] = []
        self._weights: dict[int, _Weights] = {}
        self._across: list[_Across] = []
        # What was divided into heads by a view that leaves them behind the moments, as if they came first.
        self._heads: dict[int, _Shaped] = {}
        self._grouped: dict[
            int, _Shaped
        ] = {}  # what has the same lengths in another order, perhaps by accident
        self._last_states: list[
            tuple[int, tuple[int, ...]]
        ] = []  # of recurrent layers: where they lie, their shape
        self._attended: list[
            tuple[str, tuple[int, ...]]
        ] = []  # owners, and shapes of weights: queries, then keys

    def clear(self) -> None:
        """A new step begins, or the last one is over."""
        self.found.clear()
        self._weights.clear()
        self._across.clear()
        self._heads.clear()
        self._grouped.clear()
        self._last_states.clear()
        self._attended.clear()

    def ran(self, module: nn.Module, output: Any) -> None:
        """A layer has run; of a recurrent one the last states are kept in mind."""
        if not isinstance(module, nn.RNNBase) or not isinstance(output, tuple) or len(output) != 2:
            return
        states = output[1] if isinstance(output[1], tuple) else (output[1],)
        self._last_states += [(one.data_ptr(), tuple(one.shape)) for one in states if one.dim() == 3]

    def called(
        self, name: str, owner: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """One of the functions in ``HEARD`` has been called inside of a model."""
        if name == _WRITTEN:
            self._summed(owner, args)
            return
        given = args[0] if args else kwargs.get("input")
        if not isinstance(given, torch.Tensor) or not isinstance(result, torch.Tensor):
            return
        if name in RESHAPES:
            self._reshaped(owner, given, result)
        elif name in _SHARES:
            self._softened(name, owner, args, kwargs, given, result)
        elif name in _PASSES_ON:
            known = self._known(given)
            if known is not None:
                self._weights[id(result)] = _Weights(weakref.ref(result), known.axis)
        elif name == _CONVOLVES:
            grouped = self._grouped.get(id(given))
            if grouped is not None and grouped.made() is given:
                self.found.append(Astray("order", owner, grouped.before, grouped.after))
        elif name == _TURNS:
            heads = self._divided(given)
            if heads is not None:
                self._heads[id(result)] = heads._replace(made=weakref.ref(result))
        elif name == _FUSED:
            self._multiplied(owner, args[:2])
            keys = args[1] if len(args) > 1 else kwargs.get("key")
            if isinstance(keys, torch.Tensor) and given.dim() == 4:
                self._attended.append((owner, (*given.shape[:3], int(keys.shape[-2]))))
        else:
            self._multiplied(owner, args[:2])
            self._weighed(owner, given)

    def _reshaped(self, owner: str, given: torch.Tensor, result: torch.Tensor) -> None:
        before, after = tuple(given.shape), tuple(result.shape)
        if not given.is_floating_point() or len(before) < 3:
            return
        long, order = [size for size in before if size > 1], [size for size in after if size > 1]
        if _may_group(before, after):
            self._grouped[id(result)] = _Shaped(weakref.ref(result), before, after)
            return
        if len(long) > 2 and long != order and sorted(long) == sorted(order):
            self.found.append(Astray("order", owner, before, after))
            return
        if _only_called_heads(before, after):
            self._heads[id(result)] = _Shaped(weakref.ref(result), before, after)
            return
        layers, samples = before[0], before[1]
        joined = (
            layers != samples
            and min(layers, samples) > 1
            and after == (samples, math.prod(before) // samples)
        )
        if joined and (given.data_ptr(), before) in self._last_states:
            self.found.append(Astray("states", owner, before, after))

    def answered(self, given: torch.Tensor | None, answers: list[torch.Tensor]) -> None:
        """A model has run: what it answers sample by sample is not to sum to one over them.

        Weights by which a bag of things is summed up are not all that there is for each of them; likenesses of all with
        all sum to one over either.
        """
        if not self._across or given is None or not given.dim():
            return
        samples = len(given)
        if samples < 2 or any(not one.dim() or len(one) != samples for one in answers):
            return
        for made, owner in self._across:
            result = made()
            if result is not None and any(
                one is result and one.shape[1] not in (1, samples) for one in answers
            ):
                self.found.append(Astray("samples", owner, tuple(given.shape), tuple(result.shape)))
                return

    def _divided(self, tensor: Any) -> _Shaped | None:
        known = self._heads.get(id(tensor))
        return known if known is not None and known.made() is tensor else None

    def _multiplied(self, owner: str, operands: tuple[Any, ...]) -> None:
        """Queries and keys meet: what was divided into heads by a view alone holds parts of several moments."""
        heads = [self._divided(one) for one in operands]
        if len(heads) == 2 and all(heads) and heads[0] is not None:
            self.found.append(Astray("order", owner, heads[0].before, heads[0].after))

    def _softened(
        self,
        name: str,
        owner: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        given: torch.Tensor,
        result: torch.Tensor,
    ) -> None:
        axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if axis is None:
            axis = 0 if given.dim() in (0, 1, 3) else 1  # what torch takes where nothing is said
        if isinstance(axis, int) and given.dim() > 2 and name == "softmax":
            self._weights[id(result)] = _Weights(weakref.ref(result), axis % given.dim())
        elif isinstance(axis, int) and given.dim() == 2 and axis % 2 == 0:
            self._across.append(_Across(weakref.ref(result), owner))

    def _known(self, tensor: torch.Tensor) -> _Weights | None:
        known = self._weights.get(id(tensor))
        return known if known is not None and known.made() is tensor else None

    def _weighed(self, owner: str, weights: torch.Tensor) -> None:
        """A product with weights on its left takes sums over their last axis."""
        known, shape = self._known(weights), tuple(weights.shape)
        if known is None or not _of_products(weights.grad_fn):
            return
        if len(shape) == 4:
            self._attended.append((owner, shape))
        if known.axis != len(shape) - 1 and shape[-1] > 1:
            self._beside(owner, shape, known.axis)

    def _summed(self, owner: str, args: tuple[Any, ...]) -> None:
        """The same of a product whose axes are written out in letters."""
        operands = args[1] if len(args) == 2 and isinstance(args[1], list | tuple) else args[1:]
        sides, arrow, result = str(args[0]).replace(" ", "").partition("->")
        names = sides.split(",")
        if not arrow or "." in sides or len(names) != 2 or len(operands) != 2:
            return
        for weights, letters in zip(operands, names, strict=True):
            known = self._known(weights) if isinstance(weights, torch.Tensor) else None
            if known is None or len(letters) != weights.dim() or not _of_products(weights.grad_fn):
                continue
            gone = [axis for axis, letter in enumerate(letters) if letter not in result]
            if gone and known.axis not in gone and all(weights.shape[axis] > 1 for axis in gone):
                self._beside(owner, tuple(weights.shape), known.axis)

    def _beside(self, owner: str, shape: tuple[int, ...], axis: int) -> None:
        """Weights of this shape sum to one over an axis over which nothing is summed."""
        self.found.append(Astray("softmax", owner, shape, (axis,)))

    def among_heads(self, given: torch.Tensor | None) -> Astray | None:
        """An attention in whose every call moments lie where the heads should, for what was given to the model.

        Each moment then looks at nothing but its own heads.
        """
        if given is None or given.dim() not in (2, 3) or (given.dim() == 2 and given.is_floating_point()):
            return None
        samples, moments = given.shape[:2]
        if not self._attended or moments < 2:
            return None
        # What attends to the features of a moment knows what it does. Where there are as many heads as moments, what
        # is attended to is as long as these, and longer by what stands before them to be answered from.
        others = {moments, 1, *given.shape[2:]}
        if any(
            shape[:2] != (samples, moments) or others & set(shape[2:]) or max(shape[2:]) > moments
            for _, shape in self._attended
        ):
            return None
        owner, shape = self._attended[0]
        return Astray("heads", owner, (samples, moments), shape)


def _may_group(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether the last two of three axes change places in a way that may be meant as it is done.

    Units that are divided among as many heads as make the axes look so, the heads going with the samples, or moments
    that are put together to patches, have the lengths of a transposition by accident.
    """
    if len(before) != 3 or after != (before[0], before[2], before[1]) or min(before) < 2:
        return False
    return before[1] != before[2] and max(before[1:]) % min(before[1:]) == 0


def _only_called_heads(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether samples, moments and units become samples, heads, moments and units of a head without being moved."""
    if len(before) != 3 or len(after) != 4 or min(after) < 2:
        return False
    samples, moments, units = before
    return (
        after[0] == samples and after[2] == moments and after[1] != moments and after[1] * after[3] == units
    )


def _of_products(node: Any) -> bool:
    """Whether weights come from a softmax over products of queries and keys, as those of an attention do."""
    waiting, seen = [node], 0
    softened = False
    while waiting and seen < _FAR:
        node = waiting.pop()
        seen += 1
        if node is None:
            continue
        stem = stem_of(type(node).__name__)
        if softened and stem in _SCORES:
            return True
        if stem == "Softmax":
            softened = True
        elif stem not in _BETWEEN and stem not in ("NativeDropout", "BernoulliScalar"):
            continue
        waiting += [parent for parent, _ in node.next_functions]
    return False
