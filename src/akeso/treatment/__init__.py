"""From a diagnosis to a model that is measurably better, with the proof."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from akeso.treatment.outcome import Cost, Outcome, Tried
from akeso.treatment.plans import PLANS, Plan, Wishes
from akeso.treatment.prescription import REMEDIES, Edit, Prescription
from akeso.treatment.program import Attempt, Program
from akeso.treatment.treating import treat

if TYPE_CHECKING:
    from akeso.treatment.recipe import Recipe

__all__ = [
    "PLANS",
    "REMEDIES",
    "Attempt",
    "Cost",
    "Edit",
    "Outcome",
    "Plan",
    "Prescription",
    "Program",
    "Recipe",
    "Tried",
    "Wishes",
    "treat",
]


def __getattr__(name: str) -> Any:
    # Recipes need torch; treating scripts, and reading outcomes, does not.
    if name == "Recipe":
        from akeso.treatment.recipe import Recipe

        return Recipe
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
