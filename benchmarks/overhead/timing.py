"""What watching costs in time: one training, watched in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

import akeso
from benchmarks.overhead import alternatives
from benchmarks.overhead.trainings import Training, plain


@dataclass(frozen=True)
class Cost:
    """Shares of time added, by the clock and by the processor."""

    wall: float
    cpu: float


@dataclass
class Account:
    """Seconds of one way to train and of the plain blocks beside it, block by block: clock and processor."""

    mine: list[tuple[float, float]] = field(default_factory=list)
    beside: list[tuple[float, float]] = field(default_factory=list)

    def cost(self, together: int) -> Cost:
        """The median over groups of so many blocks."""
        return Cost(*(statistics.median(self._added(clock, together)) for clock in (0, 1)))

    def _added(self, clock: int, together: int) -> list[float]:
        groups = range(0, len(self.mine) - together + 1, together)
        return [
            sum(one[clock] for one in self.mine[at : at + together])
            / sum(one[clock] for one in self.beside[at : at + together])
            - 1
            for at in groups
        ]


class _Clock:
    """Wall time and CPU time of a block, the device included."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"

    def time(self, work: Callable[[], None]) -> tuple[float, float]:
        if self._cuda:
            torch.cuda.synchronize()
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - wall, time.process_time() - cpu


@dataclass(frozen=True)
class Found:
    """What was measured of one training."""

    costs: dict[str, Cost]
    begun: int  # steps of the first stretch, where looks are dense
    start: float  # seconds that it took longer
    own_account: float


def measure(training: Training, device: torch.device, groups: int, folder: Path, *, alone: bool) -> Found:
    """Costs beside the plain training, for akeso and the alternatives.

    One training is watched in turns: a block with the watch paused, a block with it on. Each watched block is
    held against the plain ones before and after it. Blocks are short, so that a machine which others use is the
    same for both, and hold less than one look: many are judged together, and the median is taken over groups.
    """
    clock = _Clock(device)
    torch.manual_seed(0)
    model, optimizer, step = training.build(device)
    block = training.block
    seldom = 8 if device.type == "cuda" else 4

    def block_of_steps(steps: int = block) -> tuple[float, float]:
        return clock.time(lambda: plain(model, step, steps))

    begun = max(block, 200) if device.type == "cpu" else block
    block_of_steps()
    accounts: dict[str, Account] = {}
    watch = akeso.watch(model, optimizer, run=folder / "run")
    first = block_of_steps(begun)
    watch.pause()
    start = first[0] - block_of_steps(begun)[0]
    before = block_of_steps()
    with alternatives.histograms(folder / "tb") as histograms:
        others: dict[str, Callable[[], None]] = {
            ".grad.norm().item() loop": lambda: alternatives.item_loop(model, step, block),
            "detect_anomaly": lambda: alternatives.anomaly(model, step, block),
        }
        if histograms is not None:
            others["histograms every 100"] = lambda: histograms(model, step, block)
        for number in range(groups * training.together):
            # The alternatives are far away from any limit: fewer rounds will do.
            for name in ("akeso", *(() if alone or number % seldom else others)):
                if name == "akeso":
                    watch.resume()
                    mine = block_of_steps()
                    watch.pause()
                else:
                    mine = clock.time(others[name])
                after = block_of_steps()
                account = accounts.setdefault(name, Account())
                account.mine.append(mine)
                account.beside.append(((before[0] + after[0]) / 2, (before[1] + after[1]) / 2))
                before = after
    watch.close()
    costs = {
        name: account.cost(training.together if name == "akeso" else 1) for name, account in accounts.items()
    }
    return Found(costs, begun, start, watch.overhead)
