"""One ``akeso run``: the script in the middle, watching around it, the verdict at its end."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from akeso.diagnosis import Diagnosis
from akeso.errors import MissingExtra, Stop
from akeso.script import program as programs
from akeso.script.arrival import Arrival
from akeso.script.folder import forget_agreement, rank, run_folder, world_size
from akeso.script.metrics import PrintedMetrics
from akeso.script.output import Listener, listen
from akeso.script.program import Ending
from akeso.script.request import RunRequest, reaches
from akeso.script.voice import Voice

if TYPE_CHECKING:
    from akeso.history import History
    from akeso.replay.deterministic import Recording
    from akeso.script.verdict import Verdict
    from akeso.torch.watching import Watch

#: Exit code for akeso's own errors.
_OWN_ERROR = 2


class Session:
    """Runs the script, hears what it prints, watches what it trains, and concludes."""

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._pid = os.getpid()
        self._rank = rank()
        self._folder = run_folder(request.program, request.folder)
        self._watch: Watch | None = None
        self._trouble = ""
        self._printed = PrintedMetrics()
        self._listeners: tuple[Listener | None, Listener | None] = (None, None)
        self._voice = Voice(quiet=request.quiet or self._rank > 0)
        self._verdict: Verdict | None = None
        self._recording: Recording | None = None
        self._real_exit = os._exit

    def run(self) -> int:
        """Run the script to its end and return the exit code of the whole."""
        request = self._request
        if request.deterministic:
            self._prepare_determinism()
        arrivals = (Arrival("torch", self._start_watching), Arrival("keras", self._keras_came))
        self._listeners = listen(self._hear)
        self._voice = Voice(listener=self._listeners[1], quiet=request.quiet or self._rank > 0)
        os._exit = self._exit_at_once
        for arrival in arrivals:
            arrival.install()
        try:
            ending = programs.run(request.program)
        finally:
            for arrival in arrivals:
                arrival.remove()
            self._stop_listening()
        if os.getpid() != self._pid:  # a child that the script forked and that has run to the end of it
            return ending.code
        code = self._finish(ending)
        os._exit = self._real_exit
        if ending.interrupted:
            # The interpreter then ends as it does after Ctrl-C: killed by the signal, once the script's exit
            # handlers have run. The traceback has been shown already.
            sys.excepthook = _silent
            raise KeyboardInterrupt
        return code

    # While the script runs

    def _start_watching(self) -> None:
        """Called once, when the script has imported torch."""
        if os.getpid() != self._pid:
            return  # only a child that the script forked has use for torch
        request = self._request
        try:
            from akeso.torch.watching import watch_everything

            self._watch = watch_everything(
                run=self._folder,
                budget=request.budget,
                profile=request.profile,
                statistics=request.statistics,
                on_finding=self._found,
                eager=self._request.stop_on != "never",
                say=self._voice.say,
                rank=self._rank,
            )
            if request.higher_is_better is not None:
                self._watch.record.fact("metric_higher_is_better", request.higher_is_better)
        except Exception as error:
            self._trouble = f"watching could not be started: {type(error).__name__}: {error}"
            self._voice.say(f"{self._trouble}; the script runs unwatched")

    def _keras_came(self) -> None:
        """Called once, when the script has imported Keras; on torch, that has come before it."""
        backend = str(sys.modules["keras"].config.backend())
        if os.getpid() != self._pid or backend not in ("tensorflow", "jax"):
            return
        try:
            import_module("torch")  # whose arrival starts the watch
        except ImportError:
            self._voice.say(
                f"Keras on {backend} is watched where torch is installed: pip install 'akeso[torch]'; "
                "the script runs unwatched"
            )
        if self._watch is not None:
            try:
                self._watch.meet_keras()
            except Exception as error:
                self._trouble = f"Keras cannot be watched: {type(error).__name__}: {error}"
                self._voice.say(f"{self._trouble}; the script runs unwatched")

    def _found(self, diagnosis: Diagnosis) -> None:
        """Called by the watch, inside the training loop, once per problem."""
        stop = reaches(diagnosis.severity, self._request.stop_on)
        if diagnosis.severity == "error" or stop:
            self._voice.finding(diagnosis)
        if stop:
            raise Stop(f"stopped at step {diagnosis.step}: {diagnosis.problem}")

    def _hear(self, line: str, whole: bool) -> None:
        """Called with everything the script prints, line by line."""
        watch = self._watch
        if watch is None or os.getpid() != self._pid:
            return
        step = max(watch.steps - 1, 0)  # the last one that was taken
        if self._request.metric is not None:
            for value in self._request.metric.values(line):
                watch.record.readings(step, {"metric": {"": value}})
        elif whole and self._printed.hear(line, step):
            watch.record.fact("printed_metrics", self._printed.as_fact())

    def _prepare_determinism(self) -> None:
        if sys.flags.hash_randomization and os.environ.get("PYTHONHASHSEED", "random") == "random":
            # The order of sets of strings is drawn when Python starts: only a fresh start can fix it.
            fixed = {**os.environ, "PYTHONHASHSEED": str(self._request.seed % 2**32)}
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], fixed)
        try:
            from akeso.replay.deterministic import prepare, record
        except ModuleNotFoundError as error:
            raise MissingExtra(error.name or "torch", "torch", "--deterministic") from error
        program, seed = self._request.program, self._request.seed
        if self._rank > 0:
            prepare(seed)  # the first process records for all
            return
        script = None if program.is_module else program.target
        try:
            self._recording = record(self._folder, seed, script, program.arguments)
            notes = self._recording.notes
        except OSError as error:  # a folder that cannot be written does not stop a training
            notes = (*prepare(seed).notes, f"the steps cannot be recorded for akeso diff ({error.strerror})")
        for note in notes:
            self._voice.say(note)

    # At its end

    def _finish(self, ending: Ending) -> int:
        """Close the watch, conclude, tell; the exit code of the whole."""
        if self._verdict is not None:
            return self._verdict.code
        self._stop_listening()
        try:
            from akeso.script.verdict import conclude  # NumPy and all detectors: not before they are needed

            if self._recording is not None:
                self._recording.close()
            history, overhead = self._close_watch()
            self._verdict = conclude(
                self._request, ending, history, overhead, self._folder, self._rank, self._trouble
            )
            if world_size() > 1 and self._rank == 0:
                forget_agreement(self._folder)
            return self._verdict.code
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            self._voice.say(
                f"the findings could not be worked out: {type(error).__name__}: {error}; "
                f"what was read is in {self._folder}"
            )
            return ending.code if ending.failed or self._request.exit_zero else _OWN_ERROR

    def _close_watch(self) -> tuple[History, float]:
        watch = self._watch
        if watch is None:
            from akeso.history import History

            return History(), 0.0
        printed = self._printed.as_fact()
        if printed:
            watch.record.fact("printed_metrics", printed)
        watch.close()
        return watch.history, watch.overhead

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            if listener is not None:
                listener.remove()

    def _exit_at_once(self, status: int) -> NoReturn:
        """In place of ``os._exit``: nothing runs after that, so what there is to say is said before."""
        if os.getpid() == self._pid and self._verdict is None:
            code = self._finish(Ending(status & 0xFF, failed=status & 0xFF != 0))
            status = status or code
        self._real_exit(status)


def _silent(*_: object) -> None:
    """An exception hook that shows nothing."""
