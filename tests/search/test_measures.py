"""Top10HR and TSBA against hand-worked cases, and their intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from akeso.errors import BadInput
from akeso.search.measures import (
    Result,
    average_best,
    average_time_saved,
    bootstrap,
    mean_interval,
    time_of_best,
    time_saved,
    time_to_reach,
    top_hit_ratio,
    tsba,
    tsba_interval,
)

values = st.lists(st.floats(-5, 5, allow_nan=False), min_size=0, max_size=25)


def results(numbers: list[float]) -> list[Result]:
    return [Result(float(i), v) for i, v in enumerate(numbers)]


def test_hit_ratio_counts_the_ten_best_of_both() -> None:
    ours = results([0.9] * 7 + [0.1] * 20)
    theirs = results([0.8] * 3 + [0.2] * 20)
    assert top_hit_ratio(ours, theirs, maximize=True) == pytest.approx(0.7)
    # Minimised, the ten best are all among our twenty trials at 0.1.
    assert top_hit_ratio(ours, theirs, maximize=False) == 1.0


@given(values, values, st.booleans())
def test_hit_ratios_of_both_sides_add_up_to_one(a: list[float], b: list[float], maximize: bool) -> None:
    ours = top_hit_ratio(results(a), results(b), maximize=maximize)
    theirs = top_hit_ratio(results(b), results(a), maximize=maximize)
    assert 0 <= ours <= 1
    assert ours + theirs == pytest.approx(1.0)


def test_ties_at_the_edge_are_shared_and_values_that_are_not_finite_do_not_count() -> None:
    assert top_hit_ratio(results([1.0] * 30), results([1.0] * 10), maximize=True) == pytest.approx(0.75)
    broken = [Result(0.0, math.nan), Result(1.0, math.inf)]
    assert top_hit_ratio(broken, results([0.1]), maximize=True) == 0.0
    assert top_hit_ratio([], [], maximize=True) == 0.5
    with pytest.raises(BadInput, match="top must be at least 1"):
        top_hit_ratio([], [], maximize=True, top=0)


def test_time_of_best_is_the_first_moment_of_the_best_value() -> None:
    search = [Result(3.0, 0.5), Result(1.0, 0.4), Result(2.0, 0.5)]
    assert time_of_best(search, maximize=True) == (2.0, 0.5)
    assert time_of_best(search, maximize=False) == (1.0, 0.4)
    assert time_of_best([Result(1.0, math.nan)], maximize=True) is None


def test_time_saved_compares_the_moments_at_which_the_baselines_best_was_reached() -> None:
    baseline = [Result(10.0, 0.7), Result(20.0, 0.8), Result(30.0, 0.75)]
    method = [Result(4.0, 0.7), Result(9.0, 0.81)]
    assert time_to_reach(method, 0.8, maximize=True) == 9.0
    assert time_saved(method, baseline, maximize=True, horizon=60.0) == (20.0, 9.0)
    never = [Result(4.0, 0.7)]
    assert time_saved(never, baseline, maximize=True, horizon=60.0) == (20.0, 60.0)
    assert time_saved(method, [], maximize=True, horizon=60.0) is None


def test_tsba_is_the_saving_in_total_time() -> None:
    assert tsba([(4.64, 3.89)]) == pytest.approx(0.1616, abs=1e-3)
    # A lucky baseline whose first trial was its best must not outweigh the long repeat.
    assert tsba([(1.0, 2.0), (99.0, 48.0)]) == pytest.approx(0.5)
    assert math.isnan(tsba([]))


def test_intervals_hold_the_mean_and_shrink_with_repeats() -> None:
    draw = np.random.default_rng(0)
    few, many = draw.normal(0.5, 0.1, 5).tolist(), draw.normal(0.5, 0.1, 200).tolist()
    wide, narrow = mean_interval(few), mean_interval(many)
    assert wide.low <= wide.mean <= wide.high
    assert narrow.high - narrow.low < wide.high - wide.low
    assert "%" in str(narrow)
    saved = tsba_interval([(10.0, 5.0 + i % 3) for i in range(30)])
    assert saved.low < saved.mean < saved.high
    assert mean_interval(many) == mean_interval(many)
    assert math.isnan(mean_interval([]).mean)
    with pytest.raises(BadInput, match="level"):
        bootstrap([1.0], lambda xs: 0.0, level=1.5)


def test_ninety_five_percent_intervals_cover_about_that_often() -> None:
    draw = np.random.default_rng(1)
    inside = 0
    for seed in range(60):
        found = mean_interval(draw.normal(0.3, 0.2, 40).tolist(), seed=seed)
        inside += found.low <= 0.3 <= found.high
    assert 50 <= inside <= 60


def at_random(seed: int, *, pace: float = 1.0, trials: int = 60) -> list[Result]:
    draw = np.random.default_rng(seed)
    return [Result((i + 1) / pace, float(v)) for i, v in enumerate(draw.normal(size=int(trials * pace)))]


def test_averages_of_searches_that_share_nothing_have_a_zero_and_a_scale() -> None:
    plain = [at_random(seed) for seed in range(300)]

    def saved(pace: float) -> float:
        ours = [at_random(1_000 + seed, pace=pace, trials=120) for seed in range(300)]
        pairs = list(zip(ours, plain, strict=True))
        times = average_time_saved(pairs, maximize=True, budget=60.0, horizon=120.0)
        assert times is not None
        return tsba([times])

    assert abs(saved(1.0)) < 0.15
    assert saved(3.0) == pytest.approx(2 / 3, abs=0.06)
    single = [
        time_saved(at_random(1_000 + seed, trials=120), one, maximize=True, horizon=120.0)
        for seed, one in enumerate(plain)
    ]
    assert tsba([times for times in single if times is not None]) < -0.5  # pair by pair there is no such zero


@given(values, values, st.booleans())
def test_time_saved_on_average_is_turned_around_with_the_values(
    a: list[float], b: list[float], maximize: bool
) -> None:
    ours, theirs = results(a), results(b)
    mirrored = [[Result(r.seconds, -r.value) for r in one] for one in (ours, theirs)]
    known = average_time_saved([(ours, theirs)], maximize=maximize, budget=30.0, horizon=60.0)
    again = average_time_saved([(mirrored[0], mirrored[1])], maximize=not maximize, budget=30.0, horizon=60.0)
    assert known == again
    assert (known is None) == (not theirs)
    if theirs:
        assert (
            average_time_saved([(theirs, theirs)], maximize=maximize, budget=30.0, horizon=60.0) is not None
        )


def test_a_method_that_never_gets_there_is_counted_at_the_horizon() -> None:
    pairs = [(results([0.1]), results([0.2, 0.5])), ([], results([0.3, 0.6]))]
    assert average_time_saved(pairs, maximize=True, budget=10.0, horizon=20.0) == (1.0, 20.0)
    assert np.isnan(average_best([[], []], np.array([1.0]), maximize=True)).all()
