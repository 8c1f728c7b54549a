"""Made-up trainings that several test modules of detectors start from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from akeso.detectors.testing import Sketch, falling, flat, remade
from akeso.examination import examine
from akeso.history import History

LEARNS = falling(2.3, 0.4)
CHANCE: dict[str, Any] = {"loss": flat(2.3), "accuracy": flat(0.1)}
REGRESSION = {"task": "regression", "loss": "mse_loss", "classes": 1, "target_kind": "values"}


def first(sketch: Sketch) -> str | None:
    """The problem that is named first; what is said for information alone does not count."""
    found = [d for d in examine(sketch.history()).diagnoses if d.severity != "info"]
    return found[0].problem if found else None


def values(loss: float, baseline: float, **run: Any) -> dict[str, Any]:
    """A regression whose loss stays at ``loss``."""
    base = {"target_mean": 0.0, "target_std": 1.0, "target_min": -2.5, "target_max": 2.5, **run}
    return {"loss": flat(loss), "baseline": baseline, "accuracy": None, "facts": REGRESSION, "run": base}


def over_time(history: History, signal: str, change: Callable[[str, float, float], float]) -> History:
    """The same history with one signal passed through ``change(scope, share of the run, value)``."""
    return remade(
        history,
        lambda step, name, scope, value: (
            step,
            scope,
            change(scope, step / history.steps, value) if name == signal else value,
        ),
    )
