"""Running a program in a process of its own, recorded, traced or perturbed as a job says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from akeso.errors import AkesoError

OUTPUT, STATUS = "output.txt", "status.json"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a script, and what is done to it."""

    folder: str
    """Where journal, events, trace and output go."""
    script: str
    arguments: tuple[str, ...] = ()
    source: str = ""
    """A copy of the script to run in its place, as it was when the run was recorded."""
    cwd: str = ""
    seed: int | None = None
    """Prepare the process with this seed, as ``akeso run --deterministic`` does; None runs it as it is."""
    steps: int | None = None
    """End the program after this many optimizer steps."""
    trace: int | None = None
    trace_run: bool = False
    """Count steps as ``akeso.replay.Run`` does: by ``run.step``, from the snapshot it begins with."""
    fixed: tuple[str, ...] = ()
    """Sources that are made to repeat; see :class:`akeso.replay.trace.entropy.Entropy`."""
    threads: int | None = None
    workers: int = 0
    hash_seed: str | None = None
    alerts: bool = False
    """Let torch say which operations have no deterministic form."""
    seeded: tuple[str, ...] = ()
    """Global generators that are seeded before the script starts: ``python``, ``numpy``, ``torch``."""
    redirect_runs: bool = False
    """Let an ``akeso.replay.Run`` of the script work in the job's folder instead of its own."""
    watch_draws: bool = False
    """Note where the global generators are first drawn from."""
    environment: dict[str, str] = {}


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended."""

    error: str = ""
    """The last line of the traceback; empty when the program came to its end or was stopped on purpose."""
    line: str = ""
    enough: bool = False
    alerts: tuple[tuple[str, str], ...] = ()
    """(operation, line) of each operation without a deterministic form."""
    draws: tuple[tuple[str, str], ...] = ()
    """(generator, line) of the first draw from each global generator before it was seeded."""
    changed_files: tuple[str, ...] = ()
    facts: dict[str, str] = {}
    typing: tuple[dict[str, str], ...] = ()
    """How the state of an ``akeso.replay.Run`` in the script is classified."""


def execute(jobs: Sequence[Job], timeout: float | None = None) -> list[Status]:
    """Run jobs one after the other, each in a fresh process, and say how each ended.

    Jobs with the same hash seed and environment share the time it takes to import torch: one process
    imports it and forks for each of them.
    """
    groups: dict[tuple[object, ...], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.hash_seed, *sorted(job.environment.items())), []).append(job)
    for members in groups.values():
        _start(members, timeout)
    return [status(job) for job in jobs]


def status(job: Job) -> Status:
    """How a job ended."""
    path = Path(job.folder) / STATUS
    if not path.exists():
        output = Path(job.folder) / OUTPUT
        tail = output.read_text(errors="replace")[-400:] if output.exists() else "it wrote nothing"
        return Status(error=f"the process ended without saying how; the end of its output: {tail}")
    return msgspec.json.decode(path.read_bytes(), type=Status)


def _start(jobs: list[Job], timeout: float | None) -> None:
    files = []
    for job in jobs:
        folder = Path(job.folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.json").write_bytes(msgspec.json.encode(job))
        files.append(str(folder / "job.json"))
    environment = {**os.environ, **jobs[0].environment}
    if jobs[0].hash_seed is not None:
        environment["PYTHONHASHSEED"] = jobs[0].hash_seed
    source = str(Path(__file__).resolve().parents[3])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [source, environment.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "akeso.replay.trace.child", *files]
    try:
        done = subprocess.run(
            command, env=environment, cwd=jobs[0].cwd or None, timeout=timeout, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired as late:
        raise AkesoError(
            f"{jobs[0].script} did not reach the end within {late.timeout:.0f} seconds; ask for fewer steps"
        ) from late
    if done.returncode != 0:
        raise AkesoError(f"a process could not be started for {jobs[0].script}: {done.stderr.strip()[-400:]}")
