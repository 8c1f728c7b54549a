"""How a model is put together, seen in one forward pass: layers and activations in order of use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from akeso.torch.activations import POWERS
from akeso.torch.surgery.activations import OUTPUT_ONLY, name_of_call, name_of_module

WEIGHTED: Final = (
    nn.Linear, nn.Bilinear, nn.Conv1d, nn.Conv2d, nn.Conv3d,
    nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
CONVOLUTIONS: Final = WEIGHTED[2:]
RECURRENT: Final = (nn.RNNBase, nn.RNNCellBase)
NORMS: Final = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm) + (
    (nn.RMSNorm,) if hasattr(nn, "RMSNorm") else ()
)
_GATES: Final = frozenset({"Sigmoid", "Hardsigmoid", "Tanh", "Softplus", "Exp", "Softmax", "LogSigmoid"})
_ONLY_DIRECT: Final = OUTPUT_ONLY | {"Exp", *POWERS.values()}
#: Backward nodes between an activation and the next layer that only arrange or gather its values.
_BETWEEN: Final = (
    "View",
    "UnsafeView",
    "Reshape",
    "Transpose",
    "Permute",
    "T",
    "MaxPool",
    "AvgPool",
    "Adaptive",
)
_MULTIPLICATIONS: Final = frozenset({torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__, Tensor.mul_})


class Treated(nn.Sequential):
    """What stands in the place of one activation after surgery, such as a norm and the activation."""


@dataclass(slots=True)
class Use:
    """One call of a layer with weights or a norm, in order."""

    name: str
    module: nn.Module
    order: int
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    input_id: int = 0
    output: Tensor | None = None  # of a last layer alone
    place: Any = None  # where it is called, as whoever looks tells places


@dataclass(slots=True)
class Site:
    """One place where an activation is applied.

    ``owner`` is the module in whose ``forward`` it happens and ``index`` counts its activation calls there;
    ``module`` is the qualified name of an activation module, empty for a function.
    """

    name: str
    kind: str
    owner: str
    index: int
    order: int
    shape: tuple[int, ...]
    module: str = ""
    role: str = "hidden"  # or "output", "gate"
    after: Use | None = None
    direct: bool = False  # its input is the very output of a layer or norm
    normalised: bool = False  # its input comes from a norm
    dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    place: Any = None  # where it is called, as whoever looks tells places


def once_each(sites: Iterable[Site]) -> list[Site]:
    """The sites without those that are the same place again, in a part of the model that is called more than once."""
    found: dict[tuple[str, int], Site] = {}
    for site in sites:
        found.setdefault((site.owner, site.index), site)
    return list(found.values())


@dataclass(slots=True)
class Anatomy:
    """What one forward pass showed."""

    uses: list[Use]
    sites: list[Site]
    output: Any

    @property
    def weighted(self) -> list[Use]:
        """The calls of layers with weights, in order."""
        return [use for use in self.uses if isinstance(use.module, WEIGHTED)]

    def hidden(self, kind: str | None = None) -> list[Site]:
        """The activation sites between layers, all or those of one kind."""
        return [site for site in self.sites if site.role == "hidden" and kind in (None, site.kind)]

    def outputs(self) -> list[Site]:
        """The activation sites after the last layer."""
        return [site for site in self.sites if site.role == "output"]

    def site_after(self, use: Use) -> Site | None:
        """The first activation after a layer and before the next layer with weights."""
        later = [other.order for other in self.weighted if other.order > use.order]
        end = min(later, default=1 << 60)
        for site in self.sites:
            if use.order < site.order < end and site.role != "gate":
                return site
        return None

    def activation_after(self, use: Use) -> str:
        """The kind of that activation."""
        site = self.site_after(use)
        return "none" if site is None else site.kind

    def last_layers(self) -> list[Use]:
        """The layers with weights whose output no other such layer takes: one per head."""
        return self._last

    _last: list[Use] = field(default_factory=list)


class _Seer(TorchFunctionMode):
    """Notes activation calls together with the module in which they happen."""

    def __init__(self, model: nn.Module, locate: Callable[[], Any]) -> None:
        super().__init__()
        self.locate = locate
        self.names = {id(module): name for name, module in model.named_modules()}
        self.frames: list[list[Any]] = []  # [owner name, activation calls so far, activation module or ""]
        self.uses: list[Use] = []
        self.sites: list[Site] = []
        self.results: list[tuple[Site, Tensor]] = []
        self.layer_inputs: list[tuple[Use, Tensor]] = []
        self.layer_outputs: list[tuple[Use, Tensor]] = []
        self.order = 0
        self.activation_modules = {
            id(module): name for module in model.modules() if (name := name_of_module(module)) is not None
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if func in _MULTIPLICATIONS:
            self._mark_gates(args)
        if func is Tensor.clone:
            return self._copied(args[0], func(*args, **options))
        kind = name_of_call(func, args, options)
        if kind is None or not self.frames or self.frames[-1][2]:
            return func(*args, **options)
        shape, dtype, device = tuple(args[0].shape), args[0].dtype, args[0].device
        site = self._site(kind, shape, dtype, device, args[0], "", getattr(func, "__name__", "f").rstrip("_"))
        result = func(*args, **options)
        self.results.append((site, result))
        return result

    def _copied(self, old: Tensor, new: Tensor) -> Tensor:
        """A copy of a layer's output is as good as the output."""
        self.layer_outputs += [(use, new) for use, output in self.layer_outputs if output is old]
        return new

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """A module of the tree is called."""
        name = self.names.get(id(module), "")
        kind = self.activation_modules.get(id(module))
        if self.frames and self.frames[-1][2] is not None:
            self._stands_in(name, kind)
            return
        if kind is not None and self.frames and args and isinstance(args[0], Tensor):
            value = args[0]
            site = self._site(kind, tuple(value.shape), value.dtype, value.device, value, name, name)
            self.frames.append([name, 0, site])
            return
        if isinstance(module, Treated) and self.frames:
            self.frames[-1][1] += 1  # it is one activation call of its owner
        self.frames.append([name, 0, None])

    def _stands_in(self, name: str, kind: str | None) -> None:
        """A module called within an activation is its successor at this place: an activation, or several parts."""
        site = self.frames[-1][2]
        if kind is None:
            self.sites.remove(site)
            self.frames[-1][2] = None
            self.frames.append([name, 0, None])
            return
        site.name, site.kind, site.module = name, kind, name
        self.frames.append([name, 0, site])

    def leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """A call of a module of the tree ended."""
        site = self.frames.pop()[2]
        if site is not None:
            if isinstance(output, Tensor):
                self.results.append((site, output))
            return
        if not isinstance(module, WEIGHTED + RECURRENT + NORMS):
            return
        value = next((arg for arg in args if isinstance(arg, Tensor)), None)
        result = (
            output if isinstance(output, Tensor) else next((o for o in output if isinstance(o, Tensor)), None)
        )
        if value is None or result is None:
            return
        name = self.names.get(id(module), "")
        use = Use(name, module, self._next(), tuple(value.shape), tuple(result.shape))
        use.place = self.locate()
        self.uses.append(use)
        self.layer_inputs.append((use, value))
        self.layer_outputs.append((use, result))

    def _next(self) -> int:
        self.order += 1
        return self.order

    def _site(
        self, kind: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, value: Tensor,
        module: str, label: str,
    ) -> Site:  # fmt: skip
        owner, index, _ = self.frames[-1]
        self.frames[-1][1] += 1
        after, direct, normalised = None, False, False
        for use, output in reversed(self.layer_outputs):
            if output is value:
                direct, normalised = True, isinstance(use.module, NORMS)
            if after is None and not isinstance(use.module, NORMS):
                after = use
            if after is not None:
                break
        name = label if module else ".".join(part for part in (owner, label) if part)
        taken = sum(1 for site in self.sites if site.name.split("#")[0] == name)
        site = Site(
            name if not taken else f"{name}#{taken + 1}", kind, owner, index, self._next(), shape, module,
            "hidden", after, direct, normalised, dtype, device, self.locate(),
        )  # fmt: skip
        self.sites.append(site)
        return site

    def _mark_gates(self, args: tuple[Any, ...]) -> None:
        """An activation that scales another tensor is a gate: another function there changes its meaning."""
        if len(args) < 2 or not all(isinstance(arg, Tensor) and arg.dim() > 0 for arg in args[:2]):
            return
        for site, result in self.results:
            if site.kind in _GATES and any(arg is result for arg in args[:2]):
                site.role = "gate"


def examine_model(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    locate: Callable[[], Any] = lambda: None,
) -> Anatomy:
    """Look at one forward pass of a model, which leaves no trace in weights, buffers, modes or randomness.

    ``locate`` is called at every layer and activation and says where that is.
    """
    seer = _Seer(model, locate)
    handles = []
    for module in model.modules():
        # Prepended and appended so that materialised activations are seen inside their owner's frame.
        handles.append(module.register_forward_pre_hook(seer.enter, prepend=True))
        handles.append(module.register_forward_hook(seer.leave))
    try:
        with untouched(model), torch.enable_grad(), seer:
            output = model(*args, **dict(kwargs or {}))
    finally:
        for handle in handles:
            handle.remove()
    anatomy = Anatomy(seer.uses, seer.sites, output)
    _assign_roles(anatomy, seer)
    return anatomy


def _assign_roles(anatomy: Anatomy, seer: _Seer) -> None:
    """An activation is hidden when a layer with weights takes what came of it, an output otherwise."""
    upstream: set[Any] = set()
    for use, value in seer.layer_inputs:
        if isinstance(use.module, WEIGHTED + RECURRENT):
            _collect(value.grad_fn, upstream)
    last_order = max(
        (use.order for use in anatomy.uses if isinstance(use.module, WEIGHTED + RECURRENT)), default=0
    )
    for site, result in seer.results:
        if site.role == "gate":
            continue
        known = result.grad_fn is not None
        feeds = result.grad_fn in upstream if known else site.order < last_order
        site.role = "hidden" if feeds else "output"
        # Softmax in attention and exponentials or squares in formulas are no activations of a layer.
        if site.role == "hidden" and site.kind in _ONLY_DIRECT and not site.direct:
            site.role = "gate"
        # A power is an activation where it comes right after a layer and goes on to the next: norms have them too.
        if site.kind in POWERS.values() and not site.module and not (site.direct and _goes_on(result, seer)):
            site.role = "gate"
    for use, value in seer.layer_outputs:
        ends = value.grad_fn not in upstream if value.grad_fn is not None else use.order == last_order
        if isinstance(use.module, WEIGHTED) and ends:
            use.output = value.detach()
            anatomy._last.append(use)


def _goes_on(result: Tensor, seer: _Seer) -> bool:
    """Whether a layer or norm takes the very values, in whatever form."""
    for _, value in seer.layer_inputs:
        node = value.grad_fn
        while (
            node is not None
            and node is not result.grad_fn
            and type(node).__name__.startswith(_BETWEEN)
            and node.next_functions
        ):
            node = node.next_functions[0][0]
        if value is result or (node is not None and node is result.grad_fn):
            return True
    return False


def _collect(node: Any, seen: set[Any]) -> None:
    pending = [node]
    while pending:
        current = pending.pop()
        if current is None or current in seen:
            continue
        seen.add(current)
        pending.extend(parent for parent, _ in current.next_functions)


@contextlib.contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Run a model in evaluation mode and leave no trace in its buffers, its modes or the random state."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    cuda = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    try:
        with torch.random.fork_rng(devices=cuda):
            for module, _ in modes:
                module.training = False
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        current = dict(model.named_buffers())
        with torch.no_grad():
            for name, value in buffers.items():
                if name in current and current[name].shape == value.shape:
                    current[name].copy_(value)
