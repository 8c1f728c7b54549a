"""Going on with a run: what a process is told by its environment, and starting the recorded program again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from akeso.errors import BadInput
from akeso.replay import journal, run_folder, snapshot

VARIABLE = "AKESO_REPLAY"


@dataclass(frozen=True, slots=True)
class Orders:
    """What ``Run(...)`` is to do in this process besides running: nothing, usually."""

    mode: str = "run"
    """``run`` (begin, or go on where the folder says so), or ``replay``."""
    folder: str = ""
    allow: bool = False
    first: int = 0
    last: int = 0
    report: str = ""
    """Where a replay leaves what it found, as JSON."""
    named: str = ""
    """The folder that the program itself names: another one than ``folder`` if that was moved or copied."""

    def place(self, named: Path) -> Path:
        """Return the folder to work in for a run that the program keeps in the folder it names."""
        return Path(self.folder) if self.named and named == Path(self.named) else named

    def environment(self) -> dict[str, str]:
        """Return the environment of a process that has these orders."""
        return {**os.environ, VARIABLE: json.dumps(asdict(self))}


def orders() -> Orders:
    """Return the orders of this process."""
    text = os.environ.get(VARIABLE)
    return Orders(**json.loads(text)) if text else Orders()


def command_of(folder: Path) -> tuple[list[str], str, dict[str, str]]:
    """Return command, working directory and extra environment that start the program of a run again."""
    about = run_folder.read(folder)
    program = about["program"]
    if program["script"] is None or not program["command"]:
        raise BadInput(
            f"the program of {folder} was typed into a shell or piped in; there is no script to start again"
        )
    if not Path(program["script"]).exists():
        raise BadInput(f"the script {program['script']} of {folder} is missing")
    if not Path(program["cwd"]).is_dir():
        raise BadInput(f"the folder {program['cwd']}, in which the run was started, is missing")
    extra = dict(about["fingerprint"]["environment"])
    settings = {name: value for name, value in extra.items() if value}
    if program["hash seed"] != "random":
        settings["PYTHONHASHSEED"] = program["hash seed"]
    return [sys.executable, *program["command"]], program["cwd"], settings


def named_by(folder: Path) -> str:
    """Return the folder under which the program of a run keeps it; it may have been moved or copied since."""
    return str(run_folder.read(folder).get("folder", folder))


def resume(folder: Path, allow: bool = False) -> int:
    """Start the program of a run again, on this folder, and return its exit status."""
    folder = folder.resolve()
    command, cwd, settings = command_of(folder)
    environment = Orders(folder=str(folder), allow=allow, named=named_by(folder)).environment()
    before = _journal_bytes(folder)
    status = subprocess.run(command, cwd=cwd, env={**environment, **settings}, check=False).returncode
    if status == 0 and _journal_bytes(folder) == before:
        raise BadInput(
            f"the program of {folder} has ended without going on with it: it keeps its run in another folder "
            f"than {named_by(folder)}, where the run began; give Run a folder that is the same every time"
        )
    return status


def _journal_bytes(folder: Path) -> int:
    path = folder / journal.FILE
    return path.stat().st_size if path.exists() else 0


def outlook(folder: Path) -> dict[str, Any]:
    """Return from which step a run would go on, and which snapshots would be passed over."""
    run_folder.read(folder)
    info, passed = snapshot.newest_whole(folder)
    return {
        "step": info.step if info else 0,
        "passed over": [f"{bad.path.name}: {bad.damage}" for bad in passed],
    }
