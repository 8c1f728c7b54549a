"""``akeso audit train.py [arguments]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from akeso.errors import AkesoError


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--steps", default=8, show_default=True, help="Optimizer steps each run is given.")
@click.option("--strict", is_flag=True, help="Exit with 1 when a source of nondeterminism is found.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--timeout", type=float, default=None, help="Seconds one run of the script may take.")
@click.argument("script", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def audit(
    steps: int, strict: bool, as_json: bool, timeout: float | None, script: Path, arguments: tuple[str, ...]
) -> None:
    """Find sources of nondeterminism in a training script by running it.

    The script is run a few times, each time for a few optimizer steps, as it is and with one thing changed: the
    hash seed, the number of threads and workers, the order of folders. Whatever it writes is written each time.
    """
    from akeso.replay.audit.examine import audit_script

    try:
        report = audit_script(script, arguments, steps=steps, timeout=timeout)
    except AkesoError as error:
        click.echo(f"akeso: {error}", err=True)
        sys.exit(2)
    click.echo(json.dumps(report.document(), indent=2) if as_json else report.text())
    sys.exit(1 if strict and report.sources else 0)
