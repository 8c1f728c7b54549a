"""Tracing a step of a program that uses ``akeso.replay.Run``, which counts steps by itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from akeso.replay import snapshot
from akeso.replay.run import Run
from akeso.replay.snapshot_background import BackgroundWriter
from akeso.replay.trace.recorder import Recorder


def follow(recorder: Recorder, step: int) -> None:
    """Trace what lies between the end of step ``step - 1`` of the program's run and the end of ``step``.

    The wrappers stay for the rest of the process, which ends after the step.
    """
    stepping, restoring = Run.step, Run._restore
    run_class: Any = Run

    def traced_step(run: Run, loss: Any = None) -> None:
        if run.steps + 1 == step:
            recorder.end_trace()
        stepping(run, loss)
        if run.steps + 1 == step:
            recorder.begin_trace()

    def traced_restore(run: Run, frame: Any) -> None:
        restoring(run, frame)
        if run.steps + 1 == step:
            recorder.begin_trace()

    run_class.step, run_class._restore = traced_step, traced_restore
    if step == 1:
        recorder.begin_trace()


class Redirect:
    """Lets the runs of a script work in a scratch folder: an audit must not go on with somebody's run.

    Snapshots are taken early, so that there is one to read the classification of the state from.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._writers = folder, list[BackgroundWriter]()
        making = Run.__init__
        run_class: Any = Run

        def make(run: Run, folder: Any, *arguments: Any, **named: Any) -> None:
            named["snapshot_every"] = min(2, named.get("snapshot_every", 2))
            making(run, self._place(len(self._writers)), *arguments, **named)
            self._writers.append(run._writer)

        run_class.__init__ = make

    def _place(self, number: int) -> Path:
        return self._folder.with_name(f"{self._folder.name}{number}")

    def typing(self) -> tuple[dict[str, str], ...]:
        """How the state of the runs is classified: what their newest snapshots say.

        The script may have been ended while the first of them was still being written.
        """
        rows: list[dict[str, str]] = []
        for number, writer in enumerate(self._writers):
            writer.wait()
            info, _ = snapshot.newest_whole(self._place(number))
            if info is not None:
                rows += snapshot.load_tree(info)["about"]["typing"]
            else:
                print(f"no snapshot in {self._place(number)}", file=sys.stderr)
        return tuple(rows)
