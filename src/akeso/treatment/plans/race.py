"""How promising an attempt is after a part of its steps."""

from __future__ import annotations

import math

import numpy as np

from akeso.remedies.candidates import treatable
from akeso.treatment.program import Attempt


def promise(attempt: Attempt, rival: Attempt | None = None) -> float:
    """Held-out metric, speed of learning and problems left, in one number; more is better.

    Metrics without bounds are taken relative to those of ``rival``, the untreated run.
    """
    if attempt.failed and not attempt.curve:
        return -math.inf
    score = attempt.score
    if not math.isfinite(score):
        return -math.inf
    if not _bounded(attempt):
        base = rival.score if rival is not None and math.isfinite(rival.score) else score
        score = float(np.clip((score - base) / (abs(base) + 1e-12), -1.0, 1.0))
    left = treatable(attempt.diagnoses)
    burden = sum(0.15 if found.severity == "error" else 0.05 for found in left[:1])
    broken = 0.5 if attempt.failed else 0.0
    return max(score, -1.0) + 0.4 * learnt(attempt) - burden - broken


def _bounded(attempt: Attempt) -> bool:
    return attempt.metric_name.endswith(("accuracy", "f1", "r2"))


def learnt(attempt: Attempt) -> float:
    """Share of the loss of a constant prediction that training has removed, between -1 and 1."""
    losses = attempt.history.series("loss").finite().values
    if not len(losses):
        return 0.0
    baseline = attempt.history.series("baseline_loss").finite().values
    reference = (
        float(np.median(baseline))
        if len(baseline)
        else float(attempt.history.facts.get("initial_loss_reference") or losses[0])
    )
    if reference <= 0 or not math.isfinite(reference):
        return 0.0
    # A loss that jumps about has low points, too: what counts is where it is most of the time.
    late = losses[-max(3, len(losses) // 4) :]
    now = float(np.mean(np.minimum(late, 2.0 * reference)))
    return float(np.clip(1.0 - now / reference, -1.0, 1.0))
