"""Looking at one training step operation by operation."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from akeso.replay.trace.operation import Operation as Operation
    from akeso.replay.trace.recorder import Recorder as Recorder
    from akeso.replay.trace.tracer import Tracer as Tracer

_PLACES = {"Operation": "operation", "Recorder": "recorder", "Tracer": "tracer"}

__all__ = ["Operation", "Recorder", "Tracer"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(f"akeso.replay.trace.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'akeso.replay.trace' has no attribute {name!r}")
