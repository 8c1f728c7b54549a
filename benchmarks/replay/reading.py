"""Reading what a replay left behind."""

from __future__ import annotations

import json
from pathlib import Path

from akeso.replay.replaying import Replayed


def report(path: Path) -> Replayed:
    """Return the report of a replay."""
    found = json.loads(path.read_text())
    found["compared"], found["differences"] = tuple(found["compared"]), tuple(found["differences"])
    return Replayed(**found)
