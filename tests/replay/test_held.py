"""State that nobody names: wherever a program keeps plain values, they are there again after a kill."""

from __future__ import annotations

import enum
import functools
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from akeso.errors import BadInput, Refused
from akeso.replay.resume import VARIABLE, Orders
from akeso.replay.run import Run
from akeso.replay.state import pack, unpack
from akeso.replay.state_marks import changed, has_state, mark
from tests.script.commands import Done, python_at_once

PROGRAM = """
import argparse, collections, dataclasses, enum, functools, os, signal, sys, types
import shelf
from akeso.replay import Run

Step = collections.namedtuple("Step", "number value")

class Phase(enum.Enum):
    EARLY = 1
    LATE = 2

@dataclasses.dataclass
class Best:
    value: float
    at: int

@dataclasses.dataclass(slots=True)
class Ring:
    items: list
    place: int = 0

class Meter:
    calls = 0
    def __init__(self):
        self.total = 0.0

class Plain:
    pass

def averager():
    total = count = 0
    def add(value):
        nonlocal total, count
        total, count = total + value, count + 1
        return total / count
    return add

def remember(value, kept=[]):
    kept.append(value)
    remember.calls = getattr(remember, "calls", 0) + 1
    return list(kept)

def main(folder, stop):
    run = Run(folder, snapshot_every=2)
    phase, best, first = Phase.EARLY, None, Best(99.0, -1)
    last = first
    options, space = argparse.Namespace(rate=1.0), types.SimpleNamespace(inner={"scale": 1.0})
    ring, meters, steps, mean = Ring([0] * 3), [Meter(), Meter()], collections.deque(maxlen=4), averager()
    mean_of = functools.partial(mean)
    table = {"square": lambda x: x * x, "count": 0}
    plain = Plain()
    for number in run.iterations(12):
        value = table["square"]((number * 7) % 5)
        if number == 5:
            phase = Phase.LATE
        if best is None or value > best.value:
            best = Best(value, number)
        last = Best(value, number)
        options.rate *= 0.9
        space.inner["scale"] += 1
        ring.items[ring.place] = value
        ring.place = (ring.place + 1) % 3
        meters[number % 2].total += value
        Meter.calls += 1
        if number % 4 == 0:
            meters.append(Meter())
        steps.append(Step(number, value))
        average, kept = mean_of(value), remember(value)
        table["count"] += 1
        plain.seen = getattr(plain, "seen", 0) + 1
        shelf.add(value)
        run.step(value)
        run._writer.wait()
        if run.steps == stop:
            os.kill(os.getpid(), signal.SIGKILL)
    print(phase, best, last, first, options, space, ring, [m.total for m in meters], Meter.calls, steps, average,
          kept, remember.calls, table["count"], table["square"](3), plain.seen, list(Phase),
          shelf.COUNT, shelf.KEPT, shelf.latest, run.mismatches)

main(sys.argv[1], int(os.environ.get("STOP", "0")))
"""
SHELF = """
COUNT = 0
KEPT = []

def add(value):
    global COUNT, latest
    COUNT += 1
    latest = value
    KEPT.append(value)
"""


def test_plain_values_are_there_again_wherever_they_are_kept(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "shelf.py").write_text(SHELF)

    def life(folder: str, stop: int = 0) -> Done:
        return python_at_once(tmp_path, str(tmp_path / "program.py"), str(tmp_path / folder), STOP=str(stop))

    whole = life("whole")
    assert whole.returncode == 0, whole.stderr
    assert life("cut", 7).returncode == -signal.SIGKILL
    again = life("cut")
    assert b"after step 6" in again.stderr
    assert again.stdout == whole.stdout


class Colour(enum.Enum):
    RED = 1


@dataclass(frozen=True)
class Point:
    x: float
    parts: tuple[Any, ...]


def test_records_are_written_by_their_attributes_and_circles_are_refused() -> None:
    value = [Point(1.5, (Colour.RED, Point(2.0, ()))), Colour.RED]
    tree, tensors = pack(value)
    back = unpack(tree, tensors)
    assert back == value
    assert back[1] is Colour.RED

    class Inside:
        """Nobody can find it again by its name."""

    with pytest.raises(Exception, match="without pickle"):
        pack(Inside())
    circle = Point(1.0, ([],))
    circle.parts[0].append(circle)
    with pytest.raises(Exception, match="circle"):
        pack(circle)


@pytest.mark.usefixtures("process_as_before")
def test_a_table_that_grows_and_a_generator_in_a_closure_are_named(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")

    def levels() -> Any:
        level = 0.0
        while True:
            level += 0.1
            yield level

    source = levels()
    draw = functools.partial(next, source)
    table = pandas.DataFrame(columns=["loss"])
    with Run(tmp_path / "run") as run, pytest.raises(Refused) as error:  # noqa: PT012
        for number in run.iterations(5):
            table.loc[len(table)] = [number]
            draw()
            run.step(number)
    assert "table: this DataFrame changes" in str(error.value)
    assert "generator is an iterator" in str(error.value)


@pytest.mark.usefixtures("process_as_before")
@pytest.mark.parametrize("given", ["file", "path"])
def test_a_tracked_log_has_every_line_once(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("before\n")
    for stop in (2, 7, 8, 0):
        with open(log, "a") as file, Run(tmp_path / "run", snapshot_every=3, keep=9) as run:
            run.track(log=file if given == "file" else log)
            for number in run.iterations(12):
                if given == "file":
                    file.write(f"{number}\n")
                else:
                    with open(log, "a") as again:
                        again.write(f"{number}\n")
                run.step(number)
                run._writer.wait()
                if run.steps == stop:
                    break
    assert log.read_text().split() == ["before", *map(str, range(12))]
    # A replay reads the run and leaves the log to it.
    orders = Orders("replay", str(tmp_path / "run"), True, 8, 9, str(tmp_path / "report"))
    monkeypatch.setenv(VARIABLE, orders.environment()[VARIABLE])
    with Run(tmp_path / "run") as run, pytest.raises(SystemExit):  # noqa: PT012
        assert run.steps == 6
        run.track(log=log)
        for number in run.iterations(12):
            run.step(number)
    assert len(log.read_text().split()) == 13
    monkeypatch.delenv(VARIABLE)
    with open(log, "w") as empty, Run(tmp_path / "other") as run, pytest.raises(BadInput, match="with 'a'"):
        run.track(log=empty)


@pytest.mark.usefixtures("process_as_before")
def test_logs_that_are_not_tracked_are_told_of_when_a_run_goes_on(tmp_path: Path) -> None:
    names = ("tracked", "grown", "emptied")
    for stop in (7, 0):
        files = [open(tmp_path / name, "w" if name == "emptied" else "a") for name in names]  # noqa: SIM115
        with Run(tmp_path / "run", snapshot_every=3) as run:
            run.track(log=files[0])
            for number in run.iterations(12):
                for file in files:
                    file.write(f"{number}\n")
                    file.flush()
                run.step(number)
                run._writer.wait()
                if run.steps == stop:
                    break
        for file in files:
            file.close()
    grown, emptied = sorted(note for note in run.notes if "bytes long when the snapshot was taken" in note)[
        ::-1
    ]
    assert "grown was 12 bytes long when the snapshot was taken and has 14 now" in grown
    assert "run.track(log=file) cuts it back" in grown
    assert "emptied was 12 bytes long when the snapshot was taken and has 0 now" in emptied


def test_classes_that_a_registry_holds_have_no_state() -> None:
    registry = {"linear": torch.nn.Linear, "adam": torch.optim.Adam, "phase": enum.Enum}
    assert not any(has_state(kind) for kind in registry.values())
    assert mark(registry) == mark(dict(registry))
    assert mark(registry) != mark({**registry, "adam": torch.optim.SGD})


def _table() -> dict[tuple[int, int], float]:
    return {(row, column): 0.0 for row in range(20) for column in range(20)}


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: [0] * 1000, lambda value: value.__setitem__(500, 1)),
        (lambda: [-1] * 1000, lambda value: value.__setitem__(500, -2)),
        (_table, lambda value: value.__setitem__((9, 9), 1.0)),
        (lambda: deque([0.0] * 500), lambda value: value.__setitem__(250, 1.0)),
        (
            lambda: {"a": {"b": {"c": {"d": {"e": {"f": {"g": 0}}}}}}},
            lambda value: _deepest(value).update(g=1),
        ),
        (lambda: [np.zeros(3) for _ in range(400)], lambda value: value[200].__setitem__(1, 1)),
        (lambda: [torch.zeros(3) for _ in range(400)], lambda value: value[200].add_(1)),
        (lambda: [np.float64(0)] * 20_000, lambda value: value.__setitem__(15_000, np.float64(1))),
        (lambda: np.zeros((500, 100)), lambda value: value.__setitem__((250, 3), 1)),
        (lambda: np.array([[0], "a"] * 100, dtype=object), lambda value: value[100].append(1)),
        (lambda: torch.zeros(300_000), lambda value: value.numpy().__setitem__(100_001, 1)),
    ],
)
def test_a_change_in_the_middle_of_something_long_or_deep_is_seen(
    make: Callable[[], Any], change: Callable[[Any], Any]
) -> None:
    value = make()
    before = mark(value)
    assert not changed(before, value)
    change(value)
    assert changed(before, value)


def _deepest(value: dict[str, Any]) -> dict[str, Any]:
    inner = next(iter(value.values()))
    return _deepest(inner) if isinstance(inner, dict) else value
