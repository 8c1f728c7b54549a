"""The process in which a job runs: ``python -m akeso.replay.trace.child``."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import subprocess
import sys
import traceback
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec
import numpy as np
import torch

from akeso.replay import deterministic
from akeso.replay.trace.entropy import Entropy
from akeso.replay.trace.files import FileWatch
from akeso.replay.trace.job import OUTPUT, STATUS, Job, Status
from akeso.replay.trace.lines import is_own, own_line
from akeso.replay.trace.recorder import EVENTS, Enough, Recorder
from akeso.replay.trace.runs import Redirect, follow
from akeso.replay.trace.unseeded import Unseeded


def main() -> None:
    """Read names of job files from the standard input, run each, and answer with a line when it has ended."""
    # The first optimizer of a process loads it; loaded here, it is loaded once.
    with contextlib.suppress(ImportError):
        importlib.import_module("torch._dynamo")
    for line in sys.stdin:
        path = line.strip()
        if hasattr(os, "fork"):
            child = os.fork()
            if child == 0:
                _forked(path)
            os.waitpid(child, 0)
        else:
            command = [sys.executable, "-c", f"from akeso.replay.trace.child import alone; alone({path!r})"]
            subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
        print("ended", flush=True)


def alone(path: str) -> None:
    """Run the job of a file in this process."""
    run(msgspec.json.decode(Path(path).read_bytes(), type=Job))


def _forked(path: str) -> NoReturn:
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        # A fresh process seeds itself from the system; a forked one would inherit its parent's state.
        random.seed()
        np.random.seed()
        torch.seed()
        alone(path)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(job: Job) -> None:
    """Run one job in this process and write its status."""
    folder = Path(job.folder)
    _redirect(folder / OUTPUT)
    if job.cwd:
        os.chdir(job.cwd)
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    sys.argv = [job.script, *job.arguments]
    sys.orig_argv = [sys.executable, *sys.argv]
    sys.path[0] = str(Path(job.script).resolve().parent)
    fixed = set(job.fixed)
    if job.seed is not None:
        deterministic.prepare(job.seed, patch=False)
        fixed.add("generator")
    _seed(job.seeded)
    redirect = Redirect(folder / "run") if job.redirect_runs else None
    if job.alerts:
        torch.use_deterministic_algorithms(True, warn_only=True)
    entropy = Entropy(folder / EVENTS, seed=job.seed or 0, fixed=fixed)
    unseeded = Unseeded() if job.watch_draws else None
    files = FileWatch()
    recorder = Recorder(
        folder,
        seed=job.seed,
        command={"script": job.script, "arguments": list(job.arguments), "cwd": job.cwd or os.getcwd()},
        stop_after=job.steps,
        trace=None if job.trace_run else job.trace,
        entropy=entropy,
        workers=job.workers,
    )
    error, line, enough = "", "", False
    entropy.start()
    if unseeded is not None:
        unseeded.start()
    files.start()
    recorder.start()
    if job.trace_run and job.trace is not None:
        follow(recorder, job.trace)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        places = _Places()
        warnings.showwarning = places  # type: ignore[assignment]
        try:
            _execute(job)
        except Enough:
            enough = True
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                error, line = f"SystemExit: {leaving.code}", _last_own_line(leaving)
        except BaseException as failure:  # the program's own failure is a result, not ours
            traceback.print_exc()
            error, line = f"{type(failure).__name__}: {failure}", _last_own_line(failure)
    del caught
    recorder.close()
    if unseeded is not None:
        unseeded.stop()
    entropy.stop()
    found = Status(
        error=error[:500],
        line=line,
        enough=enough,
        alerts=tuple(places.alerts),
        draws=tuple(unseeded.draws.items()) if unseeded is not None else (),
        changed_files=files.changed(),
        facts=_facts(),
        typing=redirect.typing() if redirect is not None else (),
    )
    (folder / STATUS).write_bytes(msgspec.json.encode(found))


def _execute(job: Job) -> None:
    """Run the script as ``__main__``; its text may come from a copy, its name and folder are the script's
    own.
    """
    source = Path(job.source or job.script).read_bytes()
    program = types.ModuleType("__main__")
    program.__dict__.update(__file__=job.script, __builtins__=__builtins__)
    sys.modules["__main__"] = program
    exec(compile(source, job.script, "exec"), program.__dict__)


class _Places:
    """Takes warnings and keeps those in which torch names an operation without a deterministic form."""

    def __init__(self) -> None:
        self.alerts: list[tuple[str, str]] = []

    def __call__(self, message: Warning | str, *rest: object) -> None:
        text = str(message)
        if "does not have a deterministic implementation" in text:
            entry = (text.split(" does not have")[0].strip(), own_line())
            if entry not in self.alerts:
                self.alerts.append(entry)


def _seed(names: tuple[str, ...]) -> None:
    seeds: dict[str, Callable[[int], object]] = {
        "python": random.seed,
        "numpy": np.random.seed,
        "torch": torch.manual_seed,
    }
    for name in names:
        seeds[name](0)


def _facts() -> dict[str, str]:
    """Settings of the process at its end that decide over bits on an accelerator."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return {}
    return {
        "cudnn.benchmark": str(torch.backends.cudnn.benchmark),
        "cudnn.deterministic": str(torch.backends.cudnn.deterministic),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
    }


def _last_own_line(error: BaseException) -> str:
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_own(frame.filename):
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return ""


def _redirect(path: Path) -> None:
    """Send everything the program prints, from any level, to a file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


if __name__ == "__main__":
    main()
