"""torch's functions by the names they go by, however they are written.

A function mode sees ``F.relu(x)``, ``torch.relu(x)``, ``x.relu()``, ``x.relu_()`` and ``nn.ReLU()(x)`` as
calls of functions named ``relu`` or ``relu_``; the tables here are keyed by those names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from akeso.errors import BadInput

#: Function name → class name of ``torch.nn`` ("Exp" where there is none).
ACTIVATIONS: dict[str, str] = {
    "relu": "ReLU",
    "relu_": "ReLU",
    "relu6": "ReLU6",
    "sigmoid": "Sigmoid",
    "sigmoid_": "Sigmoid",
    "tanh": "Tanh",
    "tanh_": "Tanh",
    "elu": "ELU",
    "elu_": "ELU",
    "selu": "SELU",
    "selu_": "SELU",
    "celu": "CELU",
    "celu_": "CELU",
    "leaky_relu": "LeakyReLU",
    "leaky_relu_": "LeakyReLU",
    "rrelu": "RReLU",
    "gelu": "GELU",
    "silu": "SiLU",
    "mish": "Mish",
    "softplus": "Softplus",
    "softsign": "Softsign",
    "hardtanh": "Hardtanh",
    "hardtanh_": "Hardtanh",
    "hardsigmoid": "Hardsigmoid",
    "hardswish": "Hardswish",
    "logsigmoid": "LogSigmoid",
    "log_sigmoid": "LogSigmoid",
    "tanhshrink": "Tanhshrink",
    "softshrink": "Softshrink",
    "hardshrink": "Hardshrink",
    "threshold": "Threshold",
    "softmax": "Softmax",
    "log_softmax": "LogSoftmax",
    "exp": "Exp",
}

#: Those that turn scores into probabilities or their logarithms: functions of an output by nature.
PROBABILITIES = frozenset({"Softmax", "LogSoftmax", "Sigmoid", "LogSigmoid", "Hardsigmoid"})

_CALLABLES: dict[str, Callable[[Tensor], Tensor]] = {
    "ReLU": F.relu,
    "ReLU6": F.relu6,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
    "ELU": F.elu,
    "SELU": F.selu,
    "CELU": F.celu,
    "LeakyReLU": F.leaky_relu,
    "GELU": F.gelu,
    "SiLU": F.silu,
    "Mish": F.mish,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "Hardtanh": F.hardtanh,
    "Hardsigmoid": F.hardsigmoid,
    "Hardswish": F.hardswish,
    "LogSigmoid": F.logsigmoid,
    "Softmax": lambda x: F.softmax(x, dim=1 if x.dim() > 1 else 0),
    "LogSoftmax": lambda x: F.log_softmax(x, dim=1 if x.dim() > 1 else 0),
    "none": lambda x: x,
    "Identity": lambda x: x,
}

#: Losses by the name of their function, with the position of prediction and target always first and second. That of
#: alignments is not exchanged for any other, but it ends the first training pass like all of them.
LOSSES = frozenset({
    "cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss",
    "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "poisson_nll_loss", "soft_margin_loss",
    "multi_margin_loss",    "multilabel_soft_margin_loss", "hinge_embedding_loss", "ctc_loss",
})  # fmt: skip

#: Operations that take parameters: what follows an activation and ends its reach.
WEIGHTED = frozenset({
    "linear", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell",
    "rnn_relu_cell",
    "multi_head_attention_forward", "addmm", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "baddbmm",
    "einsum", "scaled_dot_product_attention",
})  # fmt: skip
PRODUCTS = frozenset({"matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "baddbmm", "einsum"})
MULTIPLICATIONS = frozenset({"mul", "mul_", "__mul__", "__rmul__", "__imul__", "multiply"})

#: Operations that only change the shape, not what a value says.
VIEWS = frozenset({
    "view", "reshape", "squeeze", "unsqueeze", "flatten", "view_as", "reshape_as", "ravel", "unflatten",
    "contiguous", "float", "double", "to", "transpose", "permute", "t", "clone", "movedim", "swapaxes",
})  # fmt: skip


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The function of an activation given by its class name of ``torch.nn``."""
    try:
        return _CALLABLES[name]
    except KeyError:
        known = ", ".join(sorted(_CALLABLES))
        raise BadInput(f"There is no activation {name!r} to substitute. Known: {known}.") from None


def all_finite(value: Any) -> bool:
    """Whether no tensor in a value, however deep, holds anything that is not finite."""
    if isinstance(value, Tensor):
        return not value.is_floating_point() or bool(torch.isfinite(value.detach()).all())
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return all(map(all_finite, parts))


def tensors(args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> list[Tensor]:
    """The tensors among the arguments, one level of lists and tuples deep."""
    found: list[Tensor] = []
    for value in (*args, *(kwargs or {}).values()):
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [item for item in value if isinstance(item, Tensor)]
    return found
