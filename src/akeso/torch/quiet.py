"""Doing arithmetic of our own inside somebody's forward pass without being seen."""

from __future__ import annotations

from types import TracebackType

import torch


class quiet:
    """No gradients, no torch-function modes (ours and the user's), no autocast while the block runs.

    Written with the raw switches: ``torch.no_grad`` itself is tapped, and would announce an evaluation.
    """

    __slots__ = ("_autocast", "_grad", "_guard")

    def __enter__(self) -> quiet:
        self._guard = torch._C.DisableTorchFunction()
        self._guard.__enter__()
        self._grad = torch.is_grad_enabled()
        if self._grad:
            torch._C._set_grad_enabled(False)
        self._autocast: tuple[str, ...] = ()
        if torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"):
            self._autocast = tuple(kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind))
            for kind in self._autocast:
                torch.set_autocast_enabled(kind, False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for device in self._autocast:
            torch.set_autocast_enabled(device, True)
        if self._grad:
            torch._C._set_grad_enabled(True)
        self._guard.__exit__(kind, error, trace)
