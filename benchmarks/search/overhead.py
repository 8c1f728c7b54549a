"""What watching a trial costs, measured: two copies of each trial, one watched, an epoch of each in turn.

Several processes share the device, as the trials of a search do: both copies meet the same crowd. What a process
pays once, when it watches for the first time (modules to import, kernels to load), is told apart: a worker of a
search trains many trials.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np

from akeso.search.inspection import FRUGALLY
from benchmarks.search.pool import share_out, start_mps
from benchmarks.search.space import draw
from benchmarks.search.tasks import TASKS, Size, Training

FILE = "overhead.jsonl"


def pair(task_name: str, number: int, size: Size, device: str) -> dict[str, Any]:
    """Train one configuration twice at once; return the seconds of both copies, validation included."""
    import akeso

    task = TASKS[task_name]
    params = draw(task.space, np.random.default_rng([number, len(task_name)]))
    plain, watched = (Training(task, params, size, device, seed=number) for _ in range(2))
    per_epoch = plain.per_epoch
    spent = {"plain": 0.0, "watched": 0.0}
    begun = time.perf_counter()
    watch = akeso.watch(
        watched.model, watched.optimizer, run=None, planned_steps=per_epoch * size.epochs,
        on_finding=lambda diagnosis: None, **FRUGALLY,
    )  # fmt: skip
    watch.pause()
    spent["watched"] += time.perf_counter() - begun
    for epoch in range(size.epochs):
        for arm in ("plain", "watched") if epoch % 2 else ("watched", "plain"):
            begun = time.perf_counter()
            if arm == "watched":
                watch.resume()
            training = plain if arm == "plain" else watched
            training.epoch()
            training.value()  # a number: everything on the device is done
            if arm == "watched":
                watch.pause()
            spent[arm] += time.perf_counter() - begun
    begun = time.perf_counter()
    own = watch.overhead
    watch.close()
    spent["watched"] += time.perf_counter() - begun
    return {"task": task_name, "number": number, **spent, "own": own, "steps": per_epoch * size.epochs}


def first_watch(task_name: str, number: int, size: Size, device: str) -> float:
    """Seconds that the first epoch of a process takes longer when it is watched; a plain one goes before it."""
    import akeso

    task = TASKS[task_name]
    params = draw(task.space, np.random.default_rng([number, len(task_name)]))
    training = Training(task, params, size, device, seed=number)
    moments = []
    for watched in (False, False, True):
        begun = time.perf_counter()
        watch = (
            akeso.watch(training.model, training.optimizer, on_finding=lambda diagnosis: None, **FRUGALLY)
            if watched
            else None
        )
        training.epoch()
        training.value()
        if watch is not None:
            watch.diagnoses  # noqa: B018 (the detectors are imported where they are first asked)
            watch.close()
        moments.append(time.perf_counter() - begun)
    return moments[2] - moments[1]


def _work(
    task: str, index: int, step: int, size: Size, device: str, out: str, until: float, line: Any
) -> None:
    import torch

    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    number, longest, first = index, 0.0, None
    while time.time() + longest < until:
        begun = time.time()
        try:
            if first is None:
                first = first_watch(task, number, size, device)
            found = pair(task, number, size, device) | {"first": first}
        except Exception as error:
            found = {"task": task, "number": number, "error": f"{type(error).__name__}: {error}"[:200]}
        with line, (Path(out) / FILE).open("a") as file:
            file.write(json.dumps(found) + "\n")
        longest = max(longest, time.time() - begun)
        number += step


def measure(
    tasks: list[str], out: Path, size: Size, device: str, *, minutes: float, jobs: int, first: int
) -> None:
    """Measure pairs for so many minutes and keep them beside the pools."""
    out.mkdir(parents=True, exist_ok=True)
    begun = time.time()
    if device.startswith("cuda"):
        start_mps()
    given = share_out(tasks, jobs)
    context = multiprocessing.get_context("spawn")
    line = context.Lock()
    workers = []
    for place, task in enumerate(given):
        mates = [i for i, other in enumerate(given) if other == task]
        until = begun + 60 * minutes
        arguments = (
            task, first + mates.index(place), len(mates), size, device, str(out), until, line
        )  # fmt: skip
        workers.append(context.Process(target=_work, args=arguments))
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(1.0, begun + 60 * minutes + 20 - time.time()))
        if worker.is_alive():
            worker.terminate()
            worker.join(5)


def read(pools: list[Path]) -> list[dict[str, Any]]:
    """The pairs measured beside these pools."""
    lines = [
        line for pool in pools if (pool / FILE).exists() for line in (pool / FILE).read_text().splitlines()
    ]
    return [found for line in lines if "error" not in (found := json.loads(line))]


def added(pairs: list[dict[str, Any]], draws: int = 2000) -> tuple[float, float, float]:
    """The share of time that watching adds to all pairs together, with a 95 % interval over pairs."""
    plain = np.array([found["plain"] for found in pairs])
    watched = np.array([found["watched"] for found in pairs])
    chosen = np.random.default_rng(0).integers(len(pairs), size=(draws, len(pairs)))
    drawn = watched[chosen].sum(1) / plain[chosen].sum(1) - 1
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(watched.sum() / plain.sum() - 1), float(low), float(high)


def show(pairs: list[dict[str, Any]]) -> None:
    """A line per task and one for all."""
    if not pairs:
        print("no pair of trials was done in the time given")
        return
    for task in (*sorted({found["task"] for found in pairs}), ""):
        some = [found for found in pairs if task in ("", found["task"])]
        share, low, high = added(some)
        own = float(np.mean([found["own"] for found in some]))
        print(
            f"watching adds {share:+.2%} [{low:+.2%}, {high:+.2%}] to {task or 'all'}: {len(some)} trials trained "
            f"twice, an epoch of each copy in turn; own account {own:.2%}",
            flush=True,
        )
    firsts = [found["first"] for found in pairs if "first" in found]
    if firsts:
        print(f"the first watch of a process takes {np.median(firsts):.2f} s more (median)", flush=True)
