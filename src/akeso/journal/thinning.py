"""How a journal stays small: old segments are merged in pairs and lose every second reading.

The first segment is never touched, so the beginning of a run stays complete; the newest are the densest;
what lies between is thinned about evenly, because the pair that stands for the fewest steps goes first.
Rare readings (evaluations) and everything that is no reading are kept.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from akeso.journal import records

#: Readings of one kind are thinned only where a pair of segments holds more lines of it than this.
_RARE: Final = 64
#: What follows where that is not enough: the same with fewer lines, at last with events too.
_HARDER: Final = (
    *((rare, False) for rare in (32, 16, 8)),
    *((rare, True) for rare in (64, 32, 16, 8, 4, 2, 1)),
)


@dataclass(frozen=True, slots=True)
class Segment:
    """A closed segment: its file, its size, and how many original segments it stands for."""

    path: Path
    size: int
    weight: int


def choose_pair(segments: Sequence[Segment]) -> int | None:
    """The first of the two neighbours to merge; never the first segment of the journal, never the newest."""
    pairs = range(1, len(segments) - 2)
    if not pairs:
        return None
    return min(pairs, key=lambda index: (segments[index].weight + segments[index + 1].weight, index))


def merge_segments(first: Segment, second: Segment, target_bytes: int) -> Segment:
    """Replace two neighbouring segments by one of about ``target_bytes``.

    The new one is renamed over the first before the second is removed. A reader in between sees the lines of
    the second twice and drops the copies by their sequence numbers; nothing is ever missing.
    """
    lines = [*_lines(first.path), *_lines(second.path)]
    kept = thin(lines, target_bytes)
    content = b"".join(line + b"\n" for line in kept)
    fresh = first.path.with_suffix(".tmp")
    with open(fresh, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, first.path)
    os.unlink(second.path)
    return Segment(first.path, len(content), first.weight + second.weight)


def thin(lines: Sequence[bytes], target_bytes: int) -> list[bytes]:
    """The lines with older statements of facts and layers left out and every second reading of a kind
    dropped, again if need be, until they fit."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for index, line in enumerate(lines):
        groups[_group(line)].append(index)
    keep: dict[Hashable, list[int]] = {
        group: indices[-1:] if _is_statement(group) else indices for group, indices in groups.items()
    }
    keep = {group: _halve(group, indices, _RARE) for group, indices in keep.items()}
    # Usually one pass is enough. Events are cut down only where they fill a segment almost alone.
    for rare, events in _HARDER:
        if _size(lines, keep.values()) <= target_bytes:
            break
        keep = {group: _halve(group, indices, rare, events) for group, indices in keep.items()}
    return [lines[index] for index in sorted(index for indices in keep.values() for index in indices)]


def _halve(group: Hashable, indices: list[int], rare: int, events: bool = False) -> list[int]:
    kind = group[0] if isinstance(group, tuple) else ""
    thinned = kind == "readings" or (events and kind == "event")
    return indices[::2] if thinned and len(indices) > rare else indices


def _group(line: bytes) -> tuple[Any, ...]:
    """What a line is one of. Readings count by the signals they hold, or else a cadence of every tenth step
    could lose all of its readings to the rule that drops every second line."""
    try:
        record = records.decode(line)
    except ValueError:
        return ("damaged",)
    kind = record["kind"]
    if kind == "readings" and isinstance(record.get("values"), dict):
        return (kind, *sorted(record["values"]))
    if kind == "event":
        return (kind, str(record.get("event")))
    if kind == "fact":
        return (kind, str(record.get("name")))
    if kind == "layer" and isinstance(record.get("layer"), dict):
        return (kind, str(record["layer"].get("name")))
    return (kind, record["n"])


def _is_statement(group: Hashable) -> bool:
    return isinstance(group, tuple) and group[0] in ("fact", "layer")


def _size(lines: Sequence[bytes], kept: Iterable[list[int]]) -> int:
    return sum(len(lines[index]) + 1 for indices in kept for index in indices)


def _lines(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().split(b"\n") if line]
