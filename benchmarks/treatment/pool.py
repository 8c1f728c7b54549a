"""Tasks in worker processes, results kept as they come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Task = dict[str, Any]


def work() -> None:
    """A worker: a task per line in, a result per line out."""
    from benchmarks.treatment.tasks import run

    answers = sys.stdout
    sys.stdout = sys.stderr  # nothing that a case prints may get between the answers
    for line in sys.stdin:
        task = json.loads(line)
        try:
            result = run(**task)
        except Exception as error:
            result = {**task, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), file=answers, flush=True)


class Results:
    """Results in a file of JSON lines, so that a run that was stopped can be gone on with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    self.rows.append(json.loads(line))
                except json.JSONDecodeError:
                    continue  # a line torn by a kill

    def has(self, task: Task) -> bool:
        """Whether a task is done."""
        same = ("case", "seed", "kind")
        return any("error" not in row and all(row[key] == task[key] for key in same) for row in self.rows)

    def add(self, row: dict[str, Any]) -> None:
        """Keep a result."""
        with self._lock:
            self.rows.append(row)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def run_all(
    tasks: list[Task], results: Results, jobs: int, seconds: float, say: Callable[[str], None]
) -> None:
    """Run what is not done yet, in ``jobs`` processes, for at most ``seconds``."""
    waiting = iter([task for task in tasks if not results.has(task)])
    lock, end = threading.Lock(), time.monotonic() + seconds
    threads = [
        threading.Thread(target=_serve, args=(waiting, lock, results, end, say), daemon=True)
        for _ in range(jobs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _serve(
    waiting: Iterator[Task], lock: threading.Lock, results: Results, end: float, say: Callable[[str], None]
) -> None:
    worker: subprocess.Popen[str] | None = None
    try:
        while time.monotonic() < end:
            with lock:
                task = next(waiting, None)
            if task is None:
                return
            if worker is None or worker.poll() is not None:
                worker = _start()
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write(json.dumps(task) + "\n")
            worker.stdin.flush()
            timer = threading.Timer(max(1.0, end + 30 - time.monotonic()), worker.kill)
            timer.start()
            line = worker.stdout.readline()
            timer.cancel()
            if line:
                results.add(json.loads(line))
                say(f"{len(results.rows)} {task['kind']:<12} {task['case']} {line[:0]}")
            else:
                worker = None  # it died; the task is left for another day
    finally:
        if worker is not None:
            worker.kill()
            worker.wait()


def _start() -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.treatment", "--worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
    )  # fmt: skip
