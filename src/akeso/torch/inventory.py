"""The layers of a model as they were when first trained: shapes, roles, initial weights."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

import torch

from akeso.history import BARE, Layer, Parameter
from akeso.torch.activations import ACTIVATIONS
from akeso.torch.groups import leading
from akeso.torch.keras import layers as keras
from akeso.torch.mailbox import Delivery, Tag
from akeso.torch.naming import Names, parameters_of, role_of

Items = list[tuple[Tag, torch.Tensor]]
#: Variance over squared mean that is rounding: both come in single precision, and one is the other's difference.
_ROUNDING = 1e-5
_ACTIVATION_NAMES = frozenset(ACTIVATIONS.values()) | {"Softmax", "LogSoftmax"}


def bare(names: Names, optimizers: Iterable[torch.optim.Optimizer]) -> list[tuple[str, torch.Tensor]]:
    """The tensors of a script that makes its network of nothing else; none where there is any module."""
    if names.labels:
        return []
    given = [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    return [(names.parameter(tensor), tensor) for tensor in given if tensor.requires_grad and tensor.numel()]


def initial_items(parameters: Iterable[torch.Tensor]) -> Items:
    """Norm and mean of parameters, to be sent before the first step changes them.

    They are told apart by what they are and not by their names, which change as more of a model is seen.
    """
    found = [(str(id(parameter)), parameter.detach()) for parameter in parameters if parameter.numel()]
    if not found:
        return []
    norms = torch._foreach_norm([tensor for _, tensor in found])
    items: Items = []
    for (which, tensor), norm in zip(found, norms, strict=True):
        items += [(("norm", which), norm.float()), (("mean", which), tensor.float().mean())]
    return items


def layers_of(
    names: Names,
    optimized: Collection[int],
    first_use: Mapping[str, int],
    initial: Delivery,
    seen: Collection[str],
    tensors: Iterable[tuple[str, torch.Tensor]] = (),
) -> list[Layer]:
    """Every module with parameters, an activation or dropout, in order of use; bare tensors as layers of their own."""
    layers = [
        Layer(name, BARE, index, (_parameter(name, tensor, True, initial),), role="tensor")
        for index, (name, tensor) in enumerate(tensors)
    ]
    last_output = max(
        (module_order(name, index, first_use) for index, (name, module) in enumerate(names.modules())
         if role_of(module) in ("linear", "convolution")),
        default=-1.0,
    )  # fmt: skip
    for index, (name, module) in enumerate(names.modules()):
        own = [
            _parameter(names.parameter(parameter), parameter, id(parameter) in optimized, initial, module)
            for parameter in parameters_of(module, recurse=False)
            if parameter.numel()  # some models keep an empty one, to know their device by
        ]
        kind = type(module).__name__
        activation = kind in _ACTIVATION_NAMES
        if not own and not activation and not role_of(module):
            continue
        order = module_order(name, index, first_use)
        role = "activation" if activation else role_of(module)
        if order == last_output and role in ("linear", "convolution"):
            role = "output"
        layers.append(Layer(name, kind, int(order), tuple(own), name in first_use or name in seen, role))
    return sorted(layers, key=lambda layer: layer.order)


def module_order(name: str, index: int, first_use: Mapping[str, int]) -> float:
    """Place of a module in the forward pass; those never seen running come after, in order of definition."""
    return float(first_use.get(name, 1_000_000 + index))


def _parameter(
    name: str,
    parameter: torch.Tensor,
    optimized: bool,
    initial: Delivery,
    module: torch.nn.Module | None = None,
) -> Parameter:
    which = str(id(parameter))
    mean = float(initial.get(("mean", which), 0.0))
    norm = float(initial.get(("norm", which), 0.0))
    variance = norm * norm / max(parameter.numel(), 1) - mean * mean
    return Parameter(
        name,
        keras.shape_of(module, parameter)
        if module is not None and keras.is_layer(module)
        else tuple(parameter.shape),
        str(parameter.dtype).removeprefix("torch."),
        parameter.requires_grad,
        optimized,
        mean,
        math.sqrt(variance) if variance > _ROUNDING * mean * mean else 0.0,
    )


def optimizer_facts(optimizer: torch.optim.Optimizer) -> dict[str, object]:
    """Name and settings of an optimizer."""
    group = leading(optimizer)
    facts: dict[str, object] = {
        "name": getattr(optimizer, "kind", type(optimizer).__name__),
        "parameters": sum(len(part["params"]) for part in optimizer.param_groups),
    }
    if hasattr(optimizer, "framework"):
        facts["framework"] = optimizer.framework
    for key in ("lr", "momentum", "weight_decay", "eps", "alpha", "nesterov", "amsgrad"):
        value = group.get(key)
        if isinstance(value, torch.Tensor):
            value = value.item()
        if isinstance(value, int | float):
            facts[key] = value
    betas = group.get("betas")
    if isinstance(betas, tuple) and all(isinstance(beta, float) for beta in betas):
        facts["betas"] = list(betas)
    return facts
