"""Judging recorded runs under a profile, as they stood at each part of the way."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from akeso.examination import examine
from akeso.journal import read
from akeso.profiles import load_profile
from benchmarks.corpus import case
from benchmarks.corpus.recording import finished, folder
from benchmarks.corpus.rivals import doctor, installed
from benchmarks.corpus.truth import sick_that_time, truth

PROFILES = ("akeso", "autotrainer", "bttackler")
FRACTIONS = (0.05, 0.10, 0.15, 0.20, 0.30, 0.50, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one judge says of one run: the problems above info at the end, in order, and when they came."""

    problems: tuple[str, ...]
    flagged_at: float | None = None
    named_at: float | None = None
    not_checked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded run, what it is in truth, and what each judge says."""

    case: str
    seed: int
    problem: str | None
    names: frozenset[str]
    sick: bool
    recovered: bool  # a sick case whose run went as well as the cured twin's
    metric: float | None
    steps: int
    overhead: float
    verdicts: dict[str, Verdict] = field(default_factory=dict)


def judge(journals: Path, rivals: bool, name: str, seed: int) -> Run | None:
    """Judge one recorded run; nothing when there is no record of it."""
    result = finished(journals, name, seed)
    if result is None:
        return None
    which = case(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        history = read(folder(journals, name, seed)).history
        verdicts = {profile: _verdict(history, profile, which.names()) for profile in PROFILES}
        if rivals and "training-doctor" in installed():
            verdicts["training-doctor"] = _severe(doctor(history), ("warning", "critical"))
    if rivals and "torchmortem" in result:
        verdicts["torchmortem"] = _severe(result["torchmortem"]["findings"], ("critical",))
    metric = result["metric"]
    wrong = which.sick and (metric is None or sick_that_time(which, metric))
    return Run(
        name,
        seed,
        which.problem,
        which.names(),
        bool(wrong),
        which.sick and not wrong,
        metric,
        history.steps,
        float(result.get("overhead") or 0.0),
        verdicts,
    )


_profile = lru_cache(maxsize=None)(load_profile)


def _verdict(history, profile: str, names: frozenset[str]) -> Verdict:  # type: ignore[no-untyped-def]
    flagged = named = None
    problems: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    for fraction in FRACTIONS:
        part = history if fraction == 1.0 else history.until(max(0, int(fraction * history.steps) - 1))
        with contextlib.redirect_stderr(None):
            examination = examine(part, _profile(profile))
        problems = tuple(d.problem for d in examination.diagnoses if d.severity != "info")
        unseen = examination.not_checked
        if problems and flagged is None:
            flagged = fraction
        if named is None and names & set(problems):
            named = fraction
    return Verdict(problems, flagged, named, unseen)


def _severe(findings: list[dict[str, str]], grave: tuple[str, ...]) -> Verdict:
    problems = tuple(dict.fromkeys(f["problem"] for f in findings if f["severity"] in grave))
    return Verdict(problems, 1.0 if problems else None)


def counted(name: str, unverified: bool = False) -> bool:
    """Whether the measured truth bears the case out; cases not measured yet count only when asked for."""
    known = truth().get(name)
    return unverified if known is None else bool(known["holds"])
