"""What watching costs in memory."""

from __future__ import annotations

import statistics
import subprocess
import sys
from contextlib import nullcontext
from tempfile import TemporaryDirectory

import torch

from benchmarks.overhead.trainings import Training, plain


def memory(training: Training, device: torch.device) -> tuple[float, float]:
    """Peak memory with watching over peak memory without, minus one, and the difference in bytes.

    On a card what torch allocated there; on the CPU the resident memory of a process of its own.
    """
    if device.type == "cuda":
        mine, without = (_peak(training, device, watched=watched) for watched in (True, False))
        return mine / without - 1, mine - without
    peaks: dict[bool, list[int]] = {False: [], True: []}
    for _ in range(3):
        for watched, found in peaks.items():
            found.append(_resident(training, watched))
    mine, without = statistics.median(peaks[True]), statistics.median(peaks[False])
    return mine / without - 1, 1024 * (mine - without)


def _peak(training: Training, device: torch.device, *, watched: bool) -> float:
    import akeso

    torch.manual_seed(0)
    model, optimizer, step = training.build(device)
    torch.cuda.reset_peak_memory_stats()
    with akeso.watch(model, optimizer) if watched else nullcontext():
        plain(model, step, 12)
    return float(torch.cuda.max_memory_allocated())


_RESIDENT = """
import re, sys, torch
from pathlib import Path
from contextlib import nullcontext
from benchmarks.overhead.trainings import CPU, plain
torch.set_num_threads(1)
training = next(one for one in CPU if one.name == sys.argv[1])
model, optimizer, step = training.build(torch.device("cpu"))
if sys.argv[2] == "watched":
    import akeso
    watch = akeso.watch(model, optimizer, run=sys.argv[3])
else:
    watch = nullcontext()
with watch:
    plain(model, step, 500)
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def _resident(training: Training, watched: bool) -> int:
    """Peak resident memory in kB of a process that trains, its imports included."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _RESIDENT, training.name, "watched" if watched else "plain", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])
