"""Kill a process that writes a journal, again and again, and look for anything that was lost.

``python -m benchmarks.journal_kills`` kills 200 writers with SIGKILL at random moments. Each writer says over
a pipe what it has synced; every such reading must be in the journal afterwards, exact to the last bit.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from akeso.history import Event
from akeso.journal import JournalWriter, read

#: Large enough that nothing is thinned, and small enough that it happens all the time.
ROOMY, TIGHT = 1 << 30, 64 * 1024


@dataclass(frozen=True, slots=True)
class Kill:
    """What one kill left behind."""

    acknowledged: int
    found: int
    lost: int
    wrong: int
    torn: bool


def value_at(step: int, seed: int) -> float:
    """The reading of a step; NaN and infinity occur too."""
    source = random.Random(step * 1_000_003 + seed)
    return source.choice((source.gauss(0, 1), source.gauss(0, 1), float("nan"), float("inf"), 1e-310))


def write_forever(folder: Path, seed: int, limit_bytes: int) -> None:
    """Write readings and events, sync after a random number of them, say what is synced; never end."""
    source = random.Random(seed)
    writer = JournalWriter(folder, limit_bytes=limit_bytes)
    writer.header({"seed": seed})
    step = 0
    while True:
        step = _write_some(writer, seed, step, source.randrange(1, 40))
        writer.sync()
        os.write(1, b"%d\n" % step)
        step = _write_some(writer, seed, step, source.randrange(0, 40))
        writer.flush()


def _write_some(writer: JournalWriter, seed: int, step: int, count: int) -> int:
    for now in range(step, step + count):
        if now % 10 == 0:
            writer.event(Event(now, "epoch"))
        writer.readings(now, {"loss": {"": value_at(now, seed)}})
    return step + count


def kill_once(folder: Path, seed: int, limit_bytes: int = ROOMY) -> Kill:
    """Start a writer, kill it after a random number of acknowledgements, compare."""
    patience = random.Random(-seed).randrange(1, 60)
    command = [sys.executable, "-m", "benchmarks.journal_kills", "--write", str(folder)]
    command += ["--seed", str(seed), "--limit", str(limit_bytes)]
    root = Path(__file__).resolve().parent.parent
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(patience)]
        os.kill(writer.pid, signal.SIGKILL)
        lines += writer.stdout.readlines()
    whole = [line for line in lines if line.endswith(b"\n")]
    acknowledged = int(whole[-1]) if whole else 0
    reading = read(folder)
    series = reading.history.series("loss")
    found = dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
    wrong = sum(not _same(value, value_at(step, seed)) for step, value in found.items())
    wrong += len([note for note in reading.notes if "torn" not in note]) + reading.ended
    if limit_bytes == ROOMY:
        lost = sum(step not in found for step in range(acknowledged))
    else:  # thinned on purpose: what may never go missing is the newest reading and every event
        lost = int(acknowledged > 0 and max(found, default=-1) < acknowledged - 1)
        known = {event.step for event in reading.history.events}
        lost += sum(step not in known for step in range(0, acknowledged, 10))
    return Kill(acknowledged, len(found), lost, wrong, any("torn" in note for note in reading.notes))


def _same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="20 kills only")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, default=ROOMY, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_forever(options.write, options.seed, options.limit)
    count = 20 if options.quick else options.kills
    kills = []
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(count):
            kills.append(kill_once(Path(scratch) / str(seed), seed, TIGHT if seed % 4 == 3 else ROOMY))
    lost, wrong = sum(kill.lost for kill in kills), sum(kill.wrong for kill in kills)
    print(f"{'kills':34} {len(kills):>10}   asked {count}")
    print(f"{'readings acknowledged as synced':34} {sum(kill.acknowledged for kill in kills):>10}")
    print(f"{'journals with a torn last line':34} {sum(kill.torn for kill in kills):>10}")
    print(f"{'synced readings lost':34} {lost:>10}   asked 0")
    print(f"{'readings with a wrong value':34} {wrong:>10}   asked 0")
    return int(lost > 0 or wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
