"""The catalogue is complete, acyclic and readable."""

from __future__ import annotations

import pytest

from akeso.advice import advice
from akeso.catalogue import PROBLEMS, causes_of
from akeso.detectors.testing import Sketch
from akeso.errors import BadInput
from akeso.examination import examine

NAMES = [
    "vanishing-gradient",
    "exploding-gradient",
    "dying-relu",
    "oscillating-loss",
    "slow-convergence",
    "improper-output-activation",
    "improper-loss",
    "abnormal-data",
    "no-more-gain",
    "non-finite",
    "learning-rate-too-high",
    "learning-rate-too-low",
    "saturated-activation",
    "poor-initialisation",
    "parameters-not-trained",
    "missing-zero-grad",
    "sequence-leak",
    "shape-broadcast",
    "wrong-axis",
    "wrong-places",
    "constant-prediction",
    "class-imbalance",
    "unlearnable-labels",
    "data-leakage",
    "over-regularised",
    "overfitting",
    "validation-mismatch",
    "wrong-mode",
]


def test_every_problem_is_there_and_no_other():
    assert sorted(PROBLEMS) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_whole_sentences(name):
    problem = PROBLEMS[name]
    for text in (problem.what, problem.how_recognised, *problem.helps):
        assert text[0].isupper() or text[0] in "`"
        assert text.endswith(".")
    assert problem.helps


def test_causes_come_before_effects_so_that_nothing_causes_itself():
    for problem in PROBLEMS.values():
        for effect in problem.causes:
            assert PROBLEMS[effect].root_rank > problem.root_rank, (problem.name, effect)


def test_unscaled_data_leads_to_a_stalled_loss_over_dead_units():
    assert "abnormal-data" in causes_of("exploding-gradient")
    assert "exploding-gradient" in causes_of("dying-relu")
    assert "dying-relu" in causes_of("constant-prediction")
    assert "constant-prediction" in causes_of("slow-convergence")


def test_unknown_problem_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match="vanishing-gradient"):
        causes_of("vanishing")


def test_users_of_keras_are_told_what_helps_in_its_own_words() -> None:
    words = ("optimizer.zero_grad", "torch.", "nn.", "DataLoader", "_with_logits", "nll_loss", "model.eval()")
    for problem in PROBLEMS:
        if problem == "missing-zero-grad":  # Keras does that itself
            continue
        told = " ".join(advice(problem, "keras"))
        assert told, problem
        assert not [word for word in words if word in told], problem


@pytest.mark.parametrize("framework", ["keras", ""])
def test_a_diagnosis_speaks_of_the_framework_that_trains(framework: str) -> None:
    optimizers = [{"name": "Adam", "lr": 1e-3, "framework": framework}]
    sketch = Sketch(
        validation=lambda share: 0.8 + 6.0 * share, evaluations=12, facts={"optimizers": optimizers}
    )
    found = next(one for one in examine(sketch.history()).diagnoses if one.problem == "overfitting")
    assert found.remedies == advice("overfitting", framework)
    assert ("EarlyStopping" in " ".join(found.remedies)) is bool(framework)
