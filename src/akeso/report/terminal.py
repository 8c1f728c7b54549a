"""A report on the terminal: a panel where one can be shown, plain lines everywhere else."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TextIO

from akeso.report.wording import Finding, Story, tell

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES: Final = {"error": "bold red", "warning": "bold yellow", "info": "cyan", "healthy": "bold green"}
_MARKS: Final = {"error": "✖", "warning": "▲", "info": "●", "healthy": "✔"}
_WIDEST: Final = 100


def show(document: Mapping[str, Any], stream: TextIO) -> None:
    """Print a report: a panel on a terminal, plain text elsewhere; ``NO_COLOR`` is heeded."""
    if _is_terminal(stream):
        from rich.console import Console

        console = Console(file=stream, highlight=False, no_color=bool(os.environ.get("NO_COLOR")))
        console.print(panel(document, min(console.width, _WIDEST)))
    else:
        stream.write(_encodable("".join(f"{line}\n" for line in lines(document)), stream))
    stream.flush()


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        return False


def _encodable(text: str, stream: TextIO) -> str:
    """The text with what the stream cannot encode replaced, so that a report never fails on a locale."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    for sign, plain in (("✖", "x"), ("▲", "!"), ("●", "-"), ("✔", "ok"), ("·", "|"), ("→", "->")):
        try:
            sign.encode(encoding)
        except (UnicodeEncodeError, LookupError):
            text = text.replace(sign, plain)
    return text.encode(encoding, "replace").decode(encoding)


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The report as plain lines."""
    story = tell(document)
    yield f"akeso: {story.verdict}"
    for finding in story.roots:
        yield from _finding_lines(finding)
    if story.consequences:
        yield "  follows from it:" if len(story.roots) == 1 else "  follows from the above:"
        for finding in story.consequences:
            yield f"    {_MARKS[finding.severity]} {finding.title} ({finding.where}): {finding.sentence}"
    for finding in story.remarks:
        yield f"  {_MARKS['info']} {finding.title} ({finding.where}): {finding.sentence}"
    yield f"  {story.figures}"
    if story.not_checked:
        yield f"  not checked: {'; '.join(story.not_checked)}"
    for note in story.notes:
        yield f"  note: {note}"
    if story.closing:
        yield f"  {story.closing}"
    if story.explain:
        yield f"  more: {story.explain}"


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"  {_MARKS[finding.severity]} {finding.title} ({finding.where})"
    yield from textwrap.wrap(finding.sentence, _WIDEST, initial_indent="    ", subsequent_indent="    ")
    if finding.evidence:
        yield f"    evidence: {finding.evidence}"
    for index, help_ in enumerate(finding.helps):
        yield f"    {'helps:   ' if index == 0 else '         '} {help_}"


def panel(document: Mapping[str, Any], width: int = _WIDEST) -> RenderableType:
    """The report as a panel of rich."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    story = tell(document)
    worst = _worst(story, document)
    parts: list[RenderableType] = []
    for finding in story.roots:
        parts += [*_finding_parts(finding), Text()]
    if story.consequences:
        heading = "follows from it" if len(story.roots) == 1 else "follows from the above"
        parts.append(Text(heading, style="dim"))
        parts += [_line(finding, detail=True) for finding in story.consequences]
        parts.append(Text())
    if story.remarks:
        parts += [*(_line(finding, detail=True) for finding in story.remarks), Text()]
    parts.append(Text(story.figures))
    if story.not_checked:
        parts.append(_hanging("not checked", "; ".join(story.not_checked), "dim"))
    for small in (*story.notes, story.closing, f"more: {story.explain}" if story.explain else ""):
        if small:
            parts.append(Text(small, style="dim"))
    title = Text.assemble(
        ("akeso ", "bold"), (f"{_MARKS[worst]} ", _STYLES[worst]), (story.verdict, _STYLES[worst])
    )
    return Panel(
        Group(*parts),
        title=title,
        title_align="left",
        border_style=_STYLES[worst].removeprefix("bold "),
        width=width,
        padding=(0, 1),
    )


def _worst(story: Story, document: Mapping[str, Any]) -> str:
    severities = {finding.severity for finding in (*story.roots, *story.consequences)}
    if document["status"] == "error" or "error" in severities:
        return "error"
    if "warning" in severities:
        return "warning"
    return "healthy" if document["steps"] else "info"


def _finding_parts(finding: Finding) -> list[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = [_line(finding), Padding(Text(finding.sentence), (0, 0, 0, 2))]
    if finding.evidence:
        parts.append(Padding(_hanging("evidence", finding.evidence, "dim"), (0, 0, 0, 2)))
    if finding.helps:
        parts.append(Padding(_hanging("helps", "\n".join(finding.helps), ""), (0, 0, 0, 2)))
    return parts


def _line(finding: Finding, detail: bool = False) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    line = Text.assemble(
        (f"{_MARKS[finding.severity]} ", _STYLES[finding.severity]),
        (finding.title, _STYLES[finding.severity]),
        (f"  {finding.where}", "dim"),
    )
    return Group(line, Padding(Text(finding.sentence), (0, 0, 0, 2))) if detail else line


def _hanging(label: str, text: str, style: str) -> RenderableType:
    """A label with a text that is indented beside it."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", no_wrap=True, min_width=8)
    table.add_column(style=style, overflow="fold")
    table.add_row(label, Text(text))
    return table


def picture(document: Mapping[str, Any], command: str = "", width: int = _WIDEST) -> str:
    """The report as an SVG picture of a terminal, under the command that gave it."""
    import io
    import re

    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console
    from rich.terminal_theme import MONOKAI

    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, highlight=False)
    if command:
        console.print(f"$ {command}", style="bold", markup=False)
    console.print(panel(document, width))
    # rich lets the picture load a font from the net; whoever looks at it uses a font of their own instead.
    own_font = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="akeso", theme=MONOKAI, code_format=own_font)
