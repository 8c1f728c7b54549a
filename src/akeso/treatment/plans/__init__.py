"""How attempts are chosen."""

from __future__ import annotations

from akeso.treatment.plans._base import Plan, Report, Wishes
from akeso.treatment.plans.akeso import AkesoPlan
from akeso.treatment.plans.autotrainer import AutotrainerPlan
from akeso.treatment.plans.baselines import RandomPlan, ReseedPlan

#: Every plan by name.
PLANS: dict[str, type[Plan]] = {
    plan.name: plan for plan in (AkesoPlan, AutotrainerPlan, ReseedPlan, RandomPlan)
}

__all__ = ["PLANS", "AkesoPlan", "AutotrainerPlan", "Plan", "RandomPlan", "Report", "ReseedPlan", "Wishes"]
