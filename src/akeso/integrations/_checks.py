"""What the callbacks of all trainers ask of what they are given."""

from __future__ import annotations

from typing import Any

from akeso.errors import BadInput
from akeso.search.health import Health


def a_watch(health: Any, around: str) -> Health:
    """The watch of a trial, or an error that says where to get one; ``around`` is the call that it goes around."""
    if not isinstance(health, Health):
        raise BadInput(
            f"HealthCallback takes what akeso.search.watch gives, but got {type(health).__name__}; write "
            f"with akeso.search.watch(trial, epochs=...) as health around {around}"
        )
    return health
