"""A model that gives what its last layer gives, whatever it did with that before.

Some functions at an output cannot be told by name or taken off one by one: a rounding, a normalisation, a formula.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn

from akeso.errors import Refused
from akeso.torch.surgery.activations import make
from akeso.torch.surgery.anatomy import Anatomy

NAME = "akeso_output"


def bypass(model: nn.Module, anatomy: Anatomy, new: str) -> str:
    """Let the model return its last layer's output through the function ``new``; say what was done."""
    last = anatomy.last_layers()
    if len(last) != 1 or last[0].output is None:
        raise Refused(
            f"the model has {len(last)} last layers, one is needed to tell what its output comes from"
        )
    if not isinstance(anatomy.output, Tensor):
        raise Refused("the model's output is not one tensor")
    raw = last[0].output
    if raw.numel() != anatomy.output.numel():
        raise Refused(
            f"the last layer gives {tuple(raw.shape)} and the model {tuple(anatomy.output.shape)}: these do not pair up"
        )
    if new in ("none", "Identity") and raw.reshape(anatomy.output.shape).equal(anatomy.output):
        raise Refused("nothing stands between the last layer and the output")
    if hasattr(model, NAME):
        raise Refused("the output was changed already")
    function = make(new)
    function.train(model.training)
    passed = _Passed()
    last[0].module.register_forward_hook(_Keep(passed))
    if isinstance(model, nn.Sequential):
        model.__dict__[NAME] = function  # a sequence runs all modules that it holds
    else:
        model.add_module(NAME, function)
    model.register_forward_hook(_Answer(passed))
    return f"the output of {last[0].name or 'the last layer'} is what the model gives" + (
        "" if new in ("none", "Identity") else f", through {new}"
    )


def output_function(anatomy: Anatomy) -> str:
    """The name of the one function that a model applies to what its last layer gives; empty where it does more."""
    last, sites = anatomy.last_layers(), anatomy.outputs()
    if len(last) != 1 or len(sites) != 1 or last[0].output is None or not isinstance(anatomy.output, Tensor):
        return ""
    given = make(sites[0].kind).eval()(last[0].output)
    same = given.shape == anatomy.output.shape and torch.allclose(given, anatomy.output, atol=1e-6)
    return sites[0].kind if same else ""


class _Passed:
    """What the last layer gave in the pass that is under way, for each thread."""

    def __init__(self) -> None:
        self.values: dict[int, Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.values = {}


class _Keep:
    """Keeps the output of the last layer."""

    def __init__(self, passed: _Passed) -> None:
        self.passed = passed

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        self.passed.values[threading.get_ident()] = output


class _Answer:
    """Answers for the model with it."""

    def __init__(self, passed: _Passed) -> None:
        self.passed = passed

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        raw = self.passed.values.pop(threading.get_ident(), None)
        if raw is None or not isinstance(output, Tensor) or raw.numel() != output.numel():
            return None
        return getattr(module, NAME)(raw).reshape(output.shape)
