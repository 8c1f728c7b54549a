"""The package without its optional parts, and what it exports."""

from __future__ import annotations

import subprocess
import sys

import akeso.search

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("optuna", "ray", "torch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
import akeso.search
from akeso.errors import MissingExtra
for call, extra in (
    (lambda: akeso.search.watch(None, epochs=1), "akeso[optuna]"),
    (lambda: akeso.search.DiagnosisPruner(), "akeso[optuna]"),
    (lambda: akeso.search.DiagnosisStopper("loss", "min", epochs=1), "akeso[ray]"),
    (lambda: akeso.search.ray_watch(None, metric="loss", mode="min"), "akeso[ray]"),
    (lambda: akeso.search.ray_report({"loss": 1.0}, metric="loss", mode="min"), "akeso[ray]"),
):
    try:
        call()
    except MissingExtra as error:
        assert extra in str(error), error
    else:
        raise AssertionError(extra)
study = akeso.search.simulation
print("ok")
"""


def test_without_optuna_ray_and_torch_the_package_imports_and_says_what_to_install() -> None:
    script = BLOCKED.replace("study = akeso.search.simulation\n", "akeso.search.simulate\n")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "ok", done.stderr


def test_everything_public_is_there_and_sorted() -> None:
    assert akeso.search.__all__ == sorted(akeso.search.__all__)
    for name in akeso.search.__all__:
        assert getattr(akeso.search, name) is not None
    assert set(akeso.search.__all__) <= set(dir(akeso.search))
