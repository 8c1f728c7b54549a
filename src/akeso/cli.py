"""The ``akeso`` command: a table of commands, each imported when it is called."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import click

from akeso.errors import AkesoError

#: Exit code of akeso's own errors and of wrong usage.
OWN_ERROR: Final = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives, and the line about it in the help."""

    module: str
    attribute: str
    help: str


COMMANDS: Final = {
    "run": Entry("akeso.script.command", "run", "Run a training script, watched; say what is wrong with it."),
    "treat": Entry("akeso.treatment.cli", "treat", "Run a training script and cure what is wrong with it."),
    "report": Entry("akeso.report.commands", "report", "Say what was found in a recorded run."),
    "explain": Entry(
        "akeso.report.commands", "explain", "Explain a problem: how it is recognised, what helps."
    ),
    "list": Entry("akeso.report.commands", "list_problems", "List the problems that akeso knows."),
    "profile": Entry("akeso.report.commands", "profile", "Print a profile, to copy and edit."),
    "search": Entry("akeso.search.cli", "search", "Simulate and measure diagnosis in hyperparameter search."),
    "resume": Entry("akeso.replay.cli", "resume", "Go on with an interrupted run, to the same bits."),
    "replay": Entry("akeso.replay.cli", "replay", "Run steps of a recorded run again and compare."),
    "diff": Entry("akeso.replay.cli", "diff", "Find the first step in which two runs differ."),
    "audit": Entry("akeso.replay.cli", "audit", "Say what keeps a script from being repeatable."),
    "snapshot": Entry("akeso.replay.cli", "snapshot", "Look at the snapshots of a run."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; ``None`` when there is none of this name."""
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else _load(cmd_name, entry)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a misspelt one gets a proposal."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if near:
                meant = f"did you mean {near[0]!r}?"
            elif args[0].endswith(".py"):
                meant = f"to watch a script: akeso run {args[0]}"
            else:
                meant = f"there are {', '.join(COMMANDS)}."
            raise click.UsageError(f"no command {args[0]!r}; {meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


def _load(name: str, entry: Entry) -> click.Command:
    try:
        command = getattr(importlib.import_module(entry.module), entry.attribute)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.split(".")[0] == "akeso":
            raise AkesoError(
                f"`akeso {name}` is not part of this installation ({missing} is missing)"
            ) from error
        raise AkesoError(f"`akeso {name}` needs the package {missing}, which is not installed") from error
    except AttributeError as error:
        raise AkesoError(f"`akeso {name}` is not part of this installation ({error})") from error
    assert isinstance(command, click.Command)
    return command


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"akeso {version('akeso')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, callback=_version, expose_value=False, is_eager=True, help="Print the version."
)
def commands() -> None:
    """Watch the training of neural networks, say what is wrong, cure it, and make runs repeatable.

    Exit codes: 0 healthy, 1 something was found, 2 an error of akeso or in its usage.
    """


def call(arguments: Sequence[str]) -> Any:
    """Parse the command line and call the command; what it returns."""
    try:
        return commands.main(args=list(arguments), prog_name="akeso", standalone_mode=False)
    except click.ClickException as error:
        error.show()
    except click.Abort:
        return 130
    except AkesoError as error:
        return _refuse(error)
    return OWN_ERROR


def _refuse(error: AkesoError) -> int:
    click.echo(f"akeso: {error}", err=True)
    return OWN_ERROR


def main() -> NoReturn:
    """The entry point of the ``akeso`` command."""
    result = call(sys.argv[1:])
    # A script is not run inside of click: what it raises, and its exit, are between it and the interpreter.
    if callable(result):
        try:
            result = result()
        except AkesoError as error:
            result = _refuse(error)
    sys.exit(result if isinstance(result, int) else 0)
