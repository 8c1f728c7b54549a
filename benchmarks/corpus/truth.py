"""Measuring the ground truth: which cases are really sick, and which are really healthy.

A sick case counts when its cured twin is clearly better: by 0.03 of the metric at least, and by more than
twice the standard error of the difference over seeds. A healthy case counts when every seed reaches what is
expected.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus import Case, case, cases

TRUTH = Path(__file__).with_name("truth.json")
MARGIN = 0.03


def measure(which: Case, seeds: int) -> dict[str, Any]:
    """Train a case over seeds in this process and judge it."""
    variants = ("sick", "fixed") if which.sick else ("healthy",)
    began = time.perf_counter()
    figures: dict[str, Any] = {v: [] for v in variants}
    seconds = dict.fromkeys(variants, 0.0)
    for variant in variants:
        for seed in range(seeds):
            start = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()):
                figures[variant].append(round(which.run(variant, seed), 4))
            seconds[variant] = max(seconds[variant], round(time.perf_counter() - start, 2))
    return {
        "problem": which.problem,
        "metric": which.metric,
        "higher_is_better": which.higher_is_better,
        **figures,
        **({} if which.sick else {"expect": which.expect}),
        "holds": holds(which, figures),
        "seconds": seconds,
        "total_seconds": round(time.perf_counter() - began, 1),
    }


def holds(which: Case, figures: dict[str, Any]) -> bool:
    """Whether the measured figures bear out what the case says of itself."""
    sign = 1.0 if which.higher_is_better else -1.0
    if not which.sick:
        assert which.expect is not None
        return all(sign * value >= sign * which.expect for value in figures["healthy"])
    before, after = (sign * np.asarray(figures[v], float) for v in ("sick", "fixed"))
    gap = float(after.mean() - before.mean())
    error = math.sqrt((before.var(ddof=1) + after.var(ddof=1)) / len(before)) if len(before) > 1 else 0.0
    return gap > MARGIN and gap > 2 * error


@cache
def truth(path: Path = TRUTH) -> dict[str, Any]:
    """The figures measured, by case."""
    return dict(json.loads(path.read_text())["cases"]) if path.is_file() else {}


def sick_that_time(which: Case, metric: float) -> bool:
    """Whether one run of a sick case really went wrong: what dies in four of five runs lives in one.

    It did when it is nearer to the mean of the sick runs than to that of the cured ones, or clearly below the
    cured ones.
    """
    figures = truth().get(which.name)
    if figures is None or not which.sick:
        return which.sick
    sign = 1.0 if which.higher_is_better else -1.0
    before, after = (sign * np.asarray(figures[v], float) for v in ("sick", "fixed"))
    if not math.isfinite(metric):
        return True
    line = after.mean() - max(0.02, 0.2 * (after.mean() - before.mean()))
    return bool(sign * metric < line)


def _one(name: str, seeds: int) -> dict[str, Any]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.corpus", "measure", name, "--seeds", str(seeds)]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return {"problem": case(name).problem, "holds": False, "error": "more than 600 s"}
    if done.returncode:
        return {"problem": case(name).problem, "holds": False, "error": done.stderr.strip()[-600:]}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def verify(jobs: int, pattern: str, out: Path, seeds: int, again: bool) -> int:
    """Measure all cases that ``out`` does not hold yet and write them there; returns how many fail."""
    known: dict[str, Any] = {} if again or not out.is_file() else dict(json.loads(out.read_text())["cases"])
    wanted = [name for name in cases() if pattern in name]
    todo = [name for name in wanted if name not in known]
    known = {name: value for name, value in known.items() if name in cases()}
    print(f"{len(wanted)} cases, {len(wanted) - len(todo)} measured before, {jobs} at a time")

    def run(name: str) -> None:
        known[name] = _one(name, seeds)
        _print(name, known[name])
        _write(out, known, seeds)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, todo))
    _write(out, known, seeds)
    failed = [name for name in wanted if not known[name]["holds"]]
    sick = sum(known[name]["holds"] and known[name]["problem"] is not None for name in wanted)
    well = sum(known[name]["holds"] and known[name]["problem"] is None for name in wanted)
    print(f"\nhold: {sick} sick (asked for: 100), {well} healthy (asked for: 60); do not hold: {len(failed)}")
    for name in failed:
        _print(name, known[name])
    return len(failed)


def _print(name: str, row: dict[str, Any]) -> None:
    figures = "  ".join(f"{v} {row[v]}" for v in ("sick", "fixed", "healthy", "expect") if v in row)
    verdict = "ok " if row["holds"] else "NOT"
    told = figures or row.get("error", "")
    seconds = row.get("total_seconds", "?")
    print(f"{verdict} {name:38} {row['problem'] or 'healthy':27} {told} {seconds} s", flush=True)


def _write(out: Path, known: dict[str, Any], seeds: int) -> None:
    text = json.dumps({"seeds": seeds, "cases": dict(sorted(known.items()))}, indent=1)
    part = out.with_suffix(".part")
    part.write_text(text + "\n")
    part.replace(out)
