"""A report as HTML: a fragment for notebooks, a self-contained page for everybody else."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final

from akeso.report.wording import Finding, tell

_COLOURS: Final = {"error": "#c0392b", "warning": "#b9770e", "info": "#2471a3", "healthy": "#1e8449"}
_STYLE: Final = (
    ".akeso{font:14px/1.45 system-ui,sans-serif;max-width:52em}"
    ".akeso h3{margin:.2em 0 .4em;font-size:1.1em}"
    ".akeso .finding{border-left:3px solid;padding:.1em 0 .1em .8em;margin:.7em 0}"
    ".akeso .where,.akeso .small{color:#777;font-size:.9em}"
    ".akeso ul{margin:.3em 0 .3em 1.2em;padding:0}"
)


class RunReport:
    """A run's findings that know how to show themselves: in a notebook, on a terminal, as text."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = dict(document)

    def _repr_html_(self) -> str:
        return fragment(self.document)

    def __rich__(self) -> Any:
        from akeso.report.terminal import panel

        return panel(self.document)

    def __str__(self) -> str:
        from akeso.report.terminal import lines

        return "\n".join(lines(self.document))


def fragment(document: Mapping[str, Any]) -> str:
    """The report as a piece of HTML with its own style."""
    story = tell(document)
    serious = (*story.roots, *story.consequences)
    worst = "error" if any(finding.severity == "error" for finding in serious) else "warning"
    colour = _COLOURS[worst if serious else "healthy"]
    parts = [f'<h3 style="color:{colour}">akeso: {escape(story.verdict)}</h3>']
    parts += [_finding(finding) for finding in story.roots]
    if story.consequences:
        parts.append('<div class="small">follows from the above</div>')
        parts += [_finding(finding, brief=True) for finding in story.consequences]
    parts += [_finding(finding, brief=True) for finding in story.remarks]
    parts.append(f"<div>{escape(story.figures)}</div>")
    notes = [f"not checked: {item}" for item in story.not_checked] + list(story.notes)
    if notes:
        items = "".join(f"<li>{escape(str(note))}</li>" for note in notes)
        parts.append(f'<ul class="small">{items}</ul>')
    if story.closing:
        parts.append(f'<div class="small">{escape(story.closing)}</div>')
    return f'<div class="akeso"><style>{_STYLE}</style>{"".join(parts)}</div>'


def page(document: Mapping[str, Any]) -> str:
    """The report as a whole page: one file, nothing loaded from elsewhere."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>akeso</title></head>'
        f"<body>{fragment(document)}</body></html>\n"
    )


def _finding(finding: Finding, brief: bool = False) -> str:
    colour = _COLOURS[finding.severity]
    parts = [
        f'<b style="color:{colour}">{escape(finding.title)}</b> '
        f'<span class="where">{escape(finding.where)}</span><br>{escape(finding.sentence)}'
    ]
    if not brief:
        if finding.evidence:
            parts.append(f'<div class="small">{escape(finding.evidence)}</div>')
        if finding.helps:
            parts.append("<ul>" + "".join(f"<li>{escape(help_)}</li>" for help_ in finding.helps) + "</ul>")
    return f'<div class="finding" style="border-color:{colour}">{"".join(parts)}</div>'
