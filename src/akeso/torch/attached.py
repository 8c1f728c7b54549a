"""Tensors that a model cuts off from the graph, left attached: what lies before the cut learns again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from akeso.torch.surgery.modes import Mode

#: Names of the functions that cut; reading ``tensor.data`` is one that has no name of its own.
CUTTING = frozenset({"detach", "detach_", "__get__"})
_DATA: Any = Tensor.data


def cuts(func: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether somebody's own code cuts a tensor off through which a gradient would flow."""
    if getattr(func, "__name__", "") == "__get__" and getattr(func, "__self__", None) is not _DATA:
        return False
    entered = args[0] if args else None
    flows = isinstance(entered, Tensor) and entered.requires_grad and not entered.is_leaf
    return flows and torch.is_grad_enabled() and not _by_the_way()


def _by_the_way() -> bool:
    """Whether a library does so on its way: hooks read values, layers look at them.

    Modes of ours only hand calls on: who called them counts.
    """
    frame: FrameType | None = sys._getframe(1)
    name = ""
    while frame is not None:
        outer, here = name, str(frame.f_globals.get("__name__", ""))
        if not here.startswith("akeso."):
            return outer != "__torch_function__" or here.startswith("torch.")
        name, frame = frame.f_code.co_name, frame.f_back
    return True


def keep_attached() -> Mode:
    """While this is entered, nothing is cut off."""
    return Mode(
        lambda func, args, kwargs: (
            args[0]
            if getattr(func, "__name__", "") in CUTTING and cuts(func, args)
            else func(*args, **kwargs)
        )
    )
