"""The child process: one run of a script under a prescription, watched, from order to answer."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from akeso.errors import Stop
from akeso.remedies.edit import Prescription
from akeso.script import program as programs
from akeso.script.arrival import Arrival
from akeso.script.metrics import ChosenMetric, PrintedMetrics
from akeso.script.output import listen
from akeso.script.prescribed.files import FileWatch
from akeso.script.prescribed.ledger import Ended, Ledger
from akeso.script.prescribed.order import Answer, Order
from akeso.script.prescribed.process import Control
from akeso.script.prescribed.seeding import move_seeds, seed_everything, seed_torch
from akeso.script.program import Program

if TYPE_CHECKING:
    from akeso.script.prescribed.operation import Operation
    from akeso.script.prescribed.weights import BestWeights
    from akeso.torch.watching import Watch

_FEWEST = 15  # steps before the first look, and between two
_SURE = 0.5  # confidence from which a finding counts
_WATCHING = 0.05  # share of the time that watching may take: a trial is short and must be seen well


class NeedsInput(Ended):
    """The script asks for input."""


class WritesOverData(Ended):
    """The script is about to change a file that it read as its data."""


class NoInput:
    """Stands in for standard input: whoever reads it ends the script."""

    encoding, errors, closed = "utf-8", "strict", False

    def _refuse(self, *_: Any) -> NoReturn:
        raise NeedsInput("the script asks for input, so it cannot be run again unattended")

    read = readline = readlines = __iter__ = __next__ = _refuse

    def isatty(self) -> bool:
        """Nobody is there."""
        return False

    def fileno(self) -> int:
        """The real standard input, which is empty."""
        return 0

    def close(self) -> None:
        """Nothing to close."""


class Child:
    """Runs the script with watch and operation around it."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._folder = Path(order.folder)
        self._pid = os.getpid()
        self._real_exit = os._exit
        self._answer = Answer()
        self._ledger = Ledger(Prescription.from_list(order.prescription))
        self._metric = ChosenMetric(order.metric) if order.metric is not None else None
        self._printed = PrintedMetrics()
        self._operation: Operation | None = None
        self._watch: Watch | None = None
        self._best: BestWeights | None = None
        self._next_look = _FEWEST
        self._suspected: set[str] = set()
        self._stop_on_error = order.stop_on_error
        self._control = Control(order.control) if order.control is not None else None
        self._files = FileWatch(
            self._folder / "files.jsonl",
            self._folder / "backups" if order.keep_files else None,
            Path(order.folder).parent,
            self._overwrites,
        )

    def run(self) -> int:
        """Run the script to its end; the exit code of this process."""
        order = self._order
        if order.seed is not None:
            seed_everything(order.seed)
        sys.stdin = NoInput()
        listeners = listen(self._hear)
        os._exit = self._exit_at_once
        self._files.install()
        arrival = Arrival("torch", self._torch_arrived)
        arrival.install()
        try:
            ending = programs.run(Program(order.target, tuple(order.arguments), order.is_module))
            self._conclude(ending)
        finally:
            arrival.remove()
            self._files.stop()
            for listener in listeners:
                if listener is not None:
                    listener.remove()
            os._exit = self._real_exit
        return self._answer.code

    # while the script runs --------------------------------------------------------------------------------

    def _torch_arrived(self) -> None:
        from akeso.script.prescribed.operation import Operation
        from akeso.script.prescribed.survey import hidden_lines
        from akeso.script.prescribed.weights import BestWeights
        from akeso.torch.watching import watch_everything

        order = self._order
        if order.seed is not None:
            seed_torch(order.seed)
            if order.reseed:
                move_seeds(order.seed)
        self._best = BestWeights(self._folder, self._ledger.note)
        self._watch = watch_everything(
            run=self._folder,
            budget=_WATCHING,
            profile=order.profile,
            planned_steps=order.planned_steps,
        )
        self._operation = Operation(
            self._ledger,
            max_steps=order.max_steps,
            hidden=hidden_lines(order.sites),
            training_loaders=order.training_loaders,
        )
        self._operation.on_training.append(self._training_goes_on)
        self._operation.on_first_step.append(self._first_step)
        self._operation.on_step.append(self._look)
        if self._control is not None:
            self._operation.at_limit = self._pause
        self._operation.__enter__()
        _tell_of_saving(self._files)

    def _first_step(self) -> None:
        from akeso.script.prescribed.planning import planned_steps

        self._files.training = True
        planned, self._answer.epoch_steps = planned_steps()
        planned = self._order.planned_steps or planned
        self._answer.planned_steps = planned
        if self._watch is not None and planned:
            self._watch.history.planned_steps = planned

    def _training_goes_on(self) -> None:
        """An evaluation may have ended: keep its weights where they are the best so far."""
        watch, operation, best = self._watch, self._operation, self._best
        if watch is None or operation is None or best is None or not operation.steps:
            return
        history = watch._probe.history
        accuracies = history.series("val_accuracy").values.tolist()
        if accuracies:
            best.look(self._model, accuracies, True)
        else:
            best.look(self._model, [value for _, value in operation.evaluations], False)

    def _model(self) -> Any:
        from akeso.script.prescribed.weights import trained_model

        return trained_model(self._operation) if self._operation is not None else None

    def _look(self) -> None:
        """Now and then: is this run known to be hopeless? What one look suspects the next must confirm."""
        operation, watch = self._operation, self._watch
        self._tell_units()
        self._mistrust_plan()
        if not self._stop_on_error or operation is None or watch is None or operation.steps < self._next_look:
            return
        planned = self._answer.planned_steps or 8 * operation.steps
        self._next_look = operation.steps + max(_FEWEST, round(0.06 * planned))
        found = {
            diagnosis.problem
            for diagnosis in watch.diagnoses
            if diagnosis.severity == "error" and diagnosis.confidence >= _SURE
        }
        certain = sorted(found & self._suspected)
        self._suspected = found
        if certain:
            self._answer.ended, self._answer.reason = "error-found", ", ".join(certain)
            self._pause()

    def _tell_units(self) -> None:
        """Gradients in other units than the loss are to be told apart from those that vanish."""
        watch, units = self._watch, self._ledger.facts.get("loss_over_graded")
        if watch is not None and units is not None and "loss_over_graded" not in watch._probe.history.facts:
            watch.record.fact("loss_over_graded", units)

    def _mistrust_plan(self) -> None:
        """A training that goes on past its planned end was misread: how long it will be is not known."""
        planned, operation = self._answer.planned_steps, self._operation
        if planned is None or operation is None or operation.steps <= planned:
            return
        self._answer.planned_steps = self._answer.epoch_steps = None
        if self._watch is not None:
            self._watch.history.planned_steps = None

    def _pause(self) -> None:
        """Answer for what there is and wait to be told to go on."""
        answer, operation = self._answer, self._operation
        assert operation is not None
        if self._control is None:
            raise Stop(answer.reason or "the number of steps that was asked for is reached")
        if answer.ended != "error-found":
            answer.ended, answer.reason = "steps", ""
        self._write_answer(operation)
        orders = self._control.pause()
        if orders is None:
            operation.at_limit = None
            raise Stop("nobody waits for more")
        answer.ended, answer.reason = "crashed", ""
        operation.max_steps = orders["max_steps"]
        self._stop_on_error = bool(orders["stop_on_error"])

    def _overwrites(self, path: str) -> None:
        raise WritesOverData(
            f"the script writes over its own data ({path}), so that a second run is not the same"
        )

    def _hear(self, line: str, whole: bool) -> None:
        steps = self._operation.steps if self._operation is not None else 0
        if self._metric is not None:
            for value in self._metric.values(line):
                if self._watch is not None:
                    self._watch.record.readings(steps, {"metric": {"": value}})
        if whole:
            self._printed.hear(line, steps)

    def _exit_at_once(self, status: int) -> NoReturn:
        if os.getpid() == self._pid:
            self._conclude(programs.Ending(status & 0xFF, failed=bool(status & 0xFF)))
        self._real_exit(status)

    # at its end -------------------------------------------------------------------------------------------

    def _conclude(self, ending: programs.Ending) -> None:
        answer, operation = self._answer, self._operation
        self._files.training = False
        answer.code = ending.code
        if answer.ended != "error-found":
            answer.ended, answer.reason = self._how(ending)
        if operation is not None:
            if answer.ended == "finished" and operation.steps:
                self._settle(operation)
            self._write_answer(operation)
            operation.__exit__(None, None, None)
        if self._watch is not None:
            self._watch.close()
        answer.ledger = self._ledger.to_dict()
        answer.write(self._folder / "answer.json")

    def _write_answer(self, operation: Operation) -> None:
        """Everything there is to say, for a reader to whom the run may end here."""
        from akeso.script.prescribed.weights import beside, save

        answer, watch = self._answer, self._watch
        answer.steps = operation.steps
        answer.trained = operation.steps > 0
        answer.sites = operation.survey.to_list()
        answer.evaluations = [[step, value] for step, value in operation.evaluations]
        self._training_goes_on()
        model = self._model()
        with operation.quietly():
            note = self._ledger.note
            answer.weights = save(model, self._folder / "last", note) if model is not None else None
            for name, other in (beside(model, operation) if model is not None else {}).items():
                save(other, self._folder / f"last-{name}", note)
        answer.best_weights = self._best.file if self._best is not None else None
        answer.ledger = self._ledger.to_dict()
        if watch is not None:
            if printed := self._printed.as_fact():
                watch.record.fact("printed_metrics", printed)
            if others := self._printed.others():
                watch.record.fact("printed_figures", others)
            watch.history  # noqa: B018 - catches up with what is still on its way
            watch.record.flush()
            answer.overhead = watch.overhead
        answer.write(self._folder / "answer.json")

    def _settle(self, operation: Operation) -> None:
        try:
            operation.settle()
        except Ended as ended:
            self._answer.ended, self._answer.reason = "refused", str(ended)

    def _all_trained(self) -> bool:
        """Whether every step that was planned was made: how a script ends after that says nothing of its training."""
        planned = self._answer.planned_steps
        return planned is not None and self._operation is not None and self._operation.steps >= planned

    def _how(self, ending: programs.Ending) -> tuple[str, str]:
        if ending.stopped:
            if self._operation is not None and self._operation.truncated:
                return "steps", ending.stopped
            if "asks for input" in ending.stopped:
                return "input", ending.stopped
            if "writes over its own data" in ending.stopped:
                return "overwrites", ending.stopped
            return "refused", ending.stopped
        if ending.failed and self._all_trained():
            self._ledger.note(f"after its training the script ended with exit code {ending.code}")
            return "finished", ""
        if ending.failed:
            return "crashed", f"the script ended with exit code {ending.code}"
        return "finished", ""


def _tell_of_saving(files: FileWatch) -> None:
    """``torch.save`` to a path goes past Python's own files."""
    import torch

    original = torch.save

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        files.wrote(f)
        return original(obj, f, *args, **kwargs)

    torch.save = save
