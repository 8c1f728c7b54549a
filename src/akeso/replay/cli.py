"""Commands on recorded runs: resume, replay, snapshot; diff and audit live in packages of their own."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from akeso.errors import AkesoError, BadInput

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("run", type=_FOLDER)
@click.option("--allow", is_flag=True, help="Go on although environment, code or data have changed.")
def resume(run: Path, allow: bool) -> None:
    """Go on with an interrupted run, in the middle of an epoch if need be, to the same bits.

    The recorded program is started again with its arguments, in its folder.
    """
    from akeso.replay.resume import outlook
    from akeso.replay.resume import resume as go_on

    ahead = outlook(run.resolve())
    for line in ahead["passed over"]:
        click.echo(f"snapshot {line}; passed over", err=True)
    click.echo(f"going on after step {ahead['step']}", err=True)
    raise SystemExit(go_on(run, allow))


@click.command()
@click.argument("run", type=_FOLDER)
@click.option("--steps", required=True, metavar="A:B", help="The steps to run again, both included: 400:420.")
@click.option("--allow", is_flag=True, help="Replay although environment, code or data have changed.")
def replay(run: Path, steps: str, allow: bool) -> None:
    """Run steps of a recorded run again, from the nearest snapshot, and compare them bit for bit.

    Nothing in the run folder is changed. Exit status 1 says that a step was different.
    """
    from akeso.replay.replaying import replay as again

    found = again(run, *_stretch(steps), allow=allow)
    click.echo(str(found))
    raise SystemExit(0 if found.equal else 1)


def _stretch(steps: str) -> tuple[int, int]:
    first, colon, last = steps.partition(":")
    try:
        return int(first), int(last if colon else first)
    except ValueError:
        raise BadInput(f"--steps wants two numbers like 400:420, but got {steps!r}") from None


@click.command()
@click.argument("run", type=_FOLDER)
@click.option("--prove", is_flag=True, help="Load the newest in a fresh process, run two steps, compare.")
def snapshot(run: Path, prove: bool) -> None:
    """Say what the snapshots of a run hold, how large they are, and whether they are whole.

    Exit status 1 says that one is damaged, or that the proof failed.
    """
    from akeso.replay import run_folder
    from akeso.replay.replaying import prove as proof
    from akeso.replay.snapshot import found, load_tree

    folder = run.resolve()
    about = run_folder.read(folder)
    click.echo(f"{folder}: seed {about['seed']}, {' '.join(about['program']['command'])}")
    if about["program"]["hash seed"] == "random":
        click.echo("PYTHONHASHSEED was not set: the order of sets of strings differs from process to process")
    infos = found(folder)
    if not infos:
        click.echo("no snapshot yet")
    for info in infos:
        state = "whole" if info.whole else f"DAMAGED: {info.damage}"
        click.echo(f"step {info.step:>9}   {_size(info.bytes):>10}   {state}")
    whole = [info for info in infos if info.whole]
    if whole:
        _contents(load_tree(whole[-1]))
    bad = len(whole) < len(infos)
    if prove:
        outcome = proof(folder)
        click.echo(str(outcome))
        bad = bad or not outcome.equal
    raise SystemExit(1 if bad else 0)


def _contents(tree: dict[str, Any]) -> None:
    about = tree["about"]
    place = about["boundary"]
    click.echo(
        f"\nstep {about['step']}: epoch {place['epoch']}, batch {place['batch']} of loop {place['loop']!r}"
    )
    width = max(len(row["name"]) for row in about["typing"])
    for row in about["typing"]:
        click.echo(f"  {row['name']:<{width}}  {row['type']:<12}  {row['what']} ({row['held']})")


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.1f} GiB"


def __getattr__(name: str) -> click.Command:
    """Give ``diff`` and ``audit`` from the packages they live in, when they are first asked for."""
    if name not in ("diff", "audit"):
        raise AttributeError(f"module 'akeso.replay.cli' has no attribute {name!r}")
    command = getattr(import_module(f"akeso.replay.{name}.cli"), name)
    if not isinstance(command, click.Command):
        raise AkesoError(f"akeso.replay.{name}.cli.{name} is not a command")
    return command
