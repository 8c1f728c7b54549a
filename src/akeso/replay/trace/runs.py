"""Tracing a step of a program that uses ``akeso.replay.Run``, which counts steps by itself."""

from __future__ import annotations

from typing import Any

from akeso.replay.run import Run
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
