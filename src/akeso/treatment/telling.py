"""What the user of ``akeso treat`` sees: a line per attempt as it goes, the outcome at the end."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax

from akeso.remedies.edit import Prescription
from akeso.treatment.outcome import Outcome, Tried
from akeso.treatment.plans.judging import falls_back
from akeso.treatment.script_watched import ONLY_WATCHED

if TYPE_CHECKING:
    from akeso.script.rewrite import Change


#: The figures by which a script's run keeps the weights of its best evaluation.
_KEPT_BY: Final = ("val_accuracy", "val_loss")


class Teller:
    """Writes to one stream; a moving status line on a terminal, plain lines elsewhere."""

    def __init__(self, stream: IO[str]) -> None:
        self._console = Console(file=stream, soft_wrap=True, highlight=False)
        self._status: Any = None
        self._count = 0

    def begins(self, prescription: Prescription, steps: int | None) -> None:
        """An attempt begins."""
        length = "" if steps is None else f", {steps} steps"
        text = f"trying {prescription.describe()}{length}" if prescription else "the script as it is"
        if self._console.is_terminal:
            self._stop()
            self._status = self._console.status(f"akeso: {escape(text)} …")
            self._status.start()

    def ended(self, tried: Tried) -> None:
        """An attempt ended."""
        self._stop()
        attempt = tried.attempt
        what = attempt.prescription.describe() if attempt.prescription else "untreated"
        value = "no figure" if attempt.metric is None else f"{attempt.metric_name} {attempt.metric:.4g}"
        problems = [found.problem for found in attempt.diagnoses if found.severity != "info"]
        found = f": {', '.join(problems)}" if problems else ""
        if attempt.failed:
            found = f": failed, {attempt.failed}"
        refused = "".join(f"; {edit.remedy} refused: {why}" for edit, why in attempt.refused)
        part = "" if attempt.whole else ", not to the end"
        line = f"akeso: [{self._count}] {what}: {value} after {attempt.steps} steps{part}{found}{refused}"
        self._count += 1
        self._console.print(line, markup=False)

    def outcome(self, outcome: Outcome, change: Change, run: Path, seen_in_training: str | None) -> None:
        """Before, after, the change to make."""
        say = self._console.print
        before = "unknown" if outcome.before is None else f"{outcome.before:.4g}"
        after = "unknown" if outcome.after is None else f"{outcome.after:.4g}"
        early = outcome.fate
        say(f"\nakeso: {_headline(outcome)}", style="bold")
        say(f"  {outcome.metric or 'metric'}: before {before}{early}, after {after}", markup=False)
        first = outcome.attempts[0].attempt if outcome.attempts else None
        if first is not None and first.metric_name not in ("", outcome.metric):
            known = "" if first.metric is None else f", only a {first.metric_name} of {first.metric:.4g}"
            say(f"  of the untreated run no {outcome.metric} was seen{known}", markup=False)
        if seen_in_training:
            say("  no held-out figure was seen or printed: this one is of the training data", markup=False)
        for found in outcome.causes:
            say(f"  found: {found.sentence or found.problem}", markup=False)
        for found in outcome.consequences:
            say(f"  follows from it: {found.sentence or found.problem}", markup=False)
        if outcome.status == "failed":
            for hint in next((found.remedies for found in outcome.causes), ()):
                say(f"  what may help: {hint}", markup=False)
        for edit in outcome.prescription:
            say(f"  changed: {edit.describe()}", markup=False)
        for found in outcome.remaining:
            say(f"  left: {found.sentence or found.problem}", markup=False)
        for note in outcome.notes:
            say(f"  note: {note}", markup=False)
        say(f"  cost: {outcome.cost.describe()}", markup=False)
        if outcome.interrupted:
            say("  interrupted: this is the best so far", markup=False)
        self._change(change)
        if outcome.weights and (outcome.after is None or math.isfinite(outcome.after)):
            say(f"\nweights of the best model: {outcome.weights}", markup=False)
            if on_its_way := _better_on_its_way(outcome):
                say(on_its_way, markup=False)
            for name, file in weights_beside(outcome).items():
                say(f"and of {name}, which is trained with it: {file}", markup=False)
        say(f"run: {run}", markup=False)

    def _change(self, change: Change) -> None:
        if change.diff:
            self._console.print("\nThe change to make:\n", markup=False)
            if self._console.is_terminal:
                self._console.print(Syntax(change.diff, "diff", background_color="default", word_wrap=False))
            else:
                self._console.print(change.diff, markup=False)
        if change.words:
            also = "Also (the figure above is with all of it):"
            self._console.print(also if change.diff else "\nThe change to make:", markup=False)
            for text in change.words:
                self._console.print(f"  - {text}", markup=False)

    def close(self) -> None:
        """Say nothing more."""
        self._stop()

    def _stop(self) -> None:
        if self._status is not None:
            with contextlib.suppress(Exception):
                self._status.stop()
            self._status = None


def weights_beside(outcome: Outcome) -> dict[str, Path]:
    """The weights of other models that were trained with the one handed back, by what the script calls them."""
    file = Path(outcome.weights) if outcome.weights else None
    if file is None or file.stem != "last":
        return {}
    others = sorted(file.parent.glob(f"last-*{file.suffix}"))
    return {other.stem.removeprefix("last-"): other for other in others}


def _better_on_its_way(outcome: Outcome) -> str:
    """Where the weights lie that were better by far than those at the end, in words; empty where there are none."""
    file, attempt = Path(outcome.weights), outcome.best
    kept = file.with_stem("best")
    if attempt is None or attempt.metric_name not in _KEPT_BY or file.stem != "last" or not kept.exists():
        return ""
    if not falls_back(attempt, among=len(attempt.curve)):
        return ""
    pick = max if attempt.higher_is_better else min
    step, value = pick(attempt.curve, key=lambda point: point[1])
    figure = f"{attempt.metric_name} {value:.4g} after {step} steps"
    return f"weights of its best evaluation, {figure}, which it has lost by its end: {kept}"


def _headline(outcome: Outcome) -> str:
    """How it came out, in a few words."""
    if any(note.startswith("would try") for note in outcome.notes):
        return "sick, nothing tried yet"
    if outcome.status == "healthy" and outcome.causes:
        return "nothing to cure"
    if outcome.status == "failed" and ONLY_WATCHED in outcome.notes:
        return "sick, but nothing could be changed"
    alone = outcome.status == "failed" and outcome.causes and len(outcome.attempts) == 1
    return "not cured: no remedy is known for what was found" if alone else outcome.status
