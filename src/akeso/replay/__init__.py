"""Deterministic training, exact resume, exact replay.

>>> import akeso.replay
>>> run = akeso.replay.Run("runs/a", seed=0)          # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from akeso.replay.keys import key as key
    from akeso.replay.replaying import prove as prove
    from akeso.replay.replaying import replay as replay
    from akeso.replay.run import Run as Run

# torch is loaded when one of these is first asked for, not by importing the package.
_PLACES = {"Run": "run", "key": "keys", "prove": "replaying", "replay": "replaying"}

__all__ = ["Run", "key", "prove", "replay"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(f"akeso.replay.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'akeso.replay' has no attribute {name!r}")
