"""What layers do: unused, silent, exploding, forgetting."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from akeso.detectors import network
from akeso.detectors.regularisation import OverRegularised
from akeso.detectors.standing import standing
from akeso.detectors.testing import Sketch, falling, flat, remade
from akeso.examination import examine
from akeso.history import BARE, Event, History
from tests.detectors.sketches import LEARNS, first, over_time, values


def test_a_layer_that_is_never_used_is_no_problem_but_one_cut_off_is():
    events = (Event(8, "detached", "net.0.weight", {"reason": "no-grad"}),)
    history = Sketch(events=events).history()
    fresh = replace(history.layers[0].parameters[0], init_std=1 / math.sqrt(3 * 64))
    history.layers[0] = replace(history.layers[0], parameters=(fresh,))
    assert [d.problem for d in examine(history).diagnoses if d.severity != "info"] == [
        "parameters-not-trained"
    ]
    history.layers[0] = replace(history.layers[0], visible=False)
    assert examine(history).status == "healthy"


def test_layers_with_nothing_between_them_are_mentioned() -> None:
    straight = Sketch(
        loss=flat(2.3), accuracy=flat(0.1), facts={"activations": {}, "layers_seen": 4}, update=lambda i: 1e-4
    )
    bent = Sketch(loss=flat(2.3), accuracy=flat(0.1), facts={"layers_seen": 4}, update=lambda i: 1e-4)
    said = [
        " ".join(d.sentence for d in examine(sketch.history()).diagnoses if d.problem == "slow-convergence")
        for sketch in (straight, bent)
    ]
    assert "No activation function was seen" in said[0]
    assert said[1]
    assert "No activation function was seen" not in said[1]


def test_a_layer_that_is_silent_nearly_everywhere_is_as_good_as_dead() -> None:
    silent = Sketch(zero=lambda i: 0.995, loss=falling(2.3, 2.15), accuracy=flat(0.12))
    assert first(silent) == "dying-relu"
    assert first(replace(silent, zero=lambda i: 0.9)) != "dying-relu"
    assert first(replace(silent, loss=LEARNS, accuracy=lambda s: 0.1 + 0.85 * s)) is None


def test_a_model_of_nothing_but_tables_can_explode() -> None:
    def tables(gradient: float, last: float) -> str | None:
        sketch = Sketch(
            gradient=lambda i: gradient,
            init_std=lambda i: 1.0,
            loss=falling(900.0 if last > 1 else 0.7, last),
            baseline=0.69,
            accuracy=flat(0.5) if last > 1 else flat(0.95),
            run={"target_top_share": 0.5},
            facts={"input_kind": "tokens", "classes": 2, "task": "binary"},
        )
        history = sketch.history()
        history.layers = [replace(layer, kind="Embedding", role="embedding") for layer in history.layers]
        return next((d.problem for d in examine(history).diagnoses if d.severity != "info"), None)

    assert tables(3.0, 6.0) == "exploding-gradient"
    assert tables(1e-3, 0.1) is None


def test_a_gradient_that_exploded_counts_while_the_loss_is_above_a_constant_s_whatever_the_accuracy() -> None:
    blown = Sketch(gradient=lambda i: 3e3, loss=falling(900.0, 20.0), accuracy=lambda s: 0.1 + 0.8 * s)
    assert first(blown) == "exploding-gradient"
    assert first(replace(blown, loss=falling(900.0, 0.4, 20.0))) != "exploding-gradient"


def test_recurrent_weights_that_start_near_zero_forget() -> None:
    def judged(std: float, kind: str, loss: float) -> str | None:
        sketch = Sketch(layers=3, loss=falling(2.3, loss, 2.0), accuracy=flat(0.3 if loss > 1 else 0.9))
        history = sketch.history()
        state = replace(history.layers[0].parameters[0], name="rnn.weight_hh_l0", init_std=std)
        history.layers[0] = replace(
            history.layers[0], name="rnn", kind=kind, role="recurrent", parameters=(state,)
        )
        return next((d.problem for d in examine(history).diagnoses if d.severity != "info"), None)

    assert judged(0.01, "RNN", 1.5) == "poor-initialisation"
    assert judged(0.07, "RNN", 1.5) is None
    assert judged(0.01, "LSTM", 1.5) is None  # its gates remember
    assert judged(0.01, "RNN", 0.3) is None


def test_recurrent_weights_that_start_large_echo_where_the_loss_starts_far_above_a_constant_s() -> None:
    def judged(std: float, kind: str, start: float) -> str | None:
        sketch = Sketch(layers=3, loss=falling(start, 0.9 * start), baseline=1.0, accuracy=flat(0.1))
        history = sketch.history()
        state = replace(history.layers[0].parameters[0], name="rnn.weight_hh_l0", init_std=std)
        history.layers[0] = replace(
            history.layers[0], name="rnn", kind=kind, role="recurrent", parameters=(state,)
        )
        return next(
            (d.sentence for d in examine(history).diagnoses if d.problem == "poor-initialisation"), None
        )

    assert "from step to step" in (judged(1.0, "RNN", 1e20) or "")
    assert judged(1.0, "RNN", 1.2) is None
    assert judged(1.0, "LSTM", 1e20) is None
    assert judged(0.05, "RNN", 1e20) is None


def test_where_no_weight_gets_any_gradient_dead_layers_need_no_loss_to_be_judged_by() -> None:
    dead: dict[str, Any] = {
        "dead": lambda i: 1.0,
        "zero": lambda i: 1.0,
        "baseline": math.nan,
        "accuracy": None,
    }
    stopped = Sketch(**dead, gradient=lambda i: 0.0, loss=falling(0.3, -0.03), facts={"loss": "custom"})
    assert first(stopped) == "dying-relu"
    assert first(replace(stopped, gradient=lambda i: 0.05)) != "dying-relu"


def test_a_loss_that_comes_down_while_every_answer_is_the_same_promises_nothing() -> None:
    dead: dict[str, Any] = {**values(0.0, 33.0), "loss": falling(135.0, 1.0, 6.0), "steps": 400}
    still = Sketch(**dead, dead=lambda i: 1.0, zero=lambda i: 1.0)
    assert standing(replace(still, run={**still.run, "output_sample_std": 0.0}).history()).uniform
    assert not standing(replace(still, run={**still.run, "output_sample_std": 0.2}).history()).uniform
    half = [replace(still, run={**still.run, "output_sample_std": value}) for value in (0.0, 0.2)]
    parts = [sketch.history().until(100) for sketch in half]
    assert [standing(part).suffers(0.8) for part in parts] == [True, False]


@pytest.mark.parametrize(("names", "named"), [(("query", "key"), False), (("q_proj", "k_proj"), False),
                                              (("first", "second"), True)])  # fmt: skip
def test_queries_and_keys_say_nothing_of_the_gradient_that_flows_past_them(
    names: tuple[str, str], named: bool
) -> None:
    tiny = Sketch(layers=8, gradient=lambda i: 1e-6 if i < 2 else 0.05, loss=falling(2.3, 1.4, 2.0),
                  accuracy=lambda s: 0.1 + 0.3 * s)  # fmt: skip
    history = tiny.history()
    order = [place for place, layer in enumerate(history.layers) if layer.parameters]
    for place, name in zip(order, names, strict=False):
        history.layers[place] = replace(history.layers[place], name=f"block.{name}")
    found = [d.problem for d in examine(history).diagnoses if d.severity != "info"]
    assert ("vanishing-gradient" in found) == named


@pytest.mark.parametrize(
    ("layer", "kind", "multiplied"),
    [
        ("embedding_net.fc", "Linear", True),
        ("patch_embedding", "Conv2d", True),
        ("words", "Embedding", False),
        ("model.position_embedding", BARE, False),
        ("embedding_net.mixer", BARE, True),
    ],
)
def test_a_model_may_be_called_an_embedding_and_still_multiply(
    layer: str, kind: str, multiplied: bool
) -> None:
    history = Sketch(layers=1).history()
    (parameter,) = history.layers[0].parameters[:1]
    history.layers = [replace(history.layers[0], name=layer, kind=kind, role="", parameters=(parameter,))]
    assert (len(network.weights(history)), len(network.tables(history))) == ((1, 0) if multiplied else (0, 1))


@pytest.mark.parametrize(
    ("sizes", "kept"), [([1.0, 0.9, 0.5, 0.4, 0.2], 0.3), ([1.0, 0.9, 0.5, 0.6, 1.3], 0.95)]
)
def test_what_is_left_of_weights_is_read_late_in_the_run(sizes: list[float], kept: float) -> None:
    history = History()
    history.layers = Sketch(layers=1).history().layers
    (weight,) = network.weights(history)
    for step, size in zip((0, 1, 28, 56, 112), sizes, strict=True):
        history.add(step, "weight_l2", weight.name, size)
    assert OverRegularised()._kept(history) == pytest.approx(kept)


@pytest.mark.parametrize(("reason", "severity"), [("no-grad", "info"), ("not-in-optimizer", "warning")])
def test_a_last_layer_that_nobody_wants_is_a_remark_and_one_that_nobody_trains_is_not(
    reason: str, severity: str
) -> None:
    history = Sketch(loss=LEARNS, accuracy=lambda s: 0.1 + 0.85 * s).history()
    last = max((layer for layer in history.layers if layer.parameters), key=lambda layer: layer.order)
    fan_in = math.prod(last.parameters[0].shape[1:])
    fresh = replace(last.parameters[0], init_std=1 / math.sqrt(3 * fan_in))
    history.layers = [replace(one, parameters=(fresh,)) if one is last else one for one in history.layers]
    history.events.append(Event(8, "detached", fresh.name, {"reason": reason}))
    (found,) = (one for one in examine(history).diagnoses if one.problem == "parameters-not-trained")
    assert found.severity == severity


@pytest.mark.parametrize("trained", [False, True])
def test_weights_of_any_scheme_that_no_optimizer_has_are_missed_unless_they_were_trained(
    trained: bool,
) -> None:
    history = Sketch(loss=LEARNS, accuracy=lambda s: 0.1 + 0.85 * s).history()
    grown = 1.3 if trained else 1.0
    history.layers = [
        replace(layer, parameters=(replace(one, init_std=grown * math.sqrt(2 / sum(one.shape))),))
        for layer in history.layers
        for one in layer.parameters[:1]
    ]
    for layer in history.layers[:3]:
        history.events.append(Event(8, "detached", layer.parameters[0].name, {"reason": "not-in-optimizer"}))
    (found,) = (one for one in examine(history).diagnoses if one.problem == "parameters-not-trained")
    assert found.severity == ("info" if trained else "warning")


def test_weights_that_decay_because_no_gradient_reaches_them_are_not_over_regularised() -> None:
    facts = {"optimizers": [{"name": "Adam", "lr": 1e-2, "weight_decay": 5e-4}]}
    sketch = Sketch(loss=flat(2.3), accuracy=flat(0.1), facts=facts, gradient=lambda index: 1e-12)
    history = over_time(sketch.history(), "weight_l2", lambda _, share, value: value * (1.001 - share))
    assert "over-regularised" not in {one.problem for one in examine(history).diagnoses}
    kept = over_time(
        replace(sketch, gradient=lambda index: 1e-3).history(),
        "weight_l2",
        lambda _, share, value: value * (1.001 - share),
    )
    assert "over-regularised" in {one.problem for one in examine(kept).diagnoses}


def test_dropout_of_nearly_everything_is_named_though_the_loss_still_falls_at_the_end() -> None:
    sketch = Sketch(loss=falling(2.3, 1.6, 1.5), accuracy=lambda share: 0.1 + 0.2 * share)
    assert first(replace(sketch, facts={"dropout": {"net.1": 0.9}})) == "over-regularised"
    assert first(replace(sketch, facts={"dropout": {"net.1": 0.5}})) != "over-regularised"


@pytest.mark.parametrize(
    ("decay", "size", "left", "named"),
    [(30.0, 0.03, 0.36, True), (0.1, 0.03, 0.36, False), (30.0, 0.5, 0.36, False), (30.0, 0.03, 0.1, False)],
    ids=["worn away", "ordinary decay", "kept", "learnt"],
)
def test_weights_that_decay_has_worn_away_are_named_though_something_is_learnt(
    decay: float, size: float, left: float, named: bool
) -> None:
    facts = {"optimizers": [{"name": "AdamW", "lr": 1e-4, "weight_decay": decay}]}
    sketch = Sketch(loss=falling(2.3, 2.3 * left), facts=facts)
    history = over_time(
        sketch.history(), "weight_l2", lambda _, share, value: value * (1.0 - share * (1.0 - size))
    )
    found = [one for one in examine(history).diagnoses if one.problem == "over-regularised"]
    assert bool(found) is named
    assert all(one.severity == "warning" for one in found)


def test_what_is_but_a_number_in_a_model_is_called_a_layer_where_the_signal_vanishes() -> None:
    still = Sketch(layers=6, varies=lambda i: 1e-7 if i > 2 else 0.5, loss=flat(2.3), accuracy=flat(0.1))
    numbered = remade(
        still.history(),
        lambda step, signal, scope, value: (
            step,
            scope.removeprefix("net.") if signal == "act_sample_std" else scope,
            value,
        ),
    )
    said = " ".join(found.sentence for found in examine(numbered).diagnoses)
    assert "the output of layer 9 hardly depends" in said
