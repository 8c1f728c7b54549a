"""Recognising loss functions, whether called or written by hand, and what they were given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from akeso.torch.activations import clamped_to

#: Losses that compare a prediction with a target, by the name under which torch dispatches them.
LOSSES: Final = frozenset(
    {
        "cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss",
        "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "poisson_nll_loss", "gaussian_nll_loss",
        "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "soft_margin_loss",
        "hinge_embedding_loss", "ctc_loss", "cosine_embedding_loss", "margin_ranking_loss",
        "triplet_margin_loss", "triplet_margin_with_distance_loss",
    }
)  # fmt: skip
#: Losses that are the same whichever of the two is given first.
SYMMETRIC: Final = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})
#: Losses over pairs and triplets, which have no prediction and target to speak of.
RELATIONAL: Final = frozenset(
    {"cosine_embedding_loss", "margin_ranking_loss", "triplet_margin_loss", "triplet_margin_with_distance_loss",
     "ctc_loss", "hinge_embedding_loss"}
)  # fmt: skip

#: Those of them over triplets: where all answers are the same, each of them comes to its margin.
TRIPLETS: Final = frozenset({"triplet_margin_loss", "triplet_margin_with_distance_loss"})
#: Those of them that are told by the sign of a target which pairs belong together, and where they are given it.
SIGNS: Final = {"cosine_embedding_loss": 2, "margin_ranking_loss": 2, "hinge_embedding_loss": 1}

#: Differences in which a target of another shape would be spread over the prediction.
DIFFERENCES: Final = frozenset({"sub", "__sub__", "rsub", "__rsub__", "subtract"})
_REDUCTIONS: Final = {0: "none", 1: "mean", 2: "sum"}

#: Backward nodes of functions that may stand between the last layer and the loss.
_OUTPUT_NODES: Final = {
    "SoftmaxBackward0": "softmax", "LogSoftmaxBackward0": "log_softmax", "SigmoidBackward0": "sigmoid",
    "ReluBackward0": "relu", "TanhBackward0": "tanh", "LogSigmoidBackward0": "logsigmoid",
    "SoftplusBackward0": "softplus", "ExpBackward0": "exp", "EluBackward0": "elu", "GeluBackward0": "gelu",
    "LeakyReluBackward0": "leaky_relu", "HardtanhBackward0": "hardtanh", "SiluBackward0": "silu",
    "HardsigmoidBackward0": "hardsigmoid", "HardswishBackward0": "hardswish", "MishBackward0": "mish",
}  # fmt: skip
#: Nodes that only change the form of a tensor, or its sign.
SHAPES: Final = (
    "View", "UnsafeView", "Reshape", "ReshapeAlias", "Squeeze", "Unsqueeze", "Transpose", "Permute", "T", "Slice",
    "Select", "Clone", "ToCopy", "Expand", "Alias", "Index", "Contiguous", "Clamp", "ClampMin", "ClampMax",
    "Split", "Unbind", "SplitWithSizes", "AsStrided", "Copy", "Neg",
)  # fmt: skip
#: Backward nodes of loss functions, and the function each stands for.
_LOSS_NODES: Final = {
    "NllLossBackward0": "cross_entropy", "NllLoss2DBackward0": "cross_entropy", "NllLossNdBackward0": "cross_entropy",
    "MseLossBackward0": "mse_loss", "L1LossBackward0": "l1_loss", "SmoothL1LossBackward0": "smooth_l1_loss",
    "HuberLossBackward0": "huber_loss", "BinaryCrossEntropyBackward0": "binary_cross_entropy",
    "BinaryCrossEntropyWithLogitsBackward0": "binary_cross_entropy_with_logits", "KlDivBackward0": "kl_div",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LossCall:
    """One comparison of a prediction with a target."""

    name: str
    prediction: torch.Tensor
    target: torch.Tensor
    value: torch.Tensor | None
    reduction: str = "mean"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    ignore_index: int = -100
    class_weight: torch.Tensor | None = None  # of every class; under a binary loss of the positive answers
    activation: str | None = None  # the last function this very prediction went through; ``None`` when unseen
    before: str | None = None  # the one right before it, where there is one
    reshaped: tuple[int, ...] | None = None  # the shape it had before a reshape put its axes in another order


def _reduction(kwargs: Mapping[str, Any]) -> str:
    """How a loss is brought to one number, also by the arguments of old."""
    averaged, reduced = kwargs.get("size_average"), kwargs.get("reduce")
    if reduced is False:
        return "none"
    if averaged is not None or reduced is not None:
        return "sum" if averaged is False else "mean"
    return str(kwargs.get("reduction", "mean"))


def target_first(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool | None:
    """Whether a loss that is the same either way was given the target before the answer; ``None`` where nothing tells.

    Of the two, the answer is what a gradient goes to.
    """
    one, other = pair_given(args, kwargs)
    if name not in SYMMETRIC or not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    return None if one.requires_grad == other.requires_grad else other.requires_grad


def pair_given(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """What a loss was given first and second, the prediction and the target as a rule."""
    return args[0] if args else kwargs.get("input"), args[1] if len(args) > 1 else kwargs.get("target")


def recognise(
    name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any, *, turned: bool = False
) -> LossCall | None:
    """The loss call behind a dispatched function, ``None`` when it compares nothing.

    ``turned`` says that the target was given first.
    """
    prediction, target = pair_given(args, kwargs)[:: -1 if turned else 1]
    if name in RELATIONAL or not isinstance(prediction, torch.Tensor) or not isinstance(target, torch.Tensor):
        return None
    weight = kwargs.get("weight", args[2] if len(args) > 2 and name in _WEIGHTED else None)
    reduction = _reduction(kwargs)
    arguments: dict[str, Any] = {"reduction": reduction}
    if weight is not None:
        arguments["weight"] = True
    for key in ("label_smoothing", "ignore_index", "pos_weight", "beta", "delta"):
        extra = kwargs.get(key)
        if isinstance(extra, torch.Tensor):
            arguments[key] = True
        elif extra is not None:
            arguments[key] = extra
    if name == "poisson_nll_loss":
        arguments["log_input"] = bool(kwargs.get("log_input", args[2] if len(args) > 2 else True))
    if name == "binary_cross_entropy_with_logits":
        weight = kwargs.get("pos_weight")
    elif name not in ("cross_entropy", "nll_loss"):
        weight = None
    return LossCall(
        name,
        prediction.detach(),
        target.detach(),
        value.detach() if isinstance(value, torch.Tensor) else None,
        reduction,
        arguments,
        int(kwargs.get("ignore_index", -100)),
        weight.detach() if isinstance(weight, torch.Tensor) else None,
        output_activation(prediction),
        function_before(prediction.grad_fn),
        reshaped_from(prediction),
    )


_WEIGHTED = ("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")


def output_activation(prediction: torch.Tensor) -> str | None:
    """The last function the prediction went through, however it was written; ``None`` when unseen.

    A clamp counts where nothing stands before it that gives the same range.
    """
    return activation_behind(prediction.grad_fn)


def activation_behind(node: Any) -> str | None:
    """The same, told from the node of the graph that gave the prediction."""
    return _last_function(node)[0]


def function_before(node: Any) -> str | None:
    """What the last function was given: the name of another one right before it, ``None`` where there is none."""
    found, at = _last_function(node)
    if found is None or at is None:
        return None
    before = _last_function(parent_of(at))[0]
    return None if before in (None, "none") else before


def _last_function(node: Any) -> tuple[str | None, Any]:
    """The last function before this node, and the node that it is."""
    bare = "none"
    for _ in range(12):
        if node is None:
            return None, None
        kind = type(node).__name__
        if kind in _OUTPUT_NODES:
            return _OUTPUT_NODES[kind], node
        stem = stem_of(kind)
        if stem == "Log":  # the log of probabilities: what made them probabilities counts
            node = parent_of(node)
            continue
        if stem not in SHAPES:
            return (None if kind.startswith("CompiledFunction") else bare), None
        bare = _clamp(node) if bare == "none" and stem == "Clamp" else bare
        node = parent_of(node)
    return bare, None


def reshaped_from(prediction: torch.Tensor) -> tuple[int, ...] | None:
    """The shape before a reshape put the same lengths into another order.

    What was meant is a transposition: a reshape leaves the values where they lie, each where another one belongs.
    """
    node: Any = prediction.grad_fn
    shape: tuple[int, ...] | None = tuple(prediction.shape)  # of what this node gave
    for _ in range(12):
        if node is None:
            return None
        kind = type(node).__name__
        stem = stem_of(kind)
        same = kind in _OUTPUT_NODES or stem == "Log"
        if not same and stem not in SHAPES:
            return None
        if given := getattr(node, "_input_metadata", None):  # older torch has none
            shape = tuple(map(int, given[0].shape))
        if stem in ("View", "UnsafeView", "ReshapeAlias"):
            before = getattr(node, "_saved_self_sym_sizes", None)
            if before is None or shape is None:
                return None
            before = tuple(map(int, before))
            long, order = [size for size in before if size > 1], [size for size in shape if size > 1]
            if len(long) > 1 and long != order and sorted(long) == sorted(order):
                return before
            shape = before
        elif not same:
            shape = None
        node = parent_of(node)
    return None


def stem_of(kind: str) -> str:
    """The name of a backward node without its ending."""
    return kind.removesuffix(kind[kind.rfind("Backward") :]) if "Backward" in kind else kind


def _clamp(node: Any) -> str:
    """What cutting values off on both sides stands for."""
    kind = clamped_to(getattr(node, "_saved_min", None), getattr(node, "_saved_max", None))
    return {"signs": "hardtanh", "probabilities": "clamp"}.get(kind or "", "none")


def parent_of(node: Any) -> Any:
    """The first node that handed its result to this one."""
    return next((parent for parent, _ in node.next_functions if parent is not None), None)


def from_graph(loss: torch.Tensor) -> LossCall | None:
    """The loss call that a graph ends with, for trainings whose calls could not be seen."""
    node: Any = loss.grad_fn
    for _ in range(8):
        if node is None:
            return None
        kind = type(node).__name__
        if kind in _LOSS_NODES:
            break
        node = parent_of(node)
    else:
        return None
    name = _LOSS_NODES[kind]
    try:
        prediction, target = node._saved_self, node._saved_target
        reduction = _REDUCTIONS.get(getattr(node, "_saved_reduction", 1), "mean")
    except (AttributeError, RuntimeError):  # saved tensors are gone, or hooks hide them
        return None
    ignore = getattr(node, "_saved_ignore_index", -100)
    astray = name == "cross_entropy" and _astray(node, prediction.dim())
    arguments: dict[str, Any] = {"reduction": reduction}
    if astray:
        name = "nll_loss"  # the other one cannot have been called: it goes over the classes
    elif name == "cross_entropy" and prediction.dim() > 1:
        arguments["normalised"] = True  # what was given to it is known up to a number for each sample
    return LossCall(
        name, prediction.detach(), target.detach(), loss.detach() if reduction == "mean" else None, reduction,
        arguments, ignore - (1 << 64) if ignore > (1 << 63) else ignore,
        activation="log_softmax" if astray else None,
    )  # fmt: skip


def _astray(node: Any, dimensions: int) -> bool:
    """Whether logarithms of a softmax over another axis than that of the classes go into a loss."""
    before = parent_of(node)
    if type(before).__name__ != "LogSoftmaxBackward0" or dimensions < 2:
        return False
    axis = before._saved_dim
    axis -= 1 << 64 if axis >= 1 << 63 else 0
    return bool(axis % dimensions != 1)


def spread_inside(prediction: torch.Tensor, target: torch.Tensor, samples: int) -> bool:
    """Whether a model has given ``[N, N]`` predictions for ``N`` samples with one target each.

    A column and a row were added up somewhere inside of it.
    """
    return samples > 2 and tuple(target.shape) == (samples,) and tuple(prediction.shape) == (samples, samples)


def broadcast_of(prediction: torch.Tensor, target: torch.Tensor) -> tuple[int, ...] | None:
    """The shape into which an elementwise comparison grows by accident, as ``[N]`` against ``[N, 1]``.

    An accident has as many targets as predictions, or one for all predictions of a sample, in another number of
    dimensions; or it has happened to the targets already: ``[N, N]`` of them for ``N`` predictions. Pairwise
    differences, which are meant to grow, are written with the same number of dimensions on both sides.
    """
    count = prediction.numel()
    if count > 1 and tuple(target.shape) == (count, count) and len(prediction) == count:
        return tuple(target.shape)
    if count <= 1 or prediction.dim() == target.dim() or not target.dim() or not prediction.dim():
        return None
    one_each = 2 < len(target) == target.numel() == len(prediction)
    if count != target.numel() and not one_each:
        return None
    try:
        result = torch.broadcast_shapes(prediction.shape, target.shape)
    except RuntimeError:
        return None
    grown = count if count == target.numel() else count * len(target) - 1
    return tuple(result) if math.prod(result) > grown else None
