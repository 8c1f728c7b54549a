"""Steps that come to nothing: by a schedule that takes the rate away, or a loss that is divided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from akeso.detectors.steps import falls_at_end
from akeso.detectors.testing import Curve, Sketch
from akeso.diagnosis import Diagnosis
from akeso.examination import examine
from akeso.history import History, Layer

STEPS, EARLY = 600, 60


def _by_epochs(share: np.ndarray) -> np.ndarray:
    """A tenth of the rate after every epoch of thirty steps."""
    return 0.02 * 0.1 ** np.floor(share * (STEPS - 1) / 30)


def _stopped(share: np.ndarray) -> np.ndarray:
    """A loss that falls for as long as there is a rate."""
    return 2.3 - 1.2 * np.minimum(share * (STEPS - 1) / EARLY, 1.0)


def _settled(share: np.ndarray) -> np.ndarray:
    """A loss that has long come to rest when the rate goes."""
    return 1.1 + 1.2 * np.exp(-share * (STEPS - 1) / 3)


def _resting(loss: Curve, rate: Curve, moves: float = 1e-9) -> History:
    """A run whose weights move by ``moves`` per step once the rate is gone."""
    whole = Sketch(
        steps=STEPS, loss=loss, rate=rate, noise=0.05, accuracy=lambda s: np.full_like(s, 0.5)
    ).history()
    history = History(planned_steps=STEPS)
    history.layers, history.facts, history.finished = whole.layers, whole.facts, True
    for signal in whole.signals():
        for scope in whole.scopes(signal):
            series = whole.series(signal, scope)
            for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
                gone = signal == "update_ratio" and step > 2 * EARLY
                history.add(
                    step, signal, scope, moves if gone else 5 * value if signal == "update_ratio" else value
                )
    return history


def _found(history: History) -> list[Diagnosis]:
    return [one for one in examine(history).diagnoses if one.severity != "info"]


def test_a_rate_that_is_gone_after_a_tenth_of_the_run_is_named() -> None:
    found = _found(_resting(_stopped, _by_epochs))
    assert found[0].problem == "learning-rate-too-low"
    assert "taken away too early" in found[0].sentence


def test_a_rate_that_goes_when_the_loss_has_settled_is_not() -> None:
    assert not _found(_resting(_settled, lambda s: np.where(s < 0.1, 0.02, 2e-9)))


def test_a_rate_that_falls_slowly_is_not() -> None:
    assert not _found(_resting(_stopped, lambda s: 0.02 * (1.0001 - s), 1e-4))


@pytest.mark.parametrize(("samples", "named"), [(64 * 40, True), (64 * 5, False)])
def test_a_rate_that_goes_before_the_data_were_seen_once_is_named(samples: int, named: bool) -> None:
    """The rate is gone after twenty steps: less than one epoch of forty, or four of five steps each."""
    history = _resting(
        lambda s: 2.3 - 0.5 * np.minimum(s * (STEPS - 1) / 20, 1.0),
        lambda s: 0.02 * np.maximum(1.0 - s * (STEPS - 1) / 20, 0.0),
        0.0,
    )
    history.facts = {**history.facts, "dataset_size": samples}
    said = [one.sentence for one in _found(history) if one.problem == "learning-rate-too-low"]
    assert any("not all data had been seen" in sentence for sentence in said) is named


def test_a_low_loss_is_not_low_enough_where_the_rate_went_early() -> None:
    found = _found(_resting(lambda s: _stopped(s) - 0.7, _by_epochs))
    assert [one.problem for one in found] == ["learning-rate-too-low"]


@pytest.mark.parametrize(("last", "falls"), [(1.0, True), (1.29, False)])
def test_a_curve_falls_at_its_end_or_has_settled(last: float, falls: bool) -> None:
    random = np.random.default_rng(0)
    curve = np.concatenate([np.linspace(2.3, 1.3, 20), np.linspace(1.3, last, 20)])
    assert falls_at_end(curve + 0.03 * random.standard_normal(40)) is falls


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ({"val_scale": 1 / 1500}, True),
        ({"val_scale": 1.0}, False),
        ({"val_scale": 1 / 32, "micro_batches": 32}, False),
        ({"val_scale": 1 / 1500, "optimizers": [{"name": "Adam"}]}, False),
        ({"val_scale": 1 / 1500, "loss_args": {"reduction": "sum"}}, False),
    ],
)
def test_a_mean_that_is_divided_once_more_is_named(facts: dict[str, object], named: bool) -> None:
    plain = {"optimizers": [{"name": "SGD", "lr": 0.1}], "loss_args": {"reduction": "mean"}}
    sketch = Sketch(
        steps=STEPS, loss=lambda s: 1.8 - 0.05 * s, accuracy=lambda s: np.full_like(s, 0.2), facts={**plain, **facts},
        update=lambda index: 3e-4,
    )  # fmt: skip
    said = [one.sentence for one in examine(sketch.history()).diagnoses if one.problem == "slow-convergence"]
    assert any("divided by 1500" in sentence for sentence in said) is named


@pytest.mark.parametrize(("moves", "named"), [(1e-5, True), (5e-3, False)])
def test_weights_that_hardly_move_any_more_need_not_rest_altogether(moves: float, named: bool) -> None:
    """A thousandth of the steps they made at first is as good as nothing."""
    found = _found(_resting(_stopped, lambda s: np.where(s < 0.1, 0.02, 1e-5), moves))
    assert ("learning-rate-too-low" in {one.problem for one in found}) == named


def _seen_often(loss: Curve, accuracy: float, layers: int = 4) -> Sketch:
    """A run through its data again and again, under long steps, evaluated twenty times."""
    return Sketch(
        layers=layers,
        loss=loss,
        validation=loss,
        accuracy=lambda share: 0.1 + (accuracy - 0.1) * share,
        update=lambda index: 0.01,
        run={"batch_size": 32.0},
        facts={"dataset_size": 700},
        evaluations=20,
    )


@pytest.mark.parametrize(
    ("gets", "accuracy", "named"), [(3.0, 0.4, True), (0.5, 0.4, False), (3.0, 0.9, False)]
)
def test_a_run_may_end_while_it_learns_ever_faster(gets: float, accuracy: float, named: bool) -> None:
    def loss(share: np.ndarray) -> np.ndarray:
        return 2.3 - 0.7 * share**gets

    said = [one.sentence for one in _found(_seen_often(loss, accuracy).history())]
    assert any("ends too early" in sentence for sentence in said) == named


@pytest.mark.parametrize(
    ("layers", "norm", "accuracy", "falls", "named"),
    [(12, False, 0.45, 1.0, True), (12, True, 0.45, 1.0, False), (5, False, 0.45, 1.0, False),
     (12, False, 0.9, 1.0, False)],
)  # fmt: skip
def test_a_deep_stack_without_norms_that_is_far_from_done_learns_too_slowly(
    layers: int, norm: bool, accuracy: float, falls: float, named: bool
) -> None:
    def loss(share: np.ndarray) -> np.ndarray:
        return 1.1 + 1.2 * (np.exp(-falls * share) - np.exp(-falls)) / (1 - np.exp(-falls))

    history = _seen_often(loss, accuracy, layers).history()
    if norm:
        history.layers.append(Layer("norm", "BatchNorm1d", 99, role="norm"))
    said = [one.sentence for one in _found(history)]
    assert any("12 layers without a norm" in sentence for sentence in said) == named


@pytest.mark.parametrize(("width", "shortest", "named"), [(64, 12, True), (64, 3, False), (8, 12, False)])
def test_a_deep_stack_that_could_learn_its_samples_by_heart_and_does_not_is_kept_from_it_by_its_depth(
    width: int, shortest: int, named: bool
) -> None:
    def loss(share: np.ndarray) -> np.ndarray:
        return 1.5 + 0.8 * np.exp(-40.0 * share)

    history = replace(_seen_often(loss, 0.4, 12), width=width).history()
    history.facts["farthest_weight"] = shortest
    said = [one.sentence for one in _found(history)]
    assert any("12 layers without a norm" in sentence for sentence in said) == named
    assert not any("still fell" in sentence for sentence in said)  # it has stood still for long
