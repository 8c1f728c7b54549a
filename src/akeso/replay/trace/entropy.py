"""Where a program takes numbers that no seed decides: watched, and on request made to repeat.

Python, NumPy and torch seed themselves from the system when nobody gives a seed; programs read the clock, ask
the system for random bytes, and list folders in whatever order they come. Each such entry point is wrapped
here, and calls that stem from the program (not from the inner life of the standard library) are written to a
file with their line. What is named in ``fixed`` is answered with values that depend on the seed and the
place of the call alone, so that two runs get the same.
"""

from __future__ import annotations

import datetime
import os
import random
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch

from akeso.replay.keys import key, mix
from akeso.replay.trace.lines import calling_frame, is_own, own_frame

GENERATORS, SYSTEM, CLOCK, FOLDERS, SEEDS = "generator", "entropy", "time", "folder", "seed"
_STDLIB = tuple({sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platstdlib"], "<frozen"})
_TIMES = ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns")
_CLOCK_START = 1_700_000_000.0


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One use of something that no seed decides."""

    kind: str
    what: str
    file: str
    line: int
    value: str = ""
    in_step: bool = False
    """Whether training had begun: the call lies in the loop rather than in the preparations."""

    @property
    def place(self) -> str:
        """``file:line``, the file by its name."""
        return f"{Path(self.file).name}:{self.line}" if self.file else ""


class _Patch(NamedTuple):
    owner: Any
    name: str
    original: Any


class Entropy:
    """Wraps the entry points while it is started.

    Args:
        events: File that events are appended to, one per kind and line; loader workers write to it as well.
        seed: Seed for what is made to repeat.
        fixed: Kinds made to repeat: ``generator``, ``entropy``, ``time``; or ``kind@file:line`` for one line
            alone; and ``folder``, which hands out the entries of folders in reversed order instead.
    """

    def __init__(self, events: Path | None = None, *, seed: int = 0, fixed: Iterable[str] = ()) -> None:
        self._path = events
        self._seed = seed
        self._fixed = frozenset(fixed)
        self._patches: list[_Patch] = []
        self._seen: set[tuple[str, str, str, int]] = set()
        self._counts: Counter[tuple[str, int]] = Counter()
        self._ticks = 0
        self._process = os.getpid()
        self.training = False

    def start(self) -> None:
        """Wrap the entry points."""
        self._wrap_generators()
        self._wrap_seeds()
        self._wrap_system()
        self._wrap_clock()
        self._wrap_folders()

    def stop(self) -> None:
        """Put every entry point back."""
        for patch in reversed(self._patches):
            setattr(patch.owner, patch.name, patch.original)
        self._patches = []

    def _patch(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name, None)
        if original is None:
            return
        setattr(owner, name, make(original))
        self._patches.append(_Patch(owner, name, original))

    def _wrap_generators(self) -> None:
        def bits(original: Any) -> Any:
            def randbits(count: int) -> int:
                frame = _outside_of_python()
                if self._note(GENERATORS, "a NumPy generator without a seed", frame) and frame is not None:
                    return int.from_bytes(self._bytes(frame, (count + 7) // 8), "little") % (1 << count)
                return int(original(count))

            return randbits

        def seed(original: Any) -> Any:
            def seeding(self_: random.Random, a: Any = None, version: int = 2) -> None:
                if a is None and not isinstance(self_, random.SystemRandom):
                    frame = _outside_of_python()
                    if self._note(GENERATORS, "a random.Random without a seed", frame) and frame is not None:
                        a = int.from_bytes(self._bytes(frame, 8), "little")
                original(self_, a, version)

            return seeding

        self._patch(np.random.bit_generator, "randbits", bits)
        self._patch(random.Random, "seed", seed)

    def _wrap_seeds(self) -> None:
        def python(original: Any) -> Any:
            def seed(a: Any = None, version: int = 2) -> None:
                if a is not None:
                    self._note(SEEDS, "random.seed", calling_frame(), value=str(a)[:80])
                # Through the class, so that a missing seed is seen there.
                random.Random.seed(random._inst, a, version)

            return seed

        def numpy(original: Any) -> Any:
            def seed(seed: Any = None) -> None:
                if seed is not None:
                    self._note(SEEDS, "numpy.random.seed", calling_frame(), value=str(seed)[:80])
                original(seed)

            return seed

        def manual(original: Any) -> Any:
            def manual_seed(seed: Any) -> torch.Generator:
                self._note(SEEDS, "torch.manual_seed", calling_frame(), value=str(seed)[:80])
                made: torch.Generator = original(seed)
                return made

            return manual_seed

        def fresh(original: Any) -> Any:
            def seed() -> int:
                frame = calling_frame()
                if self._note(GENERATORS, "torch.seed()", frame) and frame is not None:
                    number = int.from_bytes(self._bytes(frame, 8), "little") >> 1
                    torch.manual_seed(number)
                    return number
                return int(original())

            return seed

        self._patch(random, "seed", python)
        self._patch(np.random, "seed", numpy)
        for owner in (torch, torch.random):
            self._patch(owner, "manual_seed", manual)
            self._patch(owner, "seed", fresh)

    def _wrap_system(self) -> None:
        def urandom(original: Any) -> Any:
            def urandom(size: int) -> bytes:
                frame = _outside_of_python()
                name = _entry_name() or "os.urandom"
                if self._note(SYSTEM, name, frame) and frame is not None:
                    return self._bytes(frame, size)
                taken: bytes = original(size)
                return taken

            return urandom

        self._patch(os, "urandom", urandom)
        self._patch(random, "_urandom", urandom)

    def _wrap_clock(self) -> None:
        def clock(name: str) -> Callable[[Any], Any]:
            def make(original: Any) -> Any:
                def read() -> Any:
                    frame = calling_frame()
                    fixed = self._note(CLOCK, f"time.{name}", frame)
                    seconds = self._tick(frame)
                    if fixed:
                        return int(seconds * 1e9) if name.endswith("_ns") else seconds
                    return original()

                return read

            return make

        for name in _TIMES:
            self._patch(time, name, clock(name))
        self._patch(datetime, "datetime", self._datetime)

    def _datetime(self, original: Any) -> Any:
        watch = self

        class _Kind(type(original)):  # type: ignore[misc]
            def __instancecheck__(cls, instance: object) -> bool:
                return isinstance(instance, original)

            def __subclasscheck__(cls, subclass: type) -> bool:
                return issubclass(subclass, original)

        def now(cls: Any, tz: Any = None) -> Any:
            frame = calling_frame()
            fixed = watch._note(CLOCK, "datetime.now", frame)
            seconds = watch._tick(frame)
            return original.fromtimestamp(seconds, tz) if fixed else original.now(tz)

        def utcnow(cls: Any) -> Any:
            return now(cls, datetime.timezone.utc).replace(tzinfo=None)

        spaces = {"now": classmethod(now), "today": classmethod(now), "utcnow": classmethod(utcnow)}
        return _Kind("datetime", (original,), spaces)

    def _wrap_folders(self) -> None:
        def listing(original: Any) -> Any:
            def listdir(path: Any = ".") -> list[Any]:
                found = original(path)
                noted = self._note(FOLDERS, "os.listdir", _outside_of_python())
                return sorted(found, reverse=True) if noted else list(found)

            return listdir

        def scanning(original: Any) -> Any:
            def scandir(path: Any = ".") -> Any:
                noted = self._note(FOLDERS, _entry_name() or "os.scandir", _outside_of_python())
                found = original(path)
                return (
                    _Scan(sorted(found, key=lambda entry: str(entry.name), reverse=True)) if noted else found
                )

            return scandir

        self._patch(os, "listdir", listing)
        self._patch(os, "scandir", scanning)

    def _note(self, kind: str, what: str, frame: FrameType | None, value: str = "") -> bool:
        """Write the event down, and tell whether this call is to be made to repeat."""
        own = own_frame(2)
        # The clock and folders are read by libraries all the time; only the program's own calls count.
        direct = frame is not None and is_own(frame.f_code.co_filename)
        if frame is None or own is None or (not direct and kind not in (GENERATORS,)):
            return False
        if frame.f_code.co_filename.startswith(_STDLIB):
            return False
        file, line = own.f_code.co_filename, own.f_lineno
        known = (kind, what, file, line)
        if known not in self._seen or kind == SEEDS:
            self._seen.add(known)
            event = Event(kind, what, file, line, value, self.training or os.getpid() != self._process)
            self._append(event)
        return kind in self._fixed or f"{kind}@{file}:{line}" in self._fixed

    def _append(self, event: Event) -> None:
        if self._path is None:
            return
        # One write with O_APPEND: loader workers write to the same file.
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, msgspec.json.encode(event) + b"\n")
        finally:
            os.close(file)

    def _bytes(self, frame: FrameType, size: int) -> bytes:
        """Bytes that depend on the seed, the place of the call, and how often it was reached."""
        place = (Path(frame.f_code.co_filename).name, frame.f_lineno)
        self._counts[place] += 1
        state = key(self._seed, "entropy", *place, self._counts[place])
        words = (mix(state + number) for number in range((size + 7) // 8))
        return b"".join(word.to_bytes(8, "little") for word in words)[:size]

    def _tick(self, frame: FrameType | None) -> float:
        """A clock that counts the program's own readings, whether they are answered by it or not."""
        if frame is not None and is_own(frame.f_code.co_filename):
            self._ticks += 1
        return _CLOCK_START + self._ticks / 1000


class _Scan:
    """The entries of a folder in another order, with the manners of ``os.scandir``."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[Any]:
        return self._entries

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Scan:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is open any more."""


def _outside_of_python() -> FrameType | None:
    """The innermost frame that is neither akeso's nor the standard library's; tempfile and the like give
    None.
    """
    frame = calling_frame(3)
    while frame is not None and frame.f_code.co_filename.startswith(_STDLIB):
        if is_own(frame.f_code.co_filename) or "site-packages" in frame.f_code.co_filename:
            break
        if Path(frame.f_code.co_filename).stem in ("tempfile", "multiprocessing", "connection", "subprocess"):
            return None
        frame = frame.f_back
    return frame


def _entry_name() -> str:
    """The function of the standard library that the program called: ``uuid.uuid4`` rather than
    ``os.urandom``.
    """
    frame: FrameType | None = sys._getframe(2)
    found = ""
    while frame is not None and not is_own(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith(_STDLIB):
            module = Path(frame.f_code.co_filename.removeprefix("<frozen ").rstrip(">")).stem
            found = f"{module}.{frame.f_code.co_name.lstrip('_')}"
        frame = frame.f_back
    return found


def read_events(path: Path) -> list[Event]:
    """The events of a run, in the order in which they were written."""
    if not path.exists():
        return []
    decoder = msgspec.json.Decoder(Event)
    return [decoder.decode(line) for line in path.read_bytes().splitlines() if line.strip()]
