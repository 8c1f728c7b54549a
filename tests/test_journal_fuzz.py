"""No journal, however broken, crashes its reader."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from akeso.history import Event, Layer, Parameter
from akeso.journal import JournalWriter, read


def _sound() -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        writer = JournalWriter(Path(scratch))
        writer.header({"planned_steps": 20})
        writer.layer(Layer("net", "Linear", 0, (Parameter("net.weight", (2, 2)),)))
        writer.fact("optimizers", [{"name": "SGD", "lr": float("nan")}])
        for step in range(12):
            writer.readings(step, {"loss": {"": 1.0 / (step + 1)}, "grad_l2": {"net.weight": float("inf")}})
            writer.event(Event(step, "epoch", data={"batches": 3}))
        writer.end({"steps": 12})
        (segment,) = Path(scratch).iterdir()
        return segment.read_bytes()


SOUND = _sound()
LINES = SOUND.splitlines()

NAMES = ["n", "step", "values", "layer", "name", "value", "event", "scope", "data", "schema", "planned_steps"]
names = st.sampled_from([*NAMES, "", "loss", "$float", "parameters", "shape"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | names | st.sampled_from(["nan", "\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=5,
)


def read_bytes(*segments: bytes) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for number, content in enumerate(segments):
            (Path(scratch) / f"journal-0-000-{number:06d}.jsonl").write_bytes(content)
        reading = read(scratch)
        history = reading.history
        for signal in history.signals():
            for scope in history.scopes(signal):
                series = history.series(signal, scope)
                assert (series.steps >= 0).all()
                assert len(series.values) == len(series.steps)
        assert all(isinstance(note, str) for note in reading.notes)
        history.until(5)


@given(st.binary(max_size=300))
def test_arbitrary_bytes(content: bytes) -> None:
    read_bytes(content)


@given(st.integers(0, len(SOUND)), st.integers(0, len(SOUND)), st.binary(max_size=8))
def test_cut_and_patched_journals(start: int, end: int, patch: bytes) -> None:
    read_bytes(SOUND[:start] + patch + SOUND[end:])


@given(st.permutations(range(len(LINES))), st.integers(0, len(LINES)))
def test_shuffled_lines_over_segments(order: list[int], split: int) -> None:
    lines = [LINES[index] + b"\n" for index in order]
    read_bytes(b"".join(lines[:split]), b"".join(lines[split:]))


@settings(max_examples=200)
@given(
    st.sampled_from(["header", "readings", "layer", "fact", "event", "end"]),
    st.dictionaries(st.sampled_from(NAMES), json_values, max_size=4),
)
def test_records_with_the_wrong_content(kind: str, content: dict[str, object]) -> None:
    record = {"kind": kind, "n": 3, **content}
    read_bytes(SOUND + json.dumps(record).encode() + b"\n")


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats()), min_size=1, max_size=30))
def test_what_is_written_is_what_is_read(pairs: list[tuple[int, float]]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        writer = JournalWriter(Path(scratch))
        for step, value in pairs:
            writer.readings(step, {"loss": {"": value}})
        writer.close()
        series = read(scratch).history.series("loss")
    expected = sorted(pairs, key=lambda pair: pair[0])
    assert series.steps.tolist() == [step for step, _ in expected]
    assert [repr(value) for value in series.values.tolist()] == [repr(value) for _, value in expected]
