"""One life of a program under test: from its start, or where the last one ended, to its end or its death."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from akeso.replay.run import Run


class Stop(Exception):
    """Ends a life in the middle of a loop."""


def live(program: Callable[[Run, int], Any], folder: Path, stop: int = 0) -> Any:
    """What the program gives, or nothing if it was stopped."""
    with Run(folder, seed=5, snapshot_every=4) as run:
        try:
            result = program(run, stop)
        except Stop:
            return None
        assert run.mismatches == ()
        return result
