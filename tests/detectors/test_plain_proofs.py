"""What a few figures prove by themselves, and what they must not be taken for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from akeso.detectors.testing import Sketch, falling, flat
from akeso.diagnosis import Diagnosis
from akeso.examination import examine
from akeso.history import Parameter
from tests.detectors.sketches import over_time


def _said(sketch: Sketch) -> list[Diagnosis]:
    return [one for one in examine(sketch.history()).diagnoses if one.severity != "info"]


@pytest.mark.parametrize(
    ("inside", "held_out", "named"), [(2.0, 0.2, True), (10.0, 0.2, False), (2.0, 0.9, False)]
)
def test_classes_that_come_in_turns_and_are_forgotten_are_sorted_data(
    inside: float, held_out: float, named: bool
) -> None:
    sketch = Sketch(
        loss=flat(0.05), accuracy=flat(0.6), facts={"loss": "cross_entropy", "classes": 10},
        validation_accuracy=lambda s: 1.0 + (held_out - 1.0) * s,
        run={
            "target_classes": inside, "batch_size": 128.0, "target_top_share": 0.5,
            "baseline_loss": lambda s: 0.69 + 1.4 * s,
        },
    )  # fmt: skip
    found = [one.problem for one in _said(sketch)]
    assert ("abnormal-data" in found) is named


@pytest.mark.parametrize(("applied", "named"), [(1e-4, True), (0.05, False)])
def test_clipping_that_leaves_nothing_of_the_gradients_is_named_where_nothing_was_learnt(
    applied: float, named: bool
) -> None:
    sketch = Sketch(
        steps=400, loss=flat(0.7), update=lambda index: 1e-5, accuracy=None,
        gradient=lambda index: applied, run={"grad_norm_raw": 0.8, "clip_limit": applied},
    )  # fmt: skip
    found = [one for one in _said(sketch) if one.problem == "learning-rate-too-low"]
    assert bool(found) is named
    assert not named or "clipping" in found[0].sentence


@pytest.mark.parametrize(("init", "named"), [(0.07, True), (0.0, False)])
def test_the_first_steps_of_weights_that_start_at_zero_are_not_too_long(init: float, named: bool) -> None:
    sketch = Sketch(
        loss=flat(2.25), accuracy=flat(0.12), update=lambda index: 0.3, init_std=lambda index: init
    )
    found = [one.problem for one in _said(sketch)]
    assert ("learning-rate-too-high" in found) is named


@pytest.mark.parametrize(("end", "named"), [(0.1, False), (0.2, True)])
def test_one_class_does_not_drown_the_others_while_the_loss_falls_fast(end: float, named: bool) -> None:
    sketch = Sketch(
        loss=lambda s: 0.9 + (end - 0.9) * (s if end < 0.2 else np.minimum(1.0, 4 * s)), noise=0.01,
        baseline=0.1, accuracy=flat(0.96), facts={"classes": 2, "task": "binary"},
        run={"target_top_share": 0.96, "prediction_top_share": 1.0},
    )  # fmt: skip
    assert ("class-imbalance" in [one.problem for one in _said(sketch)]) is named


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"not_logarithms": "kl_div"}, "`kl_div` expects log-probabilities"),
        (
            {"out_of_reach": {"loss": "mse_loss", "activation": "sigmoid", "size": 21.0}},
            "A sigmoid gives nothing beyond 1",
        ),
    ],
)
def test_one_of_several_losses_that_cannot_be_right_is_named(facts: dict[str, Any], words: str) -> None:
    found = _said(Sketch(facts=facts))
    assert [one.problem for one in found] == ["improper-output-activation"]
    assert words in found[0].sentence


@pytest.mark.parametrize(
    ("facts", "remarked"),
    [({}, True), ({"earlier_stages": True}, False), ({"models": ["net", "copy"]}, False)],
)
def test_what_was_trained_in_a_stage_before_or_is_a_copy_is_not_said_to_be_as_drawn(
    facts: dict[str, Any], remarked: bool
) -> None:
    history = Sketch(facts=facts).history()
    std = 1 / np.sqrt(3 * 64)
    frozen = tuple(
        Parameter(f"copy.{at}.weight", (64, 64), trainable=False, init_std=std, init_mean=0.0)
        for at in (0, 1)
    )
    first = history.layers[0]
    history.layers[0] = replace(first, parameters=(*first.parameters, *frozen))
    remarks = [one for one in examine(history).diagnoses if "look as they were drawn" in one.sentence]
    assert bool(remarks) is remarked


def test_weights_frozen_as_drawn_are_more_than_a_remark_where_the_rest_learns_little() -> None:
    def severity(sketch: Sketch) -> str:
        history = sketch.history()
        std = 1 / np.sqrt(3 * 64)
        layer = history.layers[0]
        weights = [
            replace(one, trainable=False, init_std=std)
            for one in layer.parameters
            if one.name.endswith("weight")
        ]
        frozen = tuple(replace(weights[0], name=f"layer_{at}.part.weight") for at in (8, 9))
        history.layers[0] = replace(layer, parameters=(*layer.parameters, *frozen))
        (found,) = (one for one in examine(history).diagnoses if "look as they were drawn" in one.sentence)
        return found.severity

    assert severity(Sketch()) == "info"
    assert severity(Sketch(loss=falling(2.3, 1.5), accuracy=flat(0.5))) == "warning"


@pytest.mark.parametrize(
    ("rate", "named"), [(lambda s: np.where(s < 0.02, 1e-3, 0.0), True), (lambda s: 1e-3 + 0 * s, False)]
)
def test_a_rate_that_is_gone_before_anything_was_learnt_is_named(rate: Any, named: bool) -> None:
    sketch = Sketch(loss=flat(0.9), accuracy=None, rate=rate, init_std=lambda index: 1 / np.sqrt(3 * 64))
    history = over_time(
        sketch.history(), "update_ratio", lambda _, share, value: 0.0 if named and share > 0.02 else value
    )
    found = [one for one in examine(history).diagnoses if one.problem == "learning-rate-too-low"]
    assert bool(found) is named
    assert not named or "nothing had been learnt yet" in found[0].sentence
