"""Running a stretch of a run again in a fresh process, and comparing it step by step.

The recorded program is started with orders in its environment; its ``Run`` then reads the folder without
touching it, begins at the nearest snapshot, compares every step with the journal, and ends the process after
the last step asked for.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from akeso.errors import BadInput
from akeso.replay import snapshot
from akeso.replay.journal import read
from akeso.replay.resume import Orders, command_of, named_by

if TYPE_CHECKING:
    from akeso.replay.run_recording import Recorder


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of running a stretch again."""

    first: int
    last: int
    started_after: int
    """The step of the snapshot it began from; 0 is the beginning of the run."""
    compared: tuple[int, ...]
    differences: tuple[str, ...]
    reached: bool
    output: str = ""

    @property
    def equal(self) -> bool:
        """Whether every step asked for was reached, compared and found the same."""
        wanted = set(range(self.first, self.last + 1))
        return self.reached and not self.differences and wanted <= set(self.compared)

    def __str__(self) -> str:
        count = sum(1 for step in self.compared if self.first <= step <= self.last)
        start = (
            f"from the snapshot of step {self.started_after}" if self.started_after else "from the beginning"
        )
        if self.equal:
            return f"steps {self.first} to {self.last}, run again {start}: all {count} equal, bit for bit"
        if self.differences:
            return f"steps {self.first} to {self.last}, run again {start}: different. " + "; ".join(
                self.differences
            )
        return f"steps {self.first} to {self.last}, run again {start}: only {count} steps could be compared"


class ReplayReport:
    """Leaves what a replay found where the process that asked for it can read it."""

    def __init__(self, orders: Orders, started_after: int, recorder: Recorder) -> None:
        self._orders, self._start, self._recorder = orders, started_after, recorder
        self._written = False

    def write(self) -> None:
        """Write the report, once."""
        if self._written:
            return
        self._written = True
        compared = tuple(self._recorder.compared)
        lines = tuple(
            f"step {then.step}: {names[0]} differs first"
            + (f", then {', '.join(names[1:])}" if names[1:] else "")
            for then, _, names in self._recorder.mismatches
        )
        last = self._orders.last
        found = Replayed(
            self._orders.first, last, self._start, compared, lines, bool(compared) and compared[-1] >= last
        )
        Path(self._orders.report).write_text(json.dumps(asdict(found)))


def replay(folder: str | Path, first: int, last: int, allow: bool = False) -> Replayed:
    """Run steps ``first`` to ``last`` of a run again (both included) and compare them with its journal."""
    folder = Path(folder).resolve()
    command, cwd, settings = command_of(folder)
    known = read(folder).steps()
    if first < 1 or last < first:
        raise BadInput(f"steps are counted from 1, and a stretch goes forward; got {first}:{last}")
    if last not in known:
        top = max(known, default=0)
        raise BadInput(f"step {last} is not in the journal of {folder}, which ends at step {top}")
    with tempfile.TemporaryDirectory(prefix="akeso-replay-") as scratch:
        report = Path(scratch) / "report.json"
        told = Orders("replay", str(folder), allow, first, last, str(report), named_by(folder))
        ended = subprocess.run(
            command,
            cwd=cwd,
            env={**told.environment(), **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        output = ended.stdout + ended.stderr
        if not report.exists():
            tail = "\n".join(output.splitlines()[-15:])
            raise BadInput(
                f"the program of {folder} ended with status {ended.returncode} before any step:\n{tail}"
            )
        found = json.loads(report.read_text())
    found["compared"], found["differences"] = tuple(found["compared"]), tuple(found["differences"])
    return Replayed(**{**found, "output": output})


def prove(folder: str | Path, allow: bool = False) -> Replayed:
    """Prove the newest snapshot complete: load it in a fresh process, run two steps, compare every digest."""
    folder = Path(folder).resolve()
    known = read(folder).steps()
    for info in reversed(snapshot.found(folder)):
        if info.whole and info.step + 2 in known:
            return replay(folder, info.step + 1, info.step + 2, allow)
    raise BadInput(
        f"{folder} has no whole snapshot with two recorded steps after it; let the run go on a little, "
        "then prove it"
    )
