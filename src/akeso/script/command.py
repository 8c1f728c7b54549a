"""``akeso run``: its options, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from akeso.errors import BadInput
from akeso.script.request import RunRequest


def _share(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """A share of something, ``0.01`` or ``1%``, as a number over 0 and up to 1."""
    text = value.strip()
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no share; give 0.01 or 1%", ctx, param) from None
    if not 0 < share <= 1:
        raise click.BadParameter(f"{value!r} is not over 0 and up to 1 (100%)", ctx, param)
    return share


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.option(
    "-m", "is_module", is_flag=True, help="Run a module, like python -m: akeso run -m package.train …"
)
@click.option(
    "--run",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder of the run. [default: akeso-runs/<time>-<script>]",
)
@click.option(
    "--budget",
    metavar="SHARE",
    callback=_share,
    default="1%",
    show_default=True,
    help="Share of the time that watching may take.",
)
@click.option(
    "--profile", default="akeso", show_default=True, help="akeso, autotrainer, bttackler, or a profile file."
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
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the findings to this file.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info", "never"]),
    default="warning",
    show_default=True,
    help="Exit with 1 for findings of this severity or a higher one.",
)
@click.option("--exit-zero", is_flag=True, help="Exit with the script's own code, whatever is found.")
@click.option(
    "--stop-on",
    type=click.Choice(["error", "warning", "never"]),
    default="never",
    show_default=True,
    help="End the run as soon as something of this severity is found.",
)
@click.option("--deterministic", is_flag=True, help="Make the run repeatable bit for bit.")
@click.option("--seed", type=int, help="Seed for --deterministic. [default: 0]")
@click.option("--statistics", is_flag=True, help="Also record ten statistics of every gradient and weight.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing; the exit code and --json tell.")
@click.argument("script", metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
def run(script: str, arguments: tuple[str, ...], is_module: bool, **options: Any) -> Callable[[], int]:
    """Run a training script as it is, watch it, and say what is wrong with it.

    Options of akeso come before the script, the script's own after it:

        akeso run --budget 2% train.py --lr 0.1

    Exit code: 0 healthy, 1 something was found, 2 an error of akeso or in its usage; a script that fails
    keeps its own code.
    """
    try:
        request = RunRequest.checked(script, arguments, is_module, **options)
    except BadInput as error:
        raise click.UsageError(str(error)) from error
    return partial(_make, request)


def _make(request: RunRequest) -> int:
    from akeso.script.session import Session

    return Session(request).run()
