"""Torch function modes that lie on a stack with those of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode


def put_on(mode: TorchFunctionMode) -> None:
    """Let a mode see all calls, on top of all others."""
    _push_mode(mode)


def take_off(mode: TorchFunctionMode) -> None:
    """Take a mode off wherever it lies; those that others have put on top since stay, in their order."""
    above = []
    while (top := _pop_mode()) is not mode:
        above.append(top)
    for other in reversed(above):
        _push_mode(other)


class Mode(TorchFunctionMode):
    """Hands every call of a torch function to ``seen(function, args, kwargs)`` while it is on.

    It can be taken off wherever it lies on the stack: a watch, or a script, may have put others on top since.
    """

    def __init__(self, seen: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]) -> None:
        super().__init__()
        self._seen = seen
        self._on = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return self._seen(func, args, kwargs or {})

    def __enter__(self) -> Mode:
        if not self._on:
            put_on(self)
            self._on = True
        return self

    def __exit__(self, *error: Any) -> None:
        if self._on:
            take_off(self)
            self._on = False
