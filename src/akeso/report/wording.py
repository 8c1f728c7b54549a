"""A document in words: the parts that every rendering shows, in the order in which they matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from akeso.examination import BY_HAND, NO_LOSS, SWITCHED_OFF

_EVIDENCE: Final = 5
_MEASURES: Final = {
    "train_loss": "training loss",
    "train_accuracy": "training accuracy",
    "val_loss": "validation loss",
    "val_accuracy": "validation accuracy",
    "metric": "metric",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One diagnosis in words."""

    problem: str
    title: str
    severity: str
    where: str
    sentence: str
    evidence: str
    helps: tuple[str, ...]
    because_of: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """A run in words."""

    verdict: str
    roots: tuple[Finding, ...]
    consequences: tuple[Finding, ...]
    remarks: tuple[Finding, ...]
    figures: str
    not_checked: tuple[str, ...]
    notes: tuple[str, ...]
    closing: str
    explain: str


def tell(document: Mapping[str, Any]) -> Story:
    """The story of a document: roots first, then what follows from them, then remarks."""
    findings = [_finding(entry) for entry in document["diagnoses"]]
    serious = [finding for finding in findings if finding.severity != "info"]
    named = {finding.problem for finding in findings}
    roots = [finding for finding in serious if not set(finding.because_of) & named]
    consequences = [finding for finding in serious if set(finding.because_of) & named]
    remarks = [finding for finding in findings if finding.severity == "info"]
    return Story(
        verdict=_verdict(document, roots, consequences),
        roots=tuple(roots),
        consequences=tuple(consequences),
        remarks=tuple(remarks),
        figures=_figures(document),
        not_checked=tuple(document["not_checked"]),
        notes=tuple(document.get("notes", ())),
        closing=_closing(document),
        explain=f"akeso explain {findings[0].problem}" if findings else "",
    )


def _verdict(document: Mapping[str, Any], roots: Sequence[Finding], consequences: Sequence[Finding]) -> str:
    if document["status"] == "error":
        return f"akeso could not judge this run: {document.get('error', 'unknown reason')}"
    if not document["steps"] and BY_HAND in document["not_checked"]:
        return "no training was watched"
    if not document["steps"]:
        return "nothing was trained: no optimizer step was seen"
    if not roots and not consequences:
        if NO_LOSS in document["not_checked"]:
            return "nothing could be judged"
        if any(SWITCHED_OFF in line for line in document["not_checked"]):
            return "nothing found by what was left of the watch"
        if BY_HAND in document["not_checked"]:
            return "nothing found in what was watched"
        steps = "one step" if document["steps"] == 1 else f"{document['steps']} steps"
        return (
            "healthy"
            if "script_exit_code" not in document
            else f"nothing found before the script failed, {steps} on"
        )
    count = len(roots) or len(consequences)
    text = "one problem" if count == 1 else f"{count} problems"
    if roots and consequences:
        text += f", and {len(consequences)} that {'follows' if len(consequences) == 1 else 'follow'} from it"
        text = text if count == 1 else text.replace("from it", "from them")
    return text


def _finding(entry: Mapping[str, Any]) -> Finding:
    from akeso.catalogue import PROBLEMS

    problem = str(entry["problem"])
    known = PROBLEMS.get(problem)
    place = [f"layer {entry['layer']}"] if entry["layer"] else []
    place += [f"since step {entry['step']}", f"{entry['confidence']:.0%} sure"]
    return Finding(
        problem=problem,
        title=known.title if known else problem.replace("-", " ").capitalize(),
        severity=str(entry["severity"]),
        where=", ".join(place),
        sentence=str(entry["sentence"]),
        evidence=figures_of(entry["evidence"]),
        helps=tuple(entry["remedies"]),
        because_of=tuple(entry["because_of"]),
    )


def figures_of(evidence: Mapping[str, Any]) -> str:
    """The first few figures of some evidence, on one line."""
    shown = [
        f"{str(name).replace('_', ' ')} {number(value)}"
        for name, value in evidence.items()
        if isinstance(value, (int, float, str)) and len(str(value)) <= 40
    ]
    return " · ".join(shown[:_EVIDENCE])


def number(value: Any) -> str:
    """A value as one reads it: three digits, thousands separated."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def _figures(document: Mapping[str, Any]) -> str:
    parts = [] if document["task"] == "unknown" else [str(document["task"])]
    parts.append(f"{document['steps']:,} step{'' if document['steps'] == 1 else 's'}")
    for name, value in document["metrics"].items():
        shown = "not finite" if value is None else number(float(value))
        parts.append(f"{_MEASURES.get(name, name)} {shown}")
    return " · ".join(parts)


def _closing(document: Mapping[str, Any]) -> str:
    parts = [str(document["stopped"])] if document.get("stopped") else []
    if document["steps"] and document["overhead"]:  # not known of a run that was killed
        seconds = document.get("overhead_seconds")
        # the first looks of a run are worth their time, however short it is
        short = f" ({seconds:.1f} s)" if seconds is not None and document["overhead"] > 0.015 else ""
        parts.append(f"watching took {document['overhead']:.1%} of the time{short}")
    if document.get("run"):
        parts.append(f"run {_near(str(document['run']))}")
    return " · ".join(parts)


def _near(folder: str) -> str:
    """A folder as one would type it here."""
    try:
        return str(Path(folder).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return folder
