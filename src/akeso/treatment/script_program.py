"""A script with its arguments as a program: every attempt is a process of its own."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from akeso.errors import Refused
from akeso.examination import examine
from akeso.history import History
from akeso.remedies.edit import Edit, Prescription
from akeso.script.prescribed.keeping import Keeping
from akeso.script.prescribed.order import Answer, Order
from akeso.script.prescribed.process import Running
from akeso.script.program import Program as Script
from akeso.treatment.program import Attempt, Program
from akeso.treatment.script_case import Case, answer_of, history_of
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
from akeso.treatment.script_paused import let_go
from akeso.treatment.script_refusals import refusal, refuse_untrained
from akeso.treatment.script_start import broken_start
from akeso.treatment.script_watched import ONLY_WATCHED, advice

#: An attempt may take this many times as long per step as the untreated run, and never less than so many seconds.
_SLOWER: Final = 6.0
_SHORTEST: Final = 120.0


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
        self._cases: dict[tuple[Prescription, int | None], Case] = {}
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
        return refusal(edit, self.untreated.ledger if self.untreated is not None else None)

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
        let_go(self._cases.values(), case)
        spent = max(0, case.answer.steps - before) + extra
        return self._told(prescription, seed, case, time.perf_counter() - began, spent)

    def close(self) -> None:
        """End every process that waits to go on."""
        for case in self._cases.values():
            if case.running is not None:
                case.running.end()

    # processes --------------------------------------------------------------------------------------------

    def _case(self, prescription: Prescription, seed: int | None) -> Case:
        """The run of this prescription that is under way or at its end, or a new one."""
        known = self._cases.get((prescription, seed))
        if known is None or (known.running is not None and not known.running.alive and not known.ended):
            folder = self.folder / f"attempt-{self._number:02d}"
            self._number += 1
            folder.mkdir(parents=True, exist_ok=True)
            known = Case(folder, prescription, seed)
            self._cases[prescription, seed] = known
        return known

    def _advance(
        self, case: Case, prescription: Prescription, max_steps: int | None, stop_on_error: bool
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
        case.answer, case.failed = answer_of(case.folder, stop)
        case.ended = stop.why == "ended" and case.answer.ended == "finished"
        if first:
            self._check(case)
        if own:
            self.untreated = case.answer
            if case.answer.steps > before:
                self._pace = (time.perf_counter() - began) / (case.answer.steps - before)

    def _order(self, case: Case, limit: int | None, stop_on_error: bool, *, keep_files: bool) -> Order:
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

    def _check(self, case: Case) -> None:
        """Refuse a script that cannot be treated, with the reason."""
        answer = case.answer
        assert answer is not None
        if answer.ended in ("input", "overwrites"):
            raise Refused(f"{self.describe()} cannot be treated: {answer.reason}")
        if case.failed and broken_start(answer):
            return
        watched = history_of(case.folder).steps
        if not answer.trained and watched:
            answer.steps, answer.trained, self._only_watched = watched, True, True
            return
        refuse_untrained(case, self.describe())

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
        losses = history_of(case.folder).series("loss").values.tolist()[:steps]
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
        case: Case,
        seconds: float,
        spent: int,
    ) -> Attempt:
        answer = case.answer
        assert answer is not None
        history = history_of(case.folder)
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
