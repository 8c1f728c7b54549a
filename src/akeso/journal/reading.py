"""Reading a journal, whatever state it is in: finished, still being written, or damaged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from akeso.errors import BadInput
from akeso.history import History, Layer
from akeso.journal import records
from akeso.journal.ranks import merge_ranks

#: How often a reader starts again when segments are being merged under its eyes.
_TRIES: Final = 8

_DAMAGE: Final = {
    "unreadable": "{} unreadable {lines} skipped",
    "foreign": "{} {lines} that {are} not akeso's skipped",
    "damaged": "{} damaged {records} skipped",
    "misplaced": "{} {lines} out of order, put back in order",
}


@dataclass(frozen=True, slots=True)
class JournalReading:
    """What a journal holds: the history, the header, what the reader had to note, and whether it ended."""

    history: History
    header: dict[str, Any]
    notes: tuple[str, ...]
    ended: bool
    ending: dict[str, Any] = field(default_factory=dict)
    ranks: tuple[int, ...] = (0,)


def is_run(folder: Path) -> bool:
    """Whether a folder holds a journal."""
    return folder.is_dir() and any(records.segment_of(path) for path in folder.iterdir())


def read(folder: str | Path, rank: int | None = None) -> JournalReading:
    """Read the journal of one rank, or of all of them as one.

    Lines that cannot be read are skipped and counted in ``notes``; only a folder without any journal is an
    error. Where a folder was used for several runs, the last one is read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(
            f"there is no run folder {str(folder)!r}; give the folder that `akeso run` printed at its end"
        )
    by_rank = _segments(folder)
    if not by_rank:
        raise BadInput(
            f"{str(folder)!r} holds no journal; give the folder that `akeso run` printed at its end"
        )
    if rank is not None and rank not in by_rank:
        raise BadInput(f"{str(folder)!r} holds no journal of rank {rank}; it has {sorted(by_rank)}")
    ranks = sorted(by_rank) if rank is None else [rank]
    last = max(session for number in ranks for session in by_rank[number])
    readings = {number: _read_rank(folder, number, last) for number in ranks if last in by_rank[number]}
    notes = [
        note
        for number, reading in readings.items()
        for note in _attributed(reading.notes, number, len(ranks))
    ]
    if last > min(session for number in ranks for session in by_rank[number]):
        notes.append("the folder holds an earlier run too; the last one is read")
    first = next(iter(readings.values()))
    history = merge_ranks({number: reading.history for number, reading in readings.items()})
    ended = all(reading.ended for reading in readings.values())
    history.finished = ended
    return JournalReading(history, first.header, tuple(notes), ended, first.ending, tuple(readings))


def _attributed(notes: tuple[str, ...], rank: int, ranks: int) -> list[str]:
    return [f"rank {rank}: {note}" for note in notes] if ranks > 1 else list(notes)


def _segments(folder: Path) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for path in folder.iterdir():
        name = records.segment_of(path)
        if name is not None:
            found.setdefault(name[0], set()).add(name[1])
    return found


def _read_rank(folder: Path, rank: int, session: int) -> JournalReading:
    damage: Counter[str] = Counter()
    found: dict[int, dict[str, Any]] = {}
    torn = _collect(_contents(folder, rank, session), found, damage)
    history = History()
    header: dict[str, Any] = {}
    ending: dict[str, Any] | None = None
    layers: dict[str, Layer] = {}
    for number in sorted(found):
        record = found[number]
        kind = record["kind"]
        try:
            if kind == "readings":
                step, values = records.decode_readings(record)
                for signal, scope, value in values:
                    history.add(step, signal, scope, value)
            elif kind == "event":
                history.events.append(records.decode_event(record))
            elif kind == "layer":
                layer = records.decode_layer(record)
                layers[layer.name] = layer
            elif kind == "fact":
                _add_fact(history, record)
            else:
                content = {key: value for key, value in record.items() if key not in ("kind", "n")}
                if kind == "header":
                    header = header or records.unmarked(content)
                else:
                    ending = records.unmarked(content)
        except ValueError:
            damage["damaged"] += 1
    history.layers = list(layers.values())
    _complete(history, header, ending)
    notes = _notes(damage, torn, header)
    return JournalReading(history, header, notes, ending is not None, ending or {}, (rank,))


def _contents(folder: Path, rank: int, session: int) -> list[bytes]:
    """The segments in order. Where one was merged into another while they were read, all are read again."""
    contents: list[bytes] = []
    for _ in range(_TRIES):
        paths = sorted(p for p in folder.iterdir() if (records.segment_of(p) or ())[:2] == (rank, session))
        contents = []
        vanished = False
        for path in paths:
            try:
                contents.append(path.read_bytes())
            except FileNotFoundError:
                vanished = True
        if not vanished:
            break
    return contents


def _collect(contents: list[bytes], found: dict[int, dict[str, Any]], damage: Counter[str]) -> bool:
    """Put the records of all lines into ``found`` by sequence number; whether the last line was torn."""
    newest = -1
    torn = False
    for position, content in enumerate(contents):
        *lines, rest = content.split(b"\n")
        if rest and position == len(contents) - 1:
            torn = True  # a line is only whole with its line end: it may be cut inside a number
        elif rest:
            lines.append(rest)
        for line in lines:
            if not line.strip():
                continue
            try:
                record = records.decode(line)
            except records.Foreign:
                damage["foreign"] += 1
                continue
            except ValueError:
                damage["unreadable"] += 1
                continue
            number = record["n"]
            if number in found:
                continue
            if number < newest:
                damage["misplaced"] += 1
            newest = max(newest, number)
            found[number] = record
    return torn


def _add_fact(history: History, record: dict[str, Any]) -> None:
    name = record.get("name")
    if not isinstance(name, str):
        raise ValueError("a fact without a name")
    history.facts[name] = records.unmarked(record.get("value"))


def _complete(history: History, header: dict[str, Any], ending: dict[str, Any] | None) -> None:
    planned = history.facts.get("planned_steps", header.get("planned_steps"))
    if records.whole(planned) and planned:
        history.planned_steps = planned
    steps = (ending or {}).get("steps")
    if records.whole(steps) and isinstance(steps, int):
        history.steps = max(history.steps, steps)
    history.finished = ending is not None


def _notes(damage: Counter[str], torn: bool, header: dict[str, Any]) -> tuple[str, ...]:
    notes: list[str] = []
    if torn:
        notes.append("the last line was torn and is dropped: the run is still writing, or was killed")
    for kind, text in _DAMAGE.items():
        if count := damage[kind]:
            one = count == 1
            notes.append(
                text.format(
                    count,
                    lines="line" if one else "lines",
                    records="record" if one else "records",
                    are="is" if one else "are",
                )
            )
    if not header:
        notes.append("the header is missing")
    elif isinstance(header.get("schema"), int) and header["schema"] > records.SCHEMA:
        notes.append(f"written by a newer akeso (schema {header['schema']}, known {records.SCHEMA})")
    return tuple(notes)
