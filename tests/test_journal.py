"""The journal: what is written comes back, whatever happens to the disk, the process or the file."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from akeso.errors import BadInput
from akeso.history import Event, Layer, Parameter
from akeso.journal import JournalWriter, is_run, read

LAYER = Layer("net.0", "Linear", 0, (Parameter("net.0.weight", (4, 2), init_std=0.3),), role="hidden")


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def run_python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60)


def test_everything_that_is_written_comes_back(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "run")
    writer.header({"planned_steps": 500, "script": "train.py"})
    writer.layer(LAYER)
    writer.fact("task", "binary")
    writer.fact("optimizers", [{"name": "Adam", "lr": 1e-3}])
    writer.readings(0, {"loss": {"": 0.7}, "grad_l2": {"net.0.weight": 1.5, "net.0.bias": 0.25}})
    writer.readings(1, {"loss": {"": 0.6}})
    writer.event(Event(1, "epoch", data={"batches": 2}))
    writer.end({"steps": 9, "overhead": 0.004})

    reading = read(tmp_path / "run")
    history = reading.history
    assert history.series("loss").values.tolist() == [0.7, 0.6]
    assert history.series("grad_l2", "net.0.weight").values.tolist() == [1.5]
    assert history.layers == [LAYER]
    assert history.facts == {"task": "binary", "optimizers": [{"name": "Adam", "lr": 1e-3}]}
    assert history.events == [Event(1, "epoch", data={"batches": 2})]
    assert (history.planned_steps, history.steps, history.finished) == (500, 9, True)
    assert reading.header["script"] == "train.py"
    assert reading.header["schema"] == 1
    assert reading.ending["overhead"] == 0.004
    assert reading.ended
    assert reading.notes == ()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 5e-324, 1.7e308, 0.1 + 0.2, -0.0])
def test_every_float_round_trips(tmp_path: Path, value: float) -> None:
    writer = JournalWriter(tmp_path)
    writer.readings(3, {"loss": {"": value}, "null": {"null": 1.0}})
    writer.fact("x", {"deep": [value, "nan", None]})
    writer.event(Event(3, "non-finite", "net", {"value": "nan", "number": value}))
    writer.close()
    history = read(tmp_path).history
    back = [
        history.series("loss").values[0],
        history.facts["x"]["deep"][0],
        history.events[0].data["number"],
    ]
    for number in back:
        assert np.float64(number).tobytes() == np.float64(value).tobytes()
    assert history.facts["x"]["deep"][1:] == ["nan", None]
    assert history.events[0].data["value"] == "nan"
    assert history.series("null", "null").values.tolist() == [1.0]


def test_numpy_values_and_odd_objects_are_written(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    writer.readings(0, {"loss": {"": np.float32(0.5)}, "accuracy": {"": np.float32("nan")}})  # type: ignore[dict-item]
    writer.fact("odd", {"array": np.arange(3), "shape": (2, 3), "path": Path("a"), "big": 2**70})
    writer.close()
    history = read(tmp_path).history
    assert history.series("loss").values.tolist() == [0.5]
    assert np.isnan(history.series("accuracy").values).all()
    assert history.facts["odd"] == {"array": [0, 1, 2], "shape": [2, 3], "path": "a", "big": str(2**70)}


def test_what_has_no_form_in_json_is_left_out_and_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    writer = JournalWriter(tmp_path, say=said.append)
    endless: list[object] = []
    endless.append(endless)
    for _ in range(3):
        writer.fact("endless", endless)
    writer.readings(0, {"loss": {"": 1.0}})
    writer.end({})
    assert len(said) == 1
    assert "left out" in said[0]
    assert read(tmp_path).history.series("loss").values.tolist() == [1.0]


def test_the_journal_is_readable_while_it_is_written(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    writer.header({})
    for step in range(5):
        writer.readings(step, {"loss": {"": float(step)}})
        writer.flush()
        reading = read(tmp_path)
        assert len(reading.history.series("loss")) == step + 1
        assert not reading.ended
    writer.close()


def test_a_torn_last_line_is_dropped_and_said(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    writer.header({})
    writer.readings(0, {"loss": {"": 1.0}})
    writer.readings(1, {"loss": {"": 123.456}})
    writer.close()
    (segment,) = tmp_path.iterdir()
    segment.write_bytes(segment.read_bytes()[:-6])
    reading = read(tmp_path)
    assert reading.history.series("loss").values.tolist() == [1.0]
    assert any("torn" in note for note in reading.notes)
    assert not reading.ended


def test_lines_of_every_bad_kind_are_skipped_and_counted(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    writer.header({})
    for step in range(4):
        writer.readings(step, {"loss": {"": float(step)}})
    writer.close()
    (segment,) = tmp_path.iterdir()
    header, a, b, c, d = segment.read_bytes().splitlines()
    foreign = [b'{"level":"info"}', b"[1,2]", b'{"kind":"readings","n":-1}']
    unreadable = [b"\xff\xfe\x00\x01", b"Traceback (most recent call last):", b'{"kind":', b"[" * 100_000]
    damaged = [
        b'{"kind":"readings","n":900,"step":1e99,"values":{}}',
        b'{"kind":"readings","n":901,"step":1,"values":{"loss":{"":"high"}}}',
        b'{"kind":"event","n":902,"step":0}',
        b'{"kind":"layer","n":903,"layer":{"name":7}}',
        b'{"kind":"fact","n":904}',
    ]
    lines = [header, *foreign, d, *unreadable, c, b, *damaged, a, a]
    segment.write_bytes(b"\n".join(lines) + b"\n")
    reading = read(tmp_path)
    assert reading.history.series("loss").values.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert reading.notes == (
        "4 unreadable lines skipped",
        "3 lines that are not akeso's skipped",
        "5 damaged records skipped",
        "3 lines out of order, put back in order",
    )


def test_a_journal_of_a_newer_schema_and_one_without_header_are_read_and_said(tmp_path: Path) -> None:
    newer, headless = tmp_path / "newer", tmp_path / "headless"
    writer = JournalWriter(newer)
    writer.header({"schema": 99})
    writer.end({})
    JournalWriter(headless).end({})
    assert "newer akeso" in read(newer).notes[0]
    assert read(headless).notes == ("the header is missing",)


def test_a_folder_that_is_no_run_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no run folder"):
        read(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("hello")
    assert not is_run(tmp_path)
    with pytest.raises(BadInput, match="holds no journal"):
        read(tmp_path)
    JournalWriter(tmp_path).close()
    assert is_run(tmp_path)
    with pytest.raises(BadInput, match="rank 3"):
        read(tmp_path, rank=3)


def test_a_folder_used_twice_gives_the_last_run(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        writer = JournalWriter(tmp_path)
        writer.header({})
        writer.readings(0, {"loss": {"": value}})
        writer.end({})
    reading = read(tmp_path)
    assert reading.history.series("loss").values.tolist() == [2.0]
    assert "earlier run" in reading.notes[0]


def test_size_is_bounded_and_the_whole_run_stays_covered(tmp_path: Path) -> None:
    limit = 256 * 1024
    writer = JournalWriter(tmp_path, limit_bytes=limit)
    writer.header({"planned_steps": 30_000})
    writer.layer(LAYER)
    largest = 0
    for step in range(30_000):
        writer.readings(step, {"loss": {"": step + 0.125}})
        if step % 10 == 0:
            writer.readings(step, {"grad_l2": {"net.0.weight": 1.0}, "weight_l2": {"net.0.weight": 2.0}})
            writer.fact("overhead", step / 30_000)
        if step % 3000 == 0:
            writer.event(Event(step, "epoch"))
            writer.readings(step, {"val_loss": {"": float(step)}})
        if step % 500 == 0:
            writer.flush()
            largest = max(largest, size_of(tmp_path))
    writer.end({"steps": 30_000})
    assert largest < limit * 1.1
    reading = read(tmp_path)
    history = reading.history
    assert reading.notes == ()
    assert reading.header["planned_steps"] == 30_000
    assert history.steps == 30_000
    assert history.layers == [LAYER]
    assert history.facts["overhead"] == 29_990 / 30_000
    assert [event.step for event in history.events] == list(range(0, 30_000, 3000))
    assert history.series("val_loss").steps.tolist() == list(range(0, 30_000, 3000))
    for series in (history.series("loss"), history.series("grad_l2", "net.0.weight")):
        counts, _ = np.histogram(series.steps, bins=10, range=(0, 30_000))
        assert counts.min() * 12 > counts.max()
        assert np.all(np.diff(series.steps) > 0)
    loss = history.series("loss")
    assert np.array_equal(loss.values, loss.steps + 0.125)
    assert loss.steps[:100].tolist() == list(range(100))
    assert loss.steps[-1] == 29_999


def test_events_alone_cannot_outgrow_the_limit(tmp_path: Path) -> None:
    limit = 64 * 1024
    writer = JournalWriter(tmp_path, limit_bytes=limit)
    for step in range(20_000):
        writer.event(Event(step, "clip", data={"limit": 1.0, "kind": "norm"}))
    writer.close()
    assert size_of(tmp_path) < limit * 1.3
    assert read(tmp_path).history.events[0].step == 0
    assert read(tmp_path).history.events[-1].step == 19_999


def test_a_reader_between_rename_and_removal_sees_each_line_once(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    writer.header({})
    for step in range(6):
        writer.readings(step, {"loss": {"": float(step)}})
    writer.close()
    (segment,) = tmp_path.iterdir()
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.with_name(segment.name.replace("-000000", "-000001")).write_bytes(b"".join(lines[3:]))
    segment.with_suffix(".tmp").write_bytes(b"half a fi")
    reading = read(tmp_path)
    assert reading.history.series("loss").values.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert reading.notes == ()


def test_a_forked_child_writes_nothing_into_the_journal(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from akeso.journal import JournalWriter
writer = JournalWriter(Path(sys.argv[1]))
writer.header({})
writer.readings(0, {"loss": {"": 1.0}})
child = os.fork()
if child == 0:
    writer.readings(1, {"loss": {"": 2.0}})
    writer.sync()
    writer.end({"by": "child"})
    os._exit(0)
os.waitpid(child, 0)
writer.readings(2, {"loss": {"": 3.0}})
writer.end({"by": "parent"})
"""
    done = run_python(code, str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    reading = read(tmp_path)
    assert reading.history.series("loss").steps.tolist() == [0, 2]
    assert reading.ending == {"by": "parent"}
    assert reading.notes == ()


def test_a_folder_that_cannot_be_made_is_said_once_and_writing_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    said: list[str] = []
    writer = JournalWriter(tmp_path / "file" / "run", say=said.append)
    writer.header({})
    for step in range(1000):
        writer.readings(step, {"loss": {"": 1.0}})
    writer.event(Event(0, "epoch"))
    writer.end({})
    assert len(said) == 1
    assert "training goes on" in said[0]
    assert "Not a directory" in said[0]


def test_a_disk_that_fills_up_is_said_once_and_what_was_written_stays(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from akeso.journal import JournalWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
writer = JournalWriter(Path(sys.argv[1]))
writer.header({})
for step in range(5000):
    writer.readings(step, {"loss": {"": 0.5}})
    if step % 10 == 0:
        writer.flush()
writer.end({})
print("trained to the end")
"""
    done = run_python(code, str(tmp_path))
    assert done.returncode == 0
    assert done.stdout == "trained to the end\n"
    assert done.stderr.count("akeso:") == 1
    assert "File too large" in done.stderr
    reading = read(tmp_path)
    steps = reading.history.series("loss").steps.tolist()
    assert len(steps) > 50
    assert steps == list(range(len(steps)))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_no_space_left_on_device(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from akeso.journal import JournalWriter
writer = JournalWriter(Path(sys.argv[1]))
(segment,) = Path(sys.argv[1]).iterdir()
full = os.open("/dev/full", os.O_WRONLY)
descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
for number in descriptors:
    try:
        if os.path.samestat(os.fstat(number), os.stat(segment)):
            os.dup2(full, number)
    except OSError:
        pass
for step in range(100):
    writer.readings(step, {"loss": {"": 0.5}})
    writer.sync()
writer.end({})
print("trained to the end")
"""
    done = run_python(code, str(tmp_path))
    assert done.stdout == "trained to the end\n"
    assert done.stderr.count("akeso:") == 1
    assert "No space left on device" in done.stderr


def test_ranks_are_read_as_one_run(tmp_path: Path) -> None:
    for rank in (0, 1):
        writer = JournalWriter(tmp_path, rank=rank)
        writer.header({})
        writer.readings(0, {"loss": {"": 1.0 + rank}, "grad_l2": {"w": 5.0 + rank}})
        if rank == 0:
            writer.readings(1, {"loss": {"": 0.5}})
        writer.event(Event(0, "epoch"))
        if rank == 1:
            writer.event(Event(0, "non-finite", "net.1", {"what": "activation"}))
            writer.readings(2, {"loss": {"": math.nan}})
        else:
            writer.readings(2, {"loss": {"": 0.25}})
        writer.end({"rank": rank})
    both = read(tmp_path)
    assert both.ranks == (0, 1)
    assert both.history.series("loss").values.tolist()[:2] == [1.5, 0.5]
    assert math.isnan(both.history.series("loss").values[2])
    assert both.history.series("grad_l2", "w").values.tolist() == [5.0]
    assert [event.kind for event in both.history.events] == ["epoch", "non-finite"]
    assert both.history.events[1].data["rank"] == 1
    assert both.ended
    assert read(tmp_path, rank=1).history.series("loss").values.tolist()[0] == 2.0
