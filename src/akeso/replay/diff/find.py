"""From two run folders to the first cause of their difference."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from akeso.replay import fingerprint
from akeso.replay.diff.finding import Finding
from akeso.replay.diff.operations import first_operation
from akeso.replay.diff.reasons import Case, conclude
from akeso.replay.diff.recording import Recording, first_difference, read_recording
from akeso.replay.diff.rerun import rerun_both
from akeso.replay.trace.job import Launcher


def find_difference(
    a: str | Path,
    b: str | Path,
    *,
    run_again: bool = True,
    timeout: float | None = None,
    launcher: Launcher | None = None,
) -> Finding:
    """Compare two runs, and find what made them differ.

    Args:
        a: The folder of a run.
        b: The folder of another.
        run_again: Run both programs again up to the differing step, to find the first operation.
        timeout: Seconds a program may take to get there.
        launcher: What runs the programs, when there are many pairs to compare.
    """
    first, second = read_recording(Path(a)), read_recording(Path(b))
    compared = len(set(first.steps) & set(second.steps))
    environment = environment_differences(first, second)
    step, differing = first_difference(first, second)
    notes: list[str] = []
    if compared == 0:
        notes.append("the runs have no step in common, so nothing could be compared")
    if set(first.steps) != set(second.steps):
        notes.append(f"{first.name} has {len(first.steps)} steps, {second.name} has {len(second.steps)}")
    if step is None:
        equal = compared > 0
        return Finding(
            str(a), str(b), equal, compared, "" if equal else "unknown", environment=environment,
            notes=tuple(notes), summary="" if equal else "nothing to compare",
        )  # fmt: skip
    operation, reruns = None, None
    if run_again:
        with ExitStack() as cleanup:
            scratch = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="akeso-diff-"))
            chosen = launcher or cleanup.enter_context(Launcher(timeout))
            reruns = rerun_both(first, second, step, Path(scratch), chosen)
        notes += [again.problem for again in reruns if again.problem]
        if all(again.operations for again in reruns):
            operation = first_operation(reruns[0].operations, reruns[1].operations)
    case = Case(first, second, step, differing, operation, reruns, environment)
    cause, summary, evidence = conclude(case)
    return Finding(
        str(a), str(b), False, compared, cause, summary, step, differing, operation, tuple(evidence),
        environment, tuple(dict.fromkeys(notes)),
    )  # fmt: skip


def environment_differences(a: Recording, b: Recording) -> tuple[str, ...]:
    """A sentence for everything around the programs in which two runs differ."""
    found = [_worded(line) for line in fingerprint.differences(a.fingerprint, b.fingerprint)]
    hashes = [r.fingerprint.get("hash seed", {}).get("PYTHONHASHSEED") for r in (a, b)]
    if hashes[0] != hashes[1] or hashes[0] == "random":
        found.append(f"hash seed: PYTHONHASHSEED {hashes[0]} and {hashes[1]}")
    processes = [r.begin.get("processes", 1) for r in (a, b)]
    if processes[0] != processes[1]:
        found.append(f"processes: {processes[0]} and {processes[1]}")
    if a.begin.get("seed") != b.begin.get("seed"):
        found.append(f"seed: {a.begin.get('seed')} and {b.begin.get('seed')}")
    arguments = [_arguments(r.begin) for r in (a, b)]
    if arguments[0] != arguments[1]:
        found.append(f"arguments: [{' '.join(arguments[0])}] and [{' '.join(arguments[1])}]")
    code = [r.begin.get("code", {}) for r in (a, b)]
    found += [
        f"code: {name} is not the same in both" for name in code[0] if code[1].get(name, "") != code[0][name]
    ]
    return tuple(found)


def _worded(line: str) -> str:
    """Neither run comes first: ``was 4, is 1`` becomes ``4 and 1``."""
    return line.replace(" was ", " ").replace(", is ", " and ")


def _arguments(begin: Mapping[str, Any]) -> list[str]:
    command = begin.get("command")
    if isinstance(command, Mapping):
        return [str(word) for word in command.get("arguments", ())]
    program = begin.get("program")
    return [str(word) for word in program["command"]] if isinstance(program, Mapping) else []
