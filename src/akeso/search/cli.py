"""``akeso search``: record a study, replay it under other rules, say how the trials of a study ended."""

from __future__ import annotations

import importlib.util
import math
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import click
import numpy as np

from akeso.errors import BadInput
from akeso.search import _optional
from akeso.search.profiles import PROFILES, search_profile
from akeso.search.recorded import RecordedStudy, load
from akeso.search.report import as_json, of_recorded, of_storage, shown_report
from akeso.search.rules import ExtrapolationRule, NanRule, NoRule, ProfileRule, Rule
from akeso.search.simulation import in_order, simulate
from akeso.search.tally import Tally, finals_of, tally

_PRUNERS = ("none", "nan", "median", "asha", "hyperband", "extrapolation")
_ORDERS = ("recorded", "random", "best-first", "worst-first")


@click.group()
def search() -> None:
    """Record a hyperparameter search, replay it under other rules, and say how the trials of one ended."""


@search.command()
@click.argument("objective")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--trials", type=click.IntRange(1), default=50, show_default=True, help="Trials to add.")
@click.option("--epochs", type=click.IntRange(1), required=True, help="Reports of a whole trial.")
@click.option(
    "--direction",
    type=click.Choice(["minimize", "maximize"]),
    required=True,
    help="Whether less or more of what is reported is better.",
)
@click.option(
    "--sampler",
    type=click.Choice(["random", "tpe"]),
    default="random",
    show_default=True,
    help="What suggests the hyperparameters.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the sampler.")
@click.option(
    "--value",
    type=click.Choice(["last", "best"]),
    default="last",
    show_default=True,
    help="Whether a trial is worth its last report or its best one.",
)
def record(
    objective: str,
    folder: Path,
    trials: int,
    epochs: int,
    direction: str,
    sampler: str,
    seed: int,
    value: str,
) -> None:
    """Run OBJECTIVE (``file.py:function``) without stopping any trial and keep journals, values and times.

    The objective is an ordinary one that uses akeso.search.watch. A FOLDER that holds trials already gets more.
    """
    from akeso.search.recording import RECORDED
    from akeso.search.recording import record as record_study

    optuna = _optional.optuna("akeso search record")
    chosen = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}[sampler](seed=seed)
    study = optuna.create_study(
        study_name=folder.resolve().name or None,
        direction=direction,
        sampler=chosen,
        pruner=optuna.pruners.NopPruner(),
    )
    record_study(study, _function(objective), folder, epochs=epochs, trials=trials, value_of=value)
    numbers = {t.user_attrs[RECORDED] for t in study.trials if RECORDED in t.user_attrs}
    held = load(folder).trials
    now = [trial for trial in held if trial.number in numbers]
    lines = [f"{len(held)} trials recorded in {folder}, {len(numbers)} of them now"]
    broken = sum(bool(trial.crashed) for trial in now)
    if broken:
        lines.append(
            f"{broken} of these crashed or were pruned by the objective; akeso search report {folder} says why"
        )
    silent = sum(not trial.values and not trial.crashed for trial in now)
    if silent:
        lines.append(f"{silent} of these reported nothing; call health.report after each epoch")
    if len(numbers) < trials:
        lines.append(
            f"{trials - len(numbers)} of {trials} trials ended before akeso.search.watch: not recorded"
        )
    click.echo("\n".join(lines))


def _function(name: str) -> Any:
    """The function ``path.py:function``; the file is one the user named, so it may be run."""
    path, _, function = name.rpartition(":")
    if not path:
        raise BadInput(f"an objective is given as path/to/file.py:function, but got {name!r}")
    if not Path(path).is_file():
        raise BadInput(f"there is no file {path!r}; an objective is given as path/to/file.py:function")
    # As where Python runs the file: it may import what lies beside it.
    sys.path.insert(0, str(Path(path).resolve().parent))
    loader = SourceFileLoader(Path(path).stem, path)  # whatever the file is called
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    loader.exec_module(module)
    if not callable(getattr(module, function, None)):
        raise BadInput(f"{path} has no function {function!r}")
    return getattr(module, function)


def make_rule(profile: str, pruner: str, epochs: int) -> Rule:
    """The stopping rule that the options name: a profile, or one of the others."""
    if pruner == "none":
        return ProfileRule(search_profile(profile)) if profile != "none" else NoRule()
    if profile != "none":
        raise BadInput(f"give either a profile or a pruner to simulate, but got {profile=} and {pruner=}")
    if pruner == "nan":
        return NanRule()
    if pruner == "extrapolation":
        return ExtrapolationRule()
    from akeso.search.optuna_rules import PrunerRule

    pruners = _optional.optuna("simulating an Optuna pruner").pruners
    made = {
        "median": lambda: pruners.MedianPruner(),
        "asha": lambda: pruners.SuccessiveHalvingPruner(),
        "hyperband": lambda: pruners.HyperbandPruner(max_resource=epochs),
    }
    return PrunerRule(made[pruner](), pruner)


def arrival(study: RecordedStudy, order: str, seed: int) -> list[int]:
    """The numbers of the recorded trials in an order of arrival."""
    numbers = [trial.number for trial in study.trials]
    if order == "random":
        return [int(n) for n in np.random.default_rng(seed).permutation(numbers)]
    if order in ("best-first", "worst-first"):
        best_up = (order == "best-first") == study.maximize
        finals = finals_of(study)
        worst = -np.inf if study.maximize else np.inf
        return sorted(numbers, key=lambda n: finals[n] if np.isfinite(finals[n]) else worst, reverse=best_up)
    return numbers


@search.command("simulate")
@click.argument("folder", metavar="STUDY", type=click.Path(path_type=Path))
@click.option(
    "--profile",
    type=click.Choice([*sorted(PROFILES), "none"]),
    default=None,
    help="The profile that judges trials.  [default: akeso, where no pruner is given]",
)
@click.option(
    "--pruner",
    type=click.Choice(_PRUNERS),
    default="none",
    show_default=True,
    help="Another stopping rule, in the place of a profile.",
)
@click.option(
    "--order",
    type=click.Choice(_ORDERS),
    default="recorded",
    show_default=True,
    help="In which order the trials arrive.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random order.")
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, help="Trials that run side by side."
)
@click.option("--json", "in_json", is_flag=True, help="Print one JSON document.")
def simulate_command(
    folder: Path, profile: str | None, pruner: str, order: str, seed: int, workers: int, in_json: bool
) -> None:
    """Replay a recorded STUDY under a profile or pruner and say what it would have stopped."""
    study = load(folder)
    if not study.trials:
        raise BadInput(f"{folder} holds no ended trial yet")
    chosen = profile or ("akeso" if pruner == "none" else "none")
    rule = make_rule(chosen, pruner, study.epochs)
    found = simulate(study, rule, in_order(arrival(study, order, seed)), workers=workers)
    result = tally(study, found)
    if in_json:
        about = {"study": study.name, "rule": rule.name, "order": order, "seconds": found.seconds}
        click.echo(as_json({**about, **result.to_dict()}))
        return
    click.echo(shown(study, rule.name, result, found.seconds))


def shown(study: RecordedStudy, rule: str, result: Tally, seconds: float) -> str:
    """The tally as text."""
    lines = [
        f"{study.name}: {result.trials} recorded trials of {study.epochs} epochs under {rule}",
        f"{'indicator':24} {'does':7} {'trials':>6} {'at epoch':>8} {'wrongly':>7} {'saved':>10}",
    ]
    lines += [
        f"{row.indicator:24} {row.action:7} {row.trials:6d} {row.epochs:8.1f} {row.wrongly:7d} "
        f"{max(row.seconds_saved, 0.0):8.1f} s"
        for row in result.rows
    ]
    lines += [
        f"{'trained to the end':24} {'':7} {result.whole:6d}",
        f"time: {result.share_of_time:.1%} of training everything to its end ({seconds:.1f} s by the clock)",
        f"wrongly ended: {result.wrongly} of {result.trials} would have ended in the best quarter",
        _best(result),
    ]
    return "\n".join(lines)


def _best(result: Tally) -> str:
    if not math.isfinite(result.best_without):
        return "best value: none, for no trial came to a finite one"
    if not math.isfinite(result.best):
        return f"best value: none was left; without stopping {result.best_without:.6g}"
    return f"best value: {result.best:.6g}; without stopping {result.best_without:.6g}; lost {result.best_lost:.3g}"


@search.command()
@click.argument("study", metavar="STUDY")
@click.option("--name", default=None, help="Name of the study, where the storage holds several.")
@click.option("--json", "in_json", is_flag=True, help="Print one JSON document.")
def report(study: str, name: str | None, in_json: bool) -> None:
    """Say how the trials of STUDY ended, and why.

    STUDY is the URL of an Optuna storage, the path of an SQLite or journal file, or a recorded study's folder.
    """
    rows = of_recorded(Path(study)) if Path(study).is_dir() else of_storage(study, name)
    click.echo(as_json(rows) if in_json else shown_report(rows))
