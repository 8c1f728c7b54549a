"""What recording and snapshots cost: three copies of a program, advanced in turn, a few steps at a time.

Each turn is short, so that the machine is the same for all three, and each block long enough to hold its share
of the dear steps. On the CPU the time of the process is taken, the thread that writes snapshots included; on a
card the clock. The plain copy runs with the same deterministic kernels; what those cost is a matter of torch.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch

from akeso.replay import snapshot
from akeso.replay.run import Run
from benchmarks.replay.programs import PROGRAMS, REAL
from benchmarks.replay.training import advance, moved, plain_batches

TURN = 5
BLOCK = 100
#: Slow programs are timed for so many seconds, and over so many blocks at least.
PATIENCE, ENOUGH = 45.0, 3


def _plain(name: str, device: str) -> Generator[None, None, None]:
    program = PROGRAMS[name](REAL, device)
    for batch in plain_batches(program, 1000):
        advance(program, moved(batch, device), {}).cpu()
        yield


def _recorded(name: str, device: str, folder: Path, every: int) -> Generator[None, None, None]:
    with Run(folder, seed=0, snapshot_every=every) as run:
        program = PROGRAMS[name](REAL, device)
        run.track(**program.tracked)
        for batch in run.batches(program.data, batch_size=program.batch_size, epochs=1000):
            loss = advance(program, moved(batch, device), run.state)
            run.step(loss)
            # The loss is read, as nearly every loop does to print it: the plain copy waits for it as well.
            loss.cpu()
            yield


def measure(name: str, device: str, blocks: int) -> dict[str, Any]:
    """Return the shares of time that recording and snapshots add, medians over blocks of a hundred steps."""
    torch.set_num_threads(1)
    home = Path(tempfile.mkdtemp(prefix="akeso-bench-"))
    # Kept in a dictionary: the frames of this function are looked at by the runs as well.
    arms = {
        "plain": _plain(name, device),
        "recorded": _recorded(name, device, home / "r", 10**9),
        "snapshots": _recorded(name, device, home / "s", BLOCK),
    }
    for arm in arms:
        for _ in range(10):
            next(arms[arm])
    found: list[dict[str, float]] = []
    began = perf_counter()
    while len(found) < blocks and (len(found) < ENOUGH or perf_counter() - began < PATIENCE):
        found.append(_block(arms, perf_counter if device == "cuda" else process_time))
    infos = snapshot.found(home / "s")
    arms["snapshots"].close()
    recorded = [block["recorded"] / block["plain"] - 1 for block in found]
    # Put together before anything is resumed: that sets the variables of this frame back as well.
    costs = {
        "recording": statistics.median(recorded),
        "recording least": min(recorded),
        "recording most": max(recorded),
        "snapshots": statistics.median(block["snapshots"] / block["recorded"] - 1 for block in found),
        "step ms": 1000 * statistics.median(block["plain"] for block in found) / BLOCK,
        "real snapshot bytes": infos[-1].bytes if infos else 0,
    }
    more, loading = _resuming(name, device, home)
    shutil.rmtree(home, ignore_errors=True)
    return {**costs, "resuming ms": 1000 * more, "loading ms": 1000 * loading}


def _resuming(name: str, device: str, home: Path, turns: int = 5) -> tuple[float, float]:
    """Return the seconds by which the first step after a resume comes later than that of a fresh run.

    And those that loading its newest snapshot takes alone, checking included: nothing else should be paid,
    however far the run had come.
    """
    extra, loads = [], []
    for turn in range(turns):
        took = []
        for folder in (home / f"fresh{turn}", home / "s"):
            start = perf_counter()
            arm = _recorded(name, device, folder, 10**9)
            next(arm)
            took.append(perf_counter() - start)
            arm.close()
        extra.append(took[1] - took[0])
        start = perf_counter()
        info, _ = snapshot.newest_whole(home / "s")
        assert info is not None
        snapshot.load(info)
        loads.append(perf_counter() - start)
    return statistics.median(extra), statistics.median(loads)


def _block(arms: dict[str, Generator[None, None, None]], clock: Callable[[], float]) -> dict[str, float]:
    """Advance every arm by a hundred steps, in turns and in changing order; return the seconds of each."""
    spent = dict.fromkeys(arms, 0.0)
    for turn in range(BLOCK // TURN):
        order = list(arms)
        for arm in order[turn % 3 :] + order[: turn % 3]:
            start = clock()
            for _ in range(TURN):
                next(arms[arm])
            spent[arm] += clock() - start
    return spent
