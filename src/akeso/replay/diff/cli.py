"""``akeso diff RUN_A RUN_B``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from akeso.errors import AkesoError


@click.command()
@click.argument("run_a", type=click.Path(path_type=Path))
@click.argument("run_b", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the finding as JSON.")
@click.option("--no-rerun", is_flag=True, help="Compare the records alone; do not run the programs again.")
@click.option("--timeout", type=float, default=None, help="Seconds a program may take to run again.")
def diff(run_a: Path, run_b: Path, as_json: bool, no_rerun: bool, timeout: float | None) -> None:
    """Say where two runs begin to differ, and why.

    The first differing step is found in the records; both programs are then run again up to it, and the first
    differing operation and its module are named. Exit status: 0 equal, 1 different, 2 not comparable.
    """
    from akeso.replay.diff.find import find_difference

    try:
        finding = find_difference(run_a, run_b, run_again=not no_rerun, timeout=timeout)
    except AkesoError as error:
        click.echo(f"akeso: {error}", err=True)
        sys.exit(2)
    click.echo(json.dumps(finding.document(), indent=2) if as_json else finding.text())
    sys.exit(0 if finding.equal else 1)
