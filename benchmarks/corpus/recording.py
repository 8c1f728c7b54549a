"""Runs of the corpus, watched as ``akeso run`` watches a script, and kept as journals.

A run's folder holds the journal and, when the run is over, ``result.json`` with its own metric. Folders that
have one are not run again.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.corpus import case
from benchmarks.corpus.rivals import autopsied, installed

RESULT = "result.json"


def folder(journals: Path, name: str, seed: int) -> Path:
    """Where the run of a case and seed is kept."""
    return journals / f"{name}-{seed}"


def finished(journals: Path, name: str, seed: int) -> dict[str, Any] | None:
    """The result of a run that is over, else nothing."""
    path = folder(journals, name, seed) / RESULT
    return dict(json.loads(path.read_text())) if path.is_file() else None


def record(journals: Path, name: str, seed: int, rivals: bool) -> None:
    """Train one case in this process under the watch and write its result."""
    from akeso.torch.watching import watch_everything

    warnings.simplefilter("ignore")
    where = folder(journals, name, seed)
    where.mkdir(parents=True, exist_ok=True)
    which = case(name)
    result: dict[str, Any] = {"case": name, "seed": seed, "error": None, "metric": None}
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        with watch_everything(run=where) as watch:
            try:
                result["metric"] = which.run(seed=seed)
            except Exception as problem:  # a run that ends in an error is a run all the same
                result["error"] = f"{type(problem).__name__}: {problem}"
        result["overhead"], result["steps"] = watch.overhead, watch.steps
        result["seconds"] = round(time.perf_counter() - began, 2)
        if rivals and "torchmortem" in installed():
            result["torchmortem"] = _autopsy(name, seed)
    (where / RESULT).write_text(json.dumps(result, indent=1) + "\n")


def _autopsy(name: str, seed: int) -> dict[str, Any]:
    """The same run once more, followed by torchmortem: same seed, same data, same bits."""
    findings: list[dict[str, str]] = []
    try:
        with autopsied() as findings:
            case(name).run(seed=seed)
    except Exception as problem:
        return {"findings": findings, "error": f"{type(problem).__name__}: {problem}"[:300]}
    return {"findings": findings, "error": None}


def record_all(journals: Path, runs: Iterable[tuple[str, int]], jobs: int, rivals: bool) -> list[str]:
    """Record what is not there yet, each run in a process of its own; returns what could not be recorded."""
    todo = [(name, seed) for name, seed in runs if finished(journals, name, seed) is None]
    if not todo:
        return []
    print(f"recording {len(todo)} runs, {jobs} at a time, in {journals}", file=sys.stderr)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    failed: list[str] = []

    def one(run: tuple[str, int]) -> None:
        name, seed = run
        command = [sys.executable, "-m", "benchmarks.detection", "--record", name, "--seed", str(seed)]
        command += ["--journals", str(journals)] + ([] if rivals else ["--no-rivals"])
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)
            message = done.stderr.strip()[-400:] if done.returncode else ""
        except subprocess.TimeoutExpired:
            message = "took more than 900 s"
        if message:
            failed.append(f"{name}-{seed}: {message}")
            print(f"failed: {failed[-1]}", file=sys.stderr)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, todo))
    return failed
