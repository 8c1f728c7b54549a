"""Readings per activation site: what a sampled forward pass does to the signal on its way through."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from akeso.torch.keras import layers as keras
from akeso.torch.mailbox import Tag

Items = list[tuple[Tag, torch.Tensor]]

#: Entries of one output that are looked at; more say nothing new and cost time.
_ENTRIES = 1 << 17
#: Batches after which a window of "was this unit ever active" is closed and the next one begins.
_WINDOW = 6

#: Functions that are activations, by the name under which torch dispatches them.
ACTIVATIONS: Final[dict[str, str]] = {
    "relu": "ReLU", "relu_": "ReLU", "relu6": "ReLU6", "leaky_relu": "LeakyReLU", "leaky_relu_": "LeakyReLU",
    "prelu": "PReLU", "rrelu": "RReLU", "elu": "ELU", "elu_": "ELU", "selu": "SELU", "selu_": "SELU",
    "celu": "CELU", "gelu": "GELU", "silu": "SiLU", "mish": "Mish", "softplus": "Softplus",
    "softsign": "Softsign", "sigmoid": "Sigmoid", "sigmoid_": "Sigmoid", "tanh": "Tanh", "tanh_": "Tanh",
    "hardtanh": "Hardtanh", "hardsigmoid": "Hardsigmoid", "hardswish": "Hardswish", "logsigmoid": "LogSigmoid",
    "exp": "Exp", "threshold": "Threshold",
}  # fmt: skip
#: Powers that stand for an activation where they come right after a layer, by their exponent.
POWERS: Final[dict[float, str]] = {2: "Square", 3: "Cube", 4: "Fourth"}
#: How they are spelt.
POWER_CALLS: Final = frozenset({"pow", "pow_", "__pow__", "square", "square_"})
#: Those whose units can be exactly zero for good.
CAN_DIE: Final = frozenset({"ReLU", "ReLU6", "Threshold"})
#: Those with flat ends, and the values beyond which they are flat.
_FLAT: Final[dict[str, tuple[float, float]]] = {
    "Sigmoid": (0.01, 0.99),
    "Tanh": (-0.99, 0.99),
    "Softsign": (-0.9, 0.9),
}
#: Layers whose output is read where no activation or norm behind them shows the same signal.
_LEAVES = (
    nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd, nn.RNNBase, nn.RNNCellBase, nn.Embedding, nn.EmbeddingBag,
    nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.MultiheadAttention,
)  # fmt: skip


_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)


def clamped_to(low: Any, high: Any) -> str | None:
    """What cutting values off on both sides stands for: a hard way to "probabilities" or "signs", or neither."""
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return None
    if low == -1 and high == 1:
        return "signs"
    return "probabilities" if 0 <= low < 0.01 and 0.99 < high <= 1 else None


def is_leaf(module: nn.Module) -> bool:
    """Whether the module is a layer whose output is read as such."""
    return isinstance(module, _LEAVES) or (keras.is_layer(module) and keras.is_read(module))


@dataclass(slots=True)
class _Window:
    active: torch.Tensor | None = None
    previous: torch.Tensor | None = None
    batches: int = 0


def first_tensor(value: Any) -> torch.Tensor | None:
    """The first tensor in what a module returned or was given."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            found = first_tensor(part)
            if found is not None:
                return found
    return None


def thin(tensor: torch.Tensor, entries: int = _ENTRIES) -> torch.Tensor:
    """A part of ``tensor`` with about ``entries`` entries: fewer samples first, then fewer of the rest."""
    count = tensor.numel()
    if count <= entries or tensor.dim() == 0:
        return tensor
    rows = tensor.shape[0]
    keep = max(2, min(rows, entries * rows // count))
    tensor = tensor[:: max(1, rows // keep)][:keep]
    for dim in range(tensor.dim() - 1, 0, -1):
        if tensor.numel() <= 4 * entries:
            break
        stride = min(tensor.shape[dim], math.ceil(tensor.numel() / entries))
        tensor = tensor[(slice(None),) * dim + (slice(None, None, stride),)]
    return tensor


def sample(tensor: torch.Tensor, rows: int = 32, entries: int = 8192) -> torch.Tensor:
    """A small part of ``tensor`` for moments: some samples, evenly spaced entries of each."""
    count = len(tensor)
    if count > rows:
        tensor = tensor[:: count // rows][:rows]
    if tensor.numel() > entries:
        stride = math.ceil(tensor.numel() / entries)
        if tensor.dim() < 2:
            return tensor[::stride]
        if not tensor[0].is_contiguous():
            return _spaced(tensor, stride)  # to flatten it would copy all of it
        return tensor.flatten(1)[:, ::stride]
    return tensor.flatten(1) if tensor.dim() > 2 else tensor


def _spaced(tensor: torch.Tensor, stride: int) -> torch.Tensor:
    """``tensor.flatten(1)[:, ::stride]``, without the flattening."""
    places = torch.arange(0, math.prod(tensor.shape[1:]), stride, device=tensor.device)
    at: tuple[torch.Tensor, ...] = ()
    for size in reversed(tensor.shape[1:]):
        at = (places % size, *at)
        places = torch.div(places, size, rounding_mode="floor")
    index: list[slice | torch.Tensor] = [slice(None), *at]
    return tensor[tuple(index)]


def _as_stored(tensor: torch.Tensor) -> torch.Tensor:
    """The same entries in the order of memory, for what does not mind: nothing has to be copied then."""
    if tensor.is_contiguous():
        return tensor
    strides = tensor.stride()
    return tensor.permute(sorted(range(tensor.dim()), key=lambda dim: -strides[dim]))


class Sites:
    """The activation sites of the models, read one forward pass at a time."""

    def __init__(self, limit: int = 96) -> None:
        self._limit = limit
        self._windows: dict[str, _Window] = {}
        self._calls: dict[str, int] = {}
        self._last_convolutional = False
        self._pending: tuple[str, torch.Tensor] | None = None
        self._shown = 0  # where the output of the last activation lies
        self.kinds: dict[str, str] = {}  # site → activation, in order of first use
        self.order: list[str] = []
        self.items: Items = []
        self.left_out = 0

    def begin(self) -> None:
        """A new forward pass begins."""
        self._calls.clear()
        self._pending = None

    def take(self) -> Items:
        """What the pass has given since the last call."""
        self.settle()
        items, self.items = self.items, []
        return items

    def _site(self, name: str) -> str | None:
        """The name of this call's site: modules used several times in a pass get a number from the second on."""
        count = self._calls.get(name, 0) + 1
        self._calls[name] = count
        site = name if count == 1 else f"{name}#{count}"
        if site not in self._windows:
            if len(self._windows) >= self._limit:
                self.left_out += 1
                return None
            self._windows[site] = _Window()
            self.order.append(site)
        return site

    def layer(self, name: str, module: nn.Module, output: Any) -> None:
        """A layer with parameters has given its output."""
        self._last_convolutional = isinstance(module, nn.modules.conv._ConvNd) or (
            self._last_convolutional and isinstance(module, nn.modules.batchnorm._NormBase)
        )
        tensor = first_tensor(output)
        if tensor is None or not tensor.is_floating_point() or tensor.numel() == 0:
            return
        if tensor.data_ptr() == self._shown:
            return  # a layer of Keras has its activation inside
        if isinstance(module, _NORMS) or (keras.is_layer(module) and keras.role_of(module) == "norm"):
            self._pending = None  # a normalised layer is read behind its norm
        self.settle()
        site = self._site(name)
        if site is not None:
            self._pending = (site, tensor.detach())

    def fed(self, name: str, tensor: torch.Tensor) -> None:
        """A layer is fed with what nothing trained has made: data, as it comes out of the model's own preparations."""
        if name in self._calls or not tensor.is_floating_point() or tensor.numel() < 2:
            return
        part = sample(tensor.detach()).float()
        self.items.append((("act_fed", name), part.square().mean()))
        if tensor.dim() == 2 and len(part) > 3 and part.shape[1] > 1:
            spreads = part.std(0)
            # What never changes in a batch, as words that hardly any sample holds or the state that a recurrence begins
            # with, is not what is typical.
            typical = torch.where(spreads > 0, spreads, torch.nan).nanmedian()
            self.items.append((("act_fed_spread", name), spreads.max() / typical))

    def settle(self) -> None:
        """Read the last layer after all: no activation has followed that shows the same signal."""
        if self._pending is not None:
            site, tensor = self._pending
            self._pending = None
            self._common(site, thin(tensor))

    def activation(
        self, owner: str, module_is_activation: bool, function: str, output: Any, *, units_last: bool = False
    ) -> None:
        """An activation function has given its output, called by the module ``owner``."""
        tensor = first_tensor(output)
        if tensor is None or not tensor.is_floating_point() or tensor.numel() == 0:
            return
        kind = ACTIVATIONS[function]
        if kind == "Exp" and not module_is_activation and tensor.dim() < 2:
            return  # exp of a scalar is arithmetic
        name = owner if module_is_activation and owner else f"{owner}.{function}" if owner else function
        self._pending = None  # what the layer before gave is seen here
        site = self._site(name)
        if site is None:
            return
        self.kinds.setdefault(site, kind)
        self._shown = tensor.data_ptr()
        tensor = thin(tensor.detach())
        self._common(site, tensor)
        if kind in CAN_DIE:
            self._dead(site, tensor, units_last)
        elif kind in _FLAT:
            low, high = _FLAT[kind]
            flat = ((tensor < low) | (tensor > high)).float().mean()
            self.items.append((("act_saturated", site), flat))

    def power(self, owner: str, function: str, args: tuple[Any, ...], output: Any) -> None:
        """A power was taken; of the very output of the last layer it may be an activation, else it is arithmetic."""
        exponent = args[1] if len(args) > 1 else 2 if "square" in function else None
        given, pending = first_tensor(args[:1]), self._pending
        if (
            pending is None
            or given is None
            or not isinstance(exponent, int | float)
            or exponent not in POWERS
        ):
            return
        if given.dim() < 2 or given.shape != pending[1].shape or given.data_ptr() != pending[1].data_ptr():
            return
        tensor = first_tensor(output)
        self.settle()  # a norm written out begins like this too: what the layer gave is read all the same
        site = self._site(f"{owner}.{function}" if owner else function)
        if site is not None and tensor is not None:
            self.kinds.setdefault(site, POWERS[exponent])
            self._common(site, thin(tensor.detach()))

    def _common(self, site: str, tensor: torch.Tensor) -> None:
        if tensor.dtype in (torch.float16, torch.bfloat16):
            tensor = tensor.float()
        if tensor.dim() == 0 or tensor.numel() < 2:
            return
        low, high = torch.aminmax(_as_stored(tensor))
        part = sample(tensor)
        var, mean = torch.var_mean(part, correction=0)
        self.items += [
            (("act_min", site), low), (("act_max", site), high), (("act_var", site), var), (("act_mean", site), mean)
        ]  # fmt: skip
        if part.dim() > 1 and len(part) > 1:
            self.items.append((("act_between", site), part.var(0, correction=0).mean()))

    def _dead(self, site: str, tensor: torch.Tensor, units_last: bool) -> None:
        if tensor.dim() < 2:
            return
        second = tensor.dim() in (2, 4, 5) or (tensor.dim() == 3 and self._last_convolutional)
        unit = (-1 if units_last or not second else 1) % tensor.dim()
        live = tensor != 0
        self.items.append((("act_nonzero", site), live.float().mean()))
        active = live.any(0)
        # the remaining dimensions, unit excepted, are positions of the same unit
        while active.dim() > 1:
            active = active.any(1 if unit == 1 else 0)
        window = self._windows[site]
        if window.previous is not None and window.previous.shape != active.shape:
            window.previous = None
        if window.active is None or window.active.shape != active.shape:
            window.active, window.batches = active, 0
        else:
            window.active = window.active | active
        window.batches += 1
        seen = window.active if window.previous is None else window.active | window.previous
        self.items.append((("act_alive", site), seen.float().mean()))
        if window.batches >= _WINDOW:
            window.previous, window.active, window.batches = window.active, None, 0


def readings_of(delivery: dict[Any, Any]) -> dict[str, dict[str, float]]:
    """The delivered raw numbers of a pass as readings by signal and scope."""
    out: dict[str, dict[str, float]] = {}

    def put(signal: str, site: str, value: float) -> None:
        out.setdefault(signal, {})[site] = value

    for (signal, site), value in delivery.items():
        if signal == "act_var":
            put("act_std", site, math.sqrt(value) if value >= 0 else math.nan)
        elif signal == "act_max":
            low = delivery[("act_min", site)]
            put("act_linf", site, max(abs(low), abs(value)))
            put("act_nonfinite", site, float(not (math.isfinite(low) and math.isfinite(value))))
        elif signal == "act_nonzero":
            put("act_zero", site, 1.0 - value)
        elif signal == "act_alive":
            put("act_dead", site, 1.0 - value)
        elif signal == "act_between":
            total = delivery[("act_var", site)] + delivery[("act_mean", site)] ** 2
            if total > 0 and math.isfinite(total) and math.isfinite(value):
                put("act_sample_std", site, math.sqrt(value / total))
        elif signal == "act_fed":
            put("fed_size", site, math.sqrt(value) if value >= 0 else math.nan)
        elif signal == "act_fed_spread":
            put("fed_spread", site, value)
        elif signal in ("act_mean", "act_saturated"):
            put(signal, site, value)
    return out
