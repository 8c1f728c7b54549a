"""The runs of an audit: each a script as it is, or with something held fixed or changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from akeso.errors import BadInput
from akeso.replay.diff.recording import CAUSAL, Recording, first_difference, read_recording
from akeso.replay.trace.job import Job, Launcher, Status

# A generator may be in another state and never touch the training; what counts is what comes of it.
RESULTS = tuple(name for name in CAUSAL if name != "generators")


@dataclass(frozen=True, slots=True)
class Trial:
    """One run and what came of it."""

    job: Job
    status: Status
    recording: Recording

    def departs(self, other: Trial) -> str:
        """Where this run departs from another: the step and the digest; empty when all bits are equal."""
        step, names = first_difference(self.recording, other.recording, RESULTS)
        if step is not None:
            return f"step {step}: {names[0]}"
        if len(self.recording.steps) != len(other.recording.steps):
            return f"one run has {len(self.recording.steps)} steps, the other {len(other.recording.steps)}"
        for name, parameters in self.recording.models.items():
            if other.recording.models.get(name, parameters) != parameters:
                return "the initial parameters"
        return ""


class Trials:
    """Makes the runs of one audit, in a scratch folder, and counts them."""

    def __init__(
        self, script: Path, arguments: Sequence[str], folder: Path, steps: int, launcher: Launcher
    ) -> None:
        self._shared: dict[str, Any] = {
            "script": str(script.resolve()),
            "arguments": tuple(arguments),
            "cwd": str(Path.cwd()),
            "steps": steps,
            "redirect_runs": True,
        }
        self._folder, self._launcher = folder, launcher
        self.count = 0

    def run(self, *changes: dict[str, Any]) -> list[Trial]:
        """Run the script once for each set of changes; one that fails raises with the script's own error."""
        found = []
        for job, ended in self._execute(changes):
            if ended.error:
                where = f" ({ended.line})" if ended.line else ""
                raise BadInput(f"the script failed while it was audited: {ended.error}{where}")
            found.append(Trial(job, ended, read_recording(Path(job.folder))))
        return found

    def attempt(self, *changes: dict[str, Any]) -> list[Trial | None]:
        """Run the script with changes it may not survive; None for those it does not."""
        return [
            None if ended.error else Trial(job, ended, read_recording(Path(job.folder)))
            for job, ended in self._execute(changes)
        ]

    def _execute(self, changes: Sequence[dict[str, Any]]) -> list[tuple[Job, Status]]:
        jobs = []
        for change in changes:
            self.count += 1
            chosen = {**self._shared, "hash_seed": "0", **change}
            jobs.append(Job(folder=str(self._folder / str(self.count)), **chosen))
        return list(zip(jobs, self._launcher.run(jobs), strict=True))
