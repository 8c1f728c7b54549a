"""Each problem on a made-up training that has it, and on one that looks alike but is well."""

from __future__ import annotations

import math

import numpy as np
import pytest

from akeso.detectors.testing import Sketch, falling, flat
from akeso.examination import examine
from akeso.history import Event
from tests.detectors.sketches import CHANCE, LEARNS, first, values

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
    "wrong-axis": Sketch(facts={"recurrence_over_samples": "net.0"}),
    "wrong-places": Sketch(events=(Event(14, "depends-beyond", data={"by": 2}),), loss=falling(2.3, 1.8)),
    "sequence-leak": Sketch(events=(Event(14, "depends-ahead"),), loss=falling(2.3, 0.01)),
    "missing-zero-grad": Sketch(events=(Event(6, "stale-gradient", data={"count": 3}),)),
    "parameters-not-trained": Sketch(events=(Event(8, "detached", "net.0.weight", {"reason": "no-grad"}),), **CHANCE),
    "wrong-mode": Sketch(
        facts={"mode_sensitive": ["BatchNorm1d", "Dropout"]},
        events=tuple(Event(s, "evaluation", data={"training_mode": True, "loss": 1.0}) for s in (50, 100, 150)),
    ),
    "overfitting": Sketch(
        loss=falling(2.3, 0.01), validation=lambda s: 1.0 + 2.0 * s, validation_accuracy=lambda s: 0.8 - 0.2 * s
    ),
    "validation-mismatch": Sketch(loss=falling(2.3, 0.1), validation_accuracy=flat(0.11)),
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


@pytest.mark.parametrize("kind", ["learns", "slow but steady", "learns noisily in batches of four"])
def test_nothing_is_said_while_a_healthy_run_is_under_way(kind):
    history = HEALTHY[kind].history()
    for step in range(5, history.steps, 20):
        part = history.until(step)
        assert examine(part).status == "healthy"
        part.planned_steps = None
        assert examine(part).status == "healthy"


def test_missing_values_are_told_of_once_with_what_helps_against_them():
    both = Sketch(run={"input_nonfinite": 0.01, "target_nonfinite": 0.02}, **CHANCE)
    found = examine(both.history()).diagnoses[0]
    assert found.problem == "abnormal-data"
    assert found.sentence == "The inputs and the targets contain values that are NaN or infinite."
    assert found.remedies[0].startswith("Find where missing values come from")
    assert len(found.remedies) == 2
    one = examine(Sketch(run={"input_nonfinite": 0.01}, **CHANCE).history()).diagnoses[0]
    assert one.sentence == "The inputs contain values that are NaN or infinite."
    assert len(one.remedies) == 1
