"""What is said while a training runs, and what waits until it is known what the training is."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from akeso.detectors.testing import Sketch
from akeso.diagnosis import Diagnosis
from akeso.examination import examine
from akeso.history import Event, Floats, History
from akeso.torch.cadence import Cadence
from akeso.torch.live import LiveVerdict
from tests.detectors.sketches import CHANCE

DEEP: dict[str, Any] = {"layers": 8, "gradient": lambda i: 10.0 ** (i - 8), "steps": 800, **CHANCE}
VALUES = {"loss": "mse_loss", "task": "regression"}


def told(history: History) -> dict[str, int]:
    """The problems that are told, with the step in which they are."""
    found: dict[str, int] = {}
    now = itertools.count()  # every look finds hours of training behind it

    def tell(diagnosis: Diagnosis) -> None:
        found.setdefault(diagnosis.problem, part.steps)

    part = history
    verdict = LiveVerdict(history, "akeso", tell, Cadence(0.01, lambda: 3600.0 * next(now)))
    for step in range(16, history.steps, 8):
        part = history.until(step)
        part.finished, part.planned_steps = False, history.planned_steps
        verdict._history = part
        verdict.look(step)
    return found


@pytest.mark.parametrize(
    ("facts", "events"),
    [
        ({"loss": "cross_entropy"}, ()),
        ({**VALUES, "dataset_size": 512}, ()),
        (VALUES, (Event(0, "epoch"),)),
        (VALUES, (Event(8, "evaluation", data={"loss": 2.3}),)),
    ],
    ids=["labels", "a data set", "passes over data", "validation"],
)
def test_harm_is_told_early_where_it_is_known_what_is_learnt(facts, events):
    assert told(Sketch(facts=facts, events=events, **DEEP).history())["vanishing-gradient"] < 512


def test_harm_waits_where_an_agent_may_be_learning_from_its_own_guesses():
    assert told(Sketch(facts=VALUES, **DEEP).history())["vanishing-gradient"] >= 512


def test_proofs_do_not_wait():
    broadcast = Event(0, "broadcast", data={"output": [32, 1], "target": [32], "result": [32, 32]})
    assert told(Sketch(facts=VALUES, events=(broadcast,), steps=300).history())["shape-broadcast"] < 100


def slow_to_begin(steps: int) -> History:
    """A training that learns well, but nothing in its first steps, while most of its units are dead."""

    def after(share: Floats) -> Floats:
        return np.maximum(0.0, 800 * share - steps)

    return Sketch(
        steps=800,
        loss=lambda share: 0.3 + 2.0 * np.exp(-after(share) / 60),
        accuracy=lambda share: 0.1 + 0.85 * (1 - np.exp(-after(share) / 100)),
        dead=lambda index: 0.95,
        facts={"loss": "cross_entropy"},
    ).history()


def test_harm_is_told_when_it_has_lasted_as_long_again():
    suspected = slow_to_begin(steps=32)
    assert [d.problem for d in examine(suspected.until(32), "akeso").diagnoses] == ["dying-relu"]
    assert told(suspected) == {}
    assert told(slow_to_begin(steps=200))["dying-relu"] < 100
