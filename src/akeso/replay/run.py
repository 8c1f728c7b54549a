"""The run: one object that makes a training loop deterministic, resumable and repeatable."""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from types import FrameType, TracebackType
from typing import Any

from akeso.errors import BadInput, Refused
from akeso.replay import fingerprint, generators, run_folder, run_logs, snapshot
from akeso.replay.journal import ReplayJournal
from akeso.replay.journal import read as read_journal
from akeso.replay.keys import extend, key
from akeso.replay.loader import Batch
from akeso.replay.lock import FolderLock
from akeso.replay.replaying import ReplayReport
from akeso.replay.resume import orders
from akeso.replay.run_asking import asked_from, loops_around
from akeso.replay.run_data import RunData
from akeso.replay.run_log import Repeats, RunLog
from akeso.replay.run_position import Boundary, Positions
from akeso.replay.run_ranks import Ranks
from akeso.replay.run_recording import Recorder
from akeso.replay.run_streams import BatchStream, EpochStream
from akeso.replay.snapshot_background import BackgroundWriter, uncollected
from akeso.replay.state import Packing
from akeso.replay.state_held import Hole, carried_graph, plain_loop
from akeso.replay.state_tracked import TrackedFile, TrackedOptimizer, apart
from akeso.replay.state_whole import PlainState, WholeState
from akeso.replay.state_wrappers import hooked

_PATIENCE = 10
"""Intervals for which a snapshot waits until the loop carries no graph."""


class Run:
    """A deterministic run in a folder of its own. Made again on the same folder, it goes on where it was.

    >>> run = Run("runs/a", seed=0)                                            # doctest: +SKIP
    >>> run.track(model=model, optimizer=optimizer)                            # doctest: +SKIP
    >>> for batch in run.batches(dataset, batch_size=64, epochs=10):           # doctest: +SKIP
    ...     loss = ...
    ...     run.step(loss)

    Args:
        folder: Where the run is kept; made if need be.
        seed: What all randomness of the run is derived from.
        snapshot_every: Steps between snapshots.
        keep: How many of the newest whole snapshots stay.
        keep_every: Snapshots at multiples of this many steps stay for good; 0 keeps none.
        strict: Whether state that nobody classified is an error; otherwise it is said on standard error.
        threads: CPU threads of torch; by default those in force. A run that goes on uses the recorded number.
        budget: Share of the training time that recording may cost.
        allow: Go on although the environment or the code has changed; drift is reported.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        seed: int = 0,
        *,
        snapshot_every: int = 100,
        keep: int = 2,
        keep_every: int = 0,
        strict: bool = True,
        threads: int | None = None,
        budget: float = 0.03,
        allow: bool = False,
    ) -> None:
        if snapshot_every < 1 or keep < 1:
            raise BadInput(f"snapshot_every and keep must be at least 1, but got {snapshot_every=}, {keep=}")
        self._orders = orders()
        self._replaying = self._orders.mode == "replay"
        self._named = Path(folder).resolve()
        self.folder = self._orders.place(self._named)
        self._every, self.seed, self._budget = snapshot_every, seed, budget
        self._log = RunLog(strict)
        self._allow = allow or self._orders.allow
        self._ranks = Ranks()
        self._lock: FolderLock | None = None
        self._report: ReplayReport | None = None
        self._closed = False
        self._whole = WholeState((Run, BatchStream, EpochStream))
        self._hooks: list[Any] = []
        # Loops of the program in which the run was made.
        self._made_in = loops_around(sys._getframe(1))
        self._looks = 0
        self._postponed = 0
        self._step_keys: dict[str, int] = {}
        self._spent = 0.0
        self._since = perf_counter()
        if self._replaying and self.folder != Path(self._orders.folder):
            # Another run of the same program: it must not be touched by a replay.
            self.folder = Path(tempfile.mkdtemp(prefix="akeso-replay-"))
        try:
            self._open(threads)
        except BaseException:
            self._release()
            raise
        self._writer = BackgroundWriter(self.folder, keep, keep_every, self._damaged)
        self._steps_at_snapshot = self.steps
        self._epoch, self._batch, self._samples = 0, 0, list[Any]()
        self._last_start = 0
        atexit.register(self.close)

    def _open(self, threads: int | None) -> None:
        existing = (self.folder / run_folder.FILE).exists()
        writing = self._ranks.leads and not (self._replaying and existing)
        if not existing:
            run_folder.check_free(self.folder)
        if writing:
            run_folder.make(self.folder)
            self._lock = FolderLock(self.folder)
        about = run_folder.read(self.folder) if existing else None
        fingerprint.pin(self.seed, about["fingerprint"]["threads"]["intra-op"] if about else threads)
        program = run_folder.Program.current()
        script = Path(program.script) if program.script else None
        now: dict[str, Any] = {
            "format": run_folder.FORMAT,
            "folder": str(self._named),
            "seed": self.seed,
            "program": program.plain(),
            "code": fingerprint.code(script),
            "fingerprint": fingerprint.take(),
            "data": {},
        }
        self._about: dict[str, Any] = about or now
        if about is not None:
            self._check(about, now)
        elif writing:
            run_folder.begin(self.folder, now)
        at_most = self._orders.first - 1 if self._replaying else None
        info, passed = snapshot.newest_whole(self.folder, at_most) if existing else (None, ())
        for bad in passed:
            self._log.say(f"the snapshot of step {bad.step} is damaged ({bad.damage}) and is passed over")
        self._damaged = [bad.step for bad in passed]
        # Read once; let go of when the program has come to where the snapshot was taken.
        self._loaded = snapshot.Loaded(info) if info else None
        about_it = self._loaded.part("about") if self._loaded else None
        self.steps = info.step if info else 0
        self._positions = Positions(*_places(about_it) if about_it else ())
        self._pending = Boundary(**about_it["boundary"]) if about_it else None
        if self._loaded is not None:
            # What the program does with them before it gets there does not reach what is restored.
            self._whole.plain._values.update(self._loaded.part("plain"))
        orders = self._loaded.part("orders", {}) if self._loaded else {}
        changed = about_it.get("data", {}) if about_it else {}
        self._data = RunData(
            self.seed, self._about["data"], orders, changed, self._differ, self._log.say, self._save
        )
        self._start_recording(existing, writing)

    def _start_recording(self, existing: bool, writing: bool) -> None:
        expected = {}
        if writing:
            self._log.journal = ReplayJournal(self.folder)
            expected = self._log.journal.found.undisputed()
            self._log.write(
                "resume" if existing else "begin",
                {"from": self.steps, "seed": self.seed, "hash seed": fingerprint.hash_seed()},
            )
        elif existing and self._replaying:
            expected = read_journal(self.folder).steps()
        self._recorder = Recorder(
            self._log.journal,
            {step: record for step, record in expected.items() if step > self.steps},
            self._budget,
        )
        self._repeats = Repeats(self._recorder, self._log, self.steps)
        if self._replaying and existing:
            self._report = ReplayReport(self._orders, self.steps, self._recorder)
        elif existing and self._ranks.leads:
            self._log.say(f"going on with {self.folder} after step {self.steps}")
            if self.folder != self._named:
                self._log.say(
                    f"the program names {self._named}; what it writes there itself goes there still"
                )
            if self._repeats.inherited:
                self._log.say(
                    "it stands on steps that a process before had run again with another result: "
                    f"{self._repeats.inherited[0]}"
                )

    def _check(self, about: dict[str, Any], now: dict[str, Any]) -> None:
        if about["seed"] != self.seed:
            raise Refused(f"{self.folder} was begun with seed {about['seed']}, not {self.seed}")
        self._differ(run_folder.differences(about, now))

    def _differ(self, found: tuple[str, ...]) -> None:
        if found and not self._allow:
            run_folder.refuse(self.folder, found)
        for line in found:
            self._log.say(f"allowed: {line}")

    def _save(self) -> None:
        if self._log.journal is not None:
            self._log.attempt(run_folder.FILE, lambda: run_folder.write(self.folder, self._about))

    # What a loop uses

    @property
    def notes(self) -> list[str]:
        """What the run has said so far."""
        return self._log.notes

    @property
    def state(self) -> PlainState:
        """Plain Python state that belongs to the run: counters, best values, flags of early stopping."""
        return self._whole.plain

    @property
    def epoch(self) -> int:
        """The epoch of the batch handed out last."""
        return self._epoch

    @property
    def index(self) -> int:
        """How many batches the stream made last had already given before it was made: for ``enumerate``."""
        return self._last_start

    @property
    def overhead(self) -> float:
        """The share of the time since the run was made that akeso has spent, copying snapshots included."""
        return self._spent / max(perf_counter() - self._since, 1e-9)

    @property
    def mismatches(self) -> tuple[str, ...]:
        """Steps run again that differ from what the process before had written; empty is as it should be.

        Those that processes before this one found are among them, as far as this one stands on their steps.
        """
        return self._repeats.mismatches

    def track(self, **objects: Any) -> None:
        """Name the objects that carry the state of the run.

        Modules, optimizers, schedulers, scalers, anything with ``state_dict`` and ``load_state_dict``,
        generators, tensors, arrays, containers, and plain objects by their attributes. A list, tuple or dict
        of models, optimizers and the like is tracked by its items: ``models.0``, ``models.1``.
        """
        for name, value in (part for pair in objects.items() for part in apart(*pair)):
            item = self._whole.track(name, value)
            if isinstance(item, TrackedFile):
                self._track_file(name, item)
            if isinstance(item, TrackedOptimizer):
                stepping = hooked(item.value)
                if stepping is not None:
                    hook = stepping.register_step_pre_hook(
                        lambda optimizer, *_: self._recorder.gradients(optimizer)
                    )
                    self._hooks.append(hook)

    def _track_file(self, name: str, item: TrackedFile) -> None:
        """Have a file cut back by a process that begins again because there was no snapshot yet."""
        item.untouched = self._replaying or not self._ranks.leads
        begun = self._about.setdefault("files", {})
        if name not in begun and self.steps == 0:
            begun[name] = item.capture()
            self._save()
        elif self._loaded is None and self.steps == 0:
            item.restore(begun[name])

    def batches(
        self,
        data: Any,
        *,
        batch_size: int | None = None,
        epochs: int = 1,
        workers: int | None = None,
        shuffle: bool | None = None,
        transform: Callable[[Any], Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        pin_memory: bool = False,
        name: str = "train",
    ) -> BatchStream:
        """Return the batches still to come of a dataset, or of a DataLoader that is taken over.

        Called once with ``epochs=n``, or once per epoch inside ``for epoch in run.epochs(n)`` (or a plain
        loop). ``name`` tells loops over different data apart.
        """
        options = {
            "workers": workers,
            "batch_size": batch_size,
            "shuffle": shuffle,
            "transform": transform,
            "collate": collate_fn,
            "drop_last": drop_last,
            "pin_memory": pin_memory,
        }
        if not self._data.holds(name, data, options):
            # A child of fork must not inherit a thread in the middle of writing.
            self._writer.wait()
        epoch, batch, stop = self._positions.start_of(name, epochs)
        whole = epochs > 1
        first = stop - epochs
        loader = self._data.loader(name, data, options, first if epoch < stop else None)
        self._step_keys[name] = key(self.seed, "step", name)
        done = [loader.order.length(at) for at in range(first, min(epoch, stop))]
        if epoch < stop:
            done.append(batch if batch < sys.maxsize else loader.order.length(epoch))
        self._last_start = sum(done)
        return BatchStream(self, name, loader, (epoch, batch), stop, whole)

    def epochs(self, count: int, name: str = "train") -> EpochStream:
        """Return the numbers of the epochs still to come; loop over ``run.batches`` inside."""
        return EpochStream(self, name, self._positions.places.get(name, (0, 0))[0], count)

    def iterations(self, count: int, name: str = "train") -> BatchStream:
        """Return the numbers of the iterations still to come, for loops that make their own data."""
        loader = self._data.counter(name, count)
        self._step_keys[name] = key(self.seed, "step", name)
        epoch, batch, stop = self._positions.start_of(name, 1)
        self._last_start = batch
        return BatchStream(self, name, loader, (epoch, batch), stop, True)

    def step(self, loss: Any = None) -> None:
        """Say that one step of training is done; a number, a tensor, or several by name."""
        start = perf_counter()
        if self._pending is not None:
            raise Refused(
                f"the program came to a step before it reached {self._pending}, where the snapshot was "
                "taken; the loops are not those of the recorded run"
            )
        self.steps += 1
        self._recorder.end(
            self.steps, self._epoch, self._batch, self._samples, loss, self._whole.tracked.values()
        )
        self._samples = []
        self._repeats.tell()
        self._recorder.begin(self.steps + 1)
        self._spent += perf_counter() - start
        if self._report is not None and self.steps >= self._orders.last:
            self._recorder.flush()
            self._report.write()
            raise SystemExit(0)

    def snapshot(self) -> None:
        """Ask for a snapshot at the end of this iteration."""
        self._steps_at_snapshot = self.steps - self._every

    # What the streams call

    def _boundary(self, at: Boundary, frame: FrameType, last: str) -> None:
        start = perf_counter()
        if self._pending is None or at == self._pending:
            self._positions.places[at.loop] = (at.epoch, at.batch)
        if not self._whole.held.ready:
            self._whole.held.baseline(frame, self._whole.known())
            self._recorder.begin(self.steps + 1)
        if self._pending is not None:
            if at == self._pending:
                self._restore(frame)
            self._spent += perf_counter() - start
            return
        self._log.snapshots(self._writer.finished())
        if self._looks < 2 and self.steps and not self._replaying:
            self._looks += 1
            held, holes = self._whole.look(frame, last != "no")
            self._log.lost((*holes, *self._anew(at, frame)))
            if self._looks == 2:
                self._ranks.tell(held)
        self._log.processes(self._ranks.differing())
        since = self.steps - self._steps_at_snapshot
        due = since >= self._every or (last == "run" and since)
        if self._log.journal is not None and due:
            if self._positions.settled(at, last == "run", partial(asked_from, frame, self)):
                if last == "run":
                    self._writer.wait()
                if not self._writer.busy:
                    with uncollected():
                        self._take_snapshot(at, frame, last)
            elif since >= _PATIENCE * self._every:
                self._log.waiting(self._steps_at_snapshot, at.loop)
        if last == "run" and self._log.journal is not None:
            self._recorder.flush()
            self._log.write("end", {"step": self.steps})
        self._spent += perf_counter() - start

    def _anew(self, at: Boundary, frame: FrameType) -> Iterator[Hole]:
        """Yield the loop around a stream that would begin anew where no snapshot could make up for it."""
        if at.kind == "batch":
            head = self._positions.anew(at.loop, asked_from(frame, self), alone=True)
            if head is not None:
                yield plain_loop(str(head), at.loop)

    def _take_snapshot(self, at: Boundary, frame: FrameType, last: str) -> None:
        self._recorder.flush()
        if run_folder.FILE in self._log.unwritten:
            self._save()
        packing = Packing()
        whole, holes = self._whole.capture(frame, last != "no", packing)
        if packing.graphs and last != "run":
            self._postponed += 1
            if self._postponed <= _PATIENCE * self._every:
                return  # until the backward pass
            holes += (carried_graph(packing.graphs[0]),)
        self._postponed = 0
        self._log.lost(holes)
        whole["samples"] = self._samples
        whole["orders"] = self._data.orders()
        whole["about"] = {
            "step": self.steps,
            "seed": self.seed,
            "boundary": at.plain(),
            "positions": self._positions.plain(at.loop),
            "plans": self._positions.plans(),
            "streams": self._positions.streams(at, partial(asked_from, frame, self)),
            "fingerprint": self._about["fingerprint"],
            "data": self._data.changed(),
            "entered": [self._epoch, self._batch],
            "logs": run_logs.lengths(self.folder),
            "typing": self._whole.typing(whole["held"]),
        }
        self._writer.take(self.steps, whole, packing)
        self._steps_at_snapshot = self.steps
        self._recorder.also(self.steps + 2)

    def _restore(self, frame: FrameType) -> None:
        assert self._loaded is not None
        lost = self._whole.restore(self._loaded, frame)
        # What was handed out again on the way here had been handed out before the snapshot.
        self._samples = list(self._loaded.part("samples", ()))
        self._positions.restored()
        about = self._loaded.part("about")
        self._epoch, self._batch = about.get("entered", (self._epoch, self._batch))
        self._tell_logs(about.get("logs", {}))
        self._pending = self._loaded = None
        for name in lost:
            self._log.say(f"{name} was held in the snapshot and is not there any more")

    def _tell_logs(self, then: dict[str, int]) -> None:
        if self._log.journal is not None:
            tracked = [item.path for item in self._whole.tracked.values() if isinstance(item, TrackedFile)]
            for text in run_logs.differing(then, run_logs.lengths(self.folder), tracked):
                self._log.say(text)

    def _enter(self, loop: str, batch: Batch) -> None:
        start = perf_counter()
        self._epoch, self._batch = batch.epoch, batch.number
        self._samples += batch.indices
        self._positions.entered("batch", loop)
        generators.seed_all(extend(self._step_keys[loop], batch.epoch, batch.number))
        self._spent += perf_counter() - start

    def _enter_epoch(self, loop: str, stream: EpochStream, epoch: int) -> None:
        self._epoch = epoch
        self._positions.gives(loop, stream, epoch)
        generators.seed_all(key(self.seed, "epoch", loop, epoch))

    # The end

    def close(self) -> None:
        """Finish writing and let the folder go. Called by itself when the program ends."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        self._recorder.flush()
        self._repeats.tell()
        self._writer.wait()
        self._log.snapshots(self._writer.finished())
        for hook in self._hooks:
            hook.remove()
        if self._report is not None:
            self._report.write()
        if self._allow and self._log.journal is not None:
            self._repeats.tell_drift()
        self._log.close()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _places(about: dict[str, Any]) -> tuple[Any, Any, Any]:
    # Snapshots of earlier versions have no plans and no streams.
    return about["positions"], about.get("plans"), about.get("streams")
