"""What watching costs in memory: peaks of processes of their own, watched and not."""

from __future__ import annotations

import statistics
import subprocess
import sys
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import torch

from benchmarks.overhead.trainings import Training

_CHILD = """
import re, sys, torch
from contextlib import nullcontext
from pathlib import Path
from benchmarks.overhead.trainings import CPU, CUDA, plain

def held(what):
    return 1024 * int(re.search(what + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

name, device, folder, strings = sys.argv[1:]
names = [sys.intern(f"name {number}") for number in range(int(strings))]
torch.set_num_threads(1)
training = next(one for one in (*CPU, *CUDA) if one.name == name)
model, optimizer, step = training.build(torch.device(device))
if folder:
    import akeso
    watch = akeso.watch(model, optimizer, run=folder)
else:
    watch = nullcontext()
most = 0
with watch:
    for _ in range(12 if device == "cuda" else 50):
        plain(model, step, 1 if device == "cuda" else 10)
        most = max(most, held("RssAnon"))
if device == "cuda":
    most = torch.cuda.max_memory_allocated()
print(most, held("VmHWM"))
"""


@dataclass(frozen=True)
class Memory:
    """Bytes at the peak: what the process allocated (on a card: there), and all that was resident."""

    allocated: float
    resident: float


#: Strings interned by both processes of a turn before they begin. Python's table of them doubles at some
#: number, by two mebibytes here; which process happens to cross it says nothing about watching.
_STRINGS = 8000


def memory(training: Training, device: torch.device, turns: int = 9) -> tuple[Memory, Memory]:
    """The medians without and with watching, over processes that differ in what else they hold.

    Resident memory also counts pages of torch's own libraries that are touched for the first time: they are
    shared with every process that uses torch.
    """
    found: dict[bool, list[Memory]] = {False: [], True: []}
    for turn in range(1 if device.type == "cuda" else turns):
        for watched, peaks in found.items():
            with TemporaryDirectory() as folder:
                command = [
                    sys.executable,
                    "-c",
                    _CHILD,
                    training.name,
                    device.type,
                    folder if watched else "",
                    str(turn * _STRINGS),
                ]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
            peaks.append(Memory(*map(float, done.stdout.split()[-2:])))
    plain, mine = (
        Memory(statistics.median(p.allocated for p in peaks), statistics.median(p.resident for p in peaks))
        for peaks in found.values()
    )
    return plain, mine
