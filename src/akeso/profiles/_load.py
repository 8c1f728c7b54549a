"""Reading and writing profile files."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal, cast

from akeso.detectors import DETECTORS, Detector
from akeso.errors import BadInput

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: The profiles that come with akeso.
BUILT_IN: Final = ("akeso", "autotrainer", "bttackler")

Ranking = Literal["causes", "exposure"]
_KEYS: Final = ("name", "description", "ranking", "extends", "detectors")


@dataclass(frozen=True, slots=True)
class Profile:
    """A set of detectors with their thresholds.

    ``ranking`` is ``"causes"`` (roots first, by which problem may cause which) or ``"exposure"`` (by the step in
    which a rule first held, as the papers do).
    """

    name: str
    description: str
    ranking: Ranking
    detectors: tuple[Detector, ...]


def load_profile(profile: str | Path | Profile) -> Profile:
    """The profile of that name, or from that TOML file.

    A file may say ``extends = "akeso"`` and give only what differs; a detector set to ``false`` is left out.

    >>> load_profile("akeso").name
    'akeso'
    """
    if isinstance(profile, Profile):
        return profile
    if isinstance(profile, str) and profile in BUILT_IN:
        text, source = (files("akeso.profiles") / f"{profile}.toml").read_text("utf-8"), profile
    else:
        path = Path(profile)
        try:
            text, source = path.read_text("utf-8"), str(profile)
        except (OSError, UnicodeDecodeError) as problem:
            raise BadInput(
                f"cannot read a profile from {str(profile)!r} ({problem.__class__.__name__}); give one of "
                f"{', '.join(BUILT_IN)} or the path of a TOML file"
            ) from None
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise BadInput(f"the profile {source} is not valid TOML: {problem}") from None
    return _profile(table, source)


def _profile(table: Mapping[str, Any], source: str) -> Profile:
    for key in table:
        if key not in _KEYS:
            raise BadInput(f"the profile {source} has an unknown entry {key!r}{_nearest(key, _KEYS)}")
    base = table.get("extends")
    if base is not None and base not in BUILT_IN:
        raise BadInput(f"the profile {source} extends {base!r}; it may extend one of {', '.join(BUILT_IN)}")
    inherited = load_profile(str(base)) if base else None
    ranking = table.get("ranking", inherited.ranking if inherited else "causes")
    if ranking not in ("causes", "exposure"):
        raise BadInput(f"the profile {source} has ranking = {ranking!r}; it may be 'causes' or 'exposure'")
    sections = table.get("detectors", {})
    if not isinstance(sections, Mapping):
        raise BadInput(
            f"the profile {source} has detectors = {sections!r}; write a [detectors.NAME] section each"
        )
    chosen = {detector.name: detector for detector in inherited.detectors} if inherited else {}
    for name, section in sections.items():
        if name not in DETECTORS:
            raise BadInput(
                f"the profile {source} names a detector {name!r} that is not known{_nearest(name, DETECTORS)}"
            )
        if section is False:
            chosen.pop(name, None)
        elif isinstance(section, Mapping):
            chosen[name] = _detector(name, section, chosen.get(name), source)
        else:
            raise BadInput(
                f"the profile {source} has {name} = {section!r}; write a section [detectors.{name}] or false"
            )
    if not chosen:
        raise BadInput(
            f"the profile {source} has no detectors; add a section like [detectors.vanishing-gradient]"
        )
    return Profile(
        str(table.get("name", Path(source).stem)),
        str(table.get("description", "")),
        cast(Ranking, ranking),
        tuple(chosen[name] for name in sorted(chosen)),
    )


def _detector(name: str, section: Mapping[str, Any], base: Detector | None, source: str) -> Detector:
    kind = DETECTORS[name]
    known = {entry.name: entry for entry in dataclasses.fields(cast(Any, kind))}
    values = {key: getattr(base, key) for key in known} if base is not None else {}
    for key, value in section.items():
        if key not in known:
            raise BadInput(f"[detectors.{name}] in {source} has no threshold {key!r}{_nearest(key, known)}")
        wanted = type(known[key].default)
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted:
            raise BadInput(
                f"[detectors.{name}] in {source}: {key} = {value!r} is a {type(value).__name__}, "
                f"but a {wanted.__name__} like {known[key].default!r} is needed"
            )
        values[key] = value
    return cast(Any, kind)(**values)  # type: ignore[no-any-return]


def _nearest(word: str, known: Any) -> str:
    near = get_close_matches(word, list(known), 1, 0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; known are: {', '.join(sorted(known))}"


def dump_profile(profile: Profile) -> str:
    """The profile as TOML text that :func:`load_profile` reads back."""
    lines = [
        f"name = {json.dumps(profile.name)}",
        f"description = {json.dumps(profile.description, ensure_ascii=False)}",
        f'ranking = "{profile.ranking}"',
    ]
    for detector in profile.detectors:
        lines += ["", f"[detectors.{detector.name}]"]
        for entry in dataclasses.fields(cast(Any, detector)):
            lines.append(f"{entry.name} = {_written(getattr(detector, entry.name))}")
    return "\n".join(lines) + "\n"


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, (int, float)) else json.dumps(value)
