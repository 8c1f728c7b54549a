"""Activation functions by name, however they are written: module, function, tensor method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from akeso.errors import BadInput
from akeso.torch.activations import POWERS, clamped_to


class Exp(nn.Module):
    """The exponential, which torch has only as a function."""

    def forward(self, value: Tensor) -> Tensor:
        """The exponential of every entry."""
        return torch.exp(value)


class Square(nn.Module):
    """The square, which torch has only as a function."""

    def forward(self, value: Tensor) -> Tensor:
        """The square of every entry."""
        return torch.square(value)


class Cube(nn.Module):
    """The third power, which torch has only as a function."""

    def forward(self, value: Tensor) -> Tensor:
        """The third power of every entry."""
        return value**3


class Fourth(nn.Module):
    """The fourth power, which torch has only as a function."""

    def forward(self, value: Tensor) -> Tensor:
        """The fourth power of every entry."""
        return value**4


_CLASSES: Final[dict[str, Callable[[], nn.Module]]] = {
    "ReLU": nn.ReLU,
    "LeakyReLU": nn.LeakyReLU,
    "ELU": nn.ELU,
    "SELU": nn.SELU,
    "CELU": nn.CELU,
    "GELU": nn.GELU,
    "SiLU": nn.SiLU,
    "Mish": nn.Mish,
    "Sigmoid": nn.Sigmoid,
    "Tanh": nn.Tanh,
    "Softplus": nn.Softplus,
    "Softsign": nn.Softsign,
    "Hardtanh": nn.Hardtanh,
    "ReLU6": nn.ReLU6,
    "Hardswish": nn.Hardswish,
    "Hardsigmoid": nn.Hardsigmoid,
    "LogSigmoid": nn.LogSigmoid,
    "Tanhshrink": nn.Tanhshrink,
    "PReLU": nn.PReLU,
    "RReLU": nn.RReLU,
    "Exp": Exp,
    "Square": Square,
    "Cube": Cube,
    "Fourth": Fourth,
    "UnitClamp": lambda: nn.Hardtanh(0.0, 1.0),
    "SignedClamp": nn.Hardtanh,
    "Identity": nn.Identity,
    "none": nn.Identity,
    "Softmax": lambda: nn.Softmax(dim=-1),
    "LogSoftmax": lambda: nn.LogSoftmax(dim=-1),
}

#: Functions that belong at an output or in a formula, as the softmax of attention: no activations between layers,
#: unless they stand right behind one.
OUTPUT_ONLY: Final = frozenset({"Softmax", "LogSoftmax", "Softmin", "LogSigmoid", "UnitClamp", "SignedClamp"})

_MODULES: Final[dict[type, str]] = {
    getattr(nn, name): name
    for name in (
        "ReLU",
        "LeakyReLU",
        "ELU",
        "SELU",
        "CELU",
        "GELU",
        "SiLU",
        "Mish",
        "Sigmoid",
        "Tanh",
        "Softplus",
        "Softsign",
        "Hardtanh",
        "ReLU6",
        "Hardswish",
        "Hardsigmoid",
        "LogSigmoid",
        "Tanhshrink",
        "PReLU",
        "RReLU",
        "Softmax",
        "LogSoftmax",
        "Softmin",
    )
} | {Exp: "Exp", Square: "Square", Cube: "Cube", Fourth: "Fourth"}


def _functions() -> dict[Any, str]:
    """Every function under which torch offers an activation, for modes that see calls."""
    spellings = {
        "relu": "ReLU",
        "relu_": "ReLU",
        "leaky_relu": "LeakyReLU",
        "leaky_relu_": "LeakyReLU",
        "elu": "ELU",
        "elu_": "ELU",
        "selu": "SELU",
        "selu_": "SELU",
        "celu": "CELU",
        "celu_": "CELU",
        "gelu": "GELU",
        "silu": "SiLU",
        "mish": "Mish",
        "sigmoid": "Sigmoid",
        "sigmoid_": "Sigmoid",
        "tanh": "Tanh",
        "tanh_": "Tanh",
        "softplus": "Softplus",
        "softsign": "Softsign",
        "hardtanh": "Hardtanh",
        "hardtanh_": "Hardtanh",
        "relu6": "ReLU6",
        "hardswish": "Hardswish",
        "hardsigmoid": "Hardsigmoid",
        "logsigmoid": "LogSigmoid",
        "tanhshrink": "Tanhshrink",
        "rrelu": "RReLU",
        "rrelu_": "RReLU",
        "exp": "Exp",
        "exp_": "Exp",
        "softmax": "Softmax",
        "log_softmax": "LogSoftmax",
        "clamp": "ReLU",
        "clamp_min": "ReLU",
        "clamp_": "ReLU",
        "clip": "ReLU",
        "clip_": "ReLU",
        "expit": "Sigmoid",
        "square": "Square",
        "pow": "Power",
        "pow_": "Power",
        "__pow__": "Power",
        "__ipow__": "Power",
    }
    table: dict[Any, str] = {}
    for place in (F, torch, Tensor, torch.special):
        for spelling, name in spellings.items():
            function = getattr(place, spelling, None)
            if function is not None:
                table[function] = name
    return table


FUNCTIONS: Final = _functions()
_CLAMPS: Final = frozenset(
    getattr(place, name)
    for place in (torch, Tensor)
    for name in ("clamp", "clamp_min", "clamp_", "clip", "clip_")
    if hasattr(place, name)
)


def make(name: str) -> nn.Module:
    """A fresh module of the activation with this name."""
    if name not in _CLASSES:
        raise BadInput(f"There is no activation {name!r}. Known: {', '.join(sorted(_CLASSES))}.")
    return _CLASSES[name]()


def name_of_call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The activation that a call of a torch function stands for, or None."""
    name = FUNCTIONS.get(function)
    if name is None or not args or not isinstance(args[0], Tensor) or not args[0].is_floating_point():
        return None
    if function in _CLAMPS:
        low = args[1] if len(args) > 1 else kwargs.get("min")
        high = args[2] if len(args) > 2 else kwargs.get("max")
        return _clamp(args[0], low, high)
    if name == "Power":
        exponent = args[1] if len(args) > 1 else kwargs.get("exponent")
        if not isinstance(exponent, int | float) or args[0].dim() < 2 or isinstance(args[0], nn.Parameter):
            return None
        return POWERS.get(exponent)
    return name


def _clamp(value: Tensor, low: Any, high: Any) -> str | None:
    """The activation that cutting values off stands for: a ReLU, or a hard way to probabilities or signs."""
    if not isinstance(low, int | float):
        return None
    if high is None:
        return "ReLU" if low == 0 else None
    if value.dim() < 2 or isinstance(value, nn.Parameter):
        return None
    return {"signs": "SignedClamp", "probabilities": "UnitClamp"}.get(clamped_to(low, high) or "")


def changes_in_place(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the call also writes to its argument."""
    name = getattr(function, "__name__", "")
    if name == "__ipow__" or (name.endswith("_") and not name.endswith("__")):
        return True
    return bool(kwargs.get("inplace", False))


def name_of_module(module: nn.Module) -> str | None:
    """The activation that a module is, by its type or, for a class of the user's own, by what it does."""
    known = _MODULES.get(type(module))
    if known is not None:
        return known
    if (
        type(module).__module__.startswith("torch.")
        or any(True for _ in module.children())
        or any(True for _ in module.parameters())
    ):
        return None
    return type(module).__name__ if _is_pointwise(module) else None


def _is_pointwise(module: nn.Module) -> bool:
    """Whether a module without parameters maps every entry by itself, nonlinearly and always alike."""
    value = torch.linspace(-2.0, 2.0, 24).reshape(4, 6)
    order = torch.tensor([2, 0, 3, 1])
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            first, again = module(value.clone()), module(value.clone())
            turned = module(value[order].clone())
            mirrored, double = module(value.flip(1)), module(2 * value)
    except Exception:
        return False
    if not all(
        isinstance(out, Tensor) and out.shape == value.shape
        for out in (first, again, turned, mirrored, double)
    ):
        return False
    alike = torch.equal(first, again) and torch.allclose(turned, first[order])
    return bool(alike and torch.allclose(mirrored, first.flip(1)) and not torch.allclose(double, 2 * first))
