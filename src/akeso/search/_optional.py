"""Optuna, which most of a search needs and the rest of akeso does without."""

from __future__ import annotations

from typing import Any

from akeso.extras import require


def optuna(purpose: str = "searching with Optuna") -> Any:
    """Optuna, or an error that says what to install."""
    return require("optuna", "optuna", purpose)
