"""The course of an audit: run twice, find out what makes the runs differ, then try what else could."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from akeso.errors import BadInput
from akeso.replay.audit.explain import (
    directory_source,
    entropy_source,
    file_sources,
    hash_source,
    operation_source,
    setting_sources,
    unseeded_source,
)
from akeso.replay.audit.report import AuditReport, Source
from akeso.replay.audit.trials import RESULTS, Trial, Trials
from akeso.replay.diff.operations import first_operation
from akeso.replay.diff.recording import first_difference
from akeso.replay.trace.entropy import Event
from akeso.replay.trace.job import Launcher
from akeso.replay.trace.operation import read_trace

_MOST_CANDIDATES = 8
_REPEATS = 2
"""Further runs that have to be equal before something else is blamed: two of a race agree by chance."""
GLOBALS = ("python", "numpy", "torch")


def audit_script(
    script: Path,
    arguments: Sequence[str] = (),
    *,
    steps: int = 8,
    timeout: float | None = None,
    launcher: Launcher | None = None,
) -> AuditReport:
    """Run a script a few times, and report what makes its results differ from run to run.

    Args:
        script: The training script.
        arguments: Its arguments.
        steps: Optimizer steps each run is given.
        timeout: Seconds one run may take.
        launcher: What runs the script, when several audits are to share it.
    """
    if not script.is_file():
        raise BadInput(f"there is no script {script}")
    if steps < 1:
        raise BadInput(f"an audit needs at least one step, not {steps}")
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="akeso-audit-")))
        chosen = launcher or cleanup.enter_context(Launcher(timeout))
        return _Audit(Trials(script, arguments, folder, steps, chosen), script).report()


class _Audit:
    def __init__(self, trials: Trials, script: Path) -> None:
        self._trials, self._script = trials, script
        self._sources: list[Source] = []
        self._conditions: list[str] = []
        self._notes: list[str] = []
        self._steady: dict[int, Trial | None] = {}

    def report(self) -> AuditReport:
        [first] = self._trials.run({})
        [second] = self._trials.run({"hash_seed": "1"})
        tried = self._trials.attempt(*_perturbations())
        steps = len(first.recording.steps)
        if steps == 0:
            self._notes.append("no optimizer step was seen, so there was nothing to compare")
        departure = first.departs(second)
        basis, changes = first, dict[str, Any]()
        if departure:
            repeats = self._departing(first, {}) is None
            if not repeats:
                basis, changes = self._wavering(first)
            self._hashing(basis, changes, known=departure if repeats else None)
        found = self._perturb(basis, changes, tried if basis is first else None)
        if found and (other := self._departing(basis, changes)) is not None:
            # It was not what was changed: the script does not repeat itself.
            departure = departure or first.departs(other)
            if basis is first:
                basis, changes = self._wavering(first)
                found = self._perturb(basis, changes, None)
                other = self._departing(basis, changes)
            elif not self._blind():
                self._trace(basis, other, changes)
            found = found if other is None else []
        self._sources += [item for item in found if isinstance(item, Source)]
        self._conditions += [item for item in found if isinstance(item, str)]
        self._sources += setting_sources(first)
        if departure:
            self._sources += file_sources(first)
        else:
            self._notes += [
                f"{path} changed while the script was running" for path in first.status.changed_files
            ]
        typing = tuple(first.status.typing)
        return AuditReport(
            script=str(self._script),
            steps=steps,
            runs=self._trials.count,
            equal=not departure and steps > 0,
            sources=tuple(self._sources),
            conditions=tuple(self._conditions),
            notes=tuple(self._notes),
            typing=typing,
        )

    def _departing(self, basis: Trial, changes: dict[str, Any]) -> Trial | None:
        """Run what gave ``basis`` again, a few times; the first that differs from it."""
        if id(basis) not in self._steady:
            again = self._trials.run(*[changes] * _REPEATS)
            self._steady[id(basis)] = next((trial for trial in again if basis.departs(trial)), None)
        return self._steady[id(basis)]

    def _blind(self) -> bool:
        """Tell whether runs differ for a reason that cannot be held fixed: nothing can be compared with them."""
        return any(source.kind in ("operation", "unknown") for source in self._sources)

    def _wavering(self, first: Trial) -> tuple[Trial, dict[str, Any]]:
        """Two runs alike in everything differ: find out which sources are to blame by holding them fixed."""
        # Not compared with the others: to watch every draw, torch must not run compiled code.
        [watched] = self._trials.run({"watch_draws": True})
        drawn = dict(watched.status.draws)
        one, other, held, events = self._hold(first, tuple(name for name in GLOBALS if name in drawn))
        left = one.departs(other)
        fixed, seeded = held["fixed"], held["seeded"]
        alone = len(fixed) + len(seeded) == 1 and not left
        for event in events:
            rest = {**held, "fixed": tuple(address for address in fixed if address != _address(event))}
            self._blame(one, rest, event, alone)
        for name in seeded:
            rest = {**held, "seeded": tuple(another for another in seeded if another != name)}
            [trial] = [None] if alone else self._trials.attempt(rest)
            if alone or (trial is not None and trial.departs(one)):
                self._sources.append(unseeded_source(name, drawn[name], self._script))
        if left:
            self._trace(one, other, held)
        return one, held

    def _hold(
        self, first: Trial, seeded: tuple[str, ...]
    ) -> tuple[Trial, Trial, dict[str, Any], list[Event]]:
        """Hold more and more fixed until two runs agree: generators, then entropy, then the clock.

        Clocks come last because nearly every script reads them, for its logs.
        """
        events: list[Event] = []
        outcome: tuple[Trial, Trial, dict[str, Any], list[Event]] | None = None
        for kind in ("generator", "entropy", "time"):
            added = _candidates(first, kind)
            if not added and (outcome is not None or (kind == "generator" and not seeded)):
                continue
            events = events + added
            held: dict[str, Any] = {"fixed": tuple(_address(event) for event in events), "seeded": seeded}
            one, other = self._trials.run(held, held)
            if not one.departs(other):
                other = self._departing(one, held) or other
            outcome = (one, other, held, events)
            if not one.departs(other):
                break
        if outcome is None:
            held = {"fixed": (), "seeded": seeded}
            one, other = self._trials.run(held, held)
            outcome = (one, other, held, [])
        return outcome

    def _blame(self, basis: Trial, rest: dict[str, Any], event: Event, alone: bool) -> None:
        evidence = "with this call made to repeat, two runs are equal"
        if not alone:
            [trial] = self._trials.attempt(rest)
            departure = trial.departs(basis) if trial is not None else ""
            if not departure:
                if event.kind == "generator":
                    self._notes.append(
                        f"{event.what} at {event.place} did not reach the training in these steps"
                    )
                return
            evidence = f"with everything else made to repeat, runs still differ because of it ({departure})"
        self._sources.append(entropy_source(event, evidence))

    def _trace(self, one: Trial, other: Trial, held: dict[str, Any]) -> None:
        """Nothing that was held fixed explains it: look for the operation."""
        step = _first_step(one, other)
        traced = self._trials.run({**held, "trace": step}, {**held, "trace": step})
        paths = [Path(trial.job.folder) / "trace.jsonl" for trial in traced]
        difference = (
            first_operation(*(read_trace(path) for path in paths)) if all(p.exists() for p in paths) else None
        )
        self._sources.append(operation_source(difference, one.departs(other)))

    def _hashing(self, basis: Trial, changes: dict[str, Any], known: str | None) -> None:
        """Try another hash seed with everything else held; ``known`` is what is already known to differ."""
        departure = known
        if departure is None:
            [trial] = self._trials.attempt({**changes, "hash_seed": "1"})
            departure = trial.departs(basis) if trial is not None else ""
            if not departure or self._blind():
                return
        self._sources.append(hash_source(self._script, basis, departure))

    def _perturb(
        self, basis: Trial, changes: dict[str, Any], tried: Sequence[Trial | None] | None
    ) -> list[Source | str]:
        """What else could make runs differ elsewhere: folders; and what bits depend on: threads, workers."""
        found: list[Source | str] = []
        if self._blind():
            return found
        folders = list(dict.fromkeys(e for e in basis.recording.events if e.kind == "folder"))[
            :_MOST_CANDIDATES
        ]
        if folders:
            fixed = [(*changes.get("fixed", ()), _address(event)) for event in folders]
            trials = self._trials.attempt(*({**changes, "fixed": addresses} for addresses in fixed))
            for event, trial in zip(folders, trials, strict=True):
                if trial is not None and (departure := trial.departs(basis)):
                    found.append(directory_source(event, departure))
        if tried is None:
            tried = self._trials.attempt(*({**changes, **change} for change in _perturbations()))
        threads, workers = tried
        if threads is not None and (departure := threads.departs(basis)):
            found.append(
                f"the number of threads (now {basis.recording.fingerprint['threads']['intra-op']}; with "
                f"{threads.job.threads} the bits differ at {departure}); pin it with torch.set_num_threads or "
                "OMP_NUM_THREADS"
            )
        loaders = (line for line in basis.recording.settings if line["name"].startswith("loader"))
        loader = next(loaders, None)  # without one, it was not the workers
        if workers is not None and loader is not None and (departure := workers.departs(basis)):
            found.append(
                f"the number of loader workers (now {loader['values']['workers']}; with one more the bits differ at "
                f"{departure}); keep it fixed, or let akeso.replay.Run key the randomness of each sample"
            )
        return found


def _perturbations() -> tuple[dict[str, Any], dict[str, Any]]:
    """Another number of threads, and one more worker for every loader."""
    # As many threads as the script itself will find; a script that sets the number by itself is not perturbed.
    found = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))
    return {"threads": 1 if found > 1 else 2}, {"workers": 1}


def _candidates(trial: Trial, kind: str) -> list[Event]:
    """The sources of a kind that could be to blame, those in the loop first."""
    seen: dict[tuple[str, int], Event] = {}
    for event in trial.recording.events:
        if event.kind == kind:
            seen.setdefault((event.file, event.line), event)
    return sorted(seen.values(), key=lambda event: not event.in_step)[:_MOST_CANDIDATES]


def _address(event: Event) -> str:
    return f"{event.kind}@{event.file}:{event.line}"


def _first_step(one: Trial, other: Trial) -> int:
    step, _ = first_difference(one.recording, other.recording, RESULTS)
    return step or 1
