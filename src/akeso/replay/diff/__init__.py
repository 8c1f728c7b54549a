"""Where two runs begin to differ, and why."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from akeso.replay.diff.find import find_difference as find_difference
    from akeso.replay.diff.finding import Finding as Finding

_PLACES = {"Finding": "finding", "find_difference": "find"}

__all__ = ["Finding", "find_difference"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(f"akeso.replay.diff.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'akeso.replay.diff' has no attribute {name!r}")
