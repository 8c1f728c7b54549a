"""The package from outside: what it offers, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import akeso

FRAMEWORKS = ("torch", "keras", "optuna", "ray", "numpy", "rich", "click")


def fresh(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def test_importing_akeso_loads_no_framework() -> None:
    code = f"import sys, akeso; print([name for name in {FRAMEWORKS} if name in sys.modules])"
    assert fresh(code) == "[]"


def test_importing_akeso_takes_less_than_150_ms() -> None:
    code = "import time; start = time.process_time(); import akeso; print(time.process_time() - start)"
    # The best of a few: a busy machine slows single imports down, and that is not what is asked here.
    assert min(float(fresh(code)) for _ in range(4)) < 0.150


def test_all_is_complete_and_sorted() -> None:
    assert akeso.__all__ == sorted(akeso.__all__)
    assert set(akeso._HOMES) | {"__version__"} == set(akeso.__all__)
    assert set(akeso.__all__) <= set(dir(akeso))
    public = {
        "Diagnosis", "History", "Outcome", "Recipe", "Watch", "__version__",
        "examine", "replay", "search", "treat", "watch",
    }  # fmt: skip
    assert set(akeso.__all__) == public


@pytest.mark.parametrize("name", akeso.__all__)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    value = getattr(akeso, name)
    assert value is getattr(akeso, name)
    assert name == "__version__" or value.__doc__


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'wacht'; it has Diagnosis"):
        akeso.wacht  # noqa: B018


def test_types_are_shipped() -> None:
    assert (Path(akeso.__file__).parent / "py.typed").exists()
