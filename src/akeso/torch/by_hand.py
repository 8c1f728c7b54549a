"""Losses that a script writes out as arithmetic instead of calling them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from akeso.torch.losses import SHAPES, LossCall, activation_behind, function_before, stem_of

Kind = Literal[
    "difference", "squared", "absolute", "log", "log of the rest", "yes", "no", "both", "picked", "logs", "weighed",
    "shared",
]  # fmt: skip
#: The last function that a prediction went through and the one right before it, where they are known.
Functions = tuple[str | None, str | None]
#: What an elementwise comparison is called once it is averaged or summed up.
_NAMES: Final[dict[Kind, str]] = {
    "squared": "mse_loss", "absolute": "l1_loss", "both": "binary_cross_entropy", "picked": "nll_loss",
    "shared": "cross_entropy",
}  # fmt: skip
_PRODUCTS: Final = frozenset({"mul", "__mul__", "__rmul__", "multiply"})
_SUMS: Final = frozenset({"add", "__add__", "__radd__", "sub", "__sub__", "__rsub__", "rsub", "subtract"})
#: Nodes behind a logarithm that only keep its argument off zero, or turn p into 1 - p.
_BETWEEN: Final = frozenset({"Add", "Sub", "Rsub", *SHAPES})


@dataclass(frozen=True, slots=True)
class _Term:
    """A tensor that was made of a prediction on the way to a loss."""

    made: weakref.ref[torch.Tensor]
    kind: Kind
    prediction: torch.Tensor
    target: torch.Tensor
    functions: Functions


class ByHand:
    """Follows predictions through the arithmetic of a loss: squared and absolute errors, and cross-entropies.

    A binary cross-entropy is the sum of targets times the logarithm of a prediction and of the rest times the
    logarithm of the rest; one over classes is the logarithm of the prediction for the class that is right, or the sum
    of what all of them are worth times their shares in the target.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Term] = {}
        self._one_hot: bool | None = None
        self._unweighted: bool | None = None
        self._shares: bool | None = None

    @property
    def seen(self) -> bool:
        """Whether any prediction was compared with a target in this step."""
        return any(term.kind not in ("log", "log of the rest", "logs") for term in self._known.values())

    def clear(self) -> None:
        """A new step begins."""
        self._known.clear()

    def difference(self, prediction: torch.Tensor, target: torch.Tensor, result: Any) -> None:
        """A prediction minus a target, or the reverse."""
        if isinstance(result, torch.Tensor) and prediction.shape == target.shape:
            functions = _functions(prediction.grad_fn)
            self._put(result, "difference", prediction.detach(), target.detach(), functions)

    def called(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> LossCall | None:
        """Follow what is known one step further; the loss where it ends in one."""
        if not args or not isinstance(result, torch.Tensor):
            return None
        if name in ("log", "log1p") and isinstance(args[0], torch.Tensor) and args[0].requires_grad:
            self._logarithm(name, args[0], result)
            return None
        if name == "log_softmax" and isinstance(args[0], torch.Tensor) and args[0].requires_grad:
            if result.dim() == 2:
                logs = result.detach()
                self._put(result, "logs", logs, logs, _functions(result.grad_fn))
            return None
        first = self._of(args[0])
        second = self._of(args[1]) if len(args) > 1 else None
        term = first or second
        if term is None:
            return None
        if name in ("mean", "sum") and result.dim() == 0 and term.kind in _NAMES:
            return self._loss(term, name, result)
        other = (args[1] if first is not None else args[0]) if len(args) > 1 else None
        if first is not None and second is not None and name in _SUMS:
            self._joined(first, second, result)
        elif term.kind == "difference":
            self._distance(name, term, args, result)
        elif term.kind in ("log", "log of the rest", "logs"):
            self._weighed(name, term, other, args[2] if len(args) > 2 else kwargs.get("index"), result)
        elif name in ("neg", "__neg__") or (name in _PRODUCTS and isinstance(other, int | float)):
            self._put(result, term.kind, term.prediction, term.target, term.functions)
        elif name == "sum" and term.kind == "yes" and result.dim() == 1 and self._names_classes(term.target):
            self._put(result, "picked", term.prediction.log(), term.target.argmax(1), term.functions)
        elif name == "sum" and term.kind == "weighed" and result.dim() == 1 and self._are_shares(term.target):
            self._put(result, "shared", term.prediction, term.target, term.functions)
        return None

    def _are_shares(self, target: torch.Tensor) -> bool:
        """Whether targets are rows of shares that sum to one, asked once like the others."""
        if self._shares is None:
            whole = ((target.sum(1) - 1).abs() < 1e-3).all() & (target >= 0).all()
            self._shares = target.shape[1] > 1 and bool(whole)
        return self._shares

    def _names_classes(self, target: torch.Tensor) -> bool:
        """Whether targets are one-hot rows, asked once: the answer has to be fetched from the device."""
        if self._one_hot is None:
            sure = (target == 0) | (target == 1)
            self._one_hot = target.dim() == 2 and bool(sure.all() & (target.sum(1) == 1).all())
        return self._one_hot

    def _share_one(self, yes: torch.Tensor, no: torch.Tensor) -> bool:
        """Whether both weights come to one, asked once: where classes are weighted, they are no targets."""
        if self._unweighted is None:
            self._unweighted = yes.shape == no.shape and bool(((yes + no - 1).abs() < 1e-3).all())
        return self._unweighted

    def _of(self, value: Any) -> _Term | None:
        term = self._known.get(id(value))
        return term if term is not None and term.made() is value else None

    def _put(
        self,
        made: torch.Tensor,
        kind: Kind,
        prediction: torch.Tensor,
        target: torch.Tensor,
        functions: Functions,
    ) -> None:
        self._known[id(made)] = _Term(weakref.ref(made), kind, prediction, target, functions)

    def _distance(self, name: str, term: _Term, args: tuple[Any, ...], result: torch.Tensor) -> None:
        kind: Kind | None = None
        if name in ("abs", "absolute", "__abs__"):
            kind = "absolute"
        elif (
            name == "square"
            or (name in ("pow", "__pow__") and len(args) > 1 and args[1] == 2)
            or (name in _PRODUCTS and len(args) > 1 and args[1] is args[0])
        ):
            kind = "squared"
        if kind is not None:
            self._put(result, kind, term.prediction, term.target, term.functions)

    def _logarithm(self, name: str, given: torch.Tensor, result: torch.Tensor) -> None:
        """The logarithm of a prediction or of what is left of one, whatever keeps it off zero."""
        node: Any = given.grad_fn
        mirrored = False
        for _ in range(8):
            stem = stem_of(type(node).__name__)
            parents = [parent for parent, _ in getattr(node, "next_functions", ())]
            behind = [parent for parent in parents if parent is not None]
            if len(behind) != 1 or stem not in _BETWEEN:
                break
            mirrored ^= stem == "Rsub" or (stem == "Sub" and parents[0] is None)
            mirrored ^= stem == "Neg" and name == "log1p"
            node = behind[0]
        value = given.detach() + 1 if name == "log1p" else given.detach()
        kind: Kind = "log of the rest" if mirrored else "log"
        self._put(result, kind, 1 - value if mirrored else value, value, _functions(node))

    def _weighed(self, name: str, term: _Term, other: Any, index: Any, result: torch.Tensor) -> None:
        """The logarithm times a target, or at the place of one."""
        if name in _PRODUCTS and isinstance(other, torch.Tensor) and other.shape == term.prediction.shape:
            if not other.requires_grad:
                kind: Kind = "yes" if term.kind == "log" else "weighed" if term.kind == "logs" else "no"
                # The minus of the whole may stand before the target.
                self._put(result, kind, term.prediction, other.detach().abs(), term.functions)
            return
        if name == "gather":
            other = index
        elif name == "__getitem__" and isinstance(other, tuple) and other:
            other = other[-1]
        else:
            return
        whole = isinstance(other, torch.Tensor) and other.dtype == torch.int64
        if whole and term.kind == "log" and term.prediction.dim() == 2 and len(other) == len(term.prediction):
            self._put(result, "picked", term.prediction.log(), other.detach().reshape(-1), term.functions)

    def _joined(self, first: _Term, second: _Term, result: torch.Tensor) -> None:
        kinds = {first.kind: first, second.kind: second}
        if set(kinds) == {"yes", "no"} and self._share_one(kinds["yes"].target, kinds["no"].target):
            yes = kinds["yes"]
            self._put(result, "both", yes.prediction, yes.target, yes.functions)

    def _loss(self, term: _Term, name: str, result: torch.Tensor) -> LossCall:
        reduction = "mean" if name == "mean" else "sum"
        return LossCall(
            _NAMES[term.kind],
            term.prediction,
            term.target,
            result.detach().abs(),  # likelihoods are turned around before or after this
            reduction,
            {"reduction": reduction, "by_hand": True},
            activation=term.functions[0],
            before=term.functions[1],
        )


def _functions(node: Any) -> Functions:
    """Told at once: a node that is kept keeps all that lies behind it."""
    return activation_behind(node), function_before(node)
