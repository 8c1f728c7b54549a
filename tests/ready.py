"""A process that has imported torch already and turns into any command it is asked for.

Torch and its compiler take seconds to import, and with them begins every process that trains. Here they are
imported once: for each order on its input this process forks, and the child goes on as ``python …`` would, in
the folder, with the environment, the arguments and the files for its three streams that the order gives.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SECONDS = 600


class Ready:
    """The other end: starts that process when it is first needed, and gives it orders."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(
        self, arguments: Sequence[str], folder: Path, environment: dict[str, str], streams: Sequence[Path]
    ) -> int:
        """Begin ``python ARGUMENTS`` with these files as its streams; its process id."""
        return self._ask([list(arguments), str(folder), environment, [str(path) for path in streams]])

    def wait(self, process: int) -> int:
        """The exit status of a process that was started, once it has ended."""
        return self._ask(process)

    def _ask(self, order: Any) -> int:
        if self._process is None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen([sys.executable, __file__], stdin=pipe, stdout=pipe, text=True)
            atexit.register(self._process.communicate)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def _become(arguments: list[str], folder: str, environment: dict[str, str], streams: list[str]) -> None:
    signal.alarm(_SECONDS)
    for number, path in enumerate(streams):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.orig_argv = [sys.executable, *arguments]
    if arguments[0] == "-m":
        sys.argv, sys.path[0] = arguments[1:], folder
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = arguments, os.path.dirname(arguments[0])
        runpy.run_path(arguments[0], run_name="__main__")


def _serve() -> None:
    import torch._dynamo  # noqa: F401  # the optimizers import it when they are first used

    gc.freeze()  # what is there now is left alone when a child collects its garbage
    for line in sys.stdin:
        order = json.loads(line)
        if isinstance(order, int):
            answer = os.waitstatus_to_exitcode(os.waitpid(order, 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                _become(*order)
                return
        print(answer, flush=True)


if __name__ == "__main__":
    _serve()
