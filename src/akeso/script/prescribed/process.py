"""A child process that runs a script, pauses where it was told to, and goes on when it is asked to."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from akeso.script.prescribed.order import Order
from akeso.threads import yielding

_GRACE = 5.0  # seconds a process has to end by itself before it is killed
_PARENT_DEATH = 1  # PR_SET_PDEATHSIG
_LOOK = 0.5  # seconds between looks at whether it still lives


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a process stopped running: "paused", "ended" with an exit code, or "late"."""

    why: str
    code: int = 0


class Running:
    """One child process. It pauses by itself at the steps it is given; who lets go of it ends it."""

    def __init__(self, order: Order) -> None:
        self.folder = Path(order.folder)
        told, self._tell = os.pipe()
        self._hear, answer = os.pipe()
        replace(order, control=[told, answer]).write(self.folder / "order.json")
        command = [sys.executable, "-m", "akeso.script.prescribed", str(self.folder / "order.json")]
        try:
            with open(self.folder / "output.log", "wb") as log:
                self._child = subprocess.Popen(
                    command,
                    env=yielding(os.environ),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(told, answer),
                    start_new_session=True,  # Ctrl-C is for us, who then end it in order
                )
        finally:
            os.close(told)
            os.close(answer)
        self.alive = True

    def wait(self, limit: float | None) -> Stop:
        """Wait until it pauses or ends, at most so many seconds; a late one is ended."""
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            left = _LOOK if deadline is None else min(_LOOK, deadline - time.monotonic())
            if left <= 0:
                self.end()
                return Stop("late")
            ready, _, _ = select.select([self._hear], [], [], left)
            if ready and os.read(self._hear, 1):
                return Stop("paused")
            code = self._child.poll()
            if code is None and ready:  # it has closed its end and is about to go
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = self._child.wait(_LOOK)
            if code is not None:
                self.end()
                return Stop("ended", code)

    def go_on(self, max_steps: int | None, stop_on_error: bool) -> None:
        """Let a paused process run up to another step."""
        line = json.dumps({"max_steps": max_steps, "stop_on_error": stop_on_error})
        with contextlib.suppress(BrokenPipeError):
            os.write(self._tell, line.encode() + b"\n")

    def end(self) -> None:
        """End the process and everything it has started. A paused one hears that nobody waits and goes."""
        if not self.alive:
            return
        self.alive = False
        os.close(self._tell)
        os.close(self._hear)
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_GRACE)
                break


def _end_with_parent() -> None:
    """Let the system end this process where its parent goes without a word, if it knows how to."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)


class Control:
    """The child's end: tells that it pauses, and waits to be told to go on."""

    def __init__(self, descriptors: list[int]) -> None:
        self._told, self._answer = descriptors
        _end_with_parent()

    def pause(self) -> dict[str, Any] | None:
        """Wait for orders; None when there will be none."""
        with contextlib.suppress(OSError):
            os.write(self._answer, b"p")
            data = b""
            while not data.endswith(b"\n"):
                part = os.read(self._told, 4096)
                if not part:
                    return None
                data += part
            orders: dict[str, Any] = json.loads(data)
            return orders
        return None
