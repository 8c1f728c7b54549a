"""What watching costs: ``python -m benchmarks.overhead [--quick] [--device cuda] [--json FILE]``.

One training runs in short blocks, watched and unwatched in turn, and neighbouring blocks are held against each
other: slow drifts of the machine cancel. The usual alternatives run in the same rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.overhead.memory import memory
from benchmarks.overhead.timing import measure
from benchmarks.overhead.trainings import CPU, CUDA


def main() -> int:
    """Measure, print a table, and say which figures are reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="part of a training's name")
    parser.add_argument("--groups", type=int, default=0, help="groups of blocks to take the median over")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of torch")
    parser.add_argument("--alone", action="store_true", help="leave the alternatives out")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    groups = options.groups or (1 if options.quick else 4 if device.type == "cuda" else 7)
    reached = True
    found = []
    for training in CUDA if device.type == "cuda" else CPU:
        if options.only not in training.name:
            continue
        with TemporaryDirectory() as folder:
            result = measure(training, device, groups, Path(folder), alone=options.alone)
        steps = training.together * training.block
        print(f"\n{training.name} ({device}, median of {groups} groups of {steps} watched steps)")
        for name, over in result.costs.items():
            print(f"  {name:28} wall {over.wall:+7.2%}   cpu {over.cpu:+7.2%}")
        print(
            f"  akeso's own account: {result.own_account:.2%}; the first {result.begun} steps took "
            f"{result.start:.2f} s longer",
            flush=True,
        )
        plain, watched = memory(training, device)
        more = watched.allocated / plain.allocated - 1
        found.append(
            {"training": training.name, **asdict(result), "memory": [asdict(plain), asdict(watched)]}
        )
        print(
            f"  memory at its peak: allocated {more:+.2%}, "
            f"{(watched.allocated - plain.allocated) / 2**20:.1f} MiB; resident "
            f"{watched.resident / plain.resident - 1:+.2%}, {(watched.resident - plain.resident) / 2**20:.1f} MiB"
        )
        mine = result.costs["akeso"]
        # the clock of a shared machine counts what others do; the time of the process, threads and all, is ours
        value = mine.wall if device.type == "cuda" else mine.cpu
        good = value <= training.limit and more <= 0.01
        reached &= good
        print(
            f"  asked: at most {training.limit:.0%}, memory at most 1 %; reached: {'yes' if good else 'NO'}"
        )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
