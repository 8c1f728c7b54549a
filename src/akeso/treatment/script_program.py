"""A script with its arguments as a program: every attempt is a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from akeso.errors import BadInput, Refused
from akeso.examination import examine
from akeso.history import History
from akeso.journal import read
from akeso.remedies.edit import Edit, Prescription
from akeso.script.prescribed.keeping import Keeping
from akeso.script.prescribed.order import Answer, Order
from akeso.script.program import Program as Script
from akeso.treatment.program import Attempt, Program
from akeso.treatment.script_metric import Curve, Figure, chosen, figures

#: An attempt may take this many times as long per step as the untreated run, and never less than so many seconds.
_SLOWER: Final = 6.0
_SHORTEST: Final = 120.0
_GRACE: Final = 5.0


class ScriptProgram(Program):
    """Runs a script under prescriptions, each time in a new process that works in a folder of its own.

    ``metric`` is a regular expression for the script's own figure; ``seed`` is put in force before the script
    starts, whose own seeding wins; ``timeout`` ends any run after so many seconds.
    """

    def __init__(
        self,
        script: Script,
        folder: Path,
        *,
        metric: str | None = None,
        higher_is_better: bool | None = None,
        seed: int | None = None,
        timeout: float | None = None,
        profile: str = "akeso",
        announce: Callable[[Prescription, int | None], None] | None = None,
    ) -> None:
        self.script = script
        self.folder = folder.resolve()
        self.answers: dict[tuple[Prescription, int], Answer] = {}
        self.untreated: Answer | None = None
        self._metric = metric
        self._higher = higher_is_better
        self._seed = seed
        self._timeout = timeout
        self._profile = profile
        self._announce = announce or (lambda prescription, steps: None)
        self._found_rates: dict[Edit, Edit] = {}
        self._number = 0
        self._pace: float | None = None  # seconds per step of the untreated run
        self._agreed: Figure | None = None
        self._keeping = Keeping(self.folder / "aside")

    def describe(self) -> str:
        words = ["-m", self.script.target] if self.script.is_module else [self.script.target]
        return " ".join([*words, *self.script.arguments])

    @property
    def planned_steps(self) -> int | None:
        if self.untreated is None:
            return None
        return self.untreated.steps if self.untreated.ended == "finished" else self.untreated.planned_steps

    @property
    def source(self) -> Path | None:
        """The file of the script, where it is known."""
        if not self.script.is_module:
            path = Path(self.script.target)
            return path / "__main__.py" if path.is_dir() else path
        places = self.untreated.ledger.get("places", {}) if self.untreated is not None else {}
        known = [place["file"] for place in places.get("step", ())]
        return Path(known[0]) if known else None

    def resolved(self, prescription: Prescription) -> Prescription:
        """The prescription with learning rates that a range test has found."""
        return Prescription(self._found_rates.get(edit, edit) for edit in prescription)

    def refuses(self, edit: Edit) -> str | None:
        if edit.remedy == "roll-back":
            return "a script cannot be taken back to an earlier step from outside"
        places = self.untreated.ledger.get("places", {}) if self.untreated is not None else None
        if places is None:
            return None
        if edit.remedy == "set-batch-size" and "loader" not in places:
            return "the script makes its batches without a DataLoader"
        by_loss = (
            "substitute-loss",
            "weight-classes",
            "standardise-targets",
            "set-output-bias",
            "mean-reduction",
        )
        if edit.remedy in by_loss and "loss" not in places:
            return "the script computes its loss by hand, not with a loss function of torch"
        return None

    def attempt(
        self,
        prescription: Prescription,
        *,
        seed: int | None = None,
        max_steps: int | None = None,
        stop_on_error: bool = False,
    ) -> Attempt:
        began = time.perf_counter()
        for edit in prescription.of("reseed"):
            seed = int(edit.values["seed"])
        told = Prescription(edit for edit in prescription if edit.remedy != "reseed")
        extra = 0
        if told.of("find-learning-rate"):
            told, extra = self._with_found_rate(told, seed)
        answer, failed, folder = self._run(told, seed, max_steps, stop_on_error)
        return self._told(prescription, seed, answer, failed, folder, time.perf_counter() - began, extra)

    # the process ------------------------------------------------------------------------------------------

    def _run(
        self, prescription: Prescription, seed: int | None, max_steps: int | None, stop_on_error: bool
    ) -> tuple[Answer, str | None, Path]:
        first = not prescription and self.untreated is None
        folder = self.folder / f"attempt-{self._number:02d}"
        self._number += 1
        folder.mkdir(parents=True, exist_ok=True)
        order = Order(
            target=self.script.target,
            arguments=list(self.script.arguments),
            is_module=self.script.is_module,
            folder=str(folder),
            prescription=prescription.to_list(),
            seed=self._seed if seed is None else seed,
            reseed=seed is not None and seed != self._seed,
            max_steps=self._rounded(max_steps),
            stop_on_error=stop_on_error,
            metric=self._metric,
            profile=self._profile,
            planned_steps=self.planned_steps,
            sites=self.untreated.sites if self.untreated is not None else [],
            keep_files=not first,
        )
        order.write(folder / "order.json")
        self._announce(prescription, order.max_steps)
        began = time.perf_counter()
        if first:
            code, late = self._process(folder, self._timeout)
            self._keeping.untreated(folder)
        else:
            with self._keeping.attempt(folder):
                code, late = self._process(folder, self._limit(max_steps))
        seconds = time.perf_counter() - began
        answer, failed = _answer(folder, code, late)
        if first:
            self._check(answer, failed, folder)
            self.untreated = answer
        if not prescription and answer.steps:
            self._pace = seconds / answer.steps
            if answer.ended == "finished":
                self.untreated = answer
        return answer, failed, folder

    def _process(self, folder: Path, limit: float | None) -> tuple[int, str | None]:
        """Run the child to its end; its exit code, and the reason where it had to be killed."""
        command = [sys.executable, "-m", "akeso.script.prescribed", str(folder / "order.json")]
        with open(folder / "output.log", "wb") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return child.wait(limit), None
            except subprocess.TimeoutExpired:
                return child.returncode or -9, f"ran longer than {limit:g} seconds"
            finally:
                _end(child)

    def _limit(self, max_steps: int | None) -> float | None:
        if self._timeout is not None:
            return self._timeout
        steps = max_steps or self.planned_steps
        if self._pace is None or steps is None:
            return None
        return max(_SHORTEST, _SLOWER * self._pace * steps)

    def _rounded(self, max_steps: int | None) -> int | None:
        """A trial ends best where the script evaluates: after whole epochs."""
        known = self.untreated
        epoch = known.epoch_steps if known is not None else None
        if max_steps is None or not epoch or epoch > 1.5 * max_steps:
            return max_steps
        return max(1, round(max_steps / epoch)) * epoch

    def _check(self, answer: Answer, failed: str | None, folder: Path) -> None:
        """Refuse a script that cannot be treated, with the reason."""
        if answer.ended in ("input", "overwrites"):
            raise Refused(f"{self.describe()} cannot be treated: {answer.reason}")
        if failed and not answer.trained:
            raise BadInput(
                f"{self.describe()} fails by itself, before it trains: {failed}; "
                f"what it printed is in {folder / 'output.log'}"
            )
        if not answer.trained:
            raise Refused(f"{self.describe()} trains nothing: no step of a torch optimizer was seen")

    # the learning rate ------------------------------------------------------------------------------------

    def _with_found_rate(self, prescription: Prescription, seed: int | None) -> tuple[Prescription, int]:
        """Make the range test a run of its own, and prescribe the rate it suggests."""
        import numpy as np

        from akeso.treatment.range_test import chosen_rate

        edit = prescription.of("find-learning-rate")[-1]
        steps = int(edit.values.get("steps", 100))
        answer, _, folder = self._run(prescription, seed, steps, False)
        losses = _history(folder).series("loss").values.tolist()[:steps]
        low, high = float(edit.values.get("low", 1e-6)), float(edit.values.get("high", 1.0))
        rate = chosen_rate(np.geomspace(low, high, steps), losses)
        found = Edit("set-learning-rate", "", {"to": float(f"{rate:.3g}")})
        self._found_rates[edit] = found
        kept = [other for other in prescription if other.remedy != "find-learning-rate"]
        return Prescription([*kept, found]), answer.steps

    # the attempt ------------------------------------------------------------------------------------------

    def _told(
        self,
        prescription: Prescription,
        seed: int | None,
        answer: Answer,
        failed: str | None,
        folder: Path,
        seconds: float,
        extra: int,
    ) -> Attempt:
        history = _history(folder)
        history.planned_steps = self.planned_steps or answer.planned_steps
        own: Curve = tuple((int(step), float(value)) for step, value in answer.evaluations)
        found = figures(history, own, self._higher)
        if self._agreed is None or (found and found[0].rank < self._agreed.rank):
            self._agreed = found[0] if found else None
        agreed = (self._agreed.name, self._agreed.higher_is_better) if self._agreed is not None else None
        figure = chosen(found, agreed)
        number = seed if seed is not None else (self._seed if self._seed is not None else -1)
        self.answers[prescription, number] = answer
        refused = tuple(
            (Edit.from_dict(item["edit"]), str(item["reason"])) for item in answer.ledger.get("refused", ())
        )
        weights = answer.best_weights or answer.weights
        return Attempt(
            prescription=prescription,
            seed=number,
            steps=answer.steps,
            seconds=seconds,
            metric=figure.last if figure is not None else None,
            metric_name=figure.name if figure is not None else "",
            higher_is_better=figure.higher_is_better if figure is not None else True,
            history=history,
            diagnoses=examine(history, self._profile).diagnoses,
            whole=answer.ended == "finished",
            failed=failed,
            refused=refused,
            weights=Path(weights) if weights else None,
            curve=figure.curve if figure is not None else (),
            planned_steps=self.planned_steps or answer.planned_steps,
            spent=answer.steps + extra,
            notes=tuple(answer.ledger.get("notes", ())),
        )


def _history(folder: Path) -> History:
    try:
        return read(folder).history
    except BadInput:
        return History()


def _answer(folder: Path, code: int, late: str | None) -> tuple[Answer, str | None]:
    """What the child answered, and why it failed where it did."""
    file = folder / "answer.json"
    if late is not None or not file.is_file():
        steps = _history(folder).steps
        why = late or (f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}")
        return Answer(ended="crashed", reason=why, steps=steps, trained=steps > 0), why
    answer = Answer.read(file)
    if answer.ended == "crashed":
        return answer, f"{answer.reason} ({_last_line(folder)})"
    return answer, answer.reason if answer.ended == "refused" else None


def _last_line(folder: Path) -> str:
    with contextlib.suppress(OSError):
        lines = (folder / "output.log").read_text(errors="replace").strip().splitlines()
        if lines:
            return lines[-1][:200]
    return "it printed nothing"


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child and everything it has started."""
    if child.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE)
            return
