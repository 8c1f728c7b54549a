"""Curves that BTTackler's code stops wrongly, protection of the best, and what findings lead to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from akeso.diagnosis import Diagnosis
from akeso.errors import BadInput
from akeso.search.curves import Curve, Knowledge, running_costs
from akeso.search.judge import Judge
from akeso.search.profiles import AKESO, BTTACKLER, search_profile
from akeso.search.verdict import CONTINUE, Verdict
from tests.search.synthetic import accuracy_study

EPOCHS = 20
t = np.arange(EPOCHS)


def power_law(noise: float, seed: int) -> np.ndarray:
    clean = 2.3 * (t + 1.0) ** -0.5
    return clean * (1 + np.random.default_rng(seed).normal(0, noise, EPOCHS))


HEALTHY = {
    "exponential": 2.3 * np.exp(-0.25 * t),
    "linear": 2.3 - 0.1 * t,
    "late learner": 2.3 - 1.8 / (1 + np.exp(-(t - 13.0))),
    **{f"power law, {n:.0%} noise, {s}": power_law(n, s) for n in (0.01, 0.05) for s in range(20)},
}


def diagnosis(problem: str, confidence: float = 0.95, severity: str = "error") -> Diagnosis:
    return Diagnosis(problem, severity, confidence, "net.0", 7, {"x": 1.0}, (), (), "It is so.")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_curves_are_never_stopped_in_a_young_study(name: str) -> None:
    judge = Judge(AKESO, Knowledge((), EPOCHS), maximize=False)
    for epoch in range(1, EPOCHS + 1):
        assert judge.of_curve(HEALTHY[name][:epoch]) == CONTINUE


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_curves_are_not_stopped_in_a_study_of_their_kind(name: str) -> None:
    """Finished trials that came to no better end: nothing is hopeless, whatever its shape on the way."""
    others = [HEALTHY[name] * scale for scale in np.linspace(1.0, 1.6, 12)]
    known = Knowledge([Curve(tuple(c.tolist()), full=True) for c in others], EPOCHS)
    judge = Judge(AKESO, known, maximize=False)
    assert all(judge.of_curve(HEALTHY[name][:epoch]).action != "stop" for epoch in range(1, EPOCHS + 1))


def known_accuracies(count: int = 40) -> Knowledge:
    study = accuracy_study(count, seed=1)
    return Knowledge(
        [
            Curve(tuple(running_costs(x.values, maximize=True, value_of="best").tolist()), full=True)
            for x in study.trials
        ],
        EPOCHS,
    )


def test_a_trial_at_chance_is_given_up_once_the_study_knows_better() -> None:
    judge = Judge(AKESO, known_accuracies(), maximize=True)
    curve = running_costs([0.1] * EPOCHS, maximize=True)
    epochs = [epoch for epoch in range(1, EPOCHS) if judge.of_curve(curve[:epoch]).action == "stop"]
    assert epochs
    verdict = judge.of_curve(curve[: epochs[0]])
    assert verdict.indicator == "forecast"
    assert f"its best quarter (from {verdict.evidence['goal']:.4g} on)" in verdict.sentence
    assert verdict.evidence["goal"] > 0.3  # values are shown as the user reports them, not as costs


def test_a_trial_that_has_not_moved_is_left_alone_for_a_while() -> None:
    """At chance like those that stayed there, and like one that learns late."""
    asleep = -np.full(EPOCHS, 0.1)
    patient = Judge(search_profile("akeso", late=0.5), known_accuracies(), maximize=True)
    hasty = Judge(search_profile("akeso", late=0.0), known_accuracies(), maximize=True)

    def ends(judge: Judge) -> int:
        return next(epoch for epoch in range(1, EPOCHS) if judge.of_curve(asleep[:epoch]))

    assert ends(hasty) < 10 <= ends(patient)
    moving = -np.linspace(0.1, 0.14, EPOCHS)  # never more than a little
    assert any(patient.of_curve(moving[:epoch]) for epoch in range(1, EPOCHS))


def test_given_up_trials_count_where_they_would_have_ended() -> None:
    """A lucky start: the first four are the best of the study, and all others are given up for not being like them."""
    rise = 1 - np.exp(-0.3 * (np.arange(EPOCHS) + 1.0))

    def curve(end: float, epochs: int = EPOCHS) -> Curve:
        whole = epochs == EPOCHS
        return Curve(tuple((-end * rise[:epochs]).tolist()), full=whole, stopped=not whole)

    lucky = [curve(end) for end in (0.90, 0.91, 0.92, 0.93)]
    middling = [curve(end, epochs=8) for end in np.linspace(0.5, 0.85, 36)]
    judge = Judge(AKESO, Knowledge(lucky + middling, EPOCHS), maximize=True)
    assert judge.forecast is not None
    # Of forty trials the best quarter begins at about the tenth, not at the worst of those that were finished.
    assert -0.85 < judge.forecast.goal < -0.6
    assert judge.forecast.goal > Knowledge(lucky, EPOCHS).edge(0.25, 0.01)


def test_a_trial_among_the_best_is_protected() -> None:
    judge = Judge(AKESO, known_accuracies(), maximize=True)
    best = running_costs([0.3, 0.6, 0.79], maximize=True)
    assert judge.of_curve(best) == CONTINUE
    assert judge.of_findings([diagnosis("dying-relu")], best, epoch=2) == CONTINUE
    broken = judge.of_findings([diagnosis("non-finite")], best, epoch=2)
    assert broken.action == "finish"  # it cannot go on, but what it had reached is kept
    lost = running_costs([0.3, 0.6, 0.79, math.nan], maximize=True)
    assert judge.of_curve(lost).action == "finish"


def test_a_value_that_is_not_finite_stops_an_ordinary_trial() -> None:
    judge = Judge(AKESO, Knowledge((), EPOCHS), maximize=True)
    verdict = judge.of_curve(running_costs([0.2, math.nan], maximize=True))
    assert (verdict.action, verdict.problem, verdict.epoch) == ("stop", "non-finite", 1)


def test_only_sure_and_serious_findings_of_the_profile_end_a_trial() -> None:
    judge = Judge(AKESO, Knowledge((), EPOCHS), maximize=True)
    none = np.empty(0)
    assert judge.of_findings([diagnosis("dying-relu", 0.3)], none, epoch=0) == CONTINUE
    assert judge.of_findings([diagnosis("overfitting")], none, epoch=0) == CONTINUE
    assert judge.of_findings([diagnosis("parameters-not-trained")], none, epoch=0) == CONTINUE
    assert judge.of_findings([diagnosis("non-finite", severity="info")], none, epoch=0) == CONTINUE
    verdict = judge.of_findings([diagnosis("overfitting"), diagnosis("non-finite")], none, epoch=0)
    assert (verdict.problem, verdict.layer, verdict.step) == ("non-finite", "net.0", 7)


def test_no_more_gain_keeps_the_value_and_needs_a_gain_before() -> None:
    judge = Judge(AKESO, Knowledge((), EPOCHS), maximize=True)
    risen = [
        0.1,
        0.3,
        0.5,
        0.6,
        0.65,
        0.66,
        0.655,
        0.65,
        0.654,
        0.656,
        0.653,
        0.651,
        0.655,
        0.652,
        0.653,
        0.654,
    ]
    verdict = judge.of_curve(running_costs(risen, maximize=True))
    assert (verdict.action, verdict.problem) == ("finish", "no-more-gain")
    flat = [0.1, 0.101, 0.1, 0.099, 0.1, 0.1, 0.101, 0.1, 0.1, 0.099, 0.1, 0.1, 0.1, 0.1]
    assert judge.of_curve(running_costs(flat, maximize=True)) == CONTINUE


def test_a_trial_that_may_become_the_best_goes_on_while_it_gains() -> None:
    """It was ended early before, for the finished trials had gained no more from where it stood."""
    flat = [Curve(tuple([0.9 - 0.05 * i] * EPOCHS), full=True) for i in range(8)]
    judge = Judge(AKESO, Knowledge(flat, EPOCHS), maximize=False)
    rising = np.linspace(1.0, 0.3, EPOCHS)
    assert all(judge.of_curve(rising[:epoch]).action != "finish" for epoch in range(1, EPOCHS + 1))
    settled = np.r_[np.linspace(1.0, 0.5, 6), np.full(14, 0.5)]
    ends = [epoch for epoch in range(1, EPOCHS) if judge.of_curve(settled[:epoch]).action == "finish"]
    assert ends
    assert ends[0] > 6


@pytest.mark.parametrize("seed", range(5))
def test_a_good_trial_of_a_study_with_many_at_chance_is_not_ended_for_a_small_gain(seed: int) -> None:
    """Measured by the distance from best to chance, all that is left for it to gain is a sliver."""
    draw = np.random.default_rng(seed)

    def falling(to: float) -> np.ndarray:
        return np.asarray(np.minimum.accumulate(to + 0.3 / (t + 1) + draw.normal(0, 0.01, EPOCHS)))

    chance = [Curve(tuple([0.9 + 0.001 * i] * EPOCHS), full=True) for i in range(9)]
    good = [Curve(tuple(falling(to).tolist()), full=True) for to in (0.03, 0.1)]
    judge = Judge(AKESO, Knowledge([*chance, *good], EPOCHS), maximize=False)
    between = falling(0.06)
    assert all(judge.of_curve(between[:epoch]) == CONTINUE for epoch in range(1, EPOCHS - 1))


def test_two_finished_trials_say_something_of_a_third() -> None:
    good = [Curve(tuple((a + 1 / (t + 1)).tolist()), full=True) for a in (0.1, 0.12)]
    judge = Judge(AKESO, Knowledge(good, EPOCHS), maximize=False)
    assert judge.of_curve(0.11 + 1 / (t[:8] + 1)).action != "stop"
    bad = np.linspace(3.0, 2.0, EPOCHS)
    assert any(judge.of_curve(bad[:epoch]).action == "stop" for epoch in range(1, EPOCHS))


def test_of_trials_that_stand_still_the_study_sees_one_to_its_end_before_it_gives_up_others() -> None:
    good = [Curve(tuple((a + 1 / (t + 1)).tolist()), full=True) for a in (0.1, 0.12, 0.3, 0.2)]
    still = np.full(EPOCHS, 2.0)

    def stops(*others: Curve) -> bool:
        judge = Judge(AKESO, Knowledge([*good, *others], EPOCHS), maximize=False)
        return any(judge.of_curve(still[:epoch]).action == "stop" for epoch in range(1, EPOCHS))

    seen = Curve(tuple(still + 0.01), full=True)
    assert not stops()
    assert stops(seen)
    # Now and then another one is let through, lest a late learner is never seen.
    given_up = [Curve((2.0,) * 5, full=False, stopped=True)] * 30
    assert not stops(seen, *given_up)


def test_a_trial_that_wakes_up_is_not_given_up_while_it_falls() -> None:
    good = [Curve(tuple((a + 1 / (t + 1)).tolist()), full=True) for a in (0.1, 0.15, 0.2, 0.4)]
    judge = Judge(AKESO, Knowledge([*good, Curve((2.3,) * EPOCHS, full=True)], EPOCHS), maximize=False)
    late = np.r_[np.full(4, 2.3), 0.1 + 2.2 * np.exp(-np.arange(1, EPOCHS - 3) / 1.5)]
    assert all(judge.of_curve(late[:epoch]).action != "stop" for epoch in range(5, EPOCHS))


def test_one_bad_report_gives_no_trial_up_and_ends_none_early() -> None:
    curves = [Curve(tuple((a + 2 * 0.7**t).tolist()), full=True) for a in (0.1, 0.2, 0.3, 0.4, 0.5, 0.9)]
    judge = Judge(AKESO, Knowledge(curves, EPOCHS), maximize=False)
    fine = 0.12 + 2 * 0.7**t
    for epoch in range(3, EPOCHS):
        spiked = np.append(fine[: epoch - 1], 3 * fine[epoch - 1])
        assert judge.of_curve(spiked).action == "continue"


def test_a_forecast_stays_within_what_was_seen() -> None:
    curves = [Curve(tuple((a + 2 * 0.7**t).tolist()), full=True) for a in (0.1, 0.2, 0.3, 0.4, 0.5, 0.9)]
    forecast = Judge(AKESO, Knowledge(curves, EPOCHS), maximize=False).forecast
    assert forecast is not None
    for strange in (np.r_[np.full(6, 2.3), 0.6], np.r_[0.5, 5.0], np.r_[2.0, 0.1, 4.0]):
        assert forecast.outlook(strange).likely <= max(0.95, strange[-1] + 1e-9)


def test_bttackler_stops_for_its_indicators_and_finishes_for_no_more_gain() -> None:
    judge = Judge(BTTACKLER, Knowledge((), EPOCHS), maximize=True)
    none = np.empty(0)
    assert judge.of_findings([diagnosis("oscillating-loss", 0.5)], none, epoch=11).action == "stop"
    benign = diagnosis("no-more-gain", 0.5, "info")
    assert judge.of_findings([benign], none, epoch=11).action == "finish"
    assert judge.forecast is None


def test_profiles_can_be_changed_and_are_checked() -> None:
    strict = search_profile("akeso", false_stops=0.01)
    assert strict.false_stops == 0.01
    assert strict.digest != AKESO.digest
    with pytest.raises(BadInput, match="no search profile 'nni'"):
        search_profile("nni")
    with pytest.raises(BadInput, match="false_stops"):
        search_profile("akeso", false_stops=2.0)
    with pytest.raises(BadInput, match="a name or a SearchProfile"):
        search_profile(3)  # type: ignore[arg-type]


def test_verdicts_are_small_json() -> None:
    import json

    evidence = {
        "a": np.float64(1.5),
        "b": math.nan,
        "c": list(range(100)),
        "d": "x" * 900,
        "e": [math.inf, 1],
    }
    text = json.dumps(Verdict("stop", "x", evidence=evidence).to_dict(), allow_nan=False)
    assert len(text) < 600
    assert not CONTINUE
