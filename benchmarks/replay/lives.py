"""Lives of programs in processes of their own, forked from one that has torch loaded, so that a kill is cheap."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The first step of an optimizer imports this; once here is enough for all lives.
import torch._dynamo  # noqa: F401


@dataclass(frozen=True, slots=True)
class Ending:
    """How a life ended: with a result, by a signal, or with an error."""

    result: dict[str, Any] | None
    signal: int
    error: str


def fork(
    work: Callable[[], dict[str, Any]], environment: dict[str, str] | None = None
) -> Callable[[], Ending]:
    """Start work in a forked process; the function returned waits for its end."""
    handle, path = tempfile.mkstemp(prefix="akeso-life-")
    os.close(handle)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _child(work, Path(path), environment or {})
    return lambda: _wait(child, Path(path))


def _child(work: Callable[[], dict[str, Any]], path: Path, environment: dict[str, str]) -> None:
    status = 1
    try:
        os.environ.update(environment)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        path.write_text(json.dumps({"result": work()}))
        status = 0
    except SystemExit:
        status = 0
    except BaseException:
        path.write_text(json.dumps({"error": traceback.format_exc()}))
    finally:
        # Nothing of the parent's is to be run at exit.
        os._exit(status)


def _wait(child: int, path: Path) -> Ending:
    _, status = os.waitpid(child, 0)
    text = path.read_text()
    path.unlink()
    told = json.loads(text) if text else {}
    return Ending(
        told.get("result"), os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, told.get("error", "")
    )


def run(work: Callable[[], dict[str, Any]], environment: dict[str, str] | None = None) -> Ending:
    """Do work in a forked process and wait for it."""
    return fork(work, environment)()


def result(work: Callable[[], dict[str, Any]], environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Do work in a forked process that has to succeed."""
    ending = run(work, environment)
    if ending.result is None:
        raise RuntimeError(ending.error or f"ended by signal {ending.signal} without a result")
    return ending.result
