"""Modules in front of a model and behind it, held by the model itself."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


def attach_front(model: nn.Module, name: str, new: nn.Module) -> None:
    """Let a module work on the model's first input."""
    new.train(model.training)
    if _is_chain(model):
        rest = dict(model._modules)
        model._modules.clear()
        model._modules[name] = new
        model._modules.update(rest)
        return
    model.add_module(name, new)
    # First of all hooks, so that whatever else looks at the inputs sees the changed ones.
    model.register_forward_pre_hook(_OnInput(name), prepend=True)


def attach_back(model: nn.Module, name: str, new: nn.Module) -> None:
    """Let a module work on the model's output."""
    new.train(model.training)
    model.add_module(name, new)
    if not _is_chain(model):
        model.register_forward_hook(_OnOutput(name))


def _is_chain(model: nn.Module) -> bool:
    """A plain sequence runs all that it holds: what is attached becomes a link of it."""
    return isinstance(model, nn.Sequential) and type(model).forward is nn.Sequential.forward


class _OnInput:
    """Applies a submodule to the first input of a model."""

    def __init__(self, attribute: str) -> None:
        self.attribute = attribute

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> Any:
        if not args or not isinstance(args[0], Tensor):
            return None
        return (getattr(module, self.attribute)(args[0]), *args[1:])


class _OnOutput:
    """Applies a submodule to what the model returns."""

    def __init__(self, attribute: str) -> None:
        self.attribute = attribute

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        return getattr(module, self.attribute)(output) if isinstance(output, Tensor) else None
