"""Writing snapshots beside the training, from a copy."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from akeso.replay.snapshot import write
from akeso.replay.snapshot_tensors import Block, Layout
from akeso.replay.state import Packing


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector from going through thousands of new objects, none of which is garbage."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class BackgroundWriter:
    """Takes a copy at once and writes it in a thread; one snapshot is under way at a time."""

    def __init__(self, folder: Path, keep: int, spare: int, worthless: Iterable[int] = ()) -> None:
        self._folder, self._keep, self._spare = folder, keep, spare
        self._worthless = set(worthless)
        self._block = Block()
        self._thread: threading.Thread | None = None
        self._done: list[tuple[int, int, float, str | None]] = []

    @property
    def busy(self) -> bool:
        """Whether the previous snapshot is still being written."""
        return self._thread is not None and self._thread.is_alive()

    def take(self, step: int, state: dict[str, Any], packing: Packing | None = None) -> None:
        """Copy the state and start writing it. The state may change as soon as this returns."""
        self.wait()
        packing = packing or Packing()
        tree = packing.tree(state, "state")
        layout = Layout(packing.tensors)
        self._block.take(layout, packing.tensors)
        self._thread = threading.Thread(target=self._write, args=(step, tree, layout), name="akeso-snapshot")
        self._thread.start()

    def _write(self, step: int, tree: dict[str, Any], layout: Layout) -> None:
        start = perf_counter()
        try:
            data = self._block.data(layout)
            worthless = self._worthless - {step}
            write(self._folder, step, tree, layout.header, data, self._keep, self._spare, worthless)
            self._worthless.clear()
        except OSError as error:
            trouble = error.strerror or str(error)
            self._done.append((step, layout.bytes, perf_counter() - start, trouble))
            return
        self._done.append((step, layout.bytes, perf_counter() - start, None))

    def finished(self) -> list[tuple[int, int, float, str | None]]:
        """Return (step, bytes, seconds, trouble) of the snapshots written since the last call."""
        if not self._done:
            return []
        found, self._done = self._done, []
        return found

    def wait(self) -> None:
        """Wait until nothing is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
