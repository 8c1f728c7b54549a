"""What recording and snapshots cost: three copies of a program, advanced in turn, a few steps at a time.

Ratios of steps taken within the same fraction of a second are little disturbed by what else the machine does.
The plain copy runs with the same deterministic kernels; what those cost is a matter of torch.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from akeso.replay.run import Run
from benchmarks.replay.programs import PROGRAMS, REAL
from benchmarks.replay.training import advance, moved, plain_batches

TURN = 5
BLOCK = 100


def _plain(name: str, device: str) -> Iterator[None]:
    program = PROGRAMS[name](REAL, device)
    for batch in plain_batches(program, 1000):
        advance(program, moved(batch, device), {}).cpu()
        yield


def _recorded(name: str, device: str, folder: Path, every: int) -> Iterator[None]:
    run = Run(folder, seed=0, snapshot_every=every)
    program = PROGRAMS[name](REAL, device)
    run.track(**program.tracked)
    for batch in run.batches(program.data, batch_size=program.batch_size, epochs=1000):
        loss = advance(program, moved(batch, device), run.state)
        run.step(loss)
        # The loss is read, as nearly every loop does to print it: the plain copy waits for it as well.
        loss.cpu()
        yield
    run.close()


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
    ratios: dict[str, list[float]] = {"recorded": [], "snapshots": []}
    step = 0.0
    for _ in range(blocks):
        spent = dict.fromkeys(arms, 0.0)
        for turn in range(BLOCK // TURN):
            order = list(arms)
            for arm in order[turn % 3 :] + order[: turn % 3]:
                start = perf_counter()
                for _ in range(TURN):
                    next(arms[arm])
                spent[arm] += perf_counter() - start
        step = spent["plain"] / BLOCK
        ratios["recorded"].append(spent["recorded"] / spent["plain"])
        ratios["snapshots"].append(spent["snapshots"] / spent["recorded"])
    from akeso.replay import snapshot

    infos = snapshot.found(home / "s")
    shutil.rmtree(home, ignore_errors=True)
    return {
        "recording": statistics.median(ratios["recorded"]) - 1,
        "snapshots": statistics.median(ratios["snapshots"]) - 1,
        "step ms": 1000 * step,
        "real snapshot bytes": infos[-1].bytes if infos else 0,
    }
