"""Running two recorded programs again up to the step in which they differ, with every operation written
down.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from akeso.errors import AkesoError
from akeso.replay.diff.recording import CAUSAL, SCRIPT, Recording, read_recording
from akeso.replay.resume import VARIABLE, Orders, command_of
from akeso.replay.trace.job import Job, Launcher, Status
from akeso.replay.trace.operation import Operation, read_trace

TRACE = "trace.jsonl"


@dataclass(frozen=True, slots=True)
class Rerun:
    """One recorded program, run again."""

    recording: Recording | None
    operations: tuple[Operation, ...]
    repeats: bool | None
    """Whether the steps came out as recorded; None when nothing could be compared."""
    departure: str = ""
    """Where the re-run left the record, when it did."""
    problem: str = ""


def rerun_both(
    a: Recording, b: Recording, step: int, scratch: Path, launcher: Launcher
) -> tuple[Rerun, Rerun]:
    """Run both programs again up to ``step``, that step traced."""
    jobs: list[Job | str] = []
    for number, recording in enumerate((a, b)):
        try:
            jobs.append(_job(recording, step, scratch / str(number)))
        except AkesoError as error:
            jobs.append(str(error))
    real = [job for job in jobs if isinstance(job, Job)]
    try:
        statuses = iter(launcher.run(real))
    except AkesoError as error:
        failed = Rerun(None, (), None, problem=str(error))
        return failed, failed
    outcomes = []
    for job, recording in zip(jobs, (a, b), strict=True):
        if isinstance(job, str):
            outcomes.append(Rerun(None, (), None, problem=job))
        else:
            outcomes.append(_outcome(job, next(statuses), recording, step))
    return outcomes[0], outcomes[1]


def _job(recording: Recording, step: int, folder: Path) -> Job:
    if int(recording.begin.get("processes", 1)) > 1:
        raise AkesoError(
            f"{recording.name} ran on {recording.begin['processes']} processes; only a single process is "
            "run again"
        )
    environment = {n: v for n, v in recording.fingerprint.get("environment", {}).items() if v}
    threads = recording.fingerprint.get("threads", {}).get("intra-op")
    hash_seed = recording.fingerprint.get("hash seed", {}).get("PYTHONHASHSEED", "random")
    shared: dict[str, Any] = {
        "folder": str(folder),
        "trace": step,
        "environment": environment,
        "threads": threads,
        "hash_seed": None if hash_seed == "random" else hash_seed,
    }
    if not recording.recorded:
        command, cwd, _ = command_of(recording.folder)
        script = recording.begin["program"]["script"]
        orders = Orders(
            "replay", str(recording.folder.resolve()), True, step, step, str(folder / "report.json")
        )
        told = {**environment, VARIABLE: orders.environment()[VARIABLE]}
        arguments = tuple(command[_position(command, script) + 1 :])
        return Job(
            **{**shared, "environment": told}, script=script, arguments=arguments, cwd=cwd, trace_run=True
        )
    command = recording.begin["command"]
    script = command.get("script", "")
    copy = recording.folder / SCRIPT
    if not script or not copy.exists():
        raise AkesoError(f"{recording.name} does not say which script it was")
    _check_modules(recording, Path(script))
    begun = recording.begin["fingerprint"]["threads"]["intra-op"]
    return Job(
        **{**shared, "threads": begun},
        script=script,
        source=str(copy.resolve()),
        arguments=tuple(command["arguments"]),
        cwd=command["cwd"],
        seed=recording.begin["seed"],
        steps=step,
        fixed=tuple(recording.begin.get("fixed", ())),
    )


def _check_modules(recording: Recording, script: Path) -> None:
    """The script itself is kept as a copy; modules beside it must still be what they were."""
    for name, digest in recording.begin.get("code", {}).items():
        path = script.parent / name
        if path == script:
            continue
        if not path.exists() or blake2b(path.read_bytes(), digest_size=12).hexdigest() != digest:
            raise AkesoError(
                f"{name} has changed since {recording.name} was recorded, which cannot be run again"
            )


def _outcome(job: Job, ended: Status, recording: Recording, step: int) -> Rerun:
    trace = Path(job.folder) / TRACE
    if not trace.exists():
        problem = ended.error or f"the program ended before step {step}"
        return Rerun(None, (), None, problem=f"{recording.name} could not be run again: {problem}")
    operations = tuple(read_trace(trace))
    again = read_recording(Path(job.folder))
    if not recording.recorded:
        return Rerun(again, operations, None)
    departure = _departure(recording, again, step)
    return Rerun(again, operations, not departure, departure)


def _departure(recorded: Recording, again: Recording, step: int) -> str:
    for number in range(1, step + 1):
        then, now = recorded.steps.get(number), again.steps.get(number)
        if then is None or now is None:
            return f"step {number} is missing"
        for name in CAUSAL:
            if then.get(name) is not None and now.get(name) is not None and then[name] != now[name]:
                return f"step {number}: {name}"
    return ""


def _position(command: list[str], script: str) -> int:
    names = [os.path.basename(word) for word in command]
    name = os.path.basename(script)
    return names.index(name) if name in names else 0
