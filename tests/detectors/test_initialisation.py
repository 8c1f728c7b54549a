"""Weights and biases that start where they should not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from akeso.detectors.testing import Sketch, falling, flat
from akeso.diagnosis import Diagnosis
from akeso.examination import examine
from akeso.history import History, Layer, Parameter


def _said(history: History) -> list[Diagnosis]:
    return [one for one in examine(history).diagnoses if one.problem == "poor-initialisation"]


def _alike(layers: tuple[int, ...], left: float) -> Sketch:
    """Matrices of equal entries in some layers, and the share of a constant prediction's loss that is left."""
    return Sketch(
        init_std=lambda index: 0.0 if index in layers else 0.07,
        loss=falling(2.3, 2.3 * left),
        accuracy=flat(0.4),
    )


def test_a_network_of_copies_is_named_before_it_is_as_bad_as_a_constant() -> None:
    found = _said(_alike((0, 1, 2, 3), 0.45).history())
    assert "units can never differ" in found[0].sentence


@pytest.mark.parametrize(
    ("layers", "left"),
    [((0, 1, 2, 3), 0.1), ((1,), 0.45), ((3,), 0.45), ((1, 3), 0.45)],
)
def test_copies_that_do_no_harm_and_single_layers_of_zeros_are_not(
    layers: tuple[int, ...], left: float
) -> None:
    assert not _said(_alike(layers, left).history())


@pytest.mark.parametrize("gradient", [0.0, 1e-3])
def test_factors_of_zeros_that_never_get_a_gradient_are_named(gradient: float) -> None:
    history = Sketch(loss=falling(2.3, 2.0), accuracy=flat(0.2)).history()
    names = ("user.weight", "item.weight")
    for position, name in enumerate(names):
        table = Parameter(name, (120, 8), trainable=True, in_optimizer=True, init_std=0.0)
        history.layers = [
            *history.layers,
            Layer(name.split(".")[0], "Embedding", 90 + position, (table,), "embedding"),
        ]
        for step in range(0, 60, 10):
            history.add(
                step, "grad_l2", name, gradient if step else 0.0
            )  # the second step may be the first to have any
    found = _said(history)
    assert bool(found) == (gradient == 0.0)
    assert not found or "never get a gradient" in found[0].sentence


def test_zeros_beside_a_frozen_network_are_not() -> None:
    history = _alike((0, 1, 2, 3), 0.45).history()
    frozen = Parameter("trunk.weight", (64, 64), trainable=False, in_optimizer=False, init_std=0.1)
    history.layers = [*history.layers, Layer("trunk", "Linear", 99, (frozen,))]
    assert not _said(history)


@pytest.mark.parametrize(
    ("kind", "mean", "named"),
    [
        ("LSTM", -1.5, True),  # -6 in one of four gates
        ("GRU", -2.0, True),
        ("LSTM", 0.5, False),  # the common forget gate
        ("LSTM", -0.5, False),
        ("LSTM", 0.0, False),
        ("RNN", -1.5, False),
    ],
)
def test_gates_that_start_closed_are_named(kind: str, mean: float, named: bool) -> None:
    history = Sketch(loss=flat(2.28), accuracy=flat(0.12)).history()
    first = history.layers[0]
    biases = (
        Parameter(f"{first.name}.bias_ih_l0", (256,), init_mean=mean, init_std=2.6),
        Parameter(f"{first.name}.bias_hh_l0", (256,)),
    )
    history.layers[0] = replace(first, kind=kind, parameters=(*first.parameters, *biases))
    found = _said(history)
    assert bool(found) is named
    assert not named or "gate" in found[0].sentence


def test_weights_that_are_too_large_may_show_their_harm_in_validation_alone() -> None:
    def judged(std: float, first: float, held_out: float) -> set[str]:
        sketch = Sketch(
            loss=falling(first, 0.6),
            accuracy=flat(0.9),
            init_std=lambda index: std,
            validation=flat(held_out),
            evaluations=10,
        )
        return {d.problem for d in examine(sketch.history()).diagnoses if d.severity != "info"}

    assert "poor-initialisation" in judged(0.6, 30.0, 2.4)
    assert "poor-initialisation" in judged(0.9, 3.0, 2.4)
    # Weights of ordinary size, a loss that starts where it should, and held-out samples that are learned.
    assert "poor-initialisation" not in judged(0.07, 30.0, 2.4)
    assert "poor-initialisation" not in judged(0.5, 3.0, 2.4)
    assert "poor-initialisation" not in judged(0.9, 30.0, 0.5)


@pytest.mark.parametrize(
    ("shape", "mean", "std"), [((1, 1), -0.73, 0.0), ((1, 20), 0.0, 0.0), ((3, 20), 0.0, 0.0)]
)
def test_a_model_of_one_layer_has_no_units_that_must_differ(
    shape: tuple[int, ...], mean: float, std: float
) -> None:
    """One number has no spread, and zeros are where a linear or logistic regression usually starts."""
    history = Sketch(layers=1, loss=flat(2.2), accuracy=None, steps=60).history()
    weight = Parameter("weight", shape, init_mean=mean, init_std=std)
    history.layers = [Layer("", "Linear", 0, (weight,))]
    assert not _said(history)


def test_a_last_layer_may_start_alike_but_the_one_before_it_may_not() -> None:
    history = Sketch(layers=2, loss=flat(2.3), accuracy=flat(0.1)).history()
    equal = [Parameter("weight", shape, init_mean=0.1) for shape in ((32, 1), (32, 32), (10, 32))]
    drawn = Parameter("weight", (32, 32), init_std=0.1)

    def layers(*weights: Parameter) -> list[Layer]:
        return [
            Layer(str(i), "Linear", i, (replace(weight, name=f"{i}.weight"),))
            for i, weight in enumerate(weights)
        ]

    history.layers = layers(replace(equal[0], init_std=0.5), equal[1], equal[2])
    assert _said(history)[0].layer == "1"
    history.layers = layers(replace(equal[0], init_std=0.5), drawn, equal[2])
    assert not _said(history)


@pytest.mark.parametrize("beside", [True, False])
def test_the_spread_of_random_weights_may_start_at_one_figure(beside: bool) -> None:
    history = Sketch(layers=2, loss=flat(2.3), accuracy=flat(0.1)).history()
    mean = Parameter("0.mean", (32, 30), init_std=0.18 if beside else 0.0)
    spread = Parameter("0.rho", (32, 30), init_mean=-4.0)
    last = Parameter("1.mean", (10, 32), init_std=0.18)
    history.layers = [Layer("0", "Random", 0, (mean, spread)), Layer("1", "Random", 1, (last,))]
    assert ["can never differ" in one.sentence for one in _said(history)] == [True] * (not beside)


def test_weights_on_one_side_of_zero_are_told_by_their_mean() -> None:
    history = Sketch(layers=2, loss=flat(2.3), accuracy=flat(0.1)).history()
    shifted = [
        Parameter(f"{place}.weight", (32, 100), init_mean=0.5, init_std=0.05, trainable=True)
        for place in (0, 1)
    ]
    history.layers = [Layer(str(place), "Linear", place, (one,)) for place, one in enumerate(shifted)]
    (found,) = _said(history)
    assert "their mean of 0.5 adds up to 50 over 100 inputs" in found.sentence


@pytest.mark.parametrize("taught", [True, False])
def test_a_layer_of_zeros_that_is_taught_otherwise_is_not_what_holds_a_training_up(taught: bool) -> None:
    sketch = Sketch(
        init_std=lambda index: 0.0 if index == 1 else 0.07,
        gradient=lambda index: 0.0 if index == 1 and not taught else 1e-2,
        loss=falling(2.3, 2.25),
        accuracy=flat(0.12),
    )
    history = sketch.history()
    for step in history.series("grad_l2", "net.2.weight").steps if taught else ():
        history.add(int(step), "grad_l2", "net.2.weight", 1e-3)
    assert bool([one for one in _said(history) if "can never differ" in one.sentence]) is not taught


@pytest.mark.parametrize(("gradient", "named"), [(1e-6, True), (5.0, False)])
def test_small_weights_that_move_the_loss_from_the_first_step_on_are_small_for_a_reason(
    gradient: float, named: bool
) -> None:
    sketch = Sketch(
        loss=flat(2.3), accuracy=flat(0.1), init_std=lambda index: 0.004, gradient=lambda index: gradient
    )
    assert bool(_said(sketch.history())) is named


def _of_tables(**changes: object) -> History:
    """A model of two embeddings that are multiplied with each other, and of nothing else."""
    run = {
        "output_std": falling(5.6, 2.0, 1.0),
        "target_std": 1.0,
        "target_mean": 3.0,
        "target_min": 0.5,
        "target_max": 5.0,
    }
    facts = {
        "task": "regression",
        "loss": "mse_loss",
        "classes": 1,
        "target_kind": "values",
        "input_kind": "tokens",
    }
    sketch = Sketch(loss=falling(29.0, 3.0), baseline=1.1, accuracy=None, layers=0, run=run, facts=facts)
    history = replace(sketch, **changes).history()
    for position, name in enumerate(("user", "item")):
        table = Parameter(f"{name}.weight", (120, 32), trainable=True, in_optimizer=True, init_std=1.0)
        history.layers = [*history.layers, Layer(name, "Embedding", position, (table,), "embedding")]
    return history


def test_embeddings_whose_products_start_far_too_large_are_named() -> None:
    found = _said(_of_tables())
    assert "The embeddings start too large" in found[0].sentence


def test_embeddings_that_come_down_in_time_or_start_as_they_should_are_not() -> None:
    assert not _said(_of_tables(loss=falling(29.0, 0.2, 20.0)))
    assert not _said(_of_tables(loss=falling(1.1, 0.3)))
    # A loss that starts high for another reason, as a mean that is not known yet, is no matter of their size.
    far = {"output_std": 0.1, "target_std": 1.0, "target_mean": 5.0, "target_min": 2.0, "target_max": 8.0}
    assert not _said(_of_tables(run=far))
