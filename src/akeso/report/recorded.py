"""The document of a run that was recorded, from its journal alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from akeso.examination import examine
from akeso.journal import read
from akeso.report.document import run_document


def recorded_document(run: str | Path, profile: str | Path = "akeso") -> dict[str, Any]:
    """Read a run folder, all ranks as one run, and judge it.

    What the reader had to note about the journal is listed under ``notes``, and in a run that has not come to
    its end that is said too.
    """
    reading = read(run)
    examination = examine(reading.history, profile)
    notes = list(reading.notes)
    if not reading.ended:
        notes.append("the run has not ended: it is still going on, or was killed")
    overhead = reading.ending.get("overhead", reading.history.facts.get("overhead", 0.0))
    return run_document(
        reading.history,
        examination,
        float(overhead) if isinstance(overhead, (int, float)) else 0.0,
        run=str(run),
        notes=notes,
    )
