"""Trainings whose loss is no measure of what is learnt: of games, and of targets that a model makes for itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

from akeso.detectors.standing import no_measure
from akeso.detectors.testing import Sketch, flat
from akeso.examination import examine
from akeso.history import History
from tests.detectors.sketches import first, over_time

#: The mean target of a network that learns values of states, as it was seen: it stands still until it is copied.
LEARNT_VALUES = [1.122, 1.122, 1.111, 1.109, 1.108, 1.113, 1.109, 1.122, 2.07, 2.955, 4.797, 9.56, 17.46]
#: The mean return that a critic learns, as it was seen: rollouts get longer, read most often while there was but one.
RETURNS = [8.4, 7.74, 8.51, 7.77, 8.35, 8.1, 11.9, 21.2, 33.2, 48.0]
#: That of a network that learns values of a maze, with noise at first and hardly a look at the rest.
MAZE = {
    0: 0.021, 1: 0.083, 3: 0.016, 7: 0.051, 14: 0.033, 28: 0.0, 56: 0.019, 112: 0.039, 194: -0.008, 195: 0.01,
    196: -0.002, 224: -0.023, 225: -0.011, 226: 0.02, 227: -0.002, 306: 0.034, 307: 0.011, 308: 0.011, 448: 0.049,
    449: 0.0, 450: 0.038, 451: -0.009, 896: 0.062, 1792: 0.562, 3584: 0.7,
}  # fmt: skip
DATA = [1.122, 1.122, 1.111, 1.109, 1.108, 1.113, 1.109, 1.122, 1.107, 1.116, 1.114, 1.109, 1.12]


@pytest.mark.parametrize(
    ("means", "moving"),
    [
        (LEARNT_VALUES, True),
        (RETURNS, True),
        (MAZE, True),
        (DATA, False),
        ({**MAZE, 1792: 0.02, 3584: 0.03}, False),
    ],
)
def test_targets_that_stand_still_at_first_and_go_up_then_are_the_models_own(
    means: list[float] | dict[int, float], moving: bool
) -> None:
    history = History()
    history.facts["loss"] = "smooth_l1_loss"
    seen = means if isinstance(means, dict) else {2**index - 1: mean for index, mean in enumerate(means)}
    for step, mean in seen.items():
        history.add(step, "loss", "", 0.05)
        history.add(step, "target_mean", "", mean)
        history.add(step, "target_std", "", 0.1 if seen is means else 0.03 * mean)
    assert bool(no_measure(history)) is moving


def _dying(alive_at_first: bool) -> History:
    """Two players with a layer in which all units are dead in the end."""
    players = [{"name": "Adam", "lr": 1e-3}, {"name": "Adam", "lr": 1e-3}]
    sketch = Sketch(loss=flat(0.7), facts={"optimizers": players}, dead=lambda index: float(index == 1))
    return over_time(
        sketch.history(), "act_dead", lambda _, share, value: 0.1 if alive_at_first and share < 0.2 else value
    )


@pytest.mark.parametrize("alive_at_first", [True, False])
def test_a_layer_that_died_is_named_where_no_loss_tells_the_harm(alive_at_first: bool) -> None:
    found = [one for one in examine(_dying(alive_at_first)).diagnoses if one.problem == "dying-relu"]
    assert [(one.severity, one.layer) for one in found] == [("warning", "net.3")] * alive_at_first


@pytest.mark.parametrize(("end", "found"), [(4.8, None), (40.0, "learning-rate-too-high")])
def test_a_loss_that_begins_below_even_answers_has_shot_up_only_beyond_them(
    end: float, found: str | None
) -> None:
    """One of 1025 is to be found again among what a queue holds, which is noise in the first steps."""
    sketch = Sketch(
        loss=lambda share: np.where(share < 0.02, 0.85, 6.0 + (end - 6.0) * share),
        baseline=math.nan,
        accuracy=lambda share: 0.15 * share,
        update=lambda index: 0.03,
        run={"target_top_share": 1.0, "target_classes": 1.0},
        facts={"classes": 1025},
    )
    assert first(sketch) == found
