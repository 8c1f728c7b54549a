"""The journal of a replayable run: one line per step, chained by hashes, only ever appended to.

Every line is a JSON object whose last field ``h`` is a hash of the line before it and of itself. A line cut
short by a kill is recognised and dropped; a line changed, lost or put in later breaks the chain, and the
place is named. Lines are handed to the operating system as they are written, so that they outlive ``kill
-9``.

Kinds of line (field ``k``): ``begin`` (seed, fingerprint), ``step`` (a :class:`StepRecord`), ``snapshot``,
``resume`` (steps after the one it names are run again), ``mismatch``, ``note``, ``end``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from akeso.errors import BadInput

FILE = "replay.jsonl"
_START = "0" * 16
_MOST_WAITING = 64 << 20
"""Bytes of lines that are kept in memory while the disk takes none; those beyond are left out."""
COMPARED = ("samples", "generators", "loss", "gradient", "parameters", "optimizer")
"""The digests of a step in the order in which a difference would show itself."""


class StepRecord(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="k", tag="step"):
    """What is known of one step. A digest that was not taken at this step is ``None``."""

    step: int
    epoch: int
    batch: int
    samples: str | None = None
    generators: str | None = None
    loss: str | None = None
    gradient: str | None = None
    parameters: str | None = None
    optimizer: str | None = None

    def differences(self, other: StepRecord) -> tuple[str, ...]:
        """Return the names of the digests both records have and in which they differ, first cause first."""
        found = []
        if (self.epoch, self.batch) != (other.epoch, other.batch):
            found.append("position")
        for name in COMPARED:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None and theirs is not None and mine != theirs:
                found.append(name)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class JournalRead:
    """A journal as it was found: its whole lines, and what is wrong with the rest."""

    records: tuple[dict[str, Any], ...]
    whole_bytes: int
    chain: str
    torn: bool
    broken_at: int | None
    """Number of the first line that does not follow from the one before, counted from 1."""

    def steps(self) -> dict[int, StepRecord]:
        """Return the last record of every step: steps run again after a kill replace the earlier ones."""
        return {record.step: record for record in self.every_step()}

    def undisputed(self) -> dict[int, StepRecord]:
        """Return what every step is to be compared with: its last record, or that before it first differed.

        A process that came out differently must not become the measure for the one after it.
        """
        last: dict[int, StepRecord] = {}
        before: dict[int, StepRecord] = {}
        kept: dict[int, StepRecord] = {}
        for line in self.records:
            if line["k"] == "step":
                record = msgspec.convert(line, StepRecord)
                if record.step in last:
                    before[record.step] = last[record.step]
                last[record.step] = record
            elif line["k"] == "mismatch" and line["step"] in before:
                kept.setdefault(line["step"], before[line["step"]])
        return {**last, **kept}

    def every_step(self) -> Iterator[StepRecord]:
        """Yield all step records in the order in which they were written."""
        for record in self.records:
            if record["k"] == "step":
                yield msgspec.convert(record, StepRecord)

    def first(self, kind: str) -> dict[str, Any] | None:
        """Return the first line of a kind."""
        return next((record for record in self.records if record["k"] == kind), None)

    def all(self, kind: str) -> tuple[dict[str, Any], ...]:
        """Return all lines of a kind."""
        return tuple(record for record in self.records if record["k"] == kind)


def _link(chain: str, body: bytes) -> str:
    return blake2b(body, digest_size=8, key=chain.encode()).hexdigest()


def read(path: Path) -> JournalRead:
    """Read a journal. Never fails for damage: what is whole is returned, and the damage is described."""
    path = path / FILE if path.is_dir() else path
    if not path.exists():
        raise BadInput(f"no journal at {path}: this is not the folder of a replayable run")
    data = path.read_bytes()
    records: list[dict[str, Any]] = []
    chain, position, broken = _START, 0, None
    while position < len(data):
        end = data.find(b"\n", position)
        record = _parse(data[position:end], chain) if end >= 0 else None
        if record is None:
            # A bad last line is a torn one; a bad line with lines after it has been tampered with.
            if end >= 0 and end + 1 < len(data):
                broken = len(records) + 1
            break
        records.append(record)
        chain, position = record["h"], end + 1
    torn = broken is None and position < len(data)
    return JournalRead(tuple(records), position, chain, torn, broken)


def _parse(line: bytes, chain: str) -> dict[str, Any] | None:
    cut = line.rfind(b',"h":"')
    if cut < 0:
        return None
    try:
        record = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    if not isinstance(record, dict) or "k" not in record or record.get("h") != _link(chain, line[:cut]):
        return None
    return record


class ReplayJournal:
    """Appends lines to a journal. Opening it drops a torn last line; a broken chain is refused."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.found = read(self.path) if self.path.exists() else JournalRead((), 0, _START, False, None)
        if self.found.broken_at is not None:
            raise BadInput(
                f"line {self.found.broken_at} of {self.path} does not follow from the line before it: the "
                "journal was edited or damaged; begin a new run folder, or restore the file"
            )
        self._chain = self.found.chain
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._file, self.found.whole_bytes)
        os.lseek(self._file, 0, os.SEEK_END)
        self._encode = msgspec.json.Encoder().encode
        self._waiting = bytearray()
        self.trouble: str | None = None
        """Why the disk takes no lines at present; those that wait are written as soon as it does."""
        if self.found.torn:
            self.append("note", {"text": "the last line was cut short and has been dropped"})

    def append(self, kind: str, body: Mapping[str, Any]) -> None:
        """Write one line. A full disk is told by ``trouble``; it never stops the training."""
        self._write([{"k": kind, **body}])

    def steps(self, records: Iterable[StepRecord]) -> None:
        """Write the records of steps, all of them in one go."""
        self._write(records)

    def _write(self, bodies: Iterable[StepRecord | dict[str, Any]]) -> None:
        for body in bodies if len(self._waiting) < _MOST_WAITING else ():
            start = self._encode(body)[:-1]
            self._chain = _link(self._chain, start)
            self._waiting += start + b',"h":"' + self._chain.encode() + b'"}\n'
        try:
            while self._waiting:
                # Of a disk that becomes full a part is taken: a torn line until the rest of it follows.
                del self._waiting[: os.write(self._file, self._waiting)]
        except OSError as error:
            self.trouble = f"the journal {self.path} cannot be written: {error.strerror}"
            return
        self.trouble = None

    def sync(self) -> None:
        """Ask the operating system to put the lines on the disk."""
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file; appending is over."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
