"""How promising an attempt is after a part of its steps."""

from __future__ import annotations

import math

import numpy as np

from akeso.history import History
from akeso.remedies.candidates import treatable
from akeso.treatment.program import Attempt

#: What decides where a script has shown nothing else yet.
TRAINED = "train_loss"
#: Orders of magnitude of an error that count as everything there is to gain.
_DECADES = 4.0
#: By how much a bounded metric may lie above that of a constant prediction by luck, and a loss below it.
_LUCK = 0.03
#: Share by which a loss may lie above that of a constant prediction before training has begun to tell.
_START = 0.2
#: Losses that are below zero only where they are given what they are not made for, such as probabilities in the place
#: of their logarithms.
_NEVER_NEGATIVE = frozenset(
    {
        "cross_entropy", "nll_loss", "ctc_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss",
        "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div",
    }
)  # fmt: skip
#: What is taken for zero: sums of many logarithms are not exact.
_ZERO = -1e-3
#: Remedies under which losses are of another measure.
_OTHER_MEASURE = ("substitute-loss", "scale-targets", "standardise-targets", "mean-reduction")


def promise(attempt: Attempt, rival: Attempt | None = None) -> float:
    """Held-out metric, speed of learning and problems left, in one number; more is better.

    Metrics without bounds are taken relative to those of ``rival``, the untreated run.
    """
    if attempt.failed and not attempt.curve:
        return -math.inf
    score = attempt.score
    if not math.isfinite(score):
        return -math.inf
    if not bounded(attempt):
        # A figure that is no loss means the same whatever the training goes by.
        alike = rival is None or not attempt.metric_name.endswith("_loss") or same_loss(attempt, rival)
        score = _relative(attempt, rival) if alike else 0.0
    believed = _believed(attempt, rival)
    if (
        attempt.chance is not None
        and bounded(attempt)
        and _not_begun(attempt.score - attempt.chance, believed)
    ):
        score, believed = attempt.chance, 0.0
    left = treatable(attempt.diagnoses)
    burden = sum(0.15 if found.severity == "error" else 0.05 for found in left[:1])
    broken = 0.5 if attempt.failed else 1.0 if breaks(attempt) else 0.0
    return max(score, -1.0) + 0.4 * believed - burden - broken


def _not_begun(gained: float, believed: float) -> bool:
    """Whether neither metric nor loss is beyond what a start or luck makes of them: none of those is ahead."""
    return gained <= _LUCK and -_START <= believed <= _LUCK


def same_loss(one: Attempt, other: Attempt) -> bool:
    """Whether figures that are a loss mean the same: of the same function, and of what that function is made for."""
    if any(attempt.metric_name.endswith("_loss") for attempt in (one, other)) and (
        impossible(one.history) != impossible(other.history)
    ):
        return False
    if TRAINED not in (one.metric_name, other.metric_name):
        return True
    if bool(one.prescription.of("scale-targets")) != bool(other.prescription.of("scale-targets")):
        return False
    return _function(one.history) == _function(other.history)


def same_measure(one: Attempt, other: Attempt) -> bool:
    """Whether the losses that two trainings go by are of the same function, each held against a constant prediction."""
    known = all(len(attempt.history.series("baseline_loss")) for attempt in (one, other))
    return known and _function(one.history) == _function(other.history)


def _function(history: History) -> tuple[object, object]:
    """The function that a training goes by; one that takes rates is another than one that takes their logarithms."""
    return history.facts.get("loss"), dict(history.facts.get("loss_args") or {}).get("log_input")


def impossible(history: History) -> bool:
    """Whether a loss lies where its function never comes to: it says nothing then, however low it is.

    One with other terms beside that function may lie anywhere.
    """
    alone = history.facts.get("loss") in _NEVER_NEGATIVE and "loss_terms" not in history.facts
    return alone and float(np.median(_late(history))) < _ZERO


def _late(history: History) -> np.ndarray:
    """The last quarter of the losses, zero where there are none."""
    losses = history.series("loss").finite().values
    return losses[-max(3, len(losses) // 4) :] if len(losses) else np.zeros(1)


def _believed(attempt: Attempt, rival: Attempt | None) -> float:
    """What training has learnt; nothing where its loss has no known yardstick and the metric shows nothing either."""
    if attempt.chance is not None and not len(attempt.history.series("baseline_loss")):
        sign = 1.0 if attempt.higher_is_better else -1.0
        if attempt.score <= sign * attempt.chance + _LUCK:
            return min(0.0, learnt(attempt, rival))
    return learnt(attempt, rival)


def breaks(attempt: Attempt) -> bool:
    """Whether values that are not finite have ended the training: what it shows is from before."""
    return any(
        found.problem == "non-finite" and found.severity == "error" and not found.evidence.get("recovered")
        for found in attempt.diagnoses
    )


def _relative(attempt: Attempt, rival: Attempt | None) -> float:
    """A metric without bounds as a number between -1 and 1: against a constant prediction or the untreated run."""
    constant = _constant_loss(attempt.history) if attempt.metric_name == "val_loss" else math.nan
    if math.isfinite(constant) and constant > 0:
        return float(np.clip(1.0 + attempt.score / constant, -1.0, 1.0))
    base = rival.score if rival is not None and math.isfinite(rival.score) else attempt.score
    if base < 0 and attempt.score < 0:  # errors may differ by orders of magnitude
        return float(np.clip(math.log10(base / attempt.score) / _DECADES, -1.0, 1.0))
    return float(np.clip((attempt.score - base) / (abs(base) + 1e-12), -1.0, 1.0))


def _constant_loss(history: History) -> float:
    """The validation loss of a constant prediction, as far as training shows it."""
    known = history.series("baseline_loss").finite().values
    scale = history.facts.get("val_scale", 1.0)
    return float(np.median(known)) / scale if len(known) and scale else math.nan


def bounded(attempt: Attempt) -> bool:
    """Whether the metric lies between zero and one where it means anything, as promises do."""
    return attempt.metric_name.endswith(("accuracy", "f1", "r2"))


def learnt(attempt: Attempt, rival: Attempt | None = None) -> float:
    """Share of the loss of a constant prediction that training has removed, between -1 and 1.

    Where that loss is not known, of the first loss: of the lower one of both where ``rival`` is another start of the
    same training, for a start that is worse has more to remove.
    """
    losses = attempt.history.series("loss").finite().values
    if not len(losses) or impossible(attempt.history):
        return 0.0
    baseline = attempt.history.series("baseline_loss").finite().values
    reference = (
        float(np.median(baseline))
        if len(baseline)
        else float(attempt.history.facts.get("initial_loss_reference") or _start(attempt, rival))
    )
    if reference <= 0 or not math.isfinite(reference):
        return 0.0
    # A loss that jumps about has low points, too: what counts is where it is most of the time.
    now = float(np.mean(np.minimum(_late(attempt.history), 2.0 * reference)))
    return float(np.clip(1.0 - now / reference, -1.0, 1.0))


def _start(attempt: Attempt, rival: Attempt | None) -> float:
    """The first loss; the lower of two where the other training has the same loss in the same measure."""
    own = float(attempt.history.series("loss").finite().values[0])
    if rival is None or any(attempt.prescription.of(name) for name in _OTHER_MEASURE):
        return own
    others = rival.history.series("loss").finite().values
    if not len(others):
        return own
    alike = attempt.history.facts.get("loss") == rival.history.facts.get("loss")
    return min(own, float(others[0])) if alike and others[0] > 0 else own
