"""Residual connections around layers that keep the shape, in deep stacks of such layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from akeso.errors import Refused
from akeso.torch.surgery.anatomy import WEIGHTED, Anatomy, Site, Treated, Use
from akeso.torch.surgery.substitution import module_names

#: Fewer layers in a row need no shortcut.
SHORTEST_STACK = 3


def add_residual(model: nn.Module, anatomy: Anatomy) -> tuple[str, list[nn.Parameter]]:
    """Let every layer of a stack, its activation included, add to its input instead of replacing it.

    The sum stands behind the activation: a function on the shortcut itself could shut it. The layer's own part
    is scaled by a learned number that starts at one over the length of the stack, so that the sum neither grows
    nor fades however deep the stack is.
    """
    stacks = [stack for stack in _stacks(anatomy) if len(stack) >= SHORTEST_STACK]
    if not stacks:
        raise Refused(f"there are no {SHORTEST_STACK} layers of equal width in a row")
    taken = [use.name for stack in stacks for use, _ in stack if hasattr(use.module, "akeso_gain")]
    if taken:
        raise Refused(f"{taken[0]} has a residual connection already")
    new: list[nn.Parameter] = []
    for stack in stacks:
        names = module_names(model, [site for _, site in stack], anatomy.sites, one_each=True)
        for (use, _), name in zip(stack, names, strict=True):
            new.append(_connect(use.module, _whole(model, name), 1.0 / len(stack)))
    return f"residual connections around {len(new)} layers", new


def _connect(layer: nn.Module, activation: nn.Module, start: float) -> nn.Parameter:
    weight = next(layer.parameters())
    gain = nn.Parameter(torch.full((), start, dtype=weight.dtype, device=weight.device))
    layer.register_parameter("akeso_gain", gain)
    shortcut = _Shortcut(layer)
    layer.register_forward_pre_hook(_Remember(shortcut))
    activation.register_forward_hook(_Add(shortcut))
    return gain


def _whole(model: nn.Module, name: str) -> nn.Module:
    """The module in an activation's place, together with the norm that surgery has put in front of it."""
    parent = name.rpartition(".")[0]
    found = model.get_submodule(parent) if parent else None
    return found if isinstance(found, Treated) else model.get_submodule(name)


class _Shortcut:
    """Carries a layer's input past the layer; models are copied and saved without what is on its way."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer
        self.value: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"layer": self.layer, "value": None}


class _Remember:
    """Before the layer: its input goes on the shortcut."""

    def __init__(self, shortcut: _Shortcut) -> None:
        self.shortcut = shortcut

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self.shortcut.value = args[0] if args and isinstance(args[0], Tensor) else None


class _Add:
    """After the activation: the layer's input and its scaled output come together."""

    def __init__(self, shortcut: _Shortcut) -> None:
        self.shortcut = shortcut

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        value, self.shortcut.value = self.shortcut.value, None
        if value is None or not isinstance(output, Tensor) or value.shape != output.shape:
            return None
        gain: Any = self.shortcut.layer.akeso_gain
        return value + gain * output


def _stacks(anatomy: Anatomy) -> list[list[tuple[Use, Site]]]:
    """Runs of different layers that keep the shape, each with the activation that follows it."""
    stacks: list[list[tuple[Use, Site]]] = [[]]
    seen: set[int] = set()
    for use in anatomy.weighted:
        keeps = use.input_shape == use.output_shape and isinstance(use.module, WEIGHTED)
        once = id(use.module) not in seen
        seen.add(id(use.module))
        site = anatomy.site_after(use)
        if keeps and once and site is not None and site.role == "hidden":
            if stacks[-1] and stacks[-1][-1][0].output_shape != use.input_shape:
                stacks.append([])
            stacks[-1].append((use, site))
        else:
            stacks.append([])
    return stacks
