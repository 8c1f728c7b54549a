"""Gradients that the script itself makes short."""

from __future__ import annotations

from typing import Any

import pytest

from akeso.detectors.testing import Sketch, falling, flat
from akeso.examination import examine


@pytest.mark.parametrize(("raw", "named"), [(1.0, False), (2e-5, True)])
def test_gradients_that_the_script_clips_have_not_vanished(raw: float, named: bool) -> None:
    sketch = Sketch(
        gradient=lambda index: 1e-6, update=lambda index: 1e-6, loss=flat(2.3), accuracy=flat(0.1),
        run={"grad_norm_raw": raw, "clip_limit": 2e-5},
    )  # fmt: skip
    found = [one.problem for one in examine(sketch.history()).diagnoses]
    assert ("vanishing-gradient" in found) is named


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, True),
        ({"optimizer": "Adam"}, False),
        ({"raw": 0.03}, False),
        ({"update": 0.05}, False),
        ({"loss": falling(2.3, 1.5)}, False),
    ],
    ids=["cut", "divided anyway", "cut a little", "long all the same", "learning"],
)
def test_clipping_that_leaves_next_to_nothing_is_named_where_nothing_is_learnt(
    given: dict[str, Any], named: bool
) -> None:
    run = {"grad_norm_raw": given.get("raw", 1.0), "clip_limit": 0.01}
    facts = {"optimizers": [{"name": given.get("optimizer", "SGD"), "lr": 1.0, "weight_decay": 0.0}]}
    sketch = Sketch(
        loss=given.get("loss", flat(2.3)), accuracy=flat(0.1), facts=facts, run=run, rate=flat(1.0),
        update=lambda index: given.get("update", 2e-3), gradient=lambda index: 1.1e-3,
    )  # fmt: skip
    found = [one for one in examine(sketch.history()).diagnoses if one.problem == "learning-rate-too-low"]
    assert [one.sentence.startswith("Clipping to 0.01 leaves 0.0") for one in found] == [True] * named


def test_labels_are_not_blamed_where_clipping_left_nothing_to_learn_with() -> None:
    facts = {"optimizers": [{"name": "SGD", "lr": 1.0, "weight_decay": 0.0}], "val_size": 500}
    run = {"grad_norm_raw": 1.0, "clip_limit": 0.01}
    sketch = Sketch(
        loss=flat(2.3),
        accuracy=flat(0.1),
        validation=flat(2.3),
        facts=facts,
        run=run,
        rate=flat(1.0),
        gradient=lambda index: 1.1e-3,
    )
    found = [one.problem for one in examine(sketch.history()).diagnoses]
    assert found[0] == "learning-rate-too-low"
    assert "unlearnable-labels" not in found
