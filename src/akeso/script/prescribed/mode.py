"""A torch function mode that can be taken off wherever it lies on the stack of modes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch.overrides import TorchFunctionMode

from akeso.torch.surgery.modes import put_on, take_off


class Mode(TorchFunctionMode):
    """Hands every call of a torch function to ``seen(function, args, kwargs)``."""

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

    def enter(self) -> None:
        """Go on, on top of all others."""
        if not self._on:
            put_on(self)
            self._on = True

    def leave(self) -> None:
        """Go off; modes that the script has put on top since stay, in their order."""
        if self._on:
            take_off(self)
            self._on = False
