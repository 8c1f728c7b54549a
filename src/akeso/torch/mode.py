"""Hearing every torch function that is called while a mode is entered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

Caller = Callable[[str, tuple[Any, ...], dict[str, Any], Any], None]


class Mode(TorchFunctionMode):
    """Tells ``caller`` of every torch function after it has run."""

    def __init__(self, caller: Caller) -> None:
        super().__init__()
        self._caller = caller

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self._caller(getattr(func, "__name__", ""), args, kwargs, result)
        return result
