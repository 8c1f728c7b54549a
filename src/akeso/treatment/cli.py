"""``akeso treat``: its options, and the run from untreated script to cure."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from akeso.errors import AkesoError, BadInput
from akeso.script import program as programs
from akeso.script.clues import Clues
from akeso.script.folder import run_folder, world_size
from akeso.script.metrics import ChosenMetric
from akeso.script.prescribed.order import Answer
from akeso.script.program import Program as Script
from akeso.script.renaming import rename_weights
from akeso.script.rewrite import Change, rewrite
from akeso.treatment.outcome import Outcome
from akeso.treatment.script_metric import is_held_out
from akeso.treatment.script_program import ScriptProgram
from akeso.treatment.telling import Teller, weights_beside

#: Exit code of what was ended by Ctrl-C before it could say anything.
_INTERRUPTED = 130
_PLANS = ("akeso", "autotrainer", "reseed", "random")


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.option(
    "-m", "is_module", is_flag=True, help="Treat a module, like python -m: akeso treat -m package.train …"
)
@click.option(
    "--metric", help="Regular expression with one group that finds the script's own metric in what it prints."
)
@click.option(
    "--higher-is-better/--lower-is-better",
    "higher_is_better",
    default=None,
    help="Which way --metric is good.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="What may be spent on top of the untreated run, in multiples of one plain training.",
)
@click.option("--target", type=float, help="A metric that is good enough.")
@click.option(
    "--plan", type=click.Choice(_PLANS), default="akeso", show_default=True, help="How attempts are chosen."
)
@click.option(
    "--only", multiple=True, metavar="REMEDY", help="Use this remedy and no other; may be repeated."
)
@click.option("--never", multiple=True, metavar="REMEDY", help="Do not use this remedy; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Run the script once and say what would be tried.")
@click.option("--seed", type=int, help="Seed put in force before the script starts; its own seeding wins.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the outcome to this file.")
@click.option(
    "--run",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder of the run. [default: akeso-runs/<time>-<script>]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds after which any run of the script is ended. [default: six times as long as it should take]",
)
@click.option(
    "--profile", default="akeso", show_default=True, help="akeso, autotrainer, bttackler, or a profile file."
)
@click.argument("script", metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
def treat(script: str, arguments: tuple[str, ...], is_module: bool, **options: Any) -> Callable[[], int]:
    """Run a training script as it is, cure what is wrong with it, and show the change to make.

    Every attempt is a run of the script in a process of its own, with the cure applied from outside. Files are
    left as the untreated run leaves them. Options of akeso come before the script, the script's own after it:

        akeso treat --budget 3 train.py --lr 0.1

    Exit code: 0 healthy, repaired or improved, 1 not cured, 2 an error of akeso or in its usage.
    """
    chosen = Script(script, arguments, is_module)
    try:
        if world_size() > 1:
            raise BadInput("akeso treat runs a script in one process; start it without torchrun")
        programs.check(chosen)
        if options["metric"] is not None:
            ChosenMetric(options["metric"])
            if options["higher_is_better"] is None:
                raise BadInput("--metric needs --higher-is-better or --lower-is-better beside it")
    except BadInput as error:
        raise click.UsageError(str(error)) from error
    return lambda: _treat(chosen, **options)


def _treat(
    script: Script,
    *,
    metric: str | None,
    higher_is_better: bool | None,
    budget: float,
    target: float | None,
    plan: str,
    only: tuple[str, ...],
    never: tuple[str, ...],
    dry_run: bool,
    seed: int | None,
    json_file: Path | None,
    folder: Path | None,
    timeout: float | None,
    profile: str,
) -> int:
    from akeso.examination import examine
    from akeso.history import History
    from akeso.treatment.treating import treat as treat_program

    examine(History(), profile)  # a profile that cannot be used is said before anything is run
    teller = Teller(sys.stderr)
    run = run_folder(script, folder)
    _writable(run, json_file)
    program = ScriptProgram(
        script,
        run,
        metric=metric,
        higher_is_better=higher_is_better,
        seed=seed,
        timeout=timeout,
        profile=profile,
        announce=teller.begins,
    )
    try:
        with _ended_as_by_ctrl_c():
            outcome = treat_program(
                program,
                budget=budget,
                target=target,
                plan=plan,
                only=only,
                never=never,
                dry_run=dry_run,
                seed=seed,
                report=teller.ended,
            )
    except AkesoError as error:
        teller.close()
        if json_file is not None:
            _write(json_file, _refusal(error, run))
        raise
    except KeyboardInterrupt:
        teller.close()
        said = BadInput("interrupted before anything was known of the script; nothing was changed")
        if json_file is not None:
            _write(json_file, _refusal(said, run))
        click.echo(f"akeso: {said}", err=True)
        return _INTERRUPTED
    finally:
        program.close()
    teller.close()
    if metric is not None and outcome.metric != "metric" and not dry_run:
        unmatched = f"--metric {metric!r} matched nothing in what was printed: judged by {outcome.metric or 'nothing'}"
        outcome = replace(outcome, notes=(*outcome.notes, unmatched))
    change = _change(script, program, outcome)
    _named_alike(outcome, change)
    teller.outcome(outcome, change, run, None if is_held_out(outcome.metric) else outcome.metric)
    if json_file is not None:
        _write(json_file, _document(outcome, change, _figures(program, outcome), run))
    return 1 if outcome.status == "failed" and not dry_run else 0


@contextlib.contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """What schedulers and ``timeout`` send is a wish to end, too: the best so far is handed back."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # only a main thread hears signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _writable(run: Path, json_file: Path | None) -> None:
    """Say what cannot be written before anything is run for it."""
    there = next(folder for folder in (run.absolute(), *run.absolute().parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise BadInput(
            f"The run cannot be recorded in {run}: {there} is no folder to write to. Choose another --run."
        )
    if json_file is not None:
        place = json_file if json_file.exists() else json_file.absolute().parent
        if not os.access(place, os.W_OK) or json_file.is_dir():
            raise BadInput(f"--json {json_file} cannot be written. Choose another file.")


def _change(script: Script, program: ScriptProgram, outcome: Outcome) -> Change:
    """The accepted prescription as a change to the script."""
    if not outcome.prescription:
        return Change("", ())
    path = program.source
    if path is None:
        return Change("", tuple(edit.describe() for edit in outcome.prescription))
    first, answer = program.untreated, _answer(program, outcome)
    places = {
        kind: found
        for known in (answer, first)  # what only the treated run came across, such as cuts it has undone
        if known is not None
        for kind, found in known.ledger.get("places", {}).items()
    }
    clues = Clues(places, first.sites if first else [], _figures(program, outcome))
    return rewrite(path, program.resolved(outcome.prescription), clues)


def _named_alike(outcome: Outcome, change: Change) -> None:
    """Give the weights that are handed back the names that they have in the script once it is changed."""
    folder = Path(outcome.weights).parent if outcome.weights else None
    for file in sorted(folder.glob("*.*")) if folder is not None and change.names else ():
        if file.stem in ("last", "best") and file.suffix in (".safetensors", ".pt"):
            rename_weights(file, change.names)


def _answer(program: ScriptProgram, outcome: Outcome) -> Answer | None:
    """What the process of the best attempt said at its end."""
    best = outcome.best
    return program.answers.get((best.prescription, best.seed)) if best is not None else None


def _figures(program: ScriptProgram, outcome: Outcome) -> dict[str, Any]:
    """What the cure took from the data: means and deviations that the saved weights belong to."""
    answer = _answer(program, outcome)
    return dict(answer.ledger.get("facts", {})) if answer is not None else {}


def _document(outcome: Outcome, change: Change, figures: dict[str, Any], run: Path) -> dict[str, Any]:
    return {
        **outcome.to_dict(),
        "figures": figures,
        "diff": change.diff,
        "changes": list(change.words),
        "weights": str(outcome.weights) if outcome.weights else None,
        "weights_beside": {name: str(file) for name, file in weights_beside(outcome).items()},
        "run": str(run),
    }


def _refusal(error: AkesoError, run: Path) -> dict[str, Any]:
    return {
        "schema": 1, "status": "failed", "metric": "", "higher_is_better": True, "before": None, "after": None,
        "diagnoses": [], "prescription": [], "attempts": [], "cost": {"steps": 0.0, "seconds": 0.0},
        "error": str(error), "run": str(run),
    }  # fmt: skip


def _write(path: Path, document: dict[str, Any]) -> None:
    from akeso.report.document import to_json

    try:
        path.write_text(to_json(document), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--json {path} could not be written: {error.strerror}") from error
