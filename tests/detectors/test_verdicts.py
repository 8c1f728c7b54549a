"""Each problem on a made-up training that has it, and on one that looks alike but is well."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from akeso.detectors.standing import standing
from akeso.detectors.testing import Sketch, falling, flat
from akeso.examination import examine
from akeso.history import Event

LEARNS = falling(2.3, 0.4)
CHANCE = {"loss": flat(2.3), "accuracy": flat(0.1)}
REGRESSION = {"task": "regression", "loss": "mse_loss", "classes": 1, "target_kind": "values"}


def first(sketch: Sketch) -> str | None:
    found = [d for d in examine(sketch.history()).diagnoses if d.severity != "info"]
    return found[0].problem if found else None


def values(loss: float, baseline: float, **run):
    """A regression whose loss stays at ``loss``."""
    base = {"target_mean": 0.0, "target_std": 1.0, "target_min": -2.5, "target_max": 2.5, **run}
    return {"loss": flat(loss), "baseline": baseline, "accuracy": None, "facts": REGRESSION, "run": base}


SICK = {
    "vanishing-gradient": Sketch(layers=8, gradient=lambda i: 10.0 ** (i - 8), **CHANCE),
    "exploding-gradient": Sketch(
        layers=8, gradient=lambda i: 10.0 ** (3 - i), loss=falling(9.0, 2.5), accuracy=flat(0.1)
    ),
    "dying-relu": Sketch(dead=lambda i: 0.99, **CHANCE),
    "saturated-activation": Sketch(activation="Tanh", saturated=lambda i: 0.95, **CHANCE),
    "learning-rate-too-high": Sketch(update=lambda i: 0.4, loss=falling(2.3, 7.0), accuracy=flat(0.1)),
    "learning-rate-too-low": Sketch(update=lambda i: 1e-6, loss=falling(2.3, 2.2, 0.5), accuracy=flat(0.1)),
    "over-regularised": Sketch(facts={"dropout": {"net.1": 0.97}}, **CHANCE),
    "abnormal-data": Sketch(
        run={"input_mean": 33.0, "input_std": 78.0}, loss=falling(60.0, 2.3, 100), accuracy=flat(0.12)
    ),
    "class-imbalance": Sketch(
        loss=flat(0.2), baseline=0.2, accuracy=flat(0.95), facts={"classes": 2, "task": "binary"},
        run={"target_top_share": 0.95, "prediction_top_share": 1.0},
    ),
    "unlearnable-labels": Sketch(noise=0.005, **CHANCE),
    "poor-initialisation": Sketch(init_std=lambda i: 0.0, gradient=lambda i: 0.0, update=lambda i: 0.0, **CHANCE),
    "improper-output-activation": Sketch(
        loss=falling(2.3, 1.5), facts={"output_activation": "softmax"}, run={"output_min": 0.0, "output_max": 1.0}
    ),
    "improper-loss": Sketch(
        loss=falling(0.7, -40.0), baseline=math.nan, accuracy=None, run={"target_min": -1.0, "target_max": 1.0},
        facts={"loss": "binary_cross_entropy_with_logits", "classes": 1, "target_kind": "values"},
    ),
    "shape-broadcast": Sketch(
        events=(Event(0, "broadcast", data={"output": [32, 1], "target": [32], "result": [32, 32]}),)
    ),
    "missing-zero-grad": Sketch(events=(Event(6, "stale-gradient", data={"count": 3}),)),
    "parameters-not-trained": Sketch(events=(Event(8, "detached", "net.0.weight", {"reason": "no-grad"}),), **CHANCE),
    "wrong-mode": Sketch(
        facts={"mode_sensitive": ["BatchNorm1d", "Dropout"]},
        events=tuple(Event(s, "evaluation", data={"training_mode": True, "loss": 1.0}) for s in (50, 100, 150)),
    ),
    "overfitting": Sketch(
        loss=falling(2.3, 0.01), validation=lambda s: 1.0 + 2.0 * s, validation_accuracy=lambda s: 0.8 - 0.2 * s
    ),
    "data-leakage": Sketch(
        loss=falling(2.3, 0.01), validation=falling(2.3, 0.01),
        validation_accuracy=lambda s: np.where(s < 0.95, 1.0, 0.3),
    ),
    "non-finite": Sketch(loss=lambda s: np.where(s > 0.5, np.nan, 2.0 - s)),
    "oscillating-loss": Sketch(
        loss=lambda s: 2.2 + 1.8 * np.sin(180 * s), noise=0.0, update=lambda i: 0.05, accuracy=flat(0.1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("problem", sorted(SICK))
def test_problem_is_named_first(problem):
    assert first(SICK[problem]) == problem


@pytest.mark.parametrize(
    "problem",
    ["vanishing-gradient", "dying-relu", "saturated-activation", "poor-initialisation", "abnormal-data"],
)
def test_the_same_mechanism_in_a_training_that_learns_is_no_problem(problem):
    sick = SICK[problem]
    fields = {name: getattr(sick, name) for name in ("layers", "gradient", "dead", "activation", "saturated",
                                                     "init_std", "facts")}  # fmt: skip
    run = dict(sick.run) if problem == "abnormal-data" else {}
    assert first(Sketch(loss=LEARNS, run=run, **fields)) is None


HEALTHY = {
    "learns": Sketch(),
    "learns noisily in batches of four": Sketch(noise=0.6, run={"batch_size": 4.0}),
    "learns late": Sketch(
        loss=lambda s: np.where(s < 0.7, 2.3, 2.3 * np.exp(-12 * (s - 0.7))),
        accuracy=lambda s: np.where(s < 0.7, 0.1, 0.95), noise=0.01,
    ),
    "memorises a little at the end": Sketch(
        loss=falling(2.3, 0.005), validation=lambda s: 0.05 + 0.05 * s, validation_accuracy=flat(0.98)
    ),
    "slow but steady": Sketch(loss=falling(2.3, 0.6, 2.0), update=lambda i: 3e-4),
    "converged from the start": Sketch(loss=flat(0.02), accuracy=flat(1.0), update=lambda i: 1e-6),
    "spikes and recovers": Sketch(loss=lambda s: LEARNS(s) + 6.0 * (np.abs(s - 0.5) < 0.01)),
    "noisy regression": Sketch(
        **{**values(0.9, 1.0), "loss": falling(1.1, 0.85, 20)}, noise=0.1
    ),
    "regression in squared dollars": Sketch(**{**values(0.0, 1e10), "loss": falling(1.1e10, 1e9)}),
    "negative loss": Sketch(loss=falling(3.0, -5.0), baseline=math.nan, accuracy=None, facts={"loss": "custom"}),
    "two optimizers against each other": Sketch(
        loss=lambda s: 0.7 + 0.5 * np.sin(90 * s), baseline=math.nan, accuracy=None,
        facts={"optimizers": [{"name": "Adam"}, {"name": "Adam"}]},
    ),
    "frozen on purpose": Sketch(events=(Event(8, "detached", "old.weight", {"reason": "unused"}),)),
    "two-unit softmax": Sketch(facts={"classes": 2, "task": "binary"}, baseline=0.69, loss=falling(0.7, 0.1)),
    "sigmoid per class": Sketch(
        facts={"loss": "binary_cross_entropy", "output_activation": "sigmoid", "target_kind": "one-hot"},
        baseline=0.32, loss=falling(0.7, 0.03), run={"target_min": 0.0, "target_max": 1.0},
    ),
    "log-probabilities": Sketch(facts={"loss": "nll_loss", "output_activation": "log_softmax"},
                                run={"output_max": -1e-5, "output_min": -9.0}),
    "tokens are no quantities": Sketch(facts={"input_kind": "tokens"}, run={"input_mean": 900.0, "input_std": 800.0}),
    "dead units but it learns": Sketch(dead=lambda i: 0.8),
    "validation loss drifts, accuracy stays": Sketch(
        loss=falling(2.3, 0.01), validation=lambda s: 0.3 + 0.4 * s, validation_accuracy=flat(0.92)
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(HEALTHY))
def test_healthy_training_is_left_alone(kind):
    found = [
        (d.problem, d.sentence) for d in examine(HEALTHY[kind].history()).diagnoses if d.severity != "info"
    ]
    assert found == []


@pytest.mark.parametrize(
    "problem", ["vanishing-gradient", "dying-relu", "improper-output-activation", "abnormal-data"]
)
def test_found_within_the_first_part_of_the_run(problem):
    history = SICK[problem].history()
    early = examine(history.until(int(0.15 * history.steps)))
    assert problem in {d.problem for d in early.diagnoses if d.severity != "info"}


def test_a_rate_that_has_decayed_to_nothing_shows_in_validation_that_repeats_itself():
    sketch = Sketch(
        loss=flat(2.1),
        noise=0.02,
        accuracy=flat(0.2),
        validation=flat(2.1),
        update=lambda i: 0.01,
        rate=lambda share: 0.1 * np.exp(-60 * share),
    )
    assert first(sketch) == "learning-rate-too-low"


def test_where_nothing_moves_any_more_a_high_loss_is_enough_whatever_the_accuracy():
    curves = {"loss": flat(2.1), "noise": 0.02, "accuracy": flat(0.7), "validation": flat(2.1)}
    gone = Sketch(**curves, update=lambda i: 0.01, rate=lambda share: 0.1 * np.exp(-60 * share))
    assert first(gone) == "learning-rate-too-low"
    kept = Sketch(**curves, update=lambda i: 0.01)
    assert first(kept) != "learning-rate-too-low"


def test_a_loss_with_the_wrong_sign_is_no_good_loss():
    sketch = Sketch(loss=falling(-2.3, -90.0), baseline=math.nan, accuracy=flat(0.02))
    assert first(sketch) == "improper-loss"


def test_one_output_unit_and_rare_positives_collapse_into_imbalance():
    facts = {
        "loss": "binary_cross_entropy_with_logits", "classes": 1, "task": "binary", "target_kind": "binary",
    }  # fmt: skip
    run = {
        "target_top_share": math.nan, "target_mean": 0.05, "target_std": 0.22, "target_min": 0.0, "target_max": 1.0,
        "prediction_top_share": 1.0,
    }  # fmt: skip
    sketch = Sketch(loss=flat(0.2), baseline=0.2, accuracy=flat(0.95), facts=facts, run=run)
    assert first(sketch) == "class-imbalance"


def test_a_penalty_added_to_the_loss_does_not_raise_the_constant_prediction():
    sketch = Sketch(run={"baseline_loss": lambda s: 2.3 * (1 + 10 * np.exp(-8 * s))})
    assert standing(sketch.history()).baseline == pytest.approx(2.3, rel=0.05)


def test_a_layer_that_is_never_used_is_no_problem_but_one_cut_off_is():
    events = (Event(8, "detached", "net.0.weight", {"reason": "no-grad"}),)
    history = Sketch(events=events).history()
    fresh = replace(history.layers[0].parameters[0], init_std=1 / math.sqrt(3 * 64))
    history.layers[0] = replace(history.layers[0], parameters=(fresh,))
    assert [d.problem for d in examine(history).diagnoses if d.severity != "info"] == [
        "parameters-not-trained"
    ]
    history.layers[0] = replace(history.layers[0], visible=False)
    assert examine(history).status == "healthy"


@pytest.mark.parametrize("kind", ["learns", "slow but steady", "learns noisily in batches of four"])
def test_nothing_is_said_while_a_healthy_run_is_under_way(kind):
    history = HEALTHY[kind].history()
    for step in range(5, history.steps, 20):
        part = history.until(step)
        assert examine(part).status == "healthy"
        part.planned_steps = None
        assert examine(part).status == "healthy"


def test_a_validation_loss_that_rises_far_is_overfitting_whatever_accuracy_does() -> None:
    sketch = Sketch(
        loss=falling(2.3, 0.01), validation=lambda s: 2.0 + 2.0 * s, validation_accuracy=flat(0.4)
    )
    assert first(sketch) == "overfitting"


def test_weights_that_rest_are_the_fault_of_the_rate_only_where_it_is_gone() -> None:
    stuck = Sketch(loss=flat(2.3), accuracy=flat(0.1), validation=flat(2.31), facts={"activations": {}})
    found = {d.problem: d.sentence for d in examine(stuck.history()).diagnoses}
    assert "learning-rate-too-low" not in found
    gone = Sketch(**{**CHANCE, "validation": flat(2.31)}, rate=lambda share: 0.1 * np.exp(-60 * share))
    assert "learning-rate-too-low" in {d.problem for d in examine(gone.history()).diagnoses}


def test_layers_with_nothing_between_them_are_mentioned() -> None:
    straight = Sketch(
        loss=flat(2.3), accuracy=flat(0.1), facts={"activations": {}, "layers_seen": 4}, update=lambda i: 1e-4
    )
    bent = Sketch(loss=flat(2.3), accuracy=flat(0.1), facts={"layers_seen": 4}, update=lambda i: 1e-4)
    said = [
        " ".join(d.sentence for d in examine(sketch.history()).diagnoses if d.problem == "slow-convergence")
        for sketch in (straight, bent)
    ]
    assert "No activation function was seen" in said[0]
    assert said[1]
    assert "No activation function was seen" not in said[1]


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


def test_a_weak_signal_is_no_missing_one() -> None:
    weak = Sketch(loss=flat(2.2), noise=0.02, accuracy=flat(0.13), update=lambda i: 0.01)
    assert not {"unlearnable-labels", "slow-convergence"} & {
        d.problem for d in examine(weak.history()).diagnoses if d.severity != "info"
    }


def test_the_more_classes_the_surer_that_squared_errors_do_not_teach_them() -> None:
    def confidence(classes: int) -> float:
        facts = {"loss": "mse_loss", "target_kind": "one-hot", "classes": classes}
        run = {"target_min": 0.0, "target_max": 1.0}
        sketch = Sketch(loss=flat(0.09), baseline=0.09, accuracy=flat(1 / classes), facts=facts, run=run)
        found = {d.problem: d.confidence for d in examine(sketch.history()).diagnoses}
        return found["improper-loss"]

    known = [confidence(classes) for classes in (3, 9, 10, 100, 100_000)]
    assert known == sorted(known)
    assert known[2] - known[1] < 0.01
    assert known[0] > 0.5
    assert known[-1] <= 0.7


def test_validation_that_is_a_little_but_surely_better_than_guessing_has_found_a_signal() -> None:
    memorises = Sketch(loss=falling(2.3, 0.05), validation=flat(2.4), update=lambda i: 5e-3)
    sizes = {"val_size": 10_000}
    assert first(replace(memorises, facts=sizes, validation_accuracy=flat(0.1))) == "unlearnable-labels"
    assert first(replace(memorises, facts=sizes, validation_accuracy=flat(0.13))) != "unlearnable-labels"


def test_a_loss_summed_over_episodes_that_get_longer_is_no_loss_that_rises() -> None:
    grows = {"loss": lambda s: 15.0 + 200.0 * s, "noise": 0.6, "baseline": math.nan, "accuracy": None}
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


@pytest.mark.parametrize(("low", "kind", "found"), [(0.0, "binary", "improper-loss"), (-1.0, "values", None)])
def test_a_loss_that_multiplies_by_the_target_needs_signs(low: float, kind: str, found: str | None) -> None:
    facts = {"loss": "soft_margin_loss", "classes": 1, "task": "binary", "target_kind": kind}
    run = {"target_min": low, "target_max": 1.0, "target_mean": (1 + low) / 2, "target_top_share": 0.5}
    sketch = Sketch(loss=falling(0.69, 0.34), baseline=math.nan, accuracy=None, facts=facts, run=run)
    assert first(sketch) == found


def test_a_clamp_is_no_sigmoid() -> None:
    def judged(loss: str, last: float) -> str | None:
        facts = {
            "loss": loss,
            "classes": 1,
            "task": "binary",
            "target_kind": "binary",
            "output_activation": "clamp",
        }
        run = {"target_min": 0.0, "target_max": 1.0, "target_mean": 0.5, "output_min": 0.0, "output_max": 1.0}
        return first(Sketch(loss=falling(0.9, last), baseline=0.69, accuracy=flat(0.8), facts=facts, run=run))

    assert judged("binary_cross_entropy", 0.5) == "improper-output-activation"
    assert judged("binary_cross_entropy", 0.05) is None
    assert judged("binary_cross_entropy_with_logits", 0.45) == "improper-output-activation"


def test_a_log_sigmoid_gives_no_probabilities_over_classes() -> None:
    run = {"output_min": -1.0, "output_max": -1e-3}
    facts = {"loss": "nll_loss", "output_activation": "logsigmoid"}
    # The loss vanishes by saying yes to everything, so that its curve shows no harm.
    assert first(Sketch(loss=falling(0.8, 0.002), accuracy=flat(0.3), facts=facts, run=run)) == (
        "improper-output-activation"
    )
    assert first(Sketch(facts={**facts, "output_activation": "log_softmax"}, run=run)) is None


@pytest.mark.parametrize(("smoothing", "found"), [(0.9, "improper-loss"), (0.1, None), (0.3, None)])
def test_smoothing_that_takes_most_of_the_right_class(smoothing: float, found: str | None) -> None:
    facts = {"loss_args": {"reduction": "mean", "label_smoothing": smoothing, "ignore_index": -100}}
    assert first(Sketch(facts=facts)) == found


def test_a_class_left_out_of_the_loss_is_told_from_padding() -> None:
    facts = {
        "loss_args": {"reduction": "mean", "ignore_index": 0},
        "input_shape": [64, 20],
        "output_shape": [64, 10],
        "target_shape": [64],
    }
    assert first(Sketch(facts=facts, run={"target_ignored": 0.1})) == "improper-loss"
    # Nothing is left out; a label for a few samples nobody could judge; tokens; a map of classes.
    assert first(Sketch(facts=facts)) is None
    assert first(Sketch(facts=facts, run={"target_ignored": 0.01})) is None
    tokens = {**facts, "output_shape": [1280, 10], "target_shape": [1280]}
    assert first(Sketch(facts=tokens, run={"target_ignored": 0.4})) is None
    pixels = {**facts, "output_shape": [64, 10, 8, 8], "target_shape": [64, 8, 8]}
    assert first(Sketch(facts=pixels, run={"target_ignored": 0.6})) is None


def test_squared_errors_on_one_hot_rows_that_still_fall_when_the_run_is_over() -> None:
    facts = {"loss": "mse_loss", "target_kind": "one-hot"}
    run = {"target_min": 0.0, "target_max": 1.0, "target_mean": 0.1, "target_std": 0.3}
    slow = Sketch(
        loss=falling(0.11, 0.045, 2.0), baseline=0.09, accuracy=lambda s: 0.1 + 0.45 * s, facts=facts, run=run
    )
    assert first(slow) == "improper-loss"
    assert first(replace(slow, loss=falling(0.11, 0.02, 3.0), accuracy=lambda s: 0.1 + 0.8 * s)) is None


def test_outliers_spoil_the_averages_of_a_normalisation_too() -> None:
    def judged(**run: float) -> str | None:
        figures = {"input_mean": -15.0, "input_std": 124.0, "input_min": -999.0, "input_max": 1.2, **run}
        history = Sketch(run=figures, loss=flat(2.3), accuracy=flat(0.1)).history()
        norm = replace(history.layers[1], kind="BatchNorm1d", role="norm")
        history.layers[1] = norm
        return next((d.problem for d in examine(history).diagnoses if d.severity != "info"), None)

    assert judged(input_outlier=900.0) == "abnormal-data"  # the same value again and again
    assert judged(input_outlier=30.0) != "abnormal-data"
    # Bright parts of dark pictures are far from the median and many.
    dark = {"input_mean": 0.13, "input_std": 0.3, "input_min": 0.0, "input_max": 1.0}
    assert judged(input_outlier=4e3, **dark) != "abnormal-data"


def test_dark_pictures_have_no_outliers() -> None:
    run = {"input_mean": 0.13, "input_std": 0.28, "input_min": 0.0, "input_max": 1.0, "input_outlier": 4e3}
    assert first(Sketch(run=run, loss=falling(2.3, 1.5), accuracy=flat(0.3))) is None
    run = {**run, "input_std": 50.0, "input_max": 6.5e4}
    assert first(Sketch(run=run, loss=falling(2.3, 1.5), accuracy=flat(0.3))) == "abnormal-data"


def test_samples_that_hardly_differ_are_not_prepared() -> None:
    run = {"input_mean": -2.0, "input_std": 0.13, "input_sample_std": 0.002}
    assert first(Sketch(run=run, noise=0.005, **CHANCE)) == "abnormal-data"
    assert first(Sketch(run=run, loss=LEARNS)) is None
    assert first(Sketch(run={**run, "input_sample_std": 0.05}, noise=0.005, **CHANCE)) == "unlearnable-labels"


def test_data_out_of_scale_may_show_its_harm_in_validation_alone() -> None:
    mixed = Sketch(
        loss=falling(2.3, 0.55),
        accuracy=lambda s: 0.1 + 0.65 * s,
        run={"input_mean": 16.0, "input_std": 57.0},
        validation=falling(2.3, 1.4),
        validation_accuracy=lambda s: 0.3 + 0.25 * s,
    )
    assert first(mixed) == "abnormal-data"
    assert first(replace(mixed, run={})) is None
    assert first(replace(mixed, validation=falling(2.3, 0.5), validation_accuracy=flat(0.8))) is None
    # What is learned by heart is overfitting, whatever the scale.
    by_heart = replace(mixed, loss=falling(2.3, 0.01), accuracy=falling(0.1, 1.0))
    assert first(by_heart) != "abnormal-data"


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
    assert "ends too early" in examine(slow.history()).diagnoses[0].sentence
    # It slows down; its weights have moved far; it has learned; it went through its data once.
    assert first(replace(slow, validation=falling(2.3, 1.6))) is None
    assert first(replace(slow, update=lambda i: 0.01)) is None
    assert first(replace(slow, loss=lambda s: 2.35 - 2.2 * s, validation=lambda s: 2.3 - 2.1 * s)) is None
    assert first(replace(slow, facts={"dataset_size": 9600})) is None


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


def test_a_layer_that_is_silent_nearly_everywhere_is_as_good_as_dead() -> None:
    silent = Sketch(zero=lambda i: 0.995, loss=falling(2.3, 2.15), accuracy=flat(0.12))
    assert first(silent) == "dying-relu"
    assert first(replace(silent, zero=lambda i: 0.9)) != "dying-relu"
    assert first(replace(silent, loss=LEARNS, accuracy=lambda s: 0.1 + 0.85 * s)) is None


def test_a_model_of_nothing_but_tables_can_explode() -> None:
    def tables(gradient: float, last: float) -> str | None:
        sketch = Sketch(
            gradient=lambda i: gradient,
            init_std=lambda i: 1.0,
            loss=falling(900.0 if last > 1 else 0.7, last),
            baseline=0.69,
            accuracy=flat(0.5) if last > 1 else flat(0.95),
            run={"target_top_share": 0.5},
            facts={"input_kind": "tokens", "classes": 2, "task": "binary"},
        )
        history = sketch.history()
        history.layers = [replace(layer, kind="Embedding", role="embedding") for layer in history.layers]
        return next((d.problem for d in examine(history).diagnoses if d.severity != "info"), None)

    assert tables(3.0, 6.0) == "exploding-gradient"
    assert tables(1e-3, 0.1) is None


def test_a_gradient_that_exploded_counts_while_the_loss_is_above_a_constant_s_whatever_the_accuracy() -> None:
    blown = Sketch(gradient=lambda i: 3e3, loss=falling(900.0, 20.0), accuracy=lambda s: 0.1 + 0.8 * s)
    assert first(blown) == "exploding-gradient"
    assert first(replace(blown, loss=falling(900.0, 0.4, 20.0))) != "exploding-gradient"


def test_recurrent_weights_that_start_near_zero_forget() -> None:
    def judged(std: float, kind: str, loss: float) -> str | None:
        sketch = Sketch(layers=3, loss=falling(2.3, loss, 2.0), accuracy=flat(0.3 if loss > 1 else 0.9))
        history = sketch.history()
        state = replace(history.layers[0].parameters[0], name="rnn.weight_hh_l0", init_std=std)
        history.layers[0] = replace(
            history.layers[0], name="rnn", kind=kind, role="recurrent", parameters=(state,)
        )
        return next((d.problem for d in examine(history).diagnoses if d.severity != "info"), None)

    assert judged(0.01, "RNN", 1.5) == "poor-initialisation"
    assert judged(0.07, "RNN", 1.5) is None
    assert judged(0.01, "LSTM", 1.5) is None  # its gates remember
    assert judged(0.01, "RNN", 0.3) is None


def test_swings_far_above_start_and_constant_are_no_accident_of_small_batches() -> None:
    wild = Sketch(
        loss=lambda s: 11.0 - 8.0 * np.exp(-30 * s), noise=0.5, accuracy=flat(0.7), run={"batch_size": 4.0}
    )
    assert first(wild) == "oscillating-loss"
    assert first(replace(wild, loss=falling(2.3, 0.8))) is None
