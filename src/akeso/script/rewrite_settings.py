"""A learning rate that stands in a settings file: found there for sure, or not at all."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_ENDINGS: Final = (".json", ".yaml", ".yml", ".toml", ".ini", ".cfg")
_RATE: Final = re.compile(
    r"""(?P<key>["']?\b(?:lr|learning_rate|learningrate|learning-rate|base_lr|init_lr|lr0)["']?\s*[:=]\s*)"""
    r"""(?P<value>[-+]?[0-9][-+0-9.eE]*)""",
    re.IGNORECASE,
)


def rate_in_settings(sources: dict[str, str], old: float, new: float) -> str | None:
    """The diff of the one settings file in which a rate stands, where it is the only one with this value.

    ``sources`` are the script's own files with their text; a settings file counts when one of them names it.
    """
    found = [
        (file, text, match)
        for file, text in _settings(sources)
        for match in _RATE.finditer(text)
        if _is(match["value"], old)
    ]
    if len(found) != 1:
        return None
    file, text, match = found[0]
    changed = text[: match.start("value")] + f"{new:.6g}" + text[match.end("value") :]
    shown = (
        os.path.relpath(file) if str(file).startswith(os.path.realpath(os.getcwd()) + os.sep) else file.name
    )
    lines = difflib.unified_diff(
        text.splitlines(keepends=True), changed.splitlines(keepends=True), f"a/{shown}", f"b/{shown}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _settings(sources: dict[str, str]) -> Iterator[tuple[Path, str]]:
    """Settings files beside the script's own, or where it is run, that its source names."""
    for folder in _folders(sources):
        for file in sorted(folder.iterdir()):
            named = any(file.name in text for text in sources.values())
            if file.suffix in _ENDINGS and named and file.is_file():
                try:
                    yield file, file.read_text(encoding="utf-8")
                except (OSError, ValueError):
                    continue


def _folders(sources: dict[str, str]) -> Sequence[Path]:
    homes = [Path(os.path.realpath(file)).parent for file in sources] + [Path(os.path.realpath(os.getcwd()))]
    inside = [home / name for home in homes for name in ("config", "configs", "conf", "settings")]
    return [folder for folder in dict.fromkeys([*homes, *inside]) if folder.is_dir()]


def _is(text: str, value: float) -> bool:
    try:
        return float(text) == value
    except ValueError:
        return False
