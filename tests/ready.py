"""A process that has imported torch already and turns into any command it is asked for.

Torch and its compiler take seconds to import, and with them begins every process that trains. Here they are
imported once: for each order this process forks, and the child goes on as ``python …`` would, in the folder,
with the environment, the arguments and the open files that the order gives. A command that starts processes of
its own, as ``akeso treat`` does, has them from here as well.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

Done = subprocess.CompletedProcess

_SECONDS = 600
_OUT_OF_THE_WAY = 100  # descriptors that a command asks for by number are below


class Started:
    """A process that was started: what is needed of :class:`subprocess.Popen`."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers.makefile("r")
        answers.close()
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        if self.returncode is None and select.select([self._answers], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once it has ended."""
        if self.returncode is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a process that was started", timeout or 0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
        return self.returncode


class Ready:
    """The other end: starts that process when it is first needed, and gives it orders."""

    def __init__(self, path: str = "") -> None:
        self._path = path

    def begin(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], streams: Sequence[Path]
    ) -> Started:
        """Begin ``python ARGUMENTS`` with these files as its three streams."""
        with open(streams[0], "rb") as given, open(streams[1], "wb") as out, open(streams[2], "wb") as err:
            files = {number: file.fileno() for number, file in enumerate((given, out, err))}
            return self.start(arguments, str(folder), environment, files)

    def start(
        self,
        arguments: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        files: Mapping[int, int],
        *,
        alone: bool = False,
    ) -> Started:
        """Begin ``python ARGUMENTS``; ``files`` are its open files and ours, ``alone`` in a session of its own."""
        if not self._path:
            self._begin()
        order = [list(arguments), folder, dict(environment), list(files), alone]
        end = socket.socket(socket.AF_UNIX)
        end.connect(self._path)
        text = json.dumps(order).encode() + b"\n"
        sent = socket.send_fds(end, [text], list(files.values()))
        end.sendall(text[sent:])
        return Started(end)

    def serves(self, module: ModuleType) -> SimpleNamespace:
        """What a module has for :mod:`subprocess` when the Python processes it starts come from here."""

        def popen(command: Sequence[str], **options: Any) -> Started:
            assert command[0] == sys.executable
            log = options["stdout"].fileno()
            with open(os.devnull, "rb") as nothing:
                files = {0: nothing.fileno(), 1: log, 2: log, **{at: at for at in options["pass_fds"]}}
                alone = options["start_new_session"]
                return self.start(command[1:], os.getcwd(), os.environ, files, alone=alone)

        def run(command: Sequence[str], *, cwd: str, env: dict[str, str], **options: Any) -> Done:
            assert command[0] == sys.executable
            with tempfile.TemporaryDirectory() as kept:
                streams = [Path(os.devnull), Path(kept, "out"), Path(kept, "err")]
                code = self.begin(command[1:], Path(cwd), env, streams).wait()
                return Done(command, code, *(path.read_text() for path in streams[1:]))

        return SimpleNamespace(**{**vars(module.subprocess), "Popen": popen, "run": run})

    def _begin(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self._path = str(Path(folder.name, "orders"))
        pipe = subprocess.PIPE
        process = subprocess.Popen([sys.executable, __file__, self._path], stdin=pipe, stdout=pipe)
        assert process.stdout is not None
        process.stdout.readline()  # it listens

        def end() -> None:
            process.communicate()
            folder.cleanup()

        atexit.register(end)


def _become(path: str, order: list[Any], received: list[int]) -> None:
    arguments, folder, environment, wanted, alone = order
    signal.alarm(_SECONDS)
    if alone:
        os.setsid()
    away = [fcntl.fcntl(number, fcntl.F_DUPFD, _OUT_OF_THE_WAY) for number in received]
    for number in received:
        os.close(number)
    for number, ours in zip(wanted, away, strict=True):
        os.dup2(ours, number)
        os.close(ours)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    _draw_anew()
    sys.orig_argv = [sys.executable, *arguments]
    if arguments[:3] == ["-m", "akeso", "treat"]:
        from akeso.script.prescribed import process

        process.subprocess = Ready(path).serves(process)  # type: ignore[assignment]
    if arguments[0] == "-m":
        sys.argv, sys.path[0] = arguments[1:], folder
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = arguments, os.path.dirname(arguments[0])
        runpy.run_path(arguments[0], run_name="__main__")


def _draw_anew() -> None:
    """Seed from the system, as a process that has just begun is."""
    import numpy as np
    import torch

    random.seed()
    np.random.seed()
    torch.seed()


def _take(end: socket.socket) -> tuple[list[Any], list[int]]:
    """An order and the files that came with it."""
    text, received, _, _ = socket.recv_fds(end, 1 << 16, 16)
    while not text.endswith(b"\n"):
        text += end.recv(1 << 16)
    return json.loads(text), received


def _serve(path: str) -> tuple[list[Any], list[int]] | None:
    """Fork for every order; what a child is to become, which runs outside of this loop, and None at the end."""
    import torch._dynamo  # noqa: F401  # the optimizers import it when they are first used

    gc.freeze()  # what is there now is left alone when a child collects its garbage
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for the commands
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    print("ready", flush=True)
    while listening in select.select([listening, sys.stdin], [], [])[0]:
        end, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            order = _take(end)
            child = os.fork()
            if child == 0:
                end.close()
                return order
            end.sendall(b"%d\n" % child)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            end.sendall(b"%d\n" % status)
            os._exit(0)
        end.close()
    return None


if __name__ == "__main__":
    served = sys.argv[1]
    if (ordered := _serve(served)) is not None:
        _become(served, *ordered)
