"""The lines of a journal: how each record is written and read back.

JSON has no NaN and no infinity, and both matter here. A reading that is not finite is written as the string
``"nan"``, ``"inf"`` or ``"-inf"`` (a reading is never a string otherwise); in facts and events, where strings
occur, as ``{"$float": "nan"}``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from akeso.errors import BadInput
from akeso.history import Event, Layer, Parameter

SCHEMA: Final = 1
KINDS: Final = ("header", "readings", "layer", "fact", "event", "end")
READINGS_PREFIX: Final = b'{"kind":"readings"'
#: Steps and sequence numbers beyond this are damage: they would not fit an array of int64 or a JSON number.
LARGEST: Final = 2**53

_NAME = re.compile(r"journal-(\d+)-(\d+)-(\d+)\.jsonl")
_FLOAT = "$float"

Values = Mapping[str, Mapping[str, float]]


def segment_path(folder: Path, rank: int, session: int, segment: int) -> Path:
    """The file of one segment."""
    return folder / f"journal-{rank}-{session:03d}-{segment:06d}.jsonl"


def segment_of(path: Path) -> tuple[int, int, int] | None:
    """Rank, session and segment of a file; ``None`` when it is no segment of a journal."""
    match = _NAME.fullmatch(path.name)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _plain(value: Any) -> Any:
    """What msgspec cannot write by itself: arrays and scalars of NumPy or torch, the rest as text."""
    for method in ("tolist", "item"):
        convert = getattr(value, method, None)
        if convert is not None:
            try:
                return marked(convert())
            except Exception:
                break
    return str(value)


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def marked(value: Any) -> Any:
    """The value with every float that JSON cannot hold marked; keys become strings."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_FLOAT: _name_of(value)}
    if isinstance(value, Mapping):
        return {str(key): marked(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [marked(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((marked(item) for item in value), key=str)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if abs(value) < 2**63 else str(value)
    return value


def unmarked(value: Any) -> Any:
    """The inverse of :func:`marked`."""
    if isinstance(value, dict):
        if len(value) == 1 and _FLOAT in value:
            return number(value[_FLOAT])
        return {key: unmarked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [unmarked(item) for item in value]
    return value


def _name_of(value: float) -> str:
    return "nan" if value != value else "inf" if value > 0 else "-inf"


def number(value: Any) -> float:
    """A reading as a float; raises ``ValueError`` for anything that is none."""
    if isinstance(value, str):
        if value not in ("nan", "inf", "-inf"):
            raise ValueError(value)
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(value)
    return float(value)


def encode_readings(sequence: int, step: int, values: Values) -> bytes:
    """The line of the readings of one step."""
    line = _encoder.encode({"kind": "readings", "n": sequence, "step": step, "values": values})
    # msgspec writes what is not finite as null. Looking for that afterwards keeps the usual case fast.
    if b"null" in line or b'"$float"' in line:
        exact = {
            signal: {scope: _reading(value) for scope, value in scopes.items()}
            for signal, scopes in values.items()
        }
        line = _encoder.encode({"kind": "readings", "n": sequence, "step": step, "values": exact})
    return line + b"\n"


def _reading(value: Any) -> float | str:
    value = float(value)
    return value if math.isfinite(value) else _name_of(value)


def encode(kind: str, sequence: int, content: Mapping[str, Any]) -> bytes:
    """The line of any other record."""
    return _encoder.encode({"kind": kind, "n": sequence, **marked(content)}) + b"\n"


def layer_content(layer: Layer) -> dict[str, Any]:
    """A layer as plain values."""
    fields = {name: getattr(layer, name) for name in Layer.__dataclass_fields__ if name != "parameters"}
    parameters = [
        {name: getattr(parameter, name) for name in Parameter.__dataclass_fields__}
        for parameter in layer.parameters
    ]
    return {"layer": {**fields, "parameters": parameters}}


def event_content(event: Event) -> dict[str, Any]:
    """An event as plain values."""
    return {"step": event.step, "event": event.kind, "scope": event.scope, "data": event.data}


class Foreign(BadInput):
    """A line that is JSON but no record of a journal."""


def decode(line: bytes) -> dict[str, Any]:
    """The record of a line. Raises :class:`Foreign` or, for what is no JSON at all, ``ValueError``."""
    try:
        record = msgspec.json.decode(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(record, dict) or record.get("kind") not in KINDS:
        raise Foreign("not a record of a journal")
    if not whole(record.get("n")):
        raise Foreign("a record without a sequence number")
    return record


def whole(value: Any) -> bool:
    """Whether a value can be a step or a sequence number."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST


def decode_readings(record: dict[str, Any]) -> tuple[int, list[tuple[str, str, float]]]:
    """Step and readings of a record; raises ``ValueError`` when it is damaged."""
    step, values = record.get("step"), record.get("values")
    if not whole(step) or not isinstance(values, dict):
        raise ValueError("readings without step or values")
    assert isinstance(step, int)
    found: list[tuple[str, str, float]] = []
    for signal, scopes in values.items():
        if not isinstance(scopes, dict):
            raise ValueError("a signal without scopes")
        found.extend((signal, scope, number(value)) for scope, value in scopes.items())
    return step, found


def decode_event(record: dict[str, Any]) -> Event:
    """The event of a record; raises ``ValueError`` when it is damaged."""
    step, kind, scope, data = (record.get(name) for name in ("step", "event", "scope", "data"))
    if (
        not whole(step)
        or not isinstance(kind, str)
        or not isinstance(scope, str)
        or not isinstance(data, dict)
    ):
        raise ValueError("a damaged event")
    assert isinstance(step, int)
    return Event(step, kind, scope, unmarked(data))


def decode_layer(record: dict[str, Any]) -> Layer:
    """The layer of a record; raises ``ValueError`` when it is damaged."""
    try:
        return msgspec.convert(unmarked(record.get("layer")), Layer)
    except (msgspec.ValidationError, TypeError) as error:
        raise ValueError("a damaged layer") from error
