"""Running commands in tests: python itself, and akeso, in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from tests.ready import Ready

Done = subprocess.CompletedProcess[bytes]
READY = Ready()


def environment(**more: str) -> dict[str, str]:
    """The environment without what would make a difference between two machines."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in ("NO_COLOR", "FORCE_COLOR", "RANK", "WORLD_SIZE")
    }
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def python(folder: Path, *arguments: str, **more: str) -> Done:
    """``python`` in a folder."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=300, env=environment(**more))


def akeso(folder: Path, *arguments: str, **more: str) -> Done:
    """The ``akeso`` command in a folder."""
    return python(folder, "-m", "akeso", *arguments, **more)


def python_at_once(folder: Path, *arguments: str, **more: str) -> Done:
    """``python`` in a folder, where it does not matter that torch is imported already."""
    with tempfile.TemporaryDirectory() as kept:
        streams = [Path(os.devnull), Path(kept, "out"), Path(kept, "err")]
        code = READY.begin(arguments, folder, environment(**more), streams).wait()
        return subprocess.CompletedProcess(arguments, code, *(path.read_bytes() for path in streams[1:]))


def akeso_at_once(folder: Path, *arguments: str, **more: str) -> Done:
    """The ``akeso`` command in a folder, where it does not matter that torch is imported already."""
    return python_at_once(folder, "-m", "akeso", *arguments, **more)


def write(folder: Path, name: str, code: str) -> str:
    """A script in a folder; its name."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(code))
    return name
