"""Runs that wait to be gone on with: how many of them a machine has room for."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from akeso.treatment.script_case import Case

#: Paused runs that are kept to be gone on with, and how many where half of the memory is free and no card holds them.
_PAUSED: Final = 3
_MORE_PAUSED: Final = 6


def let_go(cases: Collection[Case], latest: Case) -> None:
    """Keep the latest paused runs and the untreated one; the others would only hold memory."""
    latest.used = time.monotonic()
    waiting = [
        case for case in cases if case.running is not None and case.running.alive and case.prescription
    ]
    kept = _MORE_PAUSED if _roomy() else _PAUSED
    for case in sorted(waiting, key=lambda case: case.used)[:-kept]:
        assert case.running is not None
        case.running.end()


def _roomy() -> bool:
    """Whether half of the machine's memory is free, as far as it tells, and there is no card to be shared."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return 2 * sizes["MemAvailable"] > sizes["MemTotal"] and not Path("/dev/nvidia0").exists()
    except (OSError, ValueError, KeyError, IndexError):
        return False
