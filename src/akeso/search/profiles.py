"""The two ways of judging trials: ``akeso`` (ours) and ``bttackler`` (the paper's seven indicators)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, Final

from akeso.catalogue import PROBLEMS
from akeso.errors import BadInput

#: Problems that cannot get better by themselves: the network computes nothing, or nothing finite.
_HOPELESS: Final = frozenset(
    {
        "non-finite",
        "exploding-gradient",
        "vanishing-gradient",
        "dying-relu",
        "saturated-activation",
        "constant-prediction",
    }
)

#: What BTTackler's indicators AGV, EAG, ERG, PLC, LAR and ULC are called here; NMG keeps the trial's value.
_SEVEN: Final = frozenset(
    {"exploding-gradient", "vanishing-gradient", "slow-convergence", "dying-relu", "oscillating-loss"}
)


@dataclass(frozen=True, slots=True)
class SearchProfile:
    """Which findings end a trial, and how its curve is judged against the study.

    ``detectors`` names the profile of detectors that reads the trial's history. ``stops`` are the problems
    that end a trial as hopeless, ``finishes`` those that end it with its value. ``at_steps`` are those that
    are acted upon within an epoch; the others wait for its end. ``confidence`` is what a finding needs.

    ``false_stops`` bounds the rate at which trials that would have ended in the best ``top`` share of the
    study are given up for their curve (see :mod:`akeso.search.forecast`); None leaves curves alone.
    ``warm_up`` finished trials are needed before curves are compared. A trial from which no more gain than a
    ``sliver`` of the study's spread is to be expected ends early with its value; in a study too young to know, one
    without any gain over ``patience`` of the epochs. One that may come among the best ``contenders`` share of the
    study, ten trials at most, goes on as long as it gains at all. A trial that has not moved since its first report is
    left alone for a ``late`` share of its epochs: it may be a late learner.
    """

    name: str
    detectors: str
    stops: frozenset[str]
    finishes: frozenset[str] = frozenset()
    at_steps: frozenset[str] = frozenset()
    confidence: float = 0.8
    false_stops: float | None = None
    top: float = 0.25
    warm_up: int = 4
    patience: float | None = None
    sliver: float | None = None
    contenders: float = 0.0
    late: float = 0.0

    def __post_init__(self) -> None:
        for name in ("name", "detectors"):
            if not isinstance(getattr(self, name), str):
                raise BadInput(f"{name} of a search profile is a name, but got {getattr(self, name)!r}")
        for name in ("stops", "finishes", "at_steps"):
            object.__setattr__(self, name, _problems(name, getattr(self, name)))
        for name in ("confidence", "top", "patience", "sliver", "false_stops", "contenders", "late"):
            value = getattr(self, name)
            if value is None and name in ("patience", "sliver", "false_stops"):
                continue
            closed = name in ("contenders", "late")
            if not _is_number(value) or not (0 <= value <= 1 if closed else 0 < value < 1):
                raise BadInput(
                    f"{name} of a search profile must be a number between 0 and 1, but got {value!r}"
                )
        if not isinstance(self.warm_up, Integral) or isinstance(self.warm_up, bool) or self.warm_up < 2:
            raise BadInput(
                f"warm_up of a search profile must be a whole number of at least 2, but got {self.warm_up!r}"
            )

    @property
    def digest(self) -> str:
        """The profile in one line: what a study remembers of the rules it was run under."""
        return ";".join(self._parts())

    @property
    def title(self) -> str:
        """The name of the profile, and what was changed in one that comes with akeso: what a trial notes of it."""
        known = PROFILES.get(self.name, self)._parts()
        changed = [part for part in self._parts() if part not in known]
        return f"{self.name} with {', '.join(changed)}" if changed else self.name

    def _parts(self) -> list[str]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return [
            f"{name}={sorted(value) if isinstance(value, frozenset) else value}"
            for name, value in values.items()
        ]


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _problems(field: str, given: object) -> frozenset[str]:
    """The names of problems that were given as any collection of them."""
    named = list(given) if isinstance(given, Collection) and not isinstance(given, str | bytes) else [None]
    if not all(isinstance(name, str) for name in named):
        raise BadInput(
            f"{field} of a search profile is a set of problems such as {{'dying-relu'}}, but got {given!r}"
        )
    unknown = [str(name) for name in named if name not in PROBLEMS]
    if unknown:
        near = get_close_matches(unknown[0], list(PROBLEMS), 1, 0.5)
        hint = f"did you mean {near[0]!r}?" if near else "`akeso list` has all there are"
        raise BadInput(
            f"{field} of a search profile names {unknown[0]!r}, but there is no problem of that name; {hint}"
        )
    return frozenset(map(str, named))


AKESO: Final = SearchProfile(
    "akeso",
    "akeso",
    stops=_HOPELESS,
    at_steps=_HOPELESS,
    false_stops=0.02,
    warm_up=2,
    patience=0.5,
    sliver=0.2,
    contenders=0.05,
    late=0.2,
)

BTTACKLER: Final = SearchProfile(
    "bttackler",
    "bttackler",
    stops=_SEVEN,
    finishes=frozenset({"no-more-gain"}),
    confidence=0.01,
)

PROFILES: Final[Mapping[str, SearchProfile]] = {"akeso": AKESO, "bttackler": BTTACKLER}


def search_profile(profile: str | SearchProfile, **changes: Any) -> SearchProfile:
    """The profile of that name (or the one given), with some of its fields changed."""
    if isinstance(profile, str):
        if profile not in PROFILES:
            raise BadInput(f"there is no search profile {profile!r}; there are {', '.join(sorted(PROFILES))}")
        profile = PROFILES[profile]
    if not isinstance(profile, SearchProfile):
        raise BadInput(f"a search profile is a name or a SearchProfile, but got {type(profile).__name__}")
    known = [field.name for field in fields(SearchProfile)]
    unknown = [name for name in changes if name not in known]
    if unknown:
        raise BadInput(
            f"a search profile has no option {', '.join(map(repr, unknown))}; it has {', '.join(known)}"
        )
    return replace(profile, **changes) if changes else profile
