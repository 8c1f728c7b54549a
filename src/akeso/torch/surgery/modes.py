"""Torch function modes that lie on a stack with those of others."""

from __future__ import annotations

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
