"""For those who write detectors: made-up trainings, and the promises every detector must keep.

Inherit from :class:`DetectorContract` in a test module and say which detector is meant::

    class TestMine(DetectorContract):
        detector = Mine()
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from akeso.detectors._base import Detector
from akeso.history import Event, Floats, History, Layer, Parameter

Curve = Callable[[Floats], Floats]


def falling(start: float = 2.3, end: float = 0.3, pace: float = 5.0) -> Curve:
    """A loss that falls exponentially; the argument of a curve is the share of the run, 0 to 1."""
    return lambda share: end + (start - end) * np.exp(-pace * share)


def flat(level: float = 2.3) -> Curve:
    """A loss that stays where it is."""
    return lambda share: np.full_like(share, level)


@dataclass(frozen=True)
class Sketch:
    """A training made up from a few figures: by default a healthy classifier of ten classes.

    Per-layer figures are functions of the layer's index (0 is the first); ``run`` overrides run-wide signals
    by name, constants or curves.
    """

    steps: int = 300
    layers: int = 4
    loss: Curve = field(default_factory=falling)
    noise: float = 0.03
    seed: int = 0
    baseline: float = math.log(10)
    accuracy: Curve | None = lambda share: 0.1 + 0.85 * (1 - np.exp(-6 * share))
    gradient: Callable[[int], float] = lambda index: 0.05
    update: Callable[[int], float] = lambda index: 2e-3
    dead: Callable[[int], float] = lambda index: 0.02
    zero: Callable[[int], float] = lambda index: 0.5
    varies: Callable[[int], float] = lambda index: 0.5
    init_std: Callable[[int], float] = lambda index: 0.07
    activation: str = "ReLU"
    saturated: Callable[[int], float] = lambda index: 0.05
    run: Mapping[str, float | Curve] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    validation: Curve | None = None
    validation_accuracy: Curve | None = None
    width: int = 64
    evaluations: int = 8
    rate: Curve = lambda share: np.full_like(share, 1e-3)

    def history(self) -> History:
        """The history a probe would have written."""
        history = History(planned_steps=self.steps)
        history.finished = True
        random = np.random.default_rng(self.seed)
        share = np.arange(self.steps) / max(1, self.steps - 1)
        loss = self.loss(share) * (1 + self.noise * random.standard_normal(self.steps))
        for step, value in enumerate(loss):
            history.add(step, "loss", "", float(value))
        for step in sampled(self.steps):
            self._sample(history, step, share[step : step + 1], random)
        apart = max(1, self.steps // self.evaluations)
        for step in range(apart, self.steps, apart):
            at = share[step : step + 1]
            if self.validation is not None:
                history.add(step, "val_loss", "", float(self.validation(at)[0]))
            if self.validation_accuracy is not None:
                history.add(step, "val_accuracy", "", float(self.validation_accuracy(at)[0]))
        history.layers = self._layers()
        history.facts = {**self._facts(), **self.facts}
        history.events = list(self.events)
        return history

    def _sample(self, history: History, step: int, share: Floats, random: np.random.Generator) -> None:
        figures: dict[str, float | Curve] = {
            "batch_size": 64.0,
            "baseline_loss": self.baseline,
            "target_top_share": 0.13,
            "target_classes": 10.0,
            "prediction_top_share": 0.15,
            "input_mean": 0.0,
            "input_std": 1.0,
            "input_nonfinite": 0.0,
            "input_constant": 0.0,
            "input_sample_std": 1.0,
            "input_scale_spread": 1.5,
            "input_outlier": 3.0,
            "output_min": -4.0,
            "output_max": 5.0,
            "output_mean": 0.0,
            "output_std": 2.0,
            "output_sample_std": 1.5,
            **self.run,
        }
        if self.accuracy is not None:
            figures.setdefault("accuracy", self.accuracy)
        for name, figure in figures.items():
            history.add(step, name, "", float(figure(share)[0] if callable(figure) else figure))
        history.add(step, "lr", "0", float(self.rate(share)[0]))
        total = 0.0
        for index in range(self.layers):
            jitter = float(np.exp(0.1 * random.standard_normal()))
            name, norm = f"net.{2 * index}.weight", self.init_std(index) * self.width
            gradient = self.gradient(index) * max(norm, 1e-12) * jitter
            total = math.hypot(total, gradient)
            history.add(step, "grad_l2", name, gradient)
            history.add(step, "grad_zero", name, self.dead(index))
            history.add(step, "weight_l2", name, norm)
            history.add(step, "update_ratio", name, self.update(index) * jitter)
            history.add(step, "act_std", f"net.{2 * index}", 0.5)
            if index < self.layers - 1:
                self._site(history, step, index)
        history.add(step, "grad_norm", "", total)

    def _site(self, history: History, step: int, index: int) -> None:
        site = f"net.{2 * index + 1}"
        history.add(step, "act_std", site, 0.5)
        history.add(step, "act_linf", site, 3.0)
        history.add(step, "act_sample_std", site, self.varies(index))
        if self.activation == "ReLU":
            history.add(step, "act_zero", site, self.zero(index))
            history.add(step, "act_dead", site, self.dead(index))
        else:
            history.add(step, "act_saturated", site, self.saturated(index))

    def _layers(self) -> list[Layer]:
        found = []
        for index in range(self.layers):
            name, width = f"net.{2 * index}", self.width
            parameter = Parameter(f"{name}.weight", (width, width), init_std=self.init_std(index))
            role = "output" if index == self.layers - 1 else "linear"
            found.append(Layer(name, "Linear", 2 * index, (parameter,), role=role))
        return found

    def _facts(self) -> dict[str, Any]:
        return {
            "task": "multiclass",
            "loss": "cross_entropy",
            "classes": 10,
            "target_kind": "indices",
            "output_activation": "none",
            "input_kind": "values",
            "activations": {f"net.{2 * index + 1}": self.activation for index in range(self.layers - 1)},
            "optimizers": [{"name": "Adam", "lr": 1e-3, "weight_decay": 0.0}],
        }


def sampled(steps: int) -> list[int]:
    """The steps a probe would sample: dense at the start, sparse and uneven later."""
    found, step = [], 0
    while step < steps:
        found.append(step)
        step += 1 + step // 4 if step < 96 else 13 + step % 7
    return found


def remade(history: History, change: Callable[[int, str, str, float], tuple[int, str, float]]) -> History:
    """The same history, its readings passed through ``change(step, signal, scope, value)``: a step, scope and value."""
    other = History(planned_steps=history.planned_steps)
    other.layers, other.facts, other.finished = list(history.layers), dict(history.facts), history.finished
    other.events = list(history.events)
    for signal in history.signals():
        for scope in history.scopes(signal):
            series = history.series(signal, scope)
            for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
                new_step, new_scope, new_value = change(step, signal, scope, value)
                other.add(new_step, signal, new_scope, new_value)
    return other


def shifted(history: History, by: int) -> History:
    """The same history with all steps later by ``by``."""
    moved = remade(history, lambda step, signal, scope, value: (step + by, scope, value))
    moved.events = [Event(event.step + by, event.kind, event.scope, event.data) for event in history.events]
    return moved


def altered(history: History, change: Callable[[str, str, float], tuple[str, float]]) -> History:
    """The same history with scopes and values passed through ``change(signal, scope, value)``."""
    return remade(history, lambda step, signal, scope, value: (step, *change(signal, scope, value)))


#: Signals that scale with the loss.
_LOSS_LIKE = frozenset(
    {"loss", "val_loss", "baseline_loss", "grad_l2", "grad_linf", "grad_norm", "grad_norm_raw"}
)


def scaled(history: History, factor: float) -> History:
    """The same training with its loss, and all that follows from it, multiplied by ``factor``."""
    return altered(
        history, lambda signal, scope, value: (scope, value * factor if signal in _LOSS_LIKE else value)
    )


class DetectorContract:
    """What every detector promises. Methods are named so that pytest runs them."""

    detector: Detector

    def _verdict(self, history: History) -> list[tuple[str, str]]:
        return sorted((symptom.problem, symptom.severity) for symptom in self.detector.detect(history))

    def test_empty_history_says_nothing(self) -> None:
        """Without readings there is nothing to say."""
        assert self._verdict(History()) == []

    def test_every_prefix_can_be_judged(self) -> None:
        """A short history never raises."""
        whole = Sketch(steps=120).history()
        for step in (0, 1, 2, 3, 5, 9, 19, 40, 119):
            self._verdict(whole.until(step))

    def test_missing_signals_do_not_raise(self) -> None:
        """Any signal may be missing."""
        whole = Sketch(steps=80).history()
        for gone in whole.signals():
            part = whole.until(10**9)
            part._columns.pop(gone, None)
            self._verdict(part)
        bare = whole.until(10**9)
        bare.facts, bare.layers = {}, []
        self._verdict(bare)

    def test_values_that_are_not_finite_do_not_raise(self) -> None:
        """NaN and infinity may be anywhere."""
        whole = Sketch(steps=80).history()
        for bad in (math.nan, math.inf, -math.inf, 0.0):
            self._verdict(altered(whole, lambda signal, scope, value, bad=bad: (scope, bad)))  # type: ignore[misc]

    def test_symptoms_are_well_formed(self) -> None:
        """Confidence is a probability, steps lie in the run, a sentence is there."""
        for history in (Sketch(loss=flat()).history(), Sketch(loss=falling(2.3, 50.0)).history()):
            for symptom in self.detector.detect(history):
                assert 0.0 <= symptom.confidence <= 1.0
                assert 0 <= symptom.step < history.steps
                assert symptom.sentence.endswith((".", "?"))
                assert len(symptom.sentence) < 300
                assert symptom.severity in ("error", "warning", "info")

    def test_same_history_same_verdict(self) -> None:
        """A detector keeps nothing from one call to the next and changes nothing."""
        history = Sketch(loss=flat()).history()
        before = history.series("loss").values.copy()
        assert self._verdict(history) == self._verdict(history)
        assert np.array_equal(before, history.series("loss").values)
