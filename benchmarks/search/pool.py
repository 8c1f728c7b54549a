"""Records a pool of trials of a task, each trained to its end, nothing stopped.

Several processes share the device; each makes its own trials, so that a pool can be taken up again and grown. Trials
with random configurations lie in a folder with the name of their task, those that samplers suggested in one with that
name within ``suggested``.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from akeso.search.indicators import indicators
from akeso.search.inspection import FRUGALLY
from akeso.search.recorded import Finding, RecordedTrial, StudyRecorder, load
from benchmarks.search.configurations import BEGINNING, Drawn, Source, Suggested
from benchmarks.search.tasks import TASKS, Size, Task, Training

#: Of ten workers so many take each task: transformers are slowest.
SHARES = {"Cifar10CNN": 0.31, "Cifar10LSTM": 0.13, "Ex96Trans": 0.56}

#: So many trials a search suggests after the random ones that it begins with.
EACH = 60

#: Trials that samplers suggested lie in here.
SUGGESTED = "suggested"


class OutOfTime(Exception):
    """The pool's time was over before the trial was."""


def record_trial(
    task: Task,
    number: int,
    params: dict[str, Any],
    size: Size,
    device: str,
    recorder: StudyRecorder,
    deadline: float,
    keep: bool,
) -> RecordedTrial:
    """Train one configuration to its end under a watch and append it to the pool."""
    import akeso

    training = Training(task, params, size, device, seed=number)
    per_epoch = training.per_epoch
    told: list[tuple[int, Any]] = []
    values: list[float] = []
    seconds: list[float] = []
    begun = time.perf_counter()
    watch = akeso.watch(
        training.model,
        training.optimizer,
        run=recorder.journal(number) if keep else None,
        planned_steps=per_epoch * size.epochs,
        **FRUGALLY,
        on_finding=lambda diagnosis: told.append((watch.steps, diagnosis)),
    )
    try:
        for _ in range(size.epochs):
            training.epoch()
            values.append(training.value())
            seconds.append(time.perf_counter() - begun)
            if time.time() > deadline:
                raise OutOfTime
        findings = [
            Finding(
                "akeso", d.problem, steps / per_epoch, d.layer, d.step, d.severity, d.confidence, d.sentence
            )
            for steps, d in told
        ]
        findings += _seven(watch.history, training.losses if size.stepped is not None else ())
    finally:
        overhead = watch.overhead
        watch.close()
    trial = RecordedTrial(
        number, params, tuple(values), tuple(seconds), tuple(findings), "", overhead, tuple(training.losses)
    )
    recorder.add(trial)
    return trial


def _seven(history: Any, losses: Sequence[float] = ()) -> list[Finding]:
    """What BTTackler's indicators say.

    Where only some steps of an epoch were seen, ``losses`` says what its mean loss was: their noise is not its.
    """
    if losses:
        history = _Averaged(history, losses, (history.planned_steps or 0) // len(losses))
    return indicators(history)


class _Averaged:
    """A history whose losses are the means of their epochs."""

    def __init__(self, history: Any, losses: Sequence[float], per_epoch: int) -> None:
        self._history = history
        series = history.series("loss")
        epoch = np.minimum(series.steps // max(1, per_epoch), len(losses) - 1)
        self._loss = replace(series, values=np.asarray(losses, np.float64)[epoch])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._history, name)

    def series(self, signal: str, scope: str = "") -> Any:
        """As the history has it, but for the loss."""
        return self._loss if signal == "loss" and not scope else self._history.series(signal, scope)


def work(
    task_name: str,
    index: int,
    step: int,
    size: Size,
    device: str,
    folder: str,
    until: float,
    grace: float,
    keep: bool,
    known: Sequence[RecordedTrial] | None,
    each: int,
    earlier: Sequence[RecordedTrial],
    deeper: int,
    fewest: int,
) -> None:
    """One worker process: trials ``index``, ``index + step``, ... until the time is over and there are enough."""
    import torch

    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    task = TASKS[task_name]
    recorder = StudyRecorder(
        Path(folder), name=task_name, maximize=task.maximize, epochs=size.epochs, value_of="best"
    )
    before = load(folder).trials
    done = {trial.number for trial in before}
    source: Source = Drawn(task.space, task.name)
    if known is not None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        source = Suggested(task.space, task.maximize, known, index, step, each, before, earlier, deeper)
    number, longest = index, 0.0
    while (short := is_short(Path(folder), fewest)) or time.time() + 0.5 * longest < until:
        if number not in done:
            begun = time.time()
            params = source.configuration(number)
            try:
                deadline = math.inf if short else until + grace
                trial = record_trial(task, number, params, size, device, recorder, deadline, keep)
            except OutOfTime:
                return
            except Exception as error:
                trial = RecordedTrial(number, {}, (), (), (), f"{type(error).__name__}: {error}"[:200])
                recorder.add(trial)
            source.ended(trial)
            if device.startswith("cuda"):
                torch.cuda.empty_cache()  # others on the card may need it
            longest = max(longest, time.time() - begun)
        number += step


def is_short(folder: Path, fewest: int) -> bool:
    """Whether a pool holds fewer trials than that."""
    return fewest > 0 and len(load(folder).trials) < fewest


def share_out(tasks: list[str], jobs: int) -> list[str]:
    """Which task each worker takes."""
    total = sum(SHARES[task] for task in tasks)
    given = [task for task in tasks for _ in range(max(1, round(jobs * SHARES[task] / total)))]
    while len(given) < jobs:
        given.append(tasks[-1])
    return given[: max(jobs, len(tasks))]


def record(
    tasks: list[str],
    out: Path,
    size: Size,
    device: str,
    *,
    minutes: float,
    jobs: int,
    keep: bool,
    first: int = 0,
    grace: float = 30.0,
    known: Mapping[str, Sequence[RecordedTrial]] | None = None,
    each: int = EACH,
    earlier: Mapping[str, Sequence[RecordedTrial]] | None = None,
    deeper: int = BEGINNING,
    fewest: int = 0,
) -> None:
    """Fill the pools of several tasks at once for so many minutes, from the trial with this number on.

    A pool that holds fewer than the ``fewest`` trials by then is filled up to these, however long that takes. With
    ``known``, random trials by task, what samplers suggest after these in searches of ``each`` trials more; with trials
    that were suggested ``earlier``, after so many of those as well as ``deeper`` says.
    """
    if known is not None:
        out = out / SUGGESTED
    begun = time.time()
    multi_process_service = device.startswith("cuda") and start_mps()
    given = share_out(tasks, jobs)
    context = multiprocessing.get_context("spawn")
    workers = []
    for place, task in enumerate(given):
        mates = [i for i, other in enumerate(given) if other == task]
        arguments = (
            task, first + mates.index(place), len(mates), size, device, str(out / task),
            begun + 60 * minutes, grace, keep, None if known is None else known[task], each,
            (earlier or {}).get(task, ()), deeper, fewest,
        )  # fmt: skip
        StudyRecorder(out / task, name=task, maximize=TASKS[task].maximize, epochs=size.epochs)
        workers.append(context.Process(target=work, args=arguments))
    for worker in workers:
        worker.start()
    for worker, task in zip(workers, given, strict=True):
        worker.join(max(1.0, begun + 60 * minutes + grace + 15 - time.time()))
        while worker.is_alive() and is_short(out / task, fewest):
            worker.join(1.0)
        if worker.is_alive():
            worker.terminate()
            worker.join(5)
    if multi_process_service:
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=False)
    for task in tasks:
        study = load(out / task)
        whole = [t for t in study.trials if len(t.values) == size.epochs]
        spent = sum(t.seconds[-1] for t in whole)
        print(
            f"{task}: {len(whole)} whole trials of {len(study.trials)} in the pool, {spent:.0f} s of training, "
            f"overhead {np.mean([t.overhead for t in whole]) if whole else 0:.2%}",
            flush=True,
        )


def start_mps() -> bool:
    """NVIDIA's service that lets processes run on a card at the same time instead of in turns, if it works."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        print("no MPS on this machine: the processes take turns on the card", flush=True)
        return False
    folder = Path(f"/tmp/mps-{os.getpid()}")
    folder.mkdir(exist_ok=True)
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = str(folder)
    subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False, timeout=30)
    test = [sys.executable, "-c", "import torch; torch.zeros(8, device='cuda').sum().item()"]
    try:
        works = subprocess.run(test, check=False, timeout=60, capture_output=True).returncode == 0
    except subprocess.TimeoutExpired:
        works = False
    if not works:
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=False)
        del os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]
    print(
        f"MPS {'runs' if works else 'does not work here: the processes take turns on the card'}", flush=True
    )
    return works


def unpacked(pool: Path, into: Path) -> Path:
    """The folder of a pool: an archive is unpacked first."""
    if pool.is_dir() or not pool.is_file():
        return pool
    folder = into / pool.name.removesuffix(".tar.gz")
    with tarfile.open(pool) as archive:
        archive.extractall(folder, filter="data")
    return folder


def pack(out: Path, tasks: list[str], to: Path, limit: int = 15 << 20) -> None:
    """One archive per task with the pool and as many journals as fit."""
    to.mkdir(parents=True, exist_ok=True)
    for task in tasks:
        path = to / f"{task}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for kind in ("", f"{SUGGESTED}/"):
                folder = out / f"{kind}{task}"
                for file in ("study.json", "trials.jsonl"):
                    if (folder / file).exists():
                        archive.add(folder / file, f"{kind}{task}/{file}")
                for journal in sorted((folder / "journals").glob("*")):
                    if path.stat().st_size > limit * 0.9:
                        break
                    archive.add(journal, f"{kind}{task}/journals/{journal.name}")
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB", flush=True)
