"""Labels from which nothing can be learnt, seen by what a script prints of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from akeso.detectors.testing import Curve, Sketch, falling, flat
from akeso.examination import examine
from tests.detectors.sketches import CHANCE, first, values


def _printing(*values: float, name: str = "accuracy", loss: float = 2.05, **facts: Any) -> str | None:
    """What is found where these accuracies are printed in a run whose training loss comes down to ``loss``."""
    printed = {name: [[(index + 1) * 25, value] for index, value in enumerate(values)]}
    return first(
        Sketch(
            loss=falling(2.3, loss, 1.0),
            accuracy=None,
            update=lambda index: 1e-2,
            run={"target_top_share": float("nan"), "prediction_top_share": float("nan")},
            facts={"printed_metrics": printed, **facts},
        )
    )


def test_an_accuracy_that_is_printed_and_stays_at_chance_shows_that_nothing_is_learnt() -> None:
    at_chance = (0.14, 0.12, 0.13, 0.12, 0.13, 0.14)
    assert _printing(*at_chance) == "unlearnable-labels"
    assert _printing(*at_chance, name="test_accuracy") == "unlearnable-labels"


@pytest.mark.parametrize(
    "values",
    [
        (0.14, 0.2, 0.3, 0.4, 0.45, 0.5),
        (0.14, 0.12, 0.12, 0.12, 0.13, 0.6),  # it took its time
        (0.10, 0.11, 0.12, 0.13, 0.14, 0.15),  # it gets better every time
        (0.0, 0.0, 0.0, 0.0, 0.01, 0.01),  # of whole sequences that are right, say
        (0.14, 0.12),
        (),
    ],
)
def test_other_figures_say_nothing_of_the_labels(values: tuple[float, ...]) -> None:
    assert _printing(*values) is None


def test_a_loss_that_came_down_well_shows_that_the_figure_is_of_something_else() -> None:
    assert _printing(0.12, 0.12, 0.12, 0.12, 0.12, loss=0.8) is None
    assert _printing(0.12, 0.12, 0.12, 0.12, 0.12, name="train_accuracy") is None


@pytest.mark.parametrize(
    ("validation", "found"),
    [
        # From where the first weights stood to a constant prediction, and up and down from there.
        (
            lambda share: 1.0 + 0.14 * np.exp(-20.0 * share) + 0.01 * np.sin(40.0 * share),
            "unlearnable-labels",
        ),
        # A few percent that stay: there is no more to learn.
        (lambda share: 0.984 + 0.02 * np.exp(-5.0 * share), None),
    ],
)
def test_validation_that_comes_down_to_a_constant_prediction_and_no_further_shows_no_signal(
    validation: Curve, found: str | None
) -> None:
    sketch = Sketch(
        **values(1.0, 1.0, output_sample_std=0.3), update=lambda index: 1e-2, validation=validation
    )
    assert first(sketch) == found


def test_a_network_that_has_not_moved_is_not_drowned_by_its_most_frequent_class() -> None:
    run = {"target_top_share": 0.97, "prediction_top_share": 1.0}
    sketch = Sketch(
        loss=falling(0.4, 0.38, 1.0), baseline=0.15, accuracy=flat(0.97), update=lambda index: 1e-5, run=run
    )
    found = [one for one in examine(sketch.history()).diagnoses if one.severity != "info"]
    assert [one.problem for one in found if not one.because_of] == ["learning-rate-too-low"]


@pytest.mark.parametrize(
    ("farthest", "kind", "said"), [(31, "Linear", True), (4, "GRU", True), (4, "Linear", False)]
)
def test_labels_that_lie_many_moments_on_may_have_a_signal_that_gets_lost(
    farthest: int, kind: str, said: bool
) -> None:
    history = Sketch(**CHANCE, update=lambda index: 1e-2, facts={"farthest_weight": farthest}).history()
    history.layers = [replace(layer, kind=kind) for layer in history.layers]
    (found,) = [one for one in examine(history).diagnoses if one.problem == "unlearnable-labels"]
    assert ("gradient is lost" in found.sentence) is said
    assert ("trains as it should" in found.sentence) is not said


@pytest.mark.parametrize("measured", [True, False])
def test_a_loss_that_a_script_weighs_itself_may_be_small_without_samples_learnt_by_heart(
    measured: bool,
) -> None:
    sketch = Sketch(
        loss=falling(2.3, 0.2),
        accuracy=flat(0.1),
        update=lambda index: 1e-2,
        run={"loss_over_call": 1.0} if measured else {},
        validation=flat(2.5),
    )
    (found,) = [one for one in examine(sketch.history()).diagnoses if one.problem == "unlearnable-labels"]
    assert ("by heart" in found.sentence) is measured


@pytest.mark.parametrize(("task", "said"), [("language-model", "how frequent"), ("multiclass", "no signal")])
def test_of_text_it_is_not_said_that_it_carries_no_signal(task: str, said: str) -> None:
    sketch = Sketch(**CHANCE, update=lambda index: 1e-2, validation=flat(2.31), facts={"task": task})
    (found,) = [one for one in examine(sketch.history()).diagnoses if one.problem == "unlearnable-labels"]
    assert said in found.sentence


@pytest.mark.parametrize(
    ("accuracies", "found"),
    [
        ((0.10, 0.11, 0.30, 0.09, 0.10, 0.11, 0.09, 0.10), "unlearnable-labels"),
        ((0.10, 0.11, 0.30, 0.09, 0.28, 0.11, 0.09, 0.10), None),  # twice is no luck
        ((0.10, 0.11, 0.10, 0.09, 0.10, 0.11, 0.09, 0.30), None),  # it has come to that
    ],
)
def test_one_accuracy_of_many_that_stands_out_is_luck(
    accuracies: tuple[float, ...], found: str | None
) -> None:
    history = Sketch(loss=falling(2.3, 1.6, 1.0), update=lambda index: 1e-2, accuracy=flat(0.3)).history()
    history.facts["val_size"] = 300
    for index, accuracy in enumerate(accuracies):
        history.add(30 * index + 29, "val_accuracy", "", accuracy)
    named = [one.problem for one in examine(history).diagnoses if one.severity != "info"]
    assert (named[0] if named else None) == found
