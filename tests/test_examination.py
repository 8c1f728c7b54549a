"""Examination: roots first, consequences with their cause, nothing said about healthy runs, ever the same."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akeso.detectors import Detector
from akeso.detectors.testing import Sketch, altered, falling, flat, scaled, shifted
from akeso.diagnosis import Symptom
from akeso.examination import examine
from akeso.history import Event, History, Layer, Parameter
from akeso.profiles import BUILT_IN, Profile, load_profile

STUCK = Sketch(layers=8, gradient=lambda i: 10.0 ** (i - 8), loss=flat(2.3), accuracy=flat(0.1),
               run={"output_sample_std": 1e-6, "prediction_top_share": 1.0})  # fmt: skip


def verdict(history: History, profile: str = "akeso") -> list[tuple[str, str]]:
    return [(d.problem, d.severity) for d in examine(history, profile).diagnoses]


def test_root_comes_first_and_consequences_name_it():
    found = examine(STUCK.history()).diagnoses
    assert found[0].problem == "vanishing-gradient"
    assert found[0].because_of == ()
    assert {d.problem for d in found[1:]} >= {"constant-prediction"}
    assert all("vanishing-gradient" in d.because_of for d in found[1:])


def test_what_a_cause_explains_away_is_not_said():
    assert "unlearnable-labels" not in {d.problem for d in examine(STUCK.history()).diagnoses}


def test_a_diagnosis_says_where_since_when_why_and_what_helps():
    first = examine(STUCK.history()).diagnoses[0]
    assert first.layer == "net.0"
    assert first.step == 0
    assert first.evidence["layers"] == 8
    assert first.remedies
    assert "gradient vanishes" in first.sentence
    json.dumps(first.to_dict(), allow_nan=False)


def test_status_is_healthy_with_info_only():
    done = Sketch(loss=lambda s: np.maximum(0.05, 2.3 * np.exp(-20 * s)), noise=0.05).history()
    found = examine(done)
    assert [d.severity for d in found.diagnoses] == ["info"]
    assert found.status == "healthy"
    assert examine(STUCK.history()).status == "findings"


def test_says_what_was_not_checked():
    history = Sketch(facts={"loss": "custom", "layers_seen": 12, "layers_total": 48}).history()
    said = examine(history).not_checked
    assert any("no validation seen" in line for line in said)
    assert "12 of 48 layers visible" in said
    assert any("loss function not recognised" in line for line in said)
    assert examine(History()).not_checked == ("no training step was seen",)
    history.facts["printed_metrics"] = {"test_accuracy": [[99, 0.9]]}
    assert any("only in what the script prints" in line for line in examine(history).not_checked)


def test_a_detector_that_fails_is_named_and_the_others_go_on():
    @dataclass(frozen=True)
    class Broken(Detector):
        name: ClassVar[str] = "broken"

        def detect(self, history: History) -> Iterator[Symptom]:
            raise ZeroDivisionError("oops")

    akeso = load_profile("akeso")
    found = examine(STUCK.history(), Profile("mine", "", "causes", (Broken(), *akeso.detectors)))
    assert found.diagnoses[0].problem == "vanishing-gradient"
    assert any("broken" in line and "oops" in line for line in found.not_checked)


def test_a_cause_must_not_come_long_after_its_effect():
    @dataclass(frozen=True)
    class Says(Detector):
        problem: str = "dying-relu"
        step: int = 0
        confidence: float = 0.9
        name: ClassVar[str] = "says"

        def detect(self, history: History) -> Iterator[Symptom]:
            yield Symptom(self.problem, "error", self.confidence, self.step, sentence="So it is.")

    history = Sketch(steps=1000).history()
    late = Profile("p", "", "causes", (Says("learning-rate-too-high", 900), Says("dying-relu", 10)))
    early = Profile("p", "", "causes", (Says("learning-rate-too-high", 10), Says("dying-relu", 10)))
    assert all(not d.because_of for d in examine(history, late).diagnoses)
    assert examine(history, early).diagnoses[1].because_of == ("learning-rate-too-high",)
    # What is said for want of anything else gives way to whatever is surer, however late that began.
    last = (Says("learning-rate-too-high", 900), Says("unlearnable-labels", 0, 0.6))
    assert [d.problem for d in examine(history, Profile("p", "", "causes", last)).diagnoses] == [
        "learning-rate-too-high"
    ]
    chain = (Says("non-finite", 40), Says("exploding-gradient", 30), Says("poor-initialisation", 0))
    found = examine(history, Profile("p", "", "causes", chain)).diagnoses
    assert [d.problem for d in found] == ["poor-initialisation", "exploding-gradient", "non-finite"]
    assert "exploding-gradient" in found[2].because_of


def test_papers_profiles_flag_a_healthy_late_learner_and_akeso_does_not():
    late = Sketch(loss=lambda s: np.where(s < 0.7, 2.3, 2.3 * np.exp(-12 * (s - 0.7))), noise=0.0,
                  accuracy=lambda s: np.where(s < 0.7, 0.1, 0.95)).history()  # fmt: skip
    assert verdict(late) == []
    assert ("slow-convergence", "error") in verdict(late, "autotrainer")
    assert ("slow-convergence", "error") in verdict(late, "bttackler")


def test_autotrainer_checks_every_third_epoch():
    history = STUCK.history()
    history.events = [Event(step, "epoch") for step in range(0, 300, 30)]
    found = examine(history, "autotrainer").diagnoses
    assert {d.step for d in found} == {89}


def test_bttackler_calls_no_more_gain_benign():
    rising = Sketch(loss=lambda s: 1.0 + s, noise=0.0, accuracy=flat(0.5)).history()
    found = {d.problem: d.severity for d in examine(rising, "bttackler").diagnoses}
    assert found["no-more-gain"] == "info"


SKETCHES = st.builds(
    Sketch,
    steps=st.integers(150, 400),
    layers=st.integers(2, 12),
    loss=st.builds(falling, st.floats(2.0, 3.0), st.floats(0.02, 0.8), st.floats(3.0, 20.0)),
    noise=st.floats(0.0, 0.2),
    seed=st.integers(0, 1000),
)


@settings(max_examples=25, deadline=None)
@given(SKETCHES, st.floats(1e-6, 1e6))
def test_scaling_the_loss_of_a_healthy_run_changes_no_verdict(sketch, factor):
    history = sketch.history()
    assert [v for v in verdict(history) if v[1] != "info"] == []
    assert verdict(scaled(history, factor)) == verdict(history)


@settings(max_examples=15, deadline=None)
@given(SKETCHES | st.just(STUCK), st.integers(1, 10_000))
def test_shifting_steps_changes_no_verdict(sketch, by):
    history = sketch.history()
    moved = shifted(history, by)
    assert verdict(moved) == verdict(history)
    assert [d.step - by for d in examine(moved).diagnoses] == [d.step for d in examine(history).diagnoses]


@settings(max_examples=15, deadline=None)
@given(SKETCHES | st.just(STUCK), st.text("abcxyz_", min_size=1, max_size=12))
def test_renaming_layers_changes_no_verdict(sketch, prefix):
    history = sketch.history()
    other = altered(history, lambda signal, scope, value: (f"{prefix}.{scope}" if scope else "", value))
    other.layers = [_renamed(layer, prefix) for layer in history.layers]
    other.facts["activations"] = {
        f"{prefix}.{site}": kind for site, kind in history.facts["activations"].items()
    }
    assert verdict(other) == verdict(history)


def _renamed(layer: Layer, prefix: str) -> Layer:
    parameters = tuple(replace(p, name=f"{prefix}.{p.name}") for p in layer.parameters)
    return replace(layer, name=f"{prefix}.{layer.name}", parameters=parameters)


numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 60),
            st.sampled_from(["loss", "accuracy", "baseline_loss", "grad_l2", "weight_l2", "update_ratio", "act_dead",
                             "act_saturated", "act_sample_std", "val_loss", "val_accuracy", "target_std", "batch_size",
                             "prediction_top_share", "target_top_share", "output_max", "grad_norm", "input_mean"]),
            st.sampled_from(["", "a.weight", "b.weight", "a", "b", "0"]),
            numbers,
        ),
        max_size=120,
    ),
    st.sampled_from(BUILT_IN),
)  # fmt: skip
def test_any_history_can_be_judged(readings, profile):
    history = History()
    for step, signal, scope, value in sorted(readings, key=lambda row: row[0]):
        history.add(step, signal, scope, value)
    parameters = [Parameter(f"{name}.weight", (4, 4), init_std=0.3) for name in "ab"]
    history.layers = [Layer(p.name[0], "Linear", i, (p,)) for i, p in enumerate(parameters)]
    found = examine(history, profile)
    assert not any("failed" in line for line in found.not_checked), found.not_checked
    for diagnosis in found.diagnoses:
        json.dumps(diagnosis.to_dict(), allow_nan=False)
        assert 0 <= diagnosis.confidence <= 1


def test_nan_loss_names_the_first_module():
    history = Sketch(
        loss=lambda s: np.where(s > 0.4, math.nan, 2.3),
        events=(Event(121, "non-finite", "net.2", {"what": "loss", "module": "net.2", "value": "nan"}),),
    ).history()
    found = next(d for d in examine(history).diagnoses if d.problem == "non-finite")
    assert (found.layer, found.severity) == ("net.2", "error")
    assert found.step == pytest.approx(120, abs=1)
