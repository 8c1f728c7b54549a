"""Writing a journal: never in the way of the training."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from akeso.history import Event, Layer
from akeso.journal import records
from akeso.journal.thinning import Segment, choose_pair, merge_segments

#: A whole journal is about this large at most.
LIMIT_BYTES: Final = 32 * 1024 * 1024
#: Segments a full journal is made of; two of them are rewritten at a time.
_SEGMENTS: Final = 16
#: Lines wait in memory for at most this many bytes or this long before they are given to the system.
_BUFFER_BYTES: Final = 64 * 1024
_FLUSH_SECONDS: Final = 0.5
_SYNC_SECONDS: Final = 20.0


_writers: weakref.WeakSet[JournalWriter] = weakref.WeakSet()


@functools.cache
def _guard_forks() -> None:
    """Let forked children know that journals are not their own; asking each time would cost a system call."""
    os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    for writer in _writers:
        writer._forked = True


def _to_stderr(message: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"akeso: {message}", file=sys.stderr, flush=True)


class JournalWriter:
    """Appends what is read to the journal of one rank.

    No method raises because of the disk: when the folder cannot be written or is full, that is said once and
    the training goes on. A process that was forked off writes nothing.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from akeso.journal import read
    >>> folder = Path(tempfile.mkdtemp())
    >>> writer = JournalWriter(folder)
    >>> writer.readings(0, {"loss": {"": 0.7}})
    >>> writer.end({})
    >>> read(folder).history.series("loss").values.tolist()
    [0.7]
    """

    def __init__(
        self,
        folder: Path,
        rank: int = 0,
        limit_bytes: int = LIMIT_BYTES,
        say: Callable[[str], None] = _to_stderr,
    ) -> None:
        self.folder = Path(folder)
        self.rank = rank
        self.failed: str | None = None
        self._say = say
        self._forked = False
        _guard_forks()
        _writers.add(self)
        self._lock = threading.Lock()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._sequence = 0
        self._segment_bytes = max(limit_bytes // _SEGMENTS, 1024)
        self._buffer_bytes = min(_BUFFER_BYTES, self._segment_bytes)
        self._closed_segments: list[Segment] = []
        self._session = 0
        self._segment = 0
        self._segment_size = 0
        self._fd = -1
        self._closed = False
        self._said_unwritable = False
        self._flushed = self._synced = time.monotonic()
        with self._lock:
            self._guard(self._open_session)

    # What is recorded

    def header(self, content: Mapping[str, Any]) -> None:
        """What identifies the run; schema, time, command line and Python are added."""
        standard = {
            "schema": records.SCHEMA,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "argv": list(sys.argv),
            "python": sys.version.split()[0],
            "rank": self.rank,
        }
        self._record("header", {**standard, **content}, at_once=True)

    def readings(self, step: int, values: records.Values) -> None:
        """The readings of one step: signal, then scope, then value."""
        if self._idle():
            return
        with self._lock:
            try:
                line = records.encode_readings(self._sequence, int(step), values)
            except Exception as error:
                self._unwritable(f"the readings of step {step}", error)
            else:
                self._append(line)

    def many(self, signal: str, scope: str, points: list[tuple[int, float]]) -> None:
        """Readings of one signal at many steps."""
        if self._idle():
            return
        with self._lock:
            try:
                lines = [
                    records.encode_readings(self._sequence + number, step, {signal: {scope: value}})
                    for number, (step, value) in enumerate(points)
                ]
            except Exception as error:
                self._unwritable(f"{signal} of steps {points[0][0]} to {points[-1][0]}", error)
            else:
                self._append(b"".join(lines), len(lines))

    def layer(self, layer: Layer) -> None:
        """A layer that was met; told again, it replaces what was told before."""
        self._record("layer", records.layer_content(layer))

    def fact(self, name: str, value: Any) -> None:
        """Something known about the run; told again, it replaces what was told before."""
        self._record("fact", {"name": name, "value": value})

    def event(self, event: Event) -> None:
        """Something that happened."""
        self._record("event", records.event_content(event))

    def end(self, content: Mapping[str, Any]) -> None:
        """The last record: the run is over. Closes the journal."""
        self._record("end", dict(content))
        self.close()

    # When it reaches the disk

    def flush(self) -> None:
        """Give everything to the operating system: a killed process loses nothing of it."""
        if self._idle():
            return
        with self._lock:
            self._guard(self._write)

    def sync(self) -> None:
        """Give everything to the disk: a machine that loses power loses nothing of it."""
        if self._idle():
            return
        with self._lock:
            self._guard(self._write)
            self._guard(self._fsync)

    def close(self) -> None:
        """Write what is left and let go of the file; closing twice does nothing."""
        if self._closed or self._forked:
            return
        self.sync()
        with self._lock:
            self._closed = True
            self._close_file()

    # How

    def _idle(self) -> bool:
        return self.failed is not None or self._closed or self._forked

    def _record(self, kind: str, content: Mapping[str, Any], at_once: bool = False) -> None:
        if self._idle():
            return
        with self._lock:
            try:
                line = records.encode(kind, self._sequence, content)
            except Exception as error:
                self._unwritable(f"a {kind}", error)
                return
            self._append(line)
            if at_once:
                self._guard(self._write)

    def _unwritable(self, what: str, error: Exception) -> None:
        """Something that has no form in JSON was to be recorded: it is left out, which is said once."""
        if not self._said_unwritable:
            self._said_unwritable = True
            self._say(f"{what} could not be put into the journal and is left out ({error})")

    def _append(self, line: bytes, records: int = 1) -> None:
        self._sequence += records
        self._pending.append(line)
        self._pending_bytes += len(line)
        now = time.monotonic()
        if self._pending_bytes >= self._buffer_bytes or now - self._flushed >= _FLUSH_SECONDS:
            self._guard(self._write)
            if now - self._synced >= _SYNC_SECONDS:
                self._guard(self._fsync_aside)

    def _guard(self, action: Callable[[], None]) -> None:
        """Do something with the disk; when the disk refuses, say so once and give up the journal."""
        if self.failed is not None:
            return
        try:
            action()
        except OSError as error:
            self.failed = error.strerror or str(error)
            self._pending.clear()
            with contextlib.suppress(OSError):
                self._close_file()
            self._say(
                f"the journal in {self.folder} cannot be written ({self.failed}); "
                "training goes on, later readings are kept in memory only"
            )

    def _open_session(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        known = [records.segment_of(path) for path in self.folder.iterdir()]
        self._session = max((name[1] + 1 for name in known if name and name[0] == self.rank), default=0)
        while True:
            try:
                self._open_segment()
            except FileExistsError:  # another process was faster
                self._session += 1
            else:
                return

    def _open_segment(self) -> None:
        path = records.segment_path(self.folder, self.rank, self._session, self._segment)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        self._fd = os.open(path, flags, 0o666)
        self._segment_size = 0

    def _write(self) -> None:
        self._flushed = time.monotonic()
        if not self._pending:
            return
        data = b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        self._segment_size += len(data)
        view = memoryview(data)
        while view:  # one call, unless the disk is nearly full or the call is interrupted
            view = view[os.write(self._fd, view) :]
        if self._segment_size >= self._segment_bytes:
            self._next_segment()

    def _next_segment(self) -> None:
        path = records.segment_path(self.folder, self.rank, self._session, self._segment)
        self._fsync_aside()
        self._close_file()
        self._closed_segments.append(Segment(path, self._segment_size, weight=1))
        self._segment += 1
        self._open_segment()
        while (
            len(self._closed_segments) >= _SEGMENTS
            or sum(segment.size for segment in self._closed_segments) >= self._segment_bytes * _SEGMENTS
        ) and (first := choose_pair(self._closed_segments)) is not None:
            one, two = self._closed_segments[first : first + 2]
            self._closed_segments[first : first + 2] = [merge_segments(one, two, self._segment_bytes)]

    def _fsync(self) -> None:
        os.fsync(self._fd)
        self._synced = time.monotonic()

    def _fsync_aside(self) -> None:
        """Sync without waiting: a slow disk must not hold up a training step."""
        self._synced = time.monotonic()
        copy = os.dup(self._fd)

        def sync() -> None:
            with contextlib.suppress(OSError):
                os.fsync(copy)
            with contextlib.suppress(OSError):
                os.close(copy)

        try:
            threading.Thread(target=sync, name="akeso-journal-sync", daemon=True).start()
        except RuntimeError:  # the interpreter is going down, or no more threads: the end syncs anyway
            os.close(copy)

    def _close_file(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)
