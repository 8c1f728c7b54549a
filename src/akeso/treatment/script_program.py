"""A script with its arguments as a program: every attempt is a process of its own."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from akeso.errors import BadInput, Refused
from akeso.examination import examine
from akeso.history import History
from akeso.journal import read
from akeso.remedies.edit import Edit, Prescription
from akeso.script.prescribed.keeping import Keeping
from akeso.script.prescribed.order import Answer, Order
from akeso.script.prescribed.process import Running, Stop
from akeso.script.program import Program as Script
from akeso.treatment.program import Attempt, Program
from akeso.treatment.script_metric import (
    Curve,
    Figure,
    agreed_on,
    chosen,
    directions,
    figures,
    is_held_out,
    unknown,
)
from akeso.treatment.script_start import broken_start
from akeso.treatment.script_watched import ONLY_WATCHED, advice

#: An attempt may take this many times as long per step as the untreated run, and never less than so many seconds.
_SLOWER: Final = 6.0
_SHORTEST: Final = 120.0
#: Paused runs that are kept to be gone on with, and how many where half of the memory is free and no card holds them.
_PAUSED: Final = 3
_MORE_PAUSED: Final = 6


@dataclass(slots=True)
class _Case:
    """One prescription with one seed: its folder, its process, and how far it has come."""

    folder: Path
    prescription: Prescription
    seed: int | None
    running: Running | None = None
    answer: Answer | None = None
    failed: str | None = None
    ended: bool = False
    used: float = 0.0


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
        self.timeout = timeout
        self._profile = profile
        self._announce = announce or (lambda prescription, steps: None)
        self._found_rates: dict[Edit, Edit] = {}
        self._cases: dict[tuple[Prescription, int | None], _Case] = {}
        self._number = 0
        self._pace: float | None = None  # seconds per step of the untreated run
        self._agreed: Figure | None = None
        self._directions: dict[str, bool] = {}  # of figures whose names do not tell
        self._keeping = Keeping(self.folder / "aside")
        self._only_watched = False

    def describe(self) -> str:
        words = ["-m", self.script.target] if self.script.is_module else [self.script.target]
        return " ".join([*words, *self.script.arguments])

    @property
    def planned_steps(self) -> int | None:
        first = self.untreated
        if first is None or first.ended == "finished":
            return first.steps if first is not None else None
        # What was read from the loops is believed as long as no run of the same batches goes past it.
        alike = [answer for (cure, _), answer in self.answers.items() if not cure.of("set-batch-size")]
        if first.planned_steps is not None and all(
            answer.steps <= first.planned_steps for answer in (first, *alike)
        ):
            return first.planned_steps
        return next((answer.steps for answer in alike if answer.ended == "finished"), None)

    def stretch(self, prescription: Prescription) -> float:
        wanted, sizes = prescription.of("set-batch-size"), set(self._facts.get("batch_sizes") or ())
        known = len(sizes) == 1 and isinstance(size := sizes.pop(), int) and size > 0
        return max(1.0, size / int(wanted[-1].values["to"])) if wanted and known else 1.0

    def _planned(self, prescription: Prescription) -> int | None:
        """The steps that a whole training under a prescription has."""
        planned = self.planned_steps
        return None if planned is None else math.ceil(planned * self.stretch(prescription))

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
        if self._only_watched:
            return ONLY_WATCHED
        if edit.remedy == "roll-back":
            return "a script cannot be taken back to an earlier step from outside"
        if edit.remedy == "keep-best-weights":
            return "which of its weights a script keeps is its own doing"
        places = self.untreated.ledger.get("places", {}) if self.untreated is not None else None
        if places is None:
            return None
        if edit.remedy in ("set-batch-size", "shuffle-data") and "loader" not in places:
            return "the script makes its batches without a DataLoader"
        sizes = self._facts.get("batch_sizes")
        if edit.remedy == "set-batch-size" and sizes and set(sizes) == {int(edit.values["to"])}:
            return f"batches are of {sizes[0]} samples already"
        by_loss = (
            "substitute-loss",
            "weight-classes",
            "standardise-targets",
            "scale-targets",
            "set-output-bias",
            "mean-reduction",
        )
        if edit.remedy in by_loss and "loss" not in places:
            return "the script computes its loss by hand, not with a loss function of torch"
        return None

    @property
    def _facts(self) -> dict[str, Any]:
        """What the untreated run has shown of the script."""
        return self.untreated.ledger.get("facts", {}) if self.untreated is not None else {}

    @property
    def resumable(self) -> bool:
        return True

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
        case = self._case(told, seed)
        before = case.answer.steps if case.answer is not None else 0
        try:
            self._advance(case, told, max_steps, stop_on_error)
        except BaseException:
            self.close()
            raise
        assert case.answer is not None
        if case.running is not None and not case.running.alive and case.failed:
            self._cases.pop((told, seed), None)
        self._let_go(case)
        spent = max(0, case.answer.steps - before) + extra
        return self._told(prescription, seed, case, time.perf_counter() - began, spent)

    def close(self) -> None:
        """End every process that waits to go on."""
        for case in self._cases.values():
            if case.running is not None:
                case.running.end()

    # processes --------------------------------------------------------------------------------------------

    def _case(self, prescription: Prescription, seed: int | None) -> _Case:
        """The run of this prescription that is under way or at its end, or a new one."""
        known = self._cases.get((prescription, seed))
        if known is None or (known.running is not None and not known.running.alive and not known.ended):
            folder = self.folder / f"attempt-{self._number:02d}"
            self._number += 1
            folder.mkdir(parents=True, exist_ok=True)
            known = _Case(folder, prescription, seed)
            self._cases[prescription, seed] = known
        return known

    def _advance(
        self, case: _Case, prescription: Prescription, max_steps: int | None, stop_on_error: bool
    ) -> None:
        """Let a run go on up to a step, or start it."""
        limit = self._rounded(max_steps, self.stretch(prescription))
        if case.answer is not None and (case.ended or (limit is not None and limit <= case.answer.steps)):
            return
        first = self.untreated is None and not prescription
        self._announce(prescription, limit)
        began = time.perf_counter()
        before = case.answer.steps if case.answer is not None else 0
        own = case.seed in (None, self._seed) and not prescription
        keeping = contextlib.nullcontext() if own else self._keeping.attempt(case.folder)
        with keeping:
            if case.running is None:
                case.running = Running(self._order(case, limit, stop_on_error, keep_files=not own))
            else:
                case.running.go_on(limit, stop_on_error)
            try:
                stop = case.running.wait(self._limit(limit or self._planned(prescription), before))
            except BaseException:  # ended before its files are put away
                case.running.end()
                raise
        if own:
            self._keeping.untreated(case.folder)
        case.answer, case.failed = _answer(case.folder, stop)
        case.ended = stop.why == "ended" and case.answer.ended == "finished"
        if first:
            self._check(case)
        if own:
            self.untreated = case.answer
            if case.answer.steps > before:
                self._pace = (time.perf_counter() - began) / (case.answer.steps - before)

    def _order(self, case: _Case, limit: int | None, stop_on_error: bool, *, keep_files: bool) -> Order:
        seed = self._seed if case.seed is None else case.seed
        return Order(
            target=self.script.target,
            arguments=list(self.script.arguments),
            is_module=self.script.is_module,
            folder=str(case.folder),
            prescription=case.prescription.to_list(),
            seed=seed,
            reseed=case.seed is not None and case.seed != self._seed,
            max_steps=limit,
            stop_on_error=stop_on_error,
            metric=self._metric,
            profile=self._profile,
            planned_steps=self._planned(case.prescription),
            sites=self.untreated.sites if self.untreated is not None else [],
            training_loaders=self._facts.get("training_loaders", []),
            keep_files=keep_files,
        )

    def _let_go(self, latest: _Case) -> None:
        """Keep the latest paused runs and the untreated one; the others would only hold memory."""
        latest.used = time.monotonic()
        waiting = [
            case
            for case in self._cases.values()
            if case.running is not None and case.running.alive and case.prescription
        ]
        kept = _MORE_PAUSED if _roomy() else _PAUSED
        for case in sorted(waiting, key=lambda case: case.used)[:-kept]:
            assert case.running is not None
            case.running.end()

    def _limit(self, steps: int | None, before: int) -> float | None:
        if self.timeout is not None:
            return self.timeout
        if self._pace is None or steps is None:
            return None
        return max(_SHORTEST, _SLOWER * self._pace * (steps - before))

    def _rounded(self, max_steps: int | None, stretch: float) -> int | None:
        """A trial ends best where the script evaluates: after whole epochs."""
        known = self.untreated
        epoch = round(known.epoch_steps * stretch) if known is not None and known.epoch_steps else None
        if max_steps is None or not epoch or epoch > 1.5 * max_steps:
            return max_steps
        return max(1, round(max_steps / epoch)) * epoch

    def _check(self, case: _Case) -> None:
        """Refuse a script that cannot be treated, with the reason."""
        answer, failed, folder = case.answer, case.failed, case.folder
        assert answer is not None
        if answer.ended in ("input", "overwrites"):
            raise Refused(f"{self.describe()} cannot be treated: {answer.reason}")
        if failed and broken_start(answer):
            return
        watched = _history(folder).steps
        if not answer.trained and watched:
            answer.steps, answer.trained, self._only_watched = watched, True, True
            return
        if failed and not answer.trained:
            raise BadInput(
                f"{self.describe()} fails by itself, before it trains: {failed}; "
                f"what it printed is in {folder / 'output.log'}"
            )
        if not answer.trained:
            raise Refused(
                f"{self.describe()} trains nothing: no step of a torch optimizer was seen; what Keras trains on "
                "TensorFlow or JAX is watched by `akeso run`, but not treated"
            )

    # the learning rate ------------------------------------------------------------------------------------

    def _with_found_rate(self, prescription: Prescription, seed: int | None) -> tuple[Prescription, int]:
        """Make the range test a run of its own, and prescribe the rate it suggests."""
        import numpy as np

        from akeso.treatment.range_test import chosen_rate

        edit = prescription.of("find-learning-rate")[-1]
        steps = int(edit.values.get("steps", 100))
        if edit in self._found_rates:
            return self.resolved(prescription), 0
        case = self._case(prescription, seed)
        self._advance(case, prescription, steps, False)
        if case.running is not None:
            case.running.end()
        losses = _history(case.folder).series("loss").values.tolist()[:steps]
        low, high = float(edit.values.get("low", 1e-6)), float(edit.values.get("high", 1.0))
        rate = chosen_rate(np.geomspace(low, high, steps), losses)
        found = Edit("set-learning-rate", "", {"to": float(f"{rate:.3g}")})
        self._found_rates[edit] = found
        return self.resolved(prescription), case.answer.steps if case.answer is not None else 0

    # the attempt ------------------------------------------------------------------------------------------

    def _told(
        self,
        prescription: Prescription,
        seed: int | None,
        case: _Case,
        seconds: float,
        spent: int,
    ) -> Attempt:
        answer = case.answer
        assert answer is not None
        history = _history(case.folder)
        history.planned_steps = planned = self._planned(prescription) or answer.planned_steps
        own: Curve = tuple((int(step), float(value)) for step, value in answer.evaluations)
        if not prescription:
            self._directions |= directions(history, own)
        found = figures(history, own, self._higher, self._directions)
        self._agreed = agreed_on(self._agreed, found)
        agreed = (self._agreed.name, self._agreed.higher_is_better) if self._agreed is not None else None
        figure = chosen(found, agreed)
        number = seed if seed is not None else (self._seed if self._seed is not None else -1)
        self.answers[prescription, number] = answer
        refused = tuple(
            (Edit.from_dict(item["edit"]), str(item["reason"])) for item in answer.ledger.get("refused", ())
        )
        weights = answer.weights or answer.best_weights  # those of the last value, which the metric is
        diagnoses = broken_start(answer) or examine(history, self._profile).diagnoses
        notes = [*answer.ledger.get("notes", ()), *self._unused(history, figure)]
        return Attempt(
            prescription=prescription,
            seed=number,
            steps=answer.steps,
            seconds=seconds,
            metric=figure.last if figure is not None else None,
            metric_name=figure.name if figure is not None else "",
            higher_is_better=figure.higher_is_better if figure is not None else True,
            history=history,
            diagnoses=diagnoses,
            whole=answer.ended == "finished",
            failed=case.failed,
            refused=refused,
            weights=Path(weights) if weights else None,
            curve=figure.curve if figure is not None else (),
            planned_steps=planned,
            spent=spent,
            chance=figure.of_nothing if figure is not None else None,
            notes=(*notes, *(advice(history, diagnoses) if self._only_watched else ())),
        )

    def _unused(self, history: History, figure: Figure | None) -> list[str]:
        """What to do where figures of held-out data are printed and the run is judged by others all the same."""
        if figure is not None and is_held_out(figure.name):
            return []
        return [
            f"the script prints {label.replace('_', ' ')}, and whether more of it is better is not known: name it with "
            "--metric and --higher-is-better or --lower-is-better to be judged by it"
            for label in unknown(history, self._directions)
        ]


def _history(folder: Path) -> History:
    try:
        return read(folder).history
    except BadInput:
        return History()


def _answer(folder: Path, stop: Stop) -> tuple[Answer, str | None]:
    """What the child answered, and why it failed where it did."""
    file = folder / "answer.json"
    answer = Answer.read(file) if file.is_file() else None
    silent = stop.why == "ended" and (answer is None or answer.ended in ("steps", "error-found"))
    if stop.why == "late" or silent or answer is None:
        steps = _history(folder).steps
        why = "ran longer than its time limit" if stop.why == "late" else _exit(stop.code)
        return Answer(ended="crashed", reason=why, steps=steps, trained=steps > 0), why
    if answer.ended == "crashed":
        return answer, f"{answer.reason} ({_last_line(folder)})"
    return answer, answer.reason if answer.ended == "refused" else None


def _exit(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"ended with exit code {code} and no answer"


def _last_line(folder: Path) -> str:
    with contextlib.suppress(OSError):
        lines = (folder / "output.log").read_text(errors="replace").strip().splitlines()
        if lines:
            return lines[-1][:200]
    return "it printed nothing"


def _roomy() -> bool:
    """Whether half of the machine's memory is free, as far as it tells, and there is no card to be shared."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return 2 * sizes["MemAvailable"] > sizes["MemTotal"] and not Path("/dev/nvidia0").exists()
    except (OSError, ValueError, KeyError, IndexError):
        return False
