"""Disks that take no more, for a while or for good: nothing is lost that was there, and it is tried again."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from akeso.errors import BadInput
from akeso.replay import run_folder, snapshot
from akeso.replay.journal import FILE, ReplayJournal, StepRecord, read
from akeso.replay.run import Run
from akeso.replay.snapshot_background import BackgroundWriter

pytestmark = pytest.mark.usefixtures("process_as_before")


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_lines_wait_in_memory_and_follow_when_there_is_room(tmp_path: Path) -> None:
    journal = ReplayJournal(tmp_path)
    journal.steps([StepRecord(1, 0, 0, loss="a")])
    # The second line is cut in the middle.
    with no_file_longer_than((tmp_path / FILE).stat().st_size + 20):
        for step in range(2, 5):
            journal.steps([StepRecord(step, 0, step, loss="b")])
        assert journal.trouble is not None
        assert "File too large" in journal.trouble
        assert read(tmp_path).torn
    journal.steps([StepRecord(5, 0, 5, loss="c")])
    journal.close()
    assert journal.trouble is None
    found = read(tmp_path)
    assert sorted(found.steps()) == [1, 2, 3, 4, 5]
    assert not found.torn
    assert found.broken_at is None


def test_snapshots_are_taken_again_when_a_full_disk_has_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Run(tmp_path / "a", snapshot_every=2, budget=1.0) as run:
        weights = torch.zeros(50)
        run.track(weights=weights)
        steps = run.iterations(24)

        def go_on(to: int) -> None:
            nonlocal weights
            for number in steps:
                weights += number
                run.step(weights.sum())
                run._writer.wait()
                if number == to:
                    break

        go_on(5)
        with no_file_longer_than(100):
            go_on(15)
            last = snapshot.found(tmp_path / "a")[-1].step
        go_on(24)
    said = capsys.readouterr().err
    assert said.count("could not be written: File too large; the ones before it stay") == 1
    assert "snapshots can be written again, that of step" in said
    assert said.count("replay.jsonl cannot be written: File too large") == 1
    assert 2 <= last <= 6
    assert [info.step for info in snapshot.found(tmp_path / "a")][-1] == 24
    assert sorted(read(tmp_path / "a").steps()) == list(range(1, 25))


def test_a_run_that_cannot_begin_says_so_and_one_that_has_begun_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with no_file_longer_than(1), pytest.raises(BadInput, match=r"run.json: File too large; make room there"):
        Run(tmp_path / "a")
    with Run(tmp_path / "a", snapshot_every=1) as run:
        before = (tmp_path / "a" / run_folder.FILE).read_bytes()
        with no_file_longer_than(1):
            steps = run.batches(torch.arange(12.0), batch_size=2)
        assert (tmp_path / "a" / run_folder.FILE).read_bytes() == before
        for _ in steps:
            run.step(0.0)
    said = capsys.readouterr().err
    assert "run.json could not be written: File too large; it is tried again with every snapshot" in said
    assert "run.json has been written" in said
    assert "train" in run_folder.read(tmp_path / "a")["data"]


def _take(writer: BackgroundWriter, *steps: int) -> list[str | None]:
    for step in steps:
        writer.take(step, {"weights": torch.zeros(1000)})
        writer.wait()
    return [trouble for _, _, _, trouble in writer.finished()]


def test_where_two_snapshots_have_room_the_older_makes_place_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, room = snapshot._write, 10_000

    def on_a_small_disk(path: Path, *parts: Any) -> dict[str, Any]:
        there = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
        if there + sum(map(len, parts)) > room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, *parts)

    monkeypatch.setattr(snapshot, "_write", on_a_small_disk)
    writer = BackgroundWriter(tmp_path, 2, 0)
    assert _take(writer, 1, 2, 3, 4) == [None] * 4
    assert [(info.step, info.whole) for info in snapshot.found(tmp_path)] == [(3, True), (4, True)]
    room = 100
    assert _take(writer, 5) == ["No space left on device"]
    assert [(info.step, info.whole) for info in snapshot.found(tmp_path)] == [(4, True)]


def test_what_a_killed_process_was_writing_is_gone_before_there_must_be_room(tmp_path: Path) -> None:
    left = tmp_path / "snapshots" / ".writing-000000000007-1"
    left.mkdir(parents=True)
    with no_file_longer_than(100):
        _take(BackgroundWriter(tmp_path, 2, 0), 8)
    assert not left.exists()


def test_damaged_snapshots_are_not_counted_among_those_that_stay(tmp_path: Path) -> None:
    _take(BackgroundWriter(tmp_path, 2, 0), 1, 5)
    (tmp_path / "snapshots" / f"{5:012d}" / "state.json").write_text("")
    newest, passed = snapshot.newest_whole(tmp_path)
    assert newest is not None
    assert newest.step == 1
    _take(BackgroundWriter(tmp_path, 2, 0, [bad.step for bad in passed]), 3)
    assert [(info.step, info.whole) for info in snapshot.found(tmp_path)] == [(1, True), (3, True)]
