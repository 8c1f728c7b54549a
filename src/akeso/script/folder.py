"""Where a run is recorded."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import Final

from akeso.script.program import Program

#: Runs without a name of their own are kept here, in the working directory.
RUNS: Final = "akeso-runs"


def rank() -> int:
    """The rank of this process in a distributed run, as torchrun and its kin say it; 0 otherwise."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else 0


def world_size() -> int:
    """How many processes train together."""
    text = os.environ.get("WORLD_SIZE", "")
    return max(int(text), 1) if text.isdigit() else 1


def run_folder(program: Program, chosen: Path | None) -> Path:
    """The folder of this run: the chosen one, or a new name after the time and the script."""
    if chosen is not None:
        return chosen
    runs = Path.cwd() / RUNS
    name = re.sub(r"[^\w.-]+", "-", program.name).strip("-.") or "script"
    folder = runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    if world_size() > 1:
        return _agreed(runs, folder)
    number = 1
    while folder.exists():
        number += 1
        folder = folder.with_name(f"{folder.name.split('~')[0]}~{number}")
    return folder


def _agreed(runs: Path, proposal: Path) -> Path:
    """The folder on which all ranks of a machine agree: the proposal of the first of them.

    Ranks start at slightly different times, so each writes its proposal to a file of its own and tries to
    link it to one common name; the one that succeeds has named the run.
    """
    key = "-".join(os.environ.get(name, "") for name in ("MASTER_PORT", "TORCHELASTIC_RUN_ID"))
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    common = runs / f".ranks-{os.getppid()}-{re.sub(r'[^0-9A-Za-z-]', '', key)}-{restart}"
    own = common.with_name(f"{common.name}.{os.getpid()}")
    try:
        runs.mkdir(parents=True, exist_ok=True)
        own.write_text(proposal.name)
        with contextlib.suppress(FileExistsError):
            os.link(own, common)
        agreed = runs / common.read_text()
    except OSError:
        return proposal.with_name(f"{proposal.name}-{os.getppid()}")
    finally:
        with contextlib.suppress(OSError):
            own.unlink()
    return agreed


def forget_agreement(folder: Path) -> None:
    """Remove the name that the ranks agreed upon, once all of them are done with it."""
    with contextlib.suppress(OSError):
        for file in folder.parent.glob(f".ranks-{os.getppid()}-*"):
            if file.read_text() == folder.name:
                file.unlink()
