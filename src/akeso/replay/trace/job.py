"""Running a program in a process of its own, recorded, traced or perturbed as a job says."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from akeso.errors import AkesoError
from akeso.threads import yielding

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


class Launcher:
    """Runs jobs, each in a process of its own, one after the other.

    For every hash seed and environment one process imports torch, once, and forks for each job: a job then starts
    in a tenth of a second. Use it as a context manager; leaving it ends these processes.

    Args:
        timeout: Seconds one job may take.
    """

    def __init__(self, timeout: float | None = None) -> None:
        self._timeout = timeout
        self._servers: dict[tuple[object, ...], subprocess.Popen[str]] = {}

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *exception: object) -> None:
        for server in self._servers.values():
            if server.stdin is not None:
                server.stdin.close()
            try:
                server.wait(timeout=10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            if server.stdout is not None:
                server.stdout.close()
        self._servers = {}

    def run(self, jobs: Sequence[Job]) -> list[Status]:
        """Run jobs in their order, and say how each ended."""
        for job in jobs:
            folder = Path(job.folder)
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / "job.json"
            file.write_bytes(msgspec.json.encode(job))
            self._order(job, file)
        return [status(job) for job in jobs]

    def _order(self, job: Job, file: Path) -> None:
        kind = (job.hash_seed, *sorted(job.environment.items()))
        server = self._servers.get(kind)
        if server is None:
            server = self._servers[kind] = _start(job)
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            server.stdin.write(f"{file}\n")
            server.stdin.flush()
        except BrokenPipeError:
            raise AkesoError(
                f"the process that runs {job.script} has died before it could start it"
            ) from None
        waiter = threading.Timer(self._timeout, server.kill) if self._timeout else None
        if waiter is not None:
            waiter.start()
        answer = server.stdout.readline()
        if waiter is not None:
            waiter.cancel()
        if answer:
            return
        del self._servers[kind]
        server.wait()
        server.stdin.close()
        server.stdout.close()
        if self._timeout:
            raise AkesoError(
                f"{job.script} did not come to an end within {self._timeout:g} seconds; ask for fewer steps"
            )
        raise AkesoError(f"the process that runs {job.script} ended with status {server.returncode}")


def execute(jobs: Sequence[Job], timeout: float | None = None) -> list[Status]:
    """Run jobs one after the other, each in a fresh process, and say how each ended."""
    with Launcher(timeout) as launcher:
        return launcher.run(jobs)


def status(job: Job) -> Status:
    """How a job ended."""
    path = Path(job.folder) / STATUS
    if not path.exists():
        output = Path(job.folder) / OUTPUT
        tail = output.read_text(errors="replace")[-400:] if output.exists() else "it wrote nothing"
        return Status(error=f"the process ended without saying how; the end of its output: {tail}")
    return msgspec.json.decode(path.read_bytes(), type=Status)


def _start(job: Job) -> subprocess.Popen[str]:
    environment = yielding({**os.environ, **job.environment})
    if job.hash_seed is not None:
        environment["PYTHONHASHSEED"] = job.hash_seed
    source = str(Path(__file__).resolve().parents[3])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [source, environment.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-m", "akeso.replay.trace.child"],
        env=environment,
        cwd=job.cwd or None,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # A group of its own: an interrupt ends the launcher, which then ends its processes in order.
        start_new_session=True,
    )
