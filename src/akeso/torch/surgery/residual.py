"""Residual connections around layers that keep the shape, in deep stacks of such layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from akeso.errors import Refused
from akeso.torch.surgery.anatomy import WEIGHTED, Anatomy, Use

#: Fewer layers in a row need no shortcut.
SHORTEST_STACK = 3


def add_residual(model: nn.Module, anatomy: Anatomy) -> tuple[str, list[nn.Parameter]]:
    """Let every layer of a stack add to its input instead of replacing it.

    The layer's own part is scaled by a learned number that starts at one over the length of the stack, so
    that the sum neither grows nor fades however deep the stack is.
    """
    stacks = [stack for stack in _stacks(anatomy) if len(stack) >= SHORTEST_STACK]
    if not stacks:
        raise Refused(f"there are no {SHORTEST_STACK} layers of equal width in a row")
    new: list[nn.Parameter] = []
    for stack in stacks:
        for use in stack:
            module = use.module
            if hasattr(module, "akeso_gain"):
                raise Refused(f"{use.name} has a residual connection already")
            weight = next(module.parameters())
            gain = nn.Parameter(torch.full((), 1.0 / len(stack), dtype=weight.dtype, device=weight.device))
            module.register_parameter("akeso_gain", gain)
            module.register_forward_hook(_AddInput())
            new.append(gain)
    return f"residual connections around {sum(map(len, stacks))} layers", new


class _AddInput:
    """Adds a layer's input to its scaled output."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        value = args[0]
        if not isinstance(output, Tensor) or value.shape != output.shape:
            return None
        gain: Any = module.akeso_gain
        return value + gain * output


def _stacks(anatomy: Anatomy) -> list[list[Use]]:
    """Runs of different layers that keep the shape and are each followed by an activation."""
    stacks: list[list[Use]] = [[]]
    seen: set[int] = set()
    for use in anatomy.weighted:
        keeps = use.input_shape == use.output_shape and isinstance(use.module, WEIGHTED)
        once = id(use.module) not in seen
        seen.add(id(use.module))
        if keeps and once and anatomy.activation_after(use) not in ("none", "Softmax", "LogSoftmax"):
            if stacks[-1] and stacks[-1][-1].output_shape != use.input_shape:
                stacks.append([])
            stacks[-1].append(use)
        else:
            stacks.append([])
    return stacks
