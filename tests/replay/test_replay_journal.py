"""The journal of a replayable run: chained, torn tails dropped, damage named."""

from __future__ import annotations

from pathlib import Path

import pytest

from akeso.errors import BadInput
from akeso.replay.journal import FILE, ReplayJournal, StepRecord, read


def _written(folder: Path, steps: int = 5) -> bytes:
    journal = ReplayJournal(folder)
    journal.append("begin", {"seed": 0})
    for step in range(1, steps + 1):
        journal.steps([StepRecord(step, 0, step, samples=f"s{step}", loss=f"l{step}")])
    journal.close()
    return (folder / FILE).read_bytes()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    _written(tmp_path)
    found = read(tmp_path)
    assert not found.torn
    assert found.broken_at is None
    assert found.steps()[3] == StepRecord(3, 0, 3, samples="s3", loss="l3")


def test_every_cut_is_recognised_and_only_the_torn_line_is_lost(tmp_path: Path) -> None:
    whole = _written(tmp_path)
    starts = {0} | {at + 1 for at, byte in enumerate(whole) if byte == 10}
    for cut in range(len(whole)):
        (tmp_path / FILE).write_bytes(whole[:cut])
        found = read(tmp_path)
        assert found.broken_at is None
        assert found.torn == (cut not in starts)
        assert len(found.records) == whole[:cut].count(b"\n")


def test_any_changed_byte_is_found(tmp_path: Path) -> None:
    whole = _written(tmp_path)
    for place in range(0, len(whole), 7):
        changed = bytearray(whole)
        changed[place] ^= 1
        (tmp_path / FILE).write_bytes(bytes(changed))
        found = read(tmp_path)
        assert found.torn or found.broken_at is not None


def test_a_lost_line_breaks_the_chain(tmp_path: Path) -> None:
    lines = _written(tmp_path).splitlines(keepends=True)
    (tmp_path / FILE).write_bytes(b"".join(lines[:2] + lines[3:]))
    assert read(tmp_path).broken_at == 3
    with pytest.raises(BadInput, match="line 3"):
        ReplayJournal(tmp_path)


def test_a_torn_journal_goes_on_and_steps_run_again_replace_the_old(tmp_path: Path) -> None:
    whole = _written(tmp_path)
    (tmp_path / FILE).write_bytes(whole[:-4])
    journal = ReplayJournal(tmp_path)
    assert journal.found.torn
    journal.steps([StepRecord(4, 0, 4, loss="other")])
    journal.close()
    found = read(tmp_path)
    assert found.broken_at is None
    assert found.steps()[4].loss == "other"
    assert 5 not in found.steps()


def test_differences_name_the_first_cause_first() -> None:
    one = StepRecord(1, 0, 0, samples="a", generators="b", loss="c", gradient="d")
    two = StepRecord(1, 0, 0, samples="a", generators="x", loss="y")
    assert one.differences(two) == ("generators", "loss")


def test_no_journal_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not the folder of a replayable run"):
        read(tmp_path)
