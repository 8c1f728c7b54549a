"""What a run says and writes down: on standard error, in its notes, and in its journal where it keeps one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from akeso.errors import Refused
from akeso.replay.journal import ReplayJournal
from akeso.replay.run_recording import Recorder
from akeso.replay.state_held import Hole


class RunLog:
    """The voice of a run. Whatever it says is in its journal too, once there is one and as long as there is."""

    def __init__(self, strict: bool = True) -> None:
        self._strict = strict
        self._lost: set[str] = set()
        self._waited = False
        self._over: set[str] = set()
        self.notes: list[str] = []
        self.journal: ReplayJournal | None = None
        #: What cannot be written at present, as it was said: once when it begins, once when it is over.
        self.unwritten: set[str] = set()

    def say(self, text: str) -> None:
        """Tell the user."""
        self.notes.append(text)
        print(f"akeso: {text}", file=sys.stderr)
        self.write("note", {"text": text})

    def write(self, kind: str, fields: dict[str, Any]) -> None:
        """Write a line into the journal, if there is one."""
        if self.journal is not None:
            self.journal.append(kind, fields)

    def snapshots(self, finished: Iterable[tuple[int, int, float, str | None]]) -> None:
        """Note the snapshots that were written in the background, and say what could not be."""
        for step, size, seconds, trouble in finished:
            if trouble is not None:
                self.write("trouble", {"step": step, "text": trouble})
                self.failing(
                    "snapshot",
                    f"the snapshot of step {step} could not be written: {trouble}; the ones before it stay, and "
                    "later ones are tried",
                )
            else:
                self.write("snapshot", {"step": step, "bytes": size, "seconds": round(seconds, 4)})
                self.works("snapshot", f"snapshots can be written again, that of step {step} is")
        if self.journal is not None and self.journal.trouble is not None:
            self.failing("journal", f"{self.journal.trouble}; its lines wait until they can be")
        elif self.journal is not None and self.unwritten:
            self.works("journal", f"the journal {self.journal.path} can be written again")

    def attempt(self, name: str, write: Callable[[], None]) -> None:
        """Write a file, or say that it could not be."""
        try:
            write()
        except OSError as error:
            self.failing(
                name, f"{name} could not be written: {error.strerror}; it is tried again with every snapshot"
            )
        else:
            self.works(name, f"{name} has been written")

    def failing(self, what: str, text: str) -> None:
        """Say that something cannot be written, unless that was said and has not changed since."""
        if what not in self.unwritten:
            self.unwritten.add(what)
            self.say(text)

    def works(self, what: str, text: str) -> None:
        """Say that something can be written again, if it could not."""
        if what in self.unwritten:
            self.unwritten.remove(what)
            self.say(text)

    def lost(self, holes: Iterable[Hole]) -> None:
        """Refuse to go on with state that a resume would lose, or say it where that is wanted."""
        fresh = [hole for hole in holes if hole.name not in self._lost]
        if not fresh:
            return
        listed = "\n".join(f"  - {hole}" for hole in fresh)
        text = f"state that nobody classified would be lost by a resume:\n{listed}"
        if self._strict:
            raise Refused(f"{text}\nOr make the run with strict=False, and have this said instead.")
        self._lost |= {hole.name for hole in fresh}
        self.say(text)

    def waiting(self, step: int, loop: str) -> None:
        """Say once that no snapshot has been taken for long, since no place was one to go on from."""
        if not self._waited:
            self._waited = True
            self.say(
                f"no snapshot since step {step}: the batches of {loop!r} are asked for in the middle of a loop of the "
                "program's own, or from another place in it than at first. One is taken where a for asks "
                "run.batches(…), run.iterations(…) or run.epochs(…) for its next item"
            )

    def over(self, loop: str) -> None:
        """Say once that batches which are over are asked for again."""
        if loop not in self._over:
            self._over.add(loop)
            self.say(
                f"the batches of {loop!r} are over and were asked for again, which gives nothing more: "
                "run.batches(...) gives all its epochs in one pass. To train on, say epochs=n and go over it once "
                "(under Lightning with max_epochs=1), or call run.batches(...) anew inside `for epoch in run.epochs(n)`"
            )

    def processes(self, differing: Mapping[str, list[int]]) -> None:
        """Say which variables are not the same in all processes of a run, if any are not."""
        if differing:
            names = ", ".join(sorted(differing)[:3])
            self.say(
                f"{names}: not the same in all processes; a snapshot holds the values of process 0, with which "
                "all of them go on. Combine them (all_reduce), or do without them after a resume"
            )

    def close(self) -> None:
        """Finish the journal."""
        if self.journal is not None:
            self.journal.close()
            self.journal = None


class Repeats:
    """The steps that were run again: which of them differ from what a process before had written."""

    def __init__(self, recorder: Recorder, log: RunLog, steps: int) -> None:
        self._recorder, self._log = recorder, log
        self._said = False
        found = log.journal.found.all("mismatch") if log.journal is not None else ()
        #: What processes before this one found, as far as this one stands on their steps.
        self.inherited = tuple(_differs(line["step"], line["in"]) for line in found if line["step"] <= steps)

    @property
    def mismatches(self) -> tuple[str, ...]:
        """All that differ, one sentence each."""
        now = (_differs(then.step, names) for then, _, names in self._recorder.mismatches)
        return (*self.inherited, *now)

    def tell(self) -> None:
        """Say the first step that came out differently, once; all of them are in the journal."""
        if self._recorder.mismatches and not self._said:
            self._said = True
            then, _, names = self._recorder.mismatches[0]
            self._log.say(
                "what was run again differs from what the process before had written: "
                f"{_differs(then.step, names)}"
            )

    def tell_drift(self) -> None:
        """Say how far the steps that were run again have come from those of before."""
        compared = len(self._recorder.compared)
        if compared:
            self._log.say(
                f"of {compared} steps run again, {len(self._recorder.mismatches)} differ; "
                f"the loss by up to {self._recorder.largest_drift():.3g} of its value"
            )


def _differs(step: int, names: Iterable[str]) -> str:
    return f"step {step}: {', '.join(names)} differ"
