"""The folder of a run: which program it belongs to, and whether this process may go on with it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from akeso.errors import BadInput, Refused
from akeso.replay import fingerprint, journal, lock, snapshot

FILE = "run.json"
FORMAT = 1
_WHICH = (
    "give the one that the script gave akeso.replay.Run; runs without one cannot be gone on with or repeated"
)
_KNOWN = {FILE, journal.FILE, lock.FILE, snapshot.FOLDER}


@dataclass(frozen=True, slots=True)
class Program:
    """How a process was started: enough to start it again."""

    command: tuple[str, ...]
    cwd: str
    script: str | None
    hash_seed: str

    @classmethod
    def current(cls) -> Program:
        """Describe this process."""
        place = getattr(sys.modules.get("__main__"), "__file__", None)
        script = str(Path(place).resolve()) if place else None
        return cls(tuple(sys.orig_argv[1:]), os.getcwd(), script, fingerprint.hash_seed())

    def plain(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return {
            "command": list(self.command),
            "cwd": self.cwd,
            "script": self.script,
            "hash seed": self.hash_seed,
        }


def read(folder: Path) -> dict[str, Any]:
    """Return what ``run.json`` says, or explain why the folder is none of a run."""
    path = folder / FILE
    if not folder.exists():
        raise BadInput(f"there is no run folder at {folder}; {_WHICH}")
    if not path.exists():
        raise BadInput(f"{folder} is not the folder of a replayable run: it has no {FILE}; {_WHICH}")
    try:
        about = json.loads(path.read_bytes())
    except ValueError as error:
        raise BadInput(f"{path} cannot be read: {error}; the run folder is damaged") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise BadInput(
            f"{path} is not of format {FORMAT}: it was written by another version, or another program"
        )
    return about


def write(folder: Path, about: Mapping[str, Any]) -> None:
    """Write ``run.json`` in one piece."""
    temporary = folder / f".{FILE}.{os.getpid()}"
    try:
        with open(temporary, "w") as file:
            json.dump(about, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / FILE)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def begin(folder: Path, about: Mapping[str, Any]) -> None:
    """Write ``run.json`` for the first time: a run without one could not be gone on with."""
    try:
        write(folder, about)
    except OSError as error:
        raise BadInput(
            f"the run folder {folder} cannot be written: {FILE}: {error.strerror}; make room there, or give the "
            "run a folder in another place"
        ) from error


def check_free(folder: Path) -> None:
    """Refuse to begin a run among the files of something else."""
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file; a run needs a folder")
    strange = (
        sorted(entry.name for entry in folder.iterdir() if entry.name not in _KNOWN)
        if folder.exists()
        else []
    )
    strange = [name for name in strange if not name.startswith(f".{FILE}")]
    if strange:
        raise BadInput(
            f"{folder} holds files that are not of a run ({', '.join(strange[:3])}); give the run a folder "
            "of its own"
        )


def make(folder: Path) -> None:
    """Make the folder of a run where there is none yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"the run folder {folder} cannot be made: {error.strerror}; give the run a folder in a place that "
            "can be written"
        ) from error


def differences(about: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what differs between the run as it began and this process, a sentence each, programs first."""
    found = []
    then = about["program"]
    here = now["program"]
    if (
        then["script"] != here["script"]
        and Path(then["script"] or "").name != Path(here["script"] or "").name
    ):
        found.append(f"program: the run belongs to {then['script']}, this is {here['script']}")
    elif _arguments(then) != _arguments(here):
        was, now_is = " ".join(_arguments(then)), " ".join(_arguments(here))
        found.append(f"program: it was started with arguments [{was}], now with [{now_is}]")
    for name, digest in about["code"].items():
        if name in now["code"] and now["code"][name] != digest:
            found.append(f"code: {name} has been edited since the run began")
        elif name not in now["code"] and not (Path(then["script"] or "").parent / name).exists():
            found.append(f"code: {name} is missing")
    return (*found, *fingerprint.differences(about["fingerprint"], now["fingerprint"]))


def _arguments(program: Mapping[str, Any]) -> list[str]:
    command = list(program["command"])
    script = program["script"]
    for number, word in enumerate(command):
        if script and Path(word).name == Path(script).name:
            return command[number + 1 :]
    return command


def refuse(folder: Path, found: tuple[str, ...]) -> None:
    """Raise the error that names every difference and the ways on."""
    listed = "\n".join(f"  - {line}" for line in found)
    raise Refused(
        f"going on with {folder} here would not give the same bits:\n{listed}\n"
        f"Begin a new run folder, restore what has changed, or run `akeso resume {folder} --allow` to go on "
        "all the same and have the drift reported."
    )
