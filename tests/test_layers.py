"""What may import what: lower layers know nothing of higher ones, judging needs no framework."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import akeso

ROOT = Path(akeso.__file__).parent
LAYERS = {
    "signals": 0, "history": 0, "journal": 0, "diagnosis": 0, "catalogue": 0, "advice": 0, "errors": 0, "extras": 0,
    "threads": 0,
    "detectors": 1, "profiles": 1, "examination": 1, "remedies": 1,
    "torch": 2, "keras": 2, "report": 2,
    "script": 3, "treatment": 3, "search": 3, "replay": 3, "integrations": 3,
    "cli": 4, "__main__": 5,
}  # fmt: skip
#: Packages that any part may import: those the project itself depends on.
CORE = {"numpy", "click", "msgspec", "rich", "tomli", "tomllib"}
#: Parts that judge a recorded run anywhere: NumPy and the standard library only.
PURE = (
    "signals",
    "history",
    "diagnosis",
    "catalogue",
    "advice",
    "errors",
    "detectors",
    "profiles",
    "examination",
    "remedies",
)
FILES = sorted(path for path in ROOT.rglob("*.py"))


def part_of(module: str) -> str:
    """``akeso.torch.probe`` belongs to ``torch``."""
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else ""


def module_of(file: Path) -> str:
    pieces = ["akeso", *file.relative_to(ROOT).with_suffix("").parts]
    return ".".join(pieces[:-1] if pieces[-1] == "__init__" else pieces)


def imports_of(file: Path) -> Iterator[tuple[str, int, bool]]:
    """Every imported module, with its line and whether it is imported when the file is."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    deferred: set[ast.AST] = set()
    for node in ast.walk(tree):
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        is_typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if is_function or is_typing:
            deferred.update(ast.walk(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names = [str(node.module)]
            if node.module == "akeso":
                names = [f"akeso.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield name, node.lineno, node not in deferred


def test_every_part_has_a_layer() -> None:
    parts = {part_of(module_of(file)) for file in FILES} - {""}
    assert parts <= set(LAYERS), f"give these a layer: {parts - set(LAYERS)}"


def test_nothing_imports_a_higher_layer() -> None:
    wrong = []
    for file in FILES:
        part = part_of(module_of(file))
        for name, line, _ in imports_of(file):
            other = part_of(name) if name.split(".")[0] == "akeso" else ""
            # The façade, which has no part, hands out everything lazily.
            if part and other in LAYERS and LAYERS[other] > LAYERS[part]:
                wrong.append(f"{file.relative_to(ROOT)}:{line} imports {name} from a higher layer")
    assert wrong == []


def foreign(file: Path) -> Iterator[tuple[str, int, bool]]:
    """Imports that are neither akeso nor the standard library."""
    for name, line, at_import in imports_of(file):
        package = name.split(".")[0]
        if package not in sys.stdlib_module_names and package not in ("akeso", "__future__"):
            yield package, line, at_import


def test_judging_needs_numpy_and_the_standard_library_only() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {package}"
        for file in FILES
        if part_of(module_of(file)) in PURE
        for package, line, _ in foreign(file)
        if package not in {"numpy", "tomli"}
    ]
    assert wrong == []


def test_running_and_reporting_load_no_framework_of_their_own() -> None:
    wrong = []
    for file in FILES:
        # What treats a script is applied inside of it and knows torch.
        treats = any(piece.startswith(("prescribed", "rewrite")) for piece in file.relative_to(ROOT).parts)
        if part_of(module_of(file)) not in ("journal", "report", "script", "cli") or treats:
            continue
        for package, line, at_import in foreign(file):
            if at_import and package not in CORE:
                wrong.append(f"{file.relative_to(ROOT)}:{line} imports {package} when it is loaded")
    assert wrong == []


def test_parts_that_need_no_framework_load_none() -> None:
    modules = [f"akeso.{part}" for part in (*PURE, "journal", "report", "cli")]
    code = f"""
import importlib, sys
for name in {modules}:
    importlib.import_module(name)
print([name for name in ("torch", "keras", "optuna", "ray") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
