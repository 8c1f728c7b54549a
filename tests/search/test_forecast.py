"""The forecast and its calibrated bound on false stops, on simulated studies."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from akeso.errors import BadInput
from akeso.search.curves import Curve, Knowledge, jitter, overtaken, running_costs, stalled
from akeso.search.forecast import Forecast
from akeso.search.profiles import AKESO, search_profile
from akeso.search.recorded import RecordedStudy
from akeso.search.rules import ProfileRule
from akeso.search.simulation import in_order, simulate
from akeso.search.tally import goal_of, is_wrong
from akeso.search.traits import Traits
from tests.search.synthetic import accuracy_study, crossing_study, loss_study


def knowledge(study: RecordedStudy, count: int) -> Knowledge:
    curves = [
        Curve(tuple(running_costs(t.values, maximize=study.maximize, value_of="best").tolist()), full=True)
        for t in study.trials[:count]
    ]
    return Knowledge(curves, study.epochs)


def test_running_costs_turn_what_is_not_finite_into_infinity() -> None:
    costs = running_costs([0.3, math.nan, 0.5], maximize=True)
    assert costs.tolist() == [-0.3, math.inf, -0.5]
    assert running_costs([3.0, 1.0, 2.0], maximize=False, value_of="best").tolist() == [3.0, 1.0, 1.0]
    assert running_costs([], maximize=True, value_of="best").tolist() == []


def test_knowledge_keeps_whole_curves_as_models_and_every_end_for_the_threshold() -> None:
    known = Knowledge(
        [
            Curve((3.0, 2.0, 1.0), full=True),
            Curve((3.0, 2.5), full=False),
            Curve((9.0,), full=False, stopped=True),
            Curve((3.0, math.inf, 1.0), full=True),
        ],
        epochs=3,
    )
    assert len(known) == 1
    assert known.ended == 4
    assert known.edge(0.25, 0.5) == 1.0
    assert known.edge(0.25, 0.01) == 2.5
    assert known.core(0.25, 0.01) == -math.inf
    assert known.best(3) == 2.5
    assert math.isinf(known.best(4))
    with pytest.raises(BadInput, match="epochs must be at least 1"):
        Knowledge([], epochs=0)


def test_the_edge_of_the_best_quarter_is_drawn_as_far_out_as_a_young_study_needs() -> None:
    """For any costs: a new trial of the best quarter ends beyond the edge no more often than asked."""
    draw = np.random.default_rng(0)
    for count in (2, 5, 12, 40):
        beyond = inside = 0
        for _ in range(2000):
            ranks = draw.random(count + 1)
            known = Knowledge([Curve((float(r),), full=True) for r in ranks[1:]], epochs=1)
            beyond += ranks[0] <= 0.25 and ranks[0] > known.edge(0.25, 0.02)
            inside += ranks[0] > 0.25 and ranks[0] <= known.core(0.25, 0.02)
        assert beyond <= 40 + 3 * math.sqrt(40)
        assert inside <= 40 + 3 * math.sqrt(40)
    assert 0.25 < Knowledge([Curve((i / 400,), full=True) for i in range(400)], 1).edge(0.25, 0.005) < 0.3


def test_forecasts_come_closer_as_a_trial_goes_on() -> None:
    study = accuracy_study(120, seed=3)
    forecast = Forecast(knowledge(study, 80))
    errors = []
    for t in (1, 5, 12):
        misses = []
        for trial in study.trials[80:]:
            costs = running_costs(trial.values, maximize=True, value_of="best")
            misses.append(abs(forecast.outlook(costs[: t + 1]).likely - costs[-1]))
        errors.append(float(np.mean(misses)))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.02


def test_a_bad_trial_lies_further_beyond_than_a_good_one() -> None:
    study = accuracy_study(80, seed=4)
    forecast = Forecast(knowledge(study, 60))
    good = forecast.outlook(-np.array([0.4, 0.55, 0.65]))
    bad = forecast.outlook(-np.array([0.1, 0.1, 0.1]))
    assert bad.chance < 0.01 < 0.5 < good.chance
    assert bad.likely > good.likely
    assert good.optimistic < good.likely


def test_chances_come_true() -> None:
    """Of trials that are given some chance to belong to the best quarter, about that share does."""
    draw = np.random.default_rng(0)
    foreseen, happened = [], []
    for _ in range(150):
        ends = draw.normal(0.0, 1.0, 41)
        curves = [(float(end + draw.normal(0.0, 0.7)), float(end)) for end in ends]
        known = Knowledge([Curve(costs, full=True) for costs in curves[:40]], epochs=2)
        # That many more come before the study is over: the best quarter is of all of them.
        goal = np.quantile(np.append(ends, draw.normal(0.0, 1.0, 2000)), 0.25)
        foreseen.append(Forecast(known).outlook(np.array(curves[40][:1])).chance)
        happened.append(float(ends[40] <= goal))
    order = np.argsort(foreseen)
    for part in np.array_split(order, 3):
        wanted, seen = np.mean(np.array(foreseen)[part]), np.mean(np.array(happened)[part])
        assert abs(wanted - seen) <= 0.03 + 2.5 * math.sqrt(max(wanted * (1 - wanted), 0.01) / len(part))


def test_wrong_rates_are_refused() -> None:
    with pytest.raises(BadInput, match="between 0 and 1"):
        Forecast(knowledge(accuracy_study(5, 0), 5), rate=0.0)


STUDIES = {
    "accuracies with late learners": accuracy_study,
    "few epochs": partial(accuracy_study, epochs=6),
    "much noise": partial(accuracy_study, noise=0.04),
    "losses with heavy tails": loss_study,
    "crossing curves": crossing_study,
}


@pytest.mark.parametrize("name", STUDIES)
def test_false_stops_stay_under_the_bound_in_simulated_studies(name: str) -> None:
    """The stated guarantee: trials of the best quarter are given up at no more than the rate asked for."""
    ended = wrong = stopped = lost = 0
    for seed in range(3):
        study = STUDIES[name](90, seed)
        goal = goal_of(study)
        order = np.random.default_rng(seed).permutation(90).tolist()
        for one in simulate(study, ProfileRule(AKESO), in_order(order)).ended:
            false = is_wrong(one, goal, study.maximize)
            ended += 1
            stopped += one.verdict.action == "stop"
            wrong += false and one.verdict.action == "stop"
            lost += false
    assert wrong <= 0.02 * ended + 2 * math.sqrt(0.02 * ended), f"{wrong} of {ended} were given up wrongly"
    assert lost <= 0.04 * ended  # with those that ended early with a value just outside the best quarter
    assert stopped > 0.2 * ended  # the bound is not kept by stopping nothing


def test_what_is_maximised_is_judged_as_its_negative_minimised() -> None:
    up, down = (
        simulate(crossing_study(40, 0, maximize=maximize), ProfileRule(AKESO), in_order(range(40)))
        for maximize in (True, False)
    )
    assert [(e.verdict.action, e.epochs) for e in up.ended] == [
        (e.verdict.action, e.epochs) for e in down.ended
    ]
    assert any(e.verdict.action == "stop" for e in up.ended)


def test_a_stricter_rate_stops_less() -> None:
    study = accuracy_study(90, seed=11)
    counts = []
    for rate in (0.2, 0.02):
        profile = search_profile("akeso", false_stops=rate, patience=None, sliver=None)
        search = simulate(study, ProfileRule(profile), in_order(range(90)))
        counts.append(sum(one.spent for one in search.ended))
    assert counts[0] <= counts[1]


def test_trials_that_ran_under_a_threshold_do_not_lower_it() -> None:
    study = accuracy_study(120, seed=5)
    curves = [
        Curve(tuple(running_costs(t.values, maximize=True, value_of="best").tolist()), True, guarded=i >= 60)
        for i, t in enumerate(study.trials)
    ]
    free = [Curve(c.costs, True) for c in curves]
    guarded = Forecast(Knowledge(curves, 20), rate=0.05).least
    assert guarded <= Forecast(Knowledge(free, 20), rate=0.05).least


def test_the_floor_is_undercut_no_more_often_than_asked() -> None:
    study = accuracy_study(200, seed=6)
    forecast = Forecast(knowledge(study, 100))
    undercut = 0
    for trial in study.trials[100:]:
        costs = running_costs(trial.values, maximize=True, value_of="best")
        undercut += any(costs[-1] < forecast.floor(costs[:t], rate=0.1) for t in range(1, 20, 3))
    assert undercut <= 20


def test_stalling_and_jitter() -> None:
    assert stalled(np.array([5.0, 1.0, 2.0, 2.0, 2.0]), 3, 0.0)
    assert not stalled(np.array([5.0, 4.0, 3.0, 2.0, 1.0]), 3, 0.0)
    assert not stalled(np.array([1.0, 2.0]), 3, 0.0)
    assert jitter(np.linspace(1, 0, 20)) == pytest.approx(0.0, abs=1e-12)
    noise = np.random.default_rng(0).normal(0, 0.1, 400)
    assert jitter(noise) == pytest.approx(0.1, rel=0.2)


def test_a_trial_overtakes_parts_of_others_where_ends_are_few() -> None:
    ends = np.array([0.1, 0.2, 0.3, 0.5, math.inf])
    assert overtaken(ends, 0.5, 0.1) == pytest.approx(3 / 6)
    assert overtaken(ends, 0.4, 0.3) == pytest.approx(0.5 / 6)
    assert overtaken(ends, 0.1, 0.05) == pytest.approx(0.5 / 6), "as densely as the best ones end"
    assert overtaken(ends, 0.2, 0.2) == overtaken(ends, 0.2, 0.3) == 0
    assert overtaken(np.array([0.1, math.inf]), 0.2, 0.1) == 1, "one end says nothing"
    assert overtaken(np.array([0.0, 0.0, 0.2, 0.4]), 0.0, -0.05) == pytest.approx(0.5 / 5), (
        "two that are equal"
    )
    assert overtaken(np.zeros(4), 0.0, -0.01) == 0, "all reach the same: there is nothing beyond"


def test_a_trial_that_settled_counts_with_the_end_foreseen_for_it_and_not_after_its_last_epoch() -> None:
    """Taken as if it had gained nothing more, it would teach that nobody does, and ever more would settle."""
    epochs = 20
    t = np.arange(epochs)
    falling = [Curve(tuple((a + 1 / (t + 1)).tolist()), full=True) for a in (0.1, 0.2, 0.3, 0.4)]
    end = 0.2 + 1 / epochs
    settled = replace(falling[1], costs=falling[1].costs[:5], full=False, settled=True, expected=end)
    known = Knowledge([*falling, *[settled] * 6], epochs)
    assert known.seen.tolist() == [epochs] * 4 + [5] * 6
    assert known.curves[-1, 4:-1] == pytest.approx(falling[1].costs[4])
    assert known.curves[-1, -1] == pytest.approx(end)
    alone, both = Forecast(Knowledge(falling, epochs)), Forecast(known)
    for done in (3, 8):
        curve = 0.25 + 1 / (t[:done] + 1)
        assert both.outlook(curve).likely == pytest.approx(alone.outlook(curve).likely, abs=0.02)


def test_no_end_is_foreseen_that_is_worse_than_anything_seen() -> None:
    draw = np.random.default_rng(3)
    wild = []
    for _ in range(30):
        rate = draw.uniform()
        start, end = draw.uniform(2.0, 2.4), 0.2 + 2.0 * rate**2 + (1e4 if rate > 0.95 else 0.0)
        costs = end + (start - end) * np.exp(-np.arange(16) / 4)
        losses = tuple((costs * draw.uniform(0.9, 1.1, 16)).tolist())
        wild.append(Curve(tuple(costs.tolist()), full=True, traits=Traits({"rate": rate}, losses)))
    forecast = Forecast(Knowledge(wild, epochs=16))
    worst = max(curve.final for curve in wild)
    for rate in np.linspace(0, 1, 30):
        for stands in (1.0, 2.3, 2.5):
            traits = Traits({"rate": float(rate)}, (3.0 * stands,))
            likely = forecast.outlook(np.array([stands]), traits).likely
            assert likely <= max(stands, worst) * (1 + 1e-9)
