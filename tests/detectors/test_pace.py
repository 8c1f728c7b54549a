"""How fast a training gets on: steps too long, too short or spent, runs that end too soon."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from akeso.detectors.progress import SlowConvergence
from akeso.detectors.standing import standing
from akeso.detectors.testing import Sketch, falling, flat
from akeso.examination import examine
from akeso.history import History
from tests.detectors.sketches import CHANCE, REGRESSION, first, values


def test_a_rate_that_has_decayed_to_nothing_shows_in_validation_that_repeats_itself():
    sketch = Sketch(
        loss=flat(2.1),
        noise=0.02,
        accuracy=flat(0.2),
        validation=flat(2.1),
        update=lambda i: 0.01,
        rate=lambda share: 0.1 * np.exp(-60 * share),
        run={"batch_size": 32.0},
    )
    assert first(sketch) == "learning-rate-too-low"

    def said(samples: int) -> str:
        known = replace(sketch, facts={**sketch.facts, "dataset_size": samples})
        return examine(known.history()).diagnoses[0].sentence

    assert "stepped with every batch" in said(32 * 30)
    assert "stepped with every batch" not in said(32 * 2)


def test_where_nothing_moves_any_more_a_high_loss_is_enough_whatever_the_accuracy():
    curves = {"loss": flat(2.1), "noise": 0.02, "accuracy": flat(0.7), "validation": flat(2.1)}
    gone = Sketch(**curves, update=lambda i: 0.01, rate=lambda share: 0.1 * np.exp(-60 * share))
    assert first(gone) == "learning-rate-too-low"
    kept = Sketch(**curves, update=lambda i: 0.01)
    assert first(kept) != "learning-rate-too-low"


def test_a_loss_with_the_wrong_sign_is_no_good_loss():
    sketch = Sketch(loss=falling(-2.3, -90.0), baseline=math.nan, accuracy=flat(0.02))
    assert first(sketch) == "improper-loss"
    # What becomes negative on the way has other terms beside it.
    mixed = Sketch(loss=falling(0.5, -0.02), baseline=0.27, accuracy=None, facts=REGRESSION)
    assert first(mixed) != "improper-loss"


def test_weights_that_rest_are_the_fault_of_the_rate_only_where_it_is_gone() -> None:
    stuck = Sketch(loss=flat(2.3), accuracy=flat(0.1), validation=flat(2.31), facts={"activations": {}})
    found = {d.problem: d.sentence for d in examine(stuck.history()).diagnoses}
    assert "learning-rate-too-low" not in found
    gone = Sketch(**{**CHANCE, "validation": flat(2.31)}, rate=lambda share: 0.1 * np.exp(-60 * share))
    assert "learning-rate-too-low" in {d.problem for d in examine(gone.history()).diagnoses}


@pytest.mark.parametrize(("pace", "named"), [(8.0, True), (60.0, False)])
def test_a_loss_thrown_up_at_the_start_is_forgotten_unless_coming_down_took_most_of_the_run(
    pace: float, named: bool
) -> None:
    def thrown(share: np.ndarray) -> np.ndarray:
        return np.where(share < 0.01, 2.3, 2.1 - 0.9 * share + 300.0 * np.exp(-pace * share))

    wild = Sketch(loss=thrown, accuracy=lambda s: 0.1 + 0.3 * s, update=lambda i: 0.3)
    assert ("learning-rate-too-high" in {d.problem for d in examine(wild.history()).diagnoses}) == named


def test_what_was_learnt_and_lost_again_is_the_fault_of_the_steps() -> None:
    up = Sketch(loss=lambda s: 0.5 + 4.0 * np.maximum(0.0, s - 0.2), accuracy=flat(0.5))
    assert first(up) == "learning-rate-too-high"
    assert "was down at" in examine(up.history()).diagnoses[0].sentence
    # A little above its best is noise, and a leap within a step is another task.
    assert first(Sketch(loss=lambda s: 0.5 + 0.2 * s, accuracy=flat(0.8))) is None
    leap = Sketch(loss=lambda s: np.where(s < 0.5, 0.4, 1.4), accuracy=flat(0.6), noise=0.02)
    assert first(leap) != "learning-rate-too-high"


def test_a_rate_that_is_gone_early_needs_no_validation_to_be_seen() -> None:
    gone = Sketch(
        loss=lambda s: 2.0 + 0.3 * np.exp(-40 * s),
        accuracy=flat(0.25),
        update=lambda i: 1e-4,
        rate=lambda share: 0.1 * np.exp(-60 * share),
    )
    assert first(gone) == "learning-rate-too-low"


def test_accuracy_that_jumps_beyond_sampling_is_a_training_that_does_not_settle() -> None:
    def jumping(by: float):
        return lambda s: 0.85 + by * (-1.0) ** np.round(16 * s)

    well = {"loss": falling(2.3, 0.3), "accuracy": flat(0.9), "evaluations": 16, "facts": {"val_size": 1000}}
    wild = Sketch(**well, validation_accuracy=jumping(0.1))
    assert "oscillating-loss" in {d.problem for d in examine(wild.history()).diagnoses}
    calm = Sketch(**well, validation_accuracy=jumping(0.01))
    assert "oscillating-loss" not in {d.problem for d in examine(calm.history()).diagnoses}


def test_a_loss_summed_over_episodes_that_get_longer_is_no_loss_that_rises() -> None:
    grows = {"loss": lambda s: 15.0 + 200.0 * s, "noise": 0.2, "baseline": math.nan, "accuracy": None}
    steps = {"update": lambda i: 0.3, "run": {"batch_size": 4.0}}
    assert first(Sketch(**grows, **steps, facts=REGRESSION)) == "learning-rate-too-high"
    alike = {**REGRESSION, "loss_terms": 129, "loss_terms_least": 129}
    assert first(Sketch(**grows, **steps, facts=alike)) == "learning-rate-too-high"
    varied = {**REGRESSION, "loss_terms": 129, "loss_terms_least": 14}
    episodes = Sketch(**grows, **steps, facts=varied)
    assert first(episodes) is None
    assert any("sum of more terms" in line for line in examine(episodes.history()).not_checked)
    broken = {**grows, "loss": lambda s: np.where(s > 0.5, np.nan, 15.0)}
    assert first(Sketch(**broken, **steps, facts=varied)) == "non-finite"


def test_no_more_gain_does_not_say_its_name_twice() -> None:
    done = Sketch(loss=lambda s: np.maximum(0.05, 2.3 * np.exp(-20 * s)), noise=0.05).history()
    (remark,) = examine(done).diagnoses
    assert remark.problem == "no-more-gain"
    assert remark.sentence.startswith("The loss has not got better")


def test_a_slow_fall_that_batch_noise_hides_shows_in_validation() -> None:
    noisy = {**values(0.95, 1.0), "noise": 0.25, "update": lambda i: 2e-4, "evaluations": 16}
    creeps = Sketch(**noisy, validation=lambda s: 1.05 - 0.06 * s)
    assert first(creeps) == "slow-convergence"
    (found,) = examine(creeps.history()).diagnoses
    assert "too slowly: all of them together can change the weights by" in found.sentence
    above = replace(creeps, loss=flat(1.08), validation=lambda s: 1.12 - 0.06 * s)
    (found,) = examine(above.history()).diagnoses
    assert found.severity == "error"
    assert "falls too slowly" in found.sentence
    # Where it fell quickly and then stayed, there may be no more to learn.
    assert first(replace(creeps, validation=falling(1.05, 0.95, 12))) is None
    assert first(replace(creeps, validation=lambda s: 1.05 - 0.06 * s, update=lambda i: 0.01)) is None


def test_a_short_run_that_ends_while_its_loss_falls_as_fast_as_ever() -> None:
    whole = {"dataset_size": 1347}
    line = {
        "loss": lambda s: 2.32 - 0.6 * s,
        "noise": 0.001,
        "accuracy": lambda s: 0.12 + 0.3 * s,
        "steps": 25,
    }
    short = Sketch(
        **line, facts=whole, run={"batch_size": 1347.0}, evaluations=12, validation=lambda s: 2.32 - 0.6 * s
    )
    assert first(short) == "slow-convergence"
    assert "after only 25 steps" in examine(short.history()).diagnoses[0].sentence
    # It learns; it slows down; it tries out a few batches of many; it is under way; it is a handful of steps.
    assert first(replace(short, loss=lambda s: 2.32 - 1.9 * s)) is None
    assert first(replace(short, loss=falling(2.3, 1.8, 4.0))) is None
    assert first(replace(short, validation=falling(2.3, 1.9, 6.0))) is None
    assert first(replace(short, run={"batch_size": 32.0})) is None
    under_way = replace(short, steps=50).history().until(24)
    assert examine(under_way).status == "healthy"
    assert first(replace(short, steps=12)) is None
    # Something is added to what the loss function gives: of the two together there is no constant prediction.
    for added, named in ((0.0, True), (0.3, False)):
        mixed = short.history()
        for step in range(0, 25, 4):
            mixed.add(step, "loss_over_call", "", 1.0 + added * step / 25)
        assert bool(examine(mixed).diagnoses) == named


def test_far_beyond_a_constant_prediction_no_luck_in_accuracy_counts() -> None:
    blown = Sketch(
        layers=5,
        gradient=lambda i: 10.0 ** (9 - i),
        loss=falling(8e6, 2e6, 4.0),
        accuracy=lambda s: 0.1 + 3 * s,
    ).history()
    for share in (0.1, 0.2, 0.3):
        part = blown.until(int(share * blown.steps))
        assert standing(part).remaining > 1e3
        assert "exploding-gradient" in {d.problem for d in examine(part).diagnoses}
    # Ten times a constant's loss at first is how many a healthy run begins, and there accuracy does count.
    high = Sketch(loss=falling(23.0, 0.4)).history()
    assert standing(high.until(90)).remaining < 1.0


def test_a_run_that_is_over_while_validation_gets_better_as_fast_as_ever() -> None:
    slow = Sketch(
        loss=lambda s: 2.35 - 0.75 * s,
        accuracy=lambda s: 0.1 + 0.5 * s,
        validation=lambda s: 2.3 - 0.7 * s,
        update=lambda i: 1e-3,
        run={"batch_size": 32.0},
        facts={"dataset_size": 700},
        evaluations=20,
    )
    assert first(slow) == "slow-convergence"
    said = examine(slow.history()).diagnoses[0].sentence
    assert "ends too early" in said
    assert "still fell as fast as ever" in said
    # It slows down; its weights have moved far; it has learned; it went through its data once.
    assert first(replace(slow, validation=falling(2.3, 1.6))) is None
    assert first(replace(slow, update=lambda i: 0.01)) is None
    assert first(replace(slow, loss=lambda s: 2.35 - 2.2 * s, validation=lambda s: 2.3 - 2.1 * s)) is None
    assert first(replace(slow, facts={"dataset_size": 9600})) is None
    # Where nothing is validated, the loss that it trains with must be high at the end.
    unseen = replace(slow, validation=None, loss=lambda s: 2.35 - 0.4 * s, accuracy=lambda s: 0.1 + 0.4 * s)
    assert "ends too early" in examine(unseen.history()).diagnoses[0].sentence
    assert first(replace(unseen, loss=lambda s: 2.35 - 1.2 * s)) is None
    assert first(replace(unseen, loss=falling(2.35, 1.9))) is None


def test_few_steps_at_a_pace_that_leads_nowhere_need_not_fall_on_a_straight_line() -> None:
    creeps = Sketch(
        steps=50,
        loss=lambda s: 0.706 - 0.02 * s - 0.013 * (1 - np.exp(-6 * s)),
        noise=0.0001,
        accuracy=lambda s: 0.5 + 0.1 * s,
        baseline=0.693,
        update=lambda i: 6e-3,
        validation=lambda s: 0.705 - 0.02 * s - 0.012 * (1 - np.exp(-6 * s)),
        evaluations=25,
        run={"batch_size": 700.0, "target_top_share": 0.5},
        facts={"dataset_size": 700, "classes": 2, "task": "binary"},
    )
    assert first(creeps) == "slow-convergence"
    quick = {
        "loss": lambda s: 0.706 - 0.1 * s - 0.065 * (1 - np.exp(-6 * s)),
        "validation": lambda s: 0.705 - 0.1 * s - 0.06 * (1 - np.exp(-6 * s)),
    }
    assert first(replace(creeps, **quick)) is None


def test_a_rate_spent_in_the_first_part_of_the_run() -> None:
    def tenfold(share: np.ndarray) -> np.ndarray:
        return 1e-3 * 10.0 ** -np.floor(6 * share)

    stops = Sketch(
        loss=lambda s: 1.93 + 0.5 * np.exp(-20 * s), accuracy=flat(0.3), update=lambda i: 1.2e-3, rate=tenfold
    )
    assert first(stops) == "learning-rate-too-low"
    # The same curve under a rate that stays, or that falls as usual, is a hard task.
    assert first(replace(stops, rate=flat(1e-3))) is None
    assert first(replace(stops, rate=lambda s: 5e-4 * (1 + np.cos(np.pi * s)))) is None


def test_swings_far_above_start_and_constant_are_no_accident_of_small_batches() -> None:
    wild = Sketch(
        loss=lambda s: 11.0 - 8.0 * np.exp(-30 * s), noise=0.5, accuracy=flat(0.7), run={"batch_size": 4.0}
    )
    assert first(wild) == "oscillating-loss"
    assert first(replace(wild, loss=falling(2.3, 0.8))) is None


def _slow(sketch: Sketch) -> bool:
    return bool(list(SlowConvergence().detect(sketch.history())))


def test_coming_down_to_a_constant_prediction_is_no_progress_yet() -> None:
    def above(share: np.ndarray) -> np.ndarray:
        return 2.31 + 0.4 * np.exp(-8 * share)

    stuck = Sketch(**{**CHANCE, "loss": flat(2.32)}, validation=above, evaluations=20)
    assert _slow(stuck)
    assert not _slow(replace(stuck, validation=lambda share: 2.3 - 0.1 * share, update=lambda i: 0.01))


def test_values_worse_than_a_constant_in_validation_are_no_weak_prediction() -> None:
    weak = Sketch(**values(1.03, 1.0, output_sample_std=0.5), validation=flat(1.1), evaluations=20)
    assert not _slow(weak)
    assert _slow(replace(weak, validation=flat(2.0)))


def test_a_loss_with_a_policys_gain_in_it_is_not_judged_by_its_level() -> None:
    def swinging(low: float):
        return lambda s: 6.0 + (6.0 - low) * np.sin(97.0 * s)

    values = {"baseline": 2.0, "accuracy": None, "facts": REGRESSION, "update": lambda i: 0.05}
    factor = {"batch_size": 64.0, "loss_over_call": 1.0}
    assert first(Sketch(loss=swinging(0.5), **values, run=factor)) == "oscillating-loss"
    # A function that is never negative, times something, is not negative either, or always.
    added = {"batch_size": 64.0, "loss_over_call": lambda s: 1.0 + 0.05 * s}
    assert first(Sketch(loss=swinging(0.5), **values, run=added)) == "oscillating-loss"
    policy = Sketch(loss=swinging(-3.0), **values, run=added)
    assert first(policy) is None
    assert any("more than the function" in line for line in examine(policy.history()).not_checked)
    against = {"batch_size": 64.0, "loss_over_call": lambda s: 1.5 + np.sin(150.0 * s)}
    assert first(Sketch(loss=swinging(0.5), **values, run=against)) is None


def test_a_loss_around_zero_that_nothing_measures_does_not_swing() -> None:
    unknown = {"baseline": math.nan, "accuracy": None, "facts": {"loss": "custom"}, "update": lambda i: 0.02}
    assert first(Sketch(loss=lambda s: 5.0 * np.sin(97.0 * s), **unknown, run={"batch_size": 64.0})) is None
    high = examine(
        Sketch(loss=lambda s: 9.0 + 8.0 * np.sin(97.0 * s), **unknown, run={"batch_size": 64.0}).history()
    )
    (swings,) = [one for one in high.diagnoses if one.problem == "oscillating-loss"]
    assert "the first one" in swings.sentence


@pytest.mark.parametrize("seed", range(7))
def test_what_was_gained_is_not_hidden_by_a_few_lucky_batches_before(seed: int) -> None:
    falls = Sketch(
        steps=150, loss=lambda s: np.exp(-0.8 * s), noise=0.25, accuracy=None, baseline=1.0, seed=seed
    )
    assert "no-more-gain" not in [one.problem for one in examine(falls.history()).diagnoses]
    stays = replace(falls, loss=lambda s: np.maximum(np.exp(-3.0 * s), 0.4), noise=0.15)
    assert "no-more-gain" in [one.problem for one in examine(stays.history()).diagnoses]


def test_targets_that_a_model_makes_for_itself_are_no_measure() -> None:
    def run(mean):
        signals = {"target_mean": mean, "target_std": 2.0, "batch_size": 64.0}
        return Sketch(loss=flat(3.0), baseline=1.0, accuracy=None, facts=REGRESSION, run=signals)

    assert first(run(0.0)) is not None
    assert first(run(lambda s: np.sin(40.0 * s))) is not None
    grow = run(lambda s: 1.0 + 30.0 * s)
    assert first(grow) is None
    assert any("targets move" in line for line in examine(grow.history()).not_checked)


@pytest.mark.parametrize("grown", [True, False])
def test_a_run_that_is_over_within_a_few_steps_is_told_by_its_gradients(grown: bool) -> None:
    history = History(planned_steps=60)
    for step in range(60):
        history.add(step, "loss", "", (4.2, 3.9, 3.5, 1.2e4)[step] if step < 4 else math.nan)
        history.add(step, "baseline_loss", "", 3.3)
    for step, norm in enumerate((0.7, 0.7, 0.7, 6e5 if grown else 0.9)):
        if step != 2:
            history.add(step, "grad_norm", "", norm)
    found = [diagnosis.problem for diagnosis in examine(history).diagnoses]
    assert ("exploding-gradient" in found) == grown
    assert "non-finite" in found


def test_accuracy_that_climbs_in_large_steps_is_not_thrown_about() -> None:
    seen = np.array([0.11, 0.28, 0.22, 0.18, 0.18, 0.25, 0.34, 0.41, 0.45])
    climbing = Sketch(
        loss=lambda s: 2.302 - 0.2 * s**4,
        accuracy=lambda s: 0.1 + 0.3 * s**2,
        validation=lambda s: 2.302 - 0.2 * s**4,
        validation_accuracy=lambda s: np.interp(s, np.linspace(0.111, 0.999, 9), seen),
        evaluations=9,
        facts={"val_size": 2000},
    )
    assert "oscillating-loss" not in {found.problem for found in examine(climbing.history()).diagnoses}


@pytest.mark.parametrize(("fall", "named"), [(0.001, True), (0.05, False)])
def test_without_noise_a_fall_that_is_none_to_speak_of_is_no_progress(fall: float, named: bool) -> None:
    level = values(1.0, 1.0)
    sketch = Sketch(**{**level, "loss": lambda share: 1.01 - fall * share}, noise=0.0, steps=800)
    found = [one.problem for one in examine(sketch.history()).diagnoses if one.severity != "info"]
    assert (found == ["slow-convergence"]) is named


@pytest.mark.parametrize(
    ("optimizer", "rate", "init", "left", "named"),
    [
        ("Adam", 2e-6, 1 / math.sqrt(3 * 64), 0.8, True),
        ("Adam", 2e-6, 0.11, 0.8, False),  # trained before
        ("Adam", 2e-5, 1 / math.sqrt(3 * 64), 0.8, False),
        (
            "SGD",
            2e-6,
            1 / math.sqrt(3 * 64),
            0.8,
            False,
        ),  # how far SGD goes is a matter of the gradients, too
        ("Adam", 2e-6, 1 / math.sqrt(3 * 64), 0.2, False),  # it learns all the same
    ],
)
def test_a_rate_far_below_the_usual_one_is_named_for_weights_as_they_were_drawn(
    optimizer: str, rate: float, init: float, left: float, named: bool
) -> None:
    level = values(1.0, 1.0)
    sketch = Sketch(
        **{**level, "loss": falling(1.0, left, 4.0)}, steps=800, update=lambda index: 2e-4,
        rate=lambda share: np.full_like(share, rate), init_std=lambda index: init,
    )  # fmt: skip
    sketch = replace(sketch, facts={**REGRESSION, "optimizers": [{"name": optimizer, "lr": rate}]})
    found = [one for one in examine(sketch.history()).diagnoses if "times less than" in one.sentence]
    assert [one.problem for one in found] == ["learning-rate-too-low"] * named


def _bound(added: float, end: float) -> History:
    """An autoencoder whose loss ends at ``end``, with a second half that goes from its own size to ``added``."""
    sketch = Sketch(
        steps=600, loss=falling(0.54, end, 30.0), noise=0.005, baseline=math.nan, accuracy=None,
        facts={
            "task": "autoencoder", "loss": "binary_cross_entropy", "target_kind": "same-as-input",
            "output_activation": "sigmoid",
        },
        run={
            "baseline_loss": lambda s: 0.26 * (1 + added + (1 - added) * np.exp(-30 * s)),
            "loss_over_call": lambda s: 1 + added + (1 - added) * np.exp(-30 * s),
        },
    )  # fmt: skip
    return sketch.history()


@pytest.mark.parametrize(
    ("added", "end", "named"), [(0.0, 0.262, True), (0.2, 0.18, False), (0.0, 0.15, False)]
)
def test_a_bound_whose_second_half_is_all_that_was_learnt_gets_nowhere(
    added: float, end: float, named: bool
) -> None:
    found = [one for one in examine(_bound(added, end)).diagnoses if one.severity != "info"]
    assert [one.problem for one in found] == (["slow-convergence"] if named else [])
    assert not named or "has gone to nothing instead" in found[0].sentence


@pytest.mark.parametrize(
    ("rate", "end", "named"), [(5e-5, 0.6925, True), (5e-5, 0.6, False), (1e-3, 0.6925, False)]
)
def test_a_loss_that_nobody_knows_and_a_low_rate_leaves_where_it_was_is_named(
    rate: float, end: float, named: bool
) -> None:
    sketch = Sketch(
        steps=1100, loss=lambda s: 0.6932 + (end - 0.6932) * s, noise=1e-4, baseline=math.nan, accuracy=None,
        facts={"loss": "custom", "optimizers": [{"name": "SparseAdam", "lr": rate}]},
        rate=lambda s: np.full_like(s, rate),
    )  # fmt: skip
    found = [one.problem for one in examine(sketch.history()).diagnoses if one.severity != "info"]
    assert found == (["learning-rate-too-low"] if named else [])
