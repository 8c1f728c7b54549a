"""A learning rate or a weight decay that stands among settings: found there for sure, or not at all."""

from __future__ import annotations

import ast
import difflib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from akeso.script.draft import Draft, name_of

_ENDINGS: Final = (".json", ".yaml", ".yml", ".toml", ".ini", ".cfg")
#: What settings are called, all in small letters with underscores.
_CALLED: Final = {
    "lr": ("lr", "learning_rate", "learningrate", "base_lr", "init_lr", "lr0"),
    "weight_decay": ("weight_decay", "weightdecay", "wd", "l2"),
}
_VALUE: Final = r"""["']?\s*[:=]\s*)(?P<value>[-+]?[0-9][-+0-9.eE]*)"""


def setting_in_code(drafts: Sequence[Draft], what: str, old: float, new: float) -> bool:
    """Change the one place in the code where a setting of this name has this value, where there is but one."""
    found = [
        (draft, node)
        for draft in drafts
        for name, node in _named(draft.tree)
        if name.lower().lstrip("-").replace("-", "_") in _CALLED[what]
        and isinstance(node, ast.Constant)
        and type(node.value) in (int, float)
        and node.value == old
    ]
    if len(found) != 1:
        return False
    draft, node = found[0]
    draft.replace(node, f"{new:.6g}")
    return True


def _named(tree: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Values with the names that they are given: in dicts, as arguments and their defaults, as variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value
        elif isinstance(node, ast.Call):
            yield from ((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)
            options = [one.value for one in node.args if isinstance(one, ast.Constant)]
            for keyword in node.keywords if name_of(node) == "add_argument" else ():
                if keyword.arg == "default":
                    yield from ((option, keyword.value) for option in options[-1:] if isinstance(option, str))
        elif isinstance(node, ast.arguments):
            given = [*node.posonlyargs, *node.args]
            yield from zip((one.arg for one in given[::-1]), node.defaults[::-1], strict=False)
            yield from (
                (one.arg, value) for one, value in zip(node.kwonlyargs, node.kw_defaults, strict=True)
            )
        elif isinstance(node, ast.AnnAssign):
            yield name_of(node.target), node.value
        elif isinstance(node, ast.Assign):
            yield from ((name_of(target), node.value) for target in node.targets)


def setting_in_files(sources: dict[str, str], what: str, old: float, new: float) -> str | None:
    """The diff of the one settings file in which a figure stands, where it is the only one with this value.

    ``sources`` are the script's own files with their text; a settings file counts when one of them names it.
    """
    names = "|".join(name.replace("_", "[_-]") for name in _CALLED[what])
    pattern = re.compile(rf"""(?P<key>["']?\b(?:{names}){_VALUE}""", re.IGNORECASE)
    found = [
        (file, text, match)
        for file, text in _settings(sources)
        for match in pattern.finditer(text)
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
