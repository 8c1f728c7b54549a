"""A recorded study on disk: what the simulator replays.

A folder with ``study.json`` (direction, planned epochs, search space) and ``trials.jsonl``, one line per trial,
appended when it ends: hyperparameters, the value and the seconds after every epoch, and what was found when.
The journals of the trials, where they were kept, lie beside them in ``journals/<number>/``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from akeso.diagnosis import SEVERITIES, Diagnosis, Severity
from akeso.errors import BadInput
from akeso.search.traits import Traits

_STUDY, _TRIALS, _JOURNALS = "study.json", "trials.jsonl", "journals"
#: What a recorded trial says that was ended by its own objective.
PRUNED = "pruned by its objective"


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnosis made during a recorded trial, and when: ``epochs`` is in whole and parts of an epoch."""

    profile: str
    problem: str
    epochs: float
    layer: str = ""
    step: int = -1
    severity: str = "error"
    confidence: float = 1.0
    sentence: str = ""

    def diagnosis(self) -> Diagnosis:
        """The finding as the diagnosis it was."""
        known: dict[str, Severity] = {name: name for name in SEVERITIES}
        severity = known.get(self.severity, "warning")
        return Diagnosis(
            self.problem, severity, self.confidence, self.layer, self.step, {}, (), (), self.sentence
        )


@dataclass(frozen=True, slots=True)
class RecordedTrial:
    """One trial that was trained to its end without being stopped.

    ``values`` and ``seconds`` have one entry per report; seconds count from the start of the trial. A trial
    that crashed has fewer than planned, and so may one whose objective ends it early by a rule of its own.
    ``losses`` are the mean training losses between reports, where a watch saw them, and the first ``unsettled`` reports
    those of a model whose statistics had not left their start.
    """

    number: int
    params: Mapping[str, Any]
    values: tuple[float, ...]
    seconds: tuple[float, ...]
    findings: tuple[Finding, ...] = ()
    crashed: str = ""
    overhead: float = 0.0
    losses: tuple[float, ...] = ()
    unsettled: int = 0

    def __post_init__(self) -> None:
        if len(self.values) != len(self.seconds):
            raise BadInput(
                f"trial {self.number} has {len(self.values)} values but {len(self.seconds)} times; "
                "record both after every epoch"
            )

    @property
    def traits(self) -> Traits:
        """What was known of the trial beside its values."""
        return Traits(self.params, self.losses, self.unsettled)

    def seconds_at(self, epochs: float) -> float:
        """The seconds the trial took up to a moment given in epochs."""
        if not self.seconds:
            return 0.0
        whole = min(int(epochs), len(self.seconds))
        done = self.seconds[whole - 1] if whole else 0.0
        if whole >= len(self.seconds):
            return done
        return done + (epochs - whole) * (self.seconds[whole] - done)

    def to_dict(self) -> dict[str, Any]:
        """The trial as plain JSON values; what is not finite becomes text."""
        return {
            "number": self.number,
            "params": dict(self.params),
            "values": [v if math.isfinite(v) else str(v) for v in self.values],
            "seconds": [round(s, 4) for s in self.seconds],
            "findings": [{name: getattr(f, name) for name in Finding.__slots__} for f in self.findings],
            "crashed": self.crashed,
            "overhead": self.overhead,
            "losses": [float(f"{v:.6g}") if math.isfinite(v) else str(v) for v in self.losses],
            "unsettled": self.unsettled,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RecordedTrial:
        """The trial that :meth:`to_dict` wrote."""
        return cls(
            int(data["number"]),
            dict(data["params"]),
            tuple(float(v) for v in data["values"]),
            tuple(float(s) for s in data["seconds"]),
            tuple(Finding(**f) for f in data.get("findings", ())),
            str(data.get("crashed", "")),
            float(data.get("overhead", 0.0)),
            tuple(float(v) for v in data.get("losses", ())),
            int(data.get("unsettled", 0)),
        )


@dataclass(frozen=True, slots=True)
class RecordedStudy:
    """The trials of one study, with the direction and the epochs that were planned for each."""

    name: str
    maximize: bool
    epochs: int
    trials: tuple[RecordedTrial, ...]
    value_of: str = "best"
    space: Mapping[str, Any] = field(default_factory=dict)

    def journal(self, folder: Path, number: int) -> Path:
        """Where the journal of a trial lies, if it was kept."""
        return folder / _JOURNALS / f"{number:05d}"


class StudyRecorder:
    """Writes a recorded study, a line per ended trial; several processes may append to the same one."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        maximize: bool,
        epochs: int,
        value_of: str = "best",
        space: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder, self.epochs = Path(folder), epochs
        check(self.folder, maximize=maximize, epochs=epochs, value_of=value_of)
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / _STUDY
        if not path.exists() or not _begun(self.folder):
            header = {
                "name": name,
                "maximize": maximize,
                "epochs": epochs,
                "value_of": value_of,
                "space": dict(space or {}),
            }
            written = path.with_name(f"{_STUDY}.{os.getpid()}")  # others may be reading it
            written.write_text(json.dumps(header, indent=1))
            written.replace(path)

    def claim(self, wanted: int) -> int:
        """The first number from ``wanted`` on that no other trial of the recorded study has or gets.

        The folder of its journal is what claims it: of several processes only one can make it.
        """
        taken = {trial.number for trial in _lines(self.folder / _TRIALS)}
        (self.folder / _JOURNALS).mkdir(exist_ok=True)
        for number in itertools.count(wanted):
            if number in taken:
                continue
            with contextlib.suppress(FileExistsError):
                self.journal(number).mkdir()
                break
        return number

    def journal(self, number: int) -> Path:
        """The run folder for the journal of a trial."""
        return self.folder / _JOURNALS / f"{number:05d}"

    def add(self, trial: RecordedTrial) -> None:
        """Append one trial: a single write, so that processes do not tear each other's lines."""
        with (self.folder / _TRIALS).open("a") as file:
            # A choice may be anything: it is kept by its name where JSON has no word for it.
            file.write(json.dumps(trial.to_dict(), default=str) + "\n")


def _lines(path: Path) -> Iterator[RecordedTrial]:
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            yield RecordedTrial.from_dict(json.loads(line))
        except (ValueError, KeyError, TypeError):
            continue  # a torn last line: the recording was killed while writing it


def _header(path: Path) -> dict[str, Any]:
    """What ``study.json`` says; an error when it was not written by a recording."""
    try:
        header = json.loads(path.read_text())
        return {**header, "maximize": bool(header["maximize"]), "epochs": int(header["epochs"])}
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{path} does not describe a recorded study ({type(error).__name__}: {error}); give a folder that "
            "akeso search record or akeso.search.StudyRecorder has made"
        ) from error


def check(folder: Path, *, maximize: bool, epochs: int, value_of: str) -> None:
    """Refuse a folder that holds a study of another kind; one in which no trial has begun will do."""
    path = folder / _STUDY
    if not path.exists():
        return
    known = _header(path)
    if not _begun(folder):
        return  # what was asked for there never came to anything
    there = _described(known["maximize"], known["epochs"], str(known.get("value_of", "best")))
    wanted = _described(maximize, epochs, value_of)
    if there != wanted:
        raise BadInput(
            f"{folder} holds a study that {there}, not one that {wanted}; record into another folder"
        )


def _begun(folder: Path) -> bool:
    """Whether any trial was recorded in the folder, or is being recorded."""
    journals = folder / _JOURNALS
    return (folder / _TRIALS).exists() or (journals.is_dir() and any(journals.iterdir()))


def _described(maximize: bool, epochs: int, value_of: str) -> str:
    return f"{'maximizes' if maximize else 'minimizes'} the {value_of} value of {epochs} epochs"


def load(folder: str | Path) -> RecordedStudy:
    """The recorded study in a folder; of trials recorded twice the last one counts."""
    folder = Path(folder)
    path = folder / _STUDY
    if not path.is_file():
        raise BadInput(
            f"{folder} holds no recorded study (no {_STUDY}); make one with akeso search record, "
            "or with akeso.search.StudyRecorder"
        )
    header = _header(path)
    trials = {trial.number: trial for trial in _lines(folder / _TRIALS)}
    return RecordedStudy(
        str(header.get("name", folder.name)),
        header["maximize"],
        header["epochs"],
        tuple(trials[number] for number in sorted(trials)),
        str(header.get("value_of", "best")),
        dict(header.get("space", {})),
    )


def of_trials(
    trials: Iterable[RecordedTrial],
    *,
    name: str = "study",
    maximize: bool,
    epochs: int,
    value_of: str = "best",
) -> RecordedStudy:
    """A recorded study in memory."""
    return RecordedStudy(name, maximize, epochs, tuple(trials), value_of)
