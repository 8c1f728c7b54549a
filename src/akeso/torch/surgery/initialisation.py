"""Drawing new weights, by what follows each layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from akeso.errors import BadInput, Refused
from akeso.torch.naming import parameters_of
from akeso.torch.surgery.anatomy import NORMS, WEIGHTED, Anatomy

SCHEMES = ("auto", "he", "xavier", "lecun", "orthogonal")
_RECTIFIERS = frozenset(
    {
        "ReLU",
        "LeakyReLU",
        "ELU",
        "CELU",
        "GELU",
        "SiLU",
        "Mish",
        "PReLU",
        "RReLU",
        "ReLU6",
        "Hardswish",
        "Softplus",
    }
)

#: The spread of a weight's sums over its inputs beyond which it is out of range.
_NARROWEST, _WIDEST = 0.25, 3.0


@torch.no_grad()
def reinitialise(
    model: nn.Module,
    anatomy: Anatomy,
    scheme: str = "auto",
    seed: int | None = None,
    *,
    small_tables: bool = False,
) -> str:
    """Draw every layer's weights anew; "auto" takes He before rectifiers, LeCun before SELU, else Xavier.

    Biases are set to zero (one for an LSTM's forget gate), norms to the identity, embeddings and weights that no
    layer holds are drawn anew only where they are out of range (tables of biases may be zero) or where ``small_tables``
    are asked for, tied weights are drawn once. The random state of the caller is used, unless a seed is given.
    """
    if scheme not in SCHEMES:
        raise BadInput(f"scheme must be one of {', '.join(SCHEMES)}, but got {scheme!r}.")
    if seed is not None:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return reinitialise(model, anatomy, scheme, small_tables=small_tables)
    follows = {id(use.module): anatomy.activation_after(use) for use in reversed(anatomy.weighted)}
    shared = _shared(model)
    done: set[int] = set()
    for module in model.modules():
        fresh = [p for p in parameters_of(module, recurse=False) if id(p) not in done]
        if not fresh:
            continue
        done.update(id(parameter) for parameter in fresh)
        if isinstance(module, WEIGHTED):
            kind = follows.get(id(module), "none")
            _draw(
                module.weight,
                scheme if scheme != "auto" else fitting_scheme(kind),
                tied=id(module.weight) in shared,
            )
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, nn.RNNBase | nn.RNNCellBase):
            _recurrent(module)
        elif isinstance(module, nn.Embedding | nn.EmbeddingBag):
            _embedding(module, tied=id(module.weight) in shared, small=small_tables)
        elif isinstance(module, NORMS):
            if callable(getattr(module, "reset_parameters", None)):
                module.reset_parameters()
        elif isinstance(module, nn.MultiheadAttention):
            module._reset_parameters()
        elif callable(getattr(module, "reset_parameters", None)):
            module.reset_parameters()  # type: ignore[operator]
        else:
            for parameter in fresh:
                _bare(parameter, _vectors(model))
    if not done:
        raise Refused("the model has no parameters")
    return f"weights drawn anew ({scheme})"


@torch.no_grad()
def redraw_held(tensors: Sequence[Tensor]) -> int:
    """Draw weights that a script holds itself anew where they are out of range; how many were."""
    vectors = [tensor.numel() for tensor in tensors if tensor.dim() == 1]
    return sum(_bare(tensor, vectors, written_out=True) for tensor in tensors)


def bare_draws(model: nn.Module) -> dict[str, float]:
    """Weights that no layer holds and that will be drawn anew, with the deviation they are drawn with, by name."""
    held = (
        *WEIGHTED,
        *NORMS,
        nn.RNNBase,
        nn.RNNCellBase,
        nn.Embedding,
        nn.EmbeddingBag,
        nn.MultiheadAttention,
    )
    found = {}
    for home, module in model.named_modules():
        if isinstance(module, held) or callable(getattr(module, "reset_parameters", None)):
            continue
        for name, parameter in nn.Module.named_parameters(module, recurse=False):
            spread = _wanted(parameter, _vectors(model))
            if spread is not None:
                found[f"{home}.{name}".lstrip(".")] = spread
    return found


def _vectors(model: nn.Module) -> list[int]:
    return [vector.numel() for vector in model.parameters() if vector.dim() == 1]


def fitting_scheme(kind: str) -> str:
    """The scheme by which weights are drawn before an activation of this kind."""
    return "he" if kind in _RECTIFIERS else "lecun" if kind in ("SELU", "none") else "xavier"


def _draw(weight: Tensor, scheme: str, *, tied: bool) -> None:
    if weight.dim() < 2:
        return
    if tied:
        nn.init.normal_(weight, std=1.0 / math.sqrt(weight.shape[-1]))
    elif scheme == "orthogonal":
        nn.init.orthogonal_(weight)
    elif scheme == "he":
        nn.init.kaiming_normal_(weight, nonlinearity="relu")
    elif scheme == "lecun":
        nn.init.kaiming_normal_(weight, nonlinearity="linear")
    else:
        nn.init.xavier_uniform_(weight)


def _bare(weight: Tensor, vectors: list[int], *, written_out: bool = False) -> bool:
    """Draw a weight that no layer holds anew where it is out of range; whether it was."""
    spread = _wanted(weight, vectors, written_out=written_out)
    if spread is None:
        return False
    weight.normal_(std=spread)
    return True


def _wanted(weight: Tensor, vectors: list[int], *, written_out: bool = False) -> float | None:
    """The deviation that a weight should be drawn with which is out of range for the number of its inputs.

    A matrix is used as layers use theirs, outputs first, or ``written_out`` the other way round: the vectors beside
    it, which are mostly biases, tell.
    """
    if weight.dim() < 2 or not weight.is_floating_point():
        return None
    inputs = math.prod(weight.shape[1:])
    if weight.dim() == 2:
        rows, columns = (size in vectors for size in weight.shape)
        inputs = weight.shape[0] if (columns and not rows) or (written_out and columns == rows) else inputs
    spread = float(weight.detach().std()) * math.sqrt(inputs)
    if math.isfinite(spread) and _NARROWEST < spread < _WIDEST:
        return None
    return math.sqrt(2.0 / inputs)


def _recurrent(module: nn.Module) -> None:
    gates = (
        4
        if isinstance(module, nn.LSTM | nn.LSTMCell)
        else 3
        if isinstance(module, nn.GRU | nn.GRUCell)
        else 1
    )
    for name, parameter in nn.Module.named_parameters(module, recurse=False):
        if parameter.dim() < 2:
            parameter.zero_()
            if gates == 4 and "bias_ih" in name:
                size = parameter.shape[0] // 4
                parameter[size : 2 * size].fill_(1.0)
            continue
        for block in parameter.chunk(gates, dim=0):
            if "weight_hh" in name:
                nn.init.orthogonal_(block)
            else:
                nn.init.xavier_uniform_(block)


def is_bias_table(module: nn.Module) -> bool:
    """Whether a table holds one number per name: added to something as a bias is, it may start at zero as that does."""
    return isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.embedding_dim == 1


def _embedding(module: Any, *, tied: bool, small: bool) -> None:
    spread = float(module.weight.std()) if module.weight.numel() > 1 else 1.0
    narrow = spread <= 1e-3 and not is_bias_table(module)
    ordinary = math.isfinite(spread) and not narrow and spread < 3.0
    if not tied and (is_bias_table(module) if small else ordinary):
        return
    nn.init.normal_(module.weight, std=1.0 / math.sqrt(module.weight.shape[1]) if tied else 0.1)
    if module.padding_idx is not None:
        module.weight[module.padding_idx].zero_()


def _shared(model: nn.Module) -> set[int]:
    """The parameters that several modules hold."""
    holders: dict[int, int] = {}
    for module in model.modules():
        for parameter in parameters_of(module, recurse=False):
            holders[id(parameter)] = holders.get(id(parameter), 0) + 1
    return {key for key, count in holders.items() if count > 1}


@torch.no_grad()
def set_output_bias(anatomy: Anatomy, values: Tensor) -> str:
    """Start the last layer's bias at what a constant prediction would be."""
    heads = [use for use in anatomy.last_layers() if getattr(use.module, "bias", None) is not None]
    fitting = [use for use in heads if _size(use.module) == values.numel()]
    if len(fitting) != 1:
        raise Refused(f"{len(fitting)} output layers have a bias of {values.numel()} entries, one is needed")
    bias: Any = fitting[0].module.bias
    bias.copy_(values.to(bias))
    return f"bias of {fitting[0].name} at the prior"


def _size(module: Any) -> int:
    return int(module.bias.numel())
