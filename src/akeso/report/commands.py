"""``akeso report``, ``explain``, ``list`` and ``profile``: what can be said without running anything."""

from __future__ import annotations

import difflib
import json
import sys
import textwrap
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from akeso.errors import BadInput

_json = click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write it to this file as JSON."
)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--profile", default="akeso", show_default=True, help="akeso, autotrainer, bttackler, or a file."
)
@click.option("--html", "html_file", type=click.Path(path_type=Path), help="Write a page to this file.")
@click.option("--svg", "svg_file", type=click.Path(path_type=Path), help="Write a picture to this file.")
@_json
def report(
    run: Path, profile: str, html_file: Path | None, svg_file: Path | None, json_file: Path | None
) -> int:
    """Say what was found in a recorded run, also one that still goes on or was killed.

    RUN is the folder that `akeso run` named at its end. Exit code: 0 healthy, 1 something was found.
    """
    from akeso.report import terminal
    from akeso.report.recorded import recorded_document

    document = recorded_document(run, profile)
    terminal.show(document, sys.stdout)
    if json_file is not None:
        _write(json_file, _as_json(document))
    if html_file is not None:
        from akeso.report.page import page

        _write(html_file, page(document))
    if svg_file is not None:
        _write(svg_file, terminal.picture(document, f"akeso report {run}"))
    return int(document["status"] == "findings")


@click.command()
@click.argument("problem")
@_json
def explain(problem: str, json_file: Path | None) -> None:
    """Explain a problem: what it is, how it is recognised, what helps, what it leads to."""
    from akeso.catalogue import PROBLEMS

    known = PROBLEMS.get(problem.strip().lower().replace("_", "-").replace(" ", "-"))
    if known is None:
        near = difflib.get_close_matches(problem, PROBLEMS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise BadInput(f"no problem {problem!r} is known; {hint}`akeso list` shows all")
    content = _described(known)
    if json_file is not None:
        _write(json_file, _as_json(content))
    click.secho(known.title, bold=True)
    _paragraph(known.what)
    _heading("How it is recognised")
    _paragraph(known.how_recognised)
    _heading("What helps")
    for help_ in known.helps:
        _paragraph(help_, "  - ")
    if content["helps_in_keras"] != content["helps"]:
        _heading("What helps in Keras")
        for help_ in content["helps_in_keras"]:
            _paragraph(help_, "  - ")
    if content["causes"]:
        _heading("What it leads to")
        _paragraph(", ".join(content["causes"]))
    if content["caused_by"]:
        _heading("What it may come from")
        _paragraph(", ".join(content["caused_by"]))


@click.command("list")
@_json
def list_problems(json_file: Path | None) -> None:
    """List the problems that akeso knows."""
    from akeso.catalogue import PROBLEMS

    if json_file is not None:
        _write(
            json_file, _as_json({"schema": 1, "problems": [_described(known) for known in PROBLEMS.values()]})
        )
    width = max(len(name) for name in PROBLEMS)
    for name in sorted(PROBLEMS):
        click.echo(f"{name:{width}}  {PROBLEMS[name].title}")


@click.command()
@click.argument("name")
def profile(name: str) -> None:
    """Print a profile, to copy and edit: akeso profile akeso > mine.toml"""
    from akeso.profiles import BUILT_IN

    if name not in BUILT_IN:
        raise BadInput(f"no profile {name!r} comes with akeso; there are {', '.join(BUILT_IN)}")
    click.echo((files("akeso.profiles") / f"{name}.toml").read_text("utf-8"), nl=False)


def _described(problem: Any) -> dict[str, Any]:
    from akeso.advice import advice
    from akeso.catalogue import PROBLEMS

    return {
        "problem": problem.name,
        "title": problem.title,
        "what": problem.what,
        "how_recognised": problem.how_recognised,
        "helps": list(problem.helps),
        "helps_in_keras": list(advice(problem.name, "keras")),
        "causes": list(problem.causes),
        "caused_by": sorted(name for name, other in PROBLEMS.items() if problem.name in other.causes),
    }


def _heading(text: str) -> None:
    click.echo()
    click.secho(text, bold=True)


def _paragraph(text: str, first: str = "  ") -> None:
    click.echo(
        textwrap.fill(
            text, 96, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
        )
    )


def _as_json(content: Any) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{str(file)!r} could not be written: {error.strerror}") from error
