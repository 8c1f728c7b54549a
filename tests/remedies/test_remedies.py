"""Doses by what a history shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from akeso.diagnosis import Diagnosis
from akeso.history import Event, History, Layer, Parameter
from akeso.remedies import TABLE, candidates, treatable
from akeso.remedies.autotrainer import ORDERS, solution
from akeso.remedies.chart import chart
from akeso.remedies.edit import Prescription


def _found(problem: str, severity: Any = "error", step: int = 5) -> Diagnosis:
    return Diagnosis(problem, severity, 0.9, "", step, {}, (), (), "")


def _history(**facts: Any) -> History:
    history = History(planned_steps=400)
    optimizer = {"name": facts.pop("optimizer", "Adam"), "lr": facts.pop("lr", 1e-3)}
    batch = facts.pop("batch", 32)
    std = facts.pop("std", 0.2)
    kind = facts.pop("kind", "Linear")
    history.facts.update({"optimizers": [optimizer], "task": "multiclass", "loss": "cross_entropy", "classes": 3,
                          "output_activation": "none", **facts})  # fmt: skip
    history.add(0, "batch_size", "", batch)
    weight = Parameter("0.weight", (25, 25), init_std=std)
    history.layers = [Layer(str(number), kind, number, (weight,)) for number in range(8)]
    return history


def _remedies(history: History, *problems: str) -> list[list[str]]:
    found = candidates(history, [_found(problem) for problem in problems])
    return [[edit.remedy for edit in candidate.prescription] for candidate in found]


@pytest.mark.parametrize(
    "remedy", [remedy for line in TABLE.values() for remedy in line], ids=lambda r: type(r).__name__
)
def test_no_remedy_raises_on_an_empty_history(remedy: Any) -> None:
    for dose in remedy.prescribe(History(), []):
        assert isinstance(dose, Prescription)
        assert Prescription.from_list(dose.to_list()) == dose


def test_squashing_activations_are_replaced_with_fitting_weights() -> None:
    history = _history(activations={"1": "Sigmoid", "3": "Sigmoid", "5": "Tanh"})
    first = candidates(history, [_found("vanishing-gradient")])[0].prescription
    assert first[0].values == {"from": "Sigmoid", "to": "SELU"}
    assert first[1].remedy == "reinitialise"


def test_a_signal_that_vanishes_under_long_steps_calls_for_shorter_ones() -> None:
    history = _history(activations={"1": "ReLU"}, optimizer="SGD", lr=0.8)
    first = candidates(history, [_found("vanishing-gradient", step=24)])[0].prescription
    assert [edit.values for edit in first] == [{"to": 0.05}]
    assert "set-learning-rate" not in str(_remedies(_history(optimizer="SGD", lr=0.05), "vanishing-gradient"))
    from_the_start = candidates(history, [_found("vanishing-gradient", step=0)])
    assert "set-learning-rate" not in str([cure.prescription for cure in from_the_start])


def test_shortcuts_come_with_norms_and_first_in_very_deep_stacks() -> None:
    history = _history(activations={"1": "ReLU"})
    history.layers = history.layers * 2
    for problem in ("vanishing-gradient", "slow-convergence"):
        first = _remedies(history, problem)[0]
        assert first == ["insert-normalisation", "add-residual", "reinitialise"]
    history.layers.append(Layer("norm", "BatchNorm1d", 9))
    assert _remedies(history, "slow-convergence")[0] == ["add-residual", "reinitialise"]


def test_layer_normalisation_where_batches_are_small_or_models_recurrent() -> None:
    def kind(history: History) -> str:
        doses = [c.prescription for c in candidates(history, [_found("poor-initialisation")])]
        return next(str(edit.values["kind"]) for dose in doses for edit in dose.of("insert-normalisation"))

    assert kind(_history()) == "batch"
    assert kind(_history(batch=4)) == "layer"
    assert kind(_history(kind="LSTM")) == "layer"


def test_rates_are_dosed_by_optimizer_and_direction() -> None:
    high = candidates(_history(optimizer="Adam", lr=0.3), [_found("learning-rate-too-high")])[0].prescription
    assert high[0].values["to"] == pytest.approx(1e-3)
    low = candidates(_history(optimizer="SGD", lr=1e-6), [_found("learning-rate-too-low")])[0].prescription
    assert low[0].values["to"] == pytest.approx(0.05)
    nowhere = candidates(_history(optimizer="SGD", lr=5.0), [_found("slow-convergence")])[0].prescription
    assert nowhere[0].values["to"] == pytest.approx(0.05)


def test_an_optimizer_with_odd_options_gets_ordinary_ones_before_any_other_rate() -> None:
    history = _history()
    history.facts["optimizers"] = [{"name": "Adam", "lr": 0.01, "eps": 1.0, "betas": [0.9, 0.999]}]
    for problem in ("slow-convergence", "oscillating-loss", "constant-prediction"):
        found = [c.prescription for c in candidates(history, [_found(problem)])]
        assert found[0][0].values == {"to": "Adam", "lr": 0.01}
        rates = {"set-learning-rate", "find-learning-rate", "warm-up", "hold-learning-rate", "clip-gradient"}
        assert not any(all(edit.remedy in rates for edit in cure) for cure in found)
    history.facts["optimizers"] = [{"name": "SGD", "lr": 0.5, "momentum": 0.999}]
    first = candidates(history, [_found("learning-rate-too-high")])[0].prescription
    assert first[0].values == {"to": "SGD", "lr": 0.01, "momentum": 0.9}
    history.facts["optimizers"] = [{"name": "Adam", "lr": 0.01, "eps": 1e-3, "betas": [0.9, 0.99]}]
    assert not chart(history).odd_options
    history.facts["optimizers"] = [{"name": "Mine", "lr": 0.01, "eps": 1.0}]
    assert "set-learning-rate" in str(
        _remedies(history, "learning-rate-too-high")
    )  # it has no ordinary options


def test_a_rate_that_a_schedule_raises_is_held_where_it_is_lowered() -> None:
    history = _history(optimizer="SGD", lr=0.01)
    for step, rate in enumerate((0.01, 1.0, 2.0, 1.0)):
        history.add(step, "lr", "0", rate)
    first = candidates(history, [_found("learning-rate-too-high")])[0].prescription
    assert [edit.remedy for edit in first] == ["hold-learning-rate", "set-learning-rate"]
    assert first[1].values["to"] == pytest.approx(0.05)
    assert _remedies(_history(optimizer="SGD", lr=2.0), "learning-rate-too-high")[0] == ["set-learning-rate"]


def test_a_few_wild_targets_call_for_a_loss_that_bears_them() -> None:
    history = _history(task="regression", loss="mse_loss", target_kind="values", classes=1)
    for step in range(20):
        history.add(step, "target_min", "", -2.0)
        history.add(step, "target_max", "", 2.0 if step != 7 else 300.0)
    assert candidates(history, [_found("exploding-gradient")])[0].prescription[0].values["to"] == "huber_loss"
    tame = _history(task="regression", loss="mse_loss", target_kind="values", classes=1)
    for step in range(20):
        tame.add(step, "target_outlier", "", 5.0)
        tame.add(step, "target_min", "", -2.0)
        tame.add(step, "target_max", "", 2.0 + step / 10)
    assert not any("substitute-loss" in cure for cure in _remedies(tame, "exploding-gradient"))


def test_codes_in_inputs_and_targets_call_for_clean_inputs_and_a_loss_that_bears_the_targets() -> None:
    history = _history(
        task="regression", loss="mse_loss", target_kind="values", classes=1, input_kind="values"
    )
    for step in range(20):
        history.add(step, "target_min", "", -999.0)
        history.add(step, "target_max", "", 2.0)
        history.add(step, "target_std", "", 120.0)
        history.add(step, "target_outlier", "", 700.0)
    found = replace(_found("abnormal-data"), evidence={"input_code": -999.0, "target_std": 120.0})
    first = candidates(history, [found])[0].prescription
    assert [edit.remedy for edit in first] == ["scale-inputs", "substitute-loss"]
    assert first[1].values["to"] == "huber_loss"


def test_a_rate_far_below_the_usual_one_is_raised_first_where_all_answers_are_alike() -> None:
    found = [c.prescription for c in candidates(_history(lr=1e-5), [_found("constant-prediction")])]
    assert [cure[0].values.get("to") for cure in found[:2]] == [pytest.approx(1e-3), pytest.approx(5e-3)]
    assert not any(cure[0].values.get("to") == pytest.approx(1e-6) for cure in found)


@pytest.mark.parametrize(
    ("mean", "std", "largest", "odd"),
    [(0.0, 1.0, 4.0, False), (0.13, 0.31, 1.0, False), (0.0, 40.0, 999.0, True), (-2.0, 0.13, 2.2, True),
     (0.0, 1.0, 300.0, True), (0.0, 0.01, 0.05, True), (110.0, 70.0, 255.0, True)],
)  # fmt: skip
def test_odd_inputs_are_told_from_ordinary_ones(mean: float, std: float, largest: float, odd: bool) -> None:
    history = _history()
    for signal, value in (("mean", mean), ("std", std), ("max", largest), ("min", -1.0)):
        history.add(0, f"input_{signal}", "", value)
    assert chart(history).odd_inputs is odd
    assert not chart(History()).odd_inputs


def test_double_softmax_loses_one_and_a_wrong_loss_is_replaced() -> None:
    double = candidates(_history(output_activation="softmax"), [_found("improper-output-activation")])[
        0
    ].prescription
    assert [edit.to_dict() for edit in double] == [
        {"remedy": "substitute-activation", "from": "Softmax", "to": "none", "where": "output"}
    ]
    squared = _history(loss="mse_loss", output_activation="softmax", target_kind="one-hot")
    assert _remedies(squared, "improper-loss")[0] == ["substitute-activation", "substitute-loss"]
    squared.facts["task"] = "binary"
    squared.facts["classes"] = 1
    cure = candidates(squared, [_found("improper-loss")])[0].prescription
    assert cure[1].values["to"] == "binary_cross_entropy_with_logits"


def test_targets_are_standardised_only_where_they_need_it() -> None:
    history = _history(task="regression", loss="mse_loss")
    history.add(0, "target_max", "", 5e5)
    both = ["scale-inputs", "standardise-targets"]
    assert _remedies(history, "abnormal-data")[:2] == [["standardise-targets"], both]
    # Inputs that are out of scale as well come first, whoever says so.
    found = replace(_found("abnormal-data"), evidence={"input_std": 4e6, "target_mean": 4e5})
    assert [edit.remedy for edit in candidates(history, [found])[0].prescription] == both
    history.add(0, "input_std", "", 4e6)
    assert _remedies(history, "abnormal-data")[0] == both
    assert _remedies(_history(), "abnormal-data") == [["scale-inputs"]]


@pytest.mark.parametrize(("size", "kinds"), [(1.0, ["none", "standard"]), (400.0, ["standard"])])
def test_missing_values_among_ordinary_ones_are_imputed_and_the_rest_is_left(
    size: float, kinds: list[str]
) -> None:
    history = _history()
    for step in range(4):
        history.add(step, "input_nonfinite", "", 0.1 if step == 2 else 0.0)
        history.add(step, "input_std", "", size)
        history.add(step, "input_max", "", 3 * size)
    found = candidates(history, [_found("abnormal-data")])
    doses = [
        edit.values["kind"] for one in found for edit in one.prescription if edit.remedy == "scale-inputs"
    ]
    assert doses == kinds


@pytest.mark.parametrize(("share", "prescribed"), [(0.9, True), (0.2, False)])
def test_dropout_that_is_low_already_is_not_lowered(share: float, prescribed: bool) -> None:
    history = _history(dropout={"1": share})
    history.layers.append(Layer("1", "Dropout", 9))
    assert (["set-dropout"] in _remedies(history, "over-regularised")) == prescribed


def test_roots_come_first_and_nothing_twice() -> None:
    history = _history(activations={"1": "ReLU"}, std=2.0)
    found = candidates(
        history, [_found("poor-initialisation"), _found("exploding-gradient"), _found("non-finite")]
    )
    assert found[0].prescription[0].remedy == "reinitialise"
    cures = [candidate.prescription for candidate in found]
    assert len(cures) == len(set(cures))


def test_remarks_and_what_has_no_cure_are_not_treated() -> None:
    assert treatable([_found("overfitting", "info"), _found("unlearnable-labels")]) == ()
    assert [found.problem for found in treatable([_found("slow-convergence", "warning")])] == [
        "slow-convergence"
    ]


def test_the_chart_sees_weights_out_of_range() -> None:
    assert not chart(_history(std=0.2)).weights_off
    assert chart(_history(std=0.001)).weights_off
    assert chart(_history(std=2.0)).weights_large


@pytest.mark.parametrize("problem", ORDERS)
def test_autotrainer_has_a_dose_of_every_solution(problem: str) -> None:
    history = _history(activations={"1": "Sigmoid"}, loss="mse_loss", output_activation="relu")
    for code in ORDERS[problem]:
        doses = solution(code, problem, history)
        assert doses
        assert all(doses)
    assert ORDERS["exploding-gradient"] == ("S2", "S1", "S3")


def test_autotrainer_doubles_batches_and_clips_to_ten() -> None:
    history = _history()
    sizes = [dose[0].values["to"] for dose in solution("S5", "oscillating-loss", history)]
    assert sizes == [32, 64, 128, 256]
    assert solution("S3", "exploding-gradient", history)[0][0].values == {"kind": "value", "limit": 10.0}
    assert [dose[0].values["to"] for dose in solution("S6", "slow-convergence", history)] == [0.001, 0.01]


def test_gradients_that_are_clipped_with_their_loss_scale_lose_it_first() -> None:
    def first(norm: float, scale: float) -> str:
        history = _history(optimizer="SGD", lr=0.1)
        for step in range(5):
            history.add(step, "grad_norm_raw", "", 2.0)
            history.add(step, "grad_norm", "", norm)
            history.add(step, "clip_limit", "", 0.5)
            history.add(step, "loss_scale", "", scale)
        return _remedies(history, "learning-rate-too-low")[0][0]

    assert first(0.5 / 65536, 65536.0) == "unscale-gradients"
    assert first(0.5, 65536.0) != "unscale-gradients"  # unscaled before, as it should be
    assert first(0.5, 1.0) != "unscale-gradients"


def test_what_is_in_no_optimizer_is_added_and_what_is_frozen_stays_so() -> None:
    history = _history()
    frozen = Parameter("body.weight", (25, 25), trainable=False)
    history.layers.append(Layer("body", "Linear", 9, (frozen,)))
    left_out = replace(_found("parameters-not-trained"), evidence={"reason": "not-in-optimizer"})

    def cures(found: Diagnosis) -> list[dict[str, Any]]:
        return [candidate.prescription.to_list() for candidate in candidates(history, [found])]

    assert cures(left_out) == [[{"remedy": "add-to-optimizer", "where": "all"}]]
    drawn = [
        Parameter(f"{name}.weight", (25, 25), trainable=False, init_mean=0.0, init_std=0.115) for name in "ab"
    ]
    history.layers[-1] = Layer("body", "Sequential", 9, tuple(drawn))
    freed = [{"remedy": "unfreeze", "where": "all"}, {"remedy": "add-to-optimizer", "where": "all"}]
    assert cures(left_out) == [[freed[1]], freed]  # nothing seems to have been loaded into them
    history.layers[-1] = Layer("body", "Linear", 9, (frozen,))
    assert cures(_found("parameters-not-trained"))[0][0] == {"remedy": "unfreeze", "where": "all"}
    history.events.append(Event(100, "optimizer", "1"))
    for step in range(100, 160):
        for name in ("lr", "loss"):
            history.add(step, name, "1", 0.1)
    assert cures(left_out)[0][0]["stage"] == "last"


def test_a_recurrent_layer_along_the_wrong_axis_is_turned() -> None:
    found = replace(_found("wrong-axis"), layer="net.rnn")
    cure = candidates(_history(), [found])[0].prescription
    assert cure.to_list() == [{"remedy": "turn-recurrence", "where": "net.rnn"}]


def test_pictures_whose_axes_were_only_renamed_are_turned() -> None:
    found = replace(_found("wrong-axis"), evidence={"input_interleaved": 1.5})
    cures = [candidate.prescription.to_list() for candidate in candidates(_history(), [found])]
    assert cures == [[{"remedy": "turn-pictures"}]]


def test_embeddings_that_start_too_large_are_drawn_small() -> None:
    found = replace(_found("poor-initialisation"), evidence={"first_output_over_target_std": 8.0})
    first = candidates(_history(), [found])[0].prescription[0]
    assert (first.remedy, first.values["tables"]) == ("reinitialise", "small")
    assert "tables" not in candidates(_history(), [_found("poor-initialisation")])[0].prescription[0].values


@pytest.mark.parametrize(("sure", "classes", "factor"), [(0.02, 200, 7.1), (0.4, 10, 3.8), (0.9, 2, 2.1)])
def test_logits_too_close_together_get_the_factor_that_makes_answers_sure(
    sure: float, classes: int, factor: float
) -> None:
    history = _history(task="multiclass", loss="cross_entropy", classes=classes, target_kind="indices")
    found = replace(_found("improper-output-activation"), evidence={"output_confidence": sure})
    first = candidates(history, [found])[0].prescription
    assert [(edit.remedy, edit.values["factor"]) for edit in first] == [("scale-logits", factor)]
    others = candidates(history, [_found("improper-output-activation")])
    assert not any(one.prescription.of("scale-logits") for one in others)


@pytest.mark.parametrize(
    ("output", "told"), [("exp", True), ("softplus", True), ("none", False), ("tanh", False)]
)
def test_a_loss_of_counts_on_rates_is_told_so_before_it_is_exchanged(output: str, told: bool) -> None:
    history = _history(task="regression", loss="poisson_nll_loss", loss_args={"log_input": True},
                       output_activation=output, target_kind="values")  # fmt: skip
    first = candidates(history, [_found("improper-loss")])[0].prescription[0]
    assert (first.values.get("log_input") is False) is told


def test_clipping_that_takes_nearly_everything_is_loosened_first() -> None:
    def first(norm: float, limit: float, optimizer: str = "SGD") -> str:
        history = _history(optimizer=optimizer, lr=0.1)
        for step in range(5):
            history.add(step, "grad_norm_raw", "", norm)
            history.add(step, "clip_limit", "", limit)
        return _remedies(history, "slow-convergence")[0][0]

    assert first(0.5, 1e-4) == "loosen-clipping"
    assert first(0.5, 0.1) != "loosen-clipping"  # ordinary clipping
    assert first(100.0, 1.0) != "loosen-clipping"  # tight against wild gradients, as many clip on purpose
    assert first(0.5, 1e-4, "Adam") != "loosen-clipping"  # whose steps are as long whatever is clipped


def test_batches_of_one_class_each_are_shuffled() -> None:
    sorted_ = Diagnosis("abnormal-data", "error", 0.9, "", 0, {"target_top_share": 1.0}, (), (), "")
    assert str(candidates(_history(), [sorted_])[0].prescription[0].remedy) == "shuffle-data"
    assert "shuffle-data" not in str(_remedies(_history(), "abnormal-data"))


def test_a_softmax_over_one_unit_becomes_a_sigmoid() -> None:
    history = _history(task="binary", loss="binary_cross_entropy", classes=1)
    history.facts["output_activation"] = "softmax"
    first = candidates(history, [_found("improper-output-activation")])[0].prescription
    assert first[0].values == {"from": "Softmax", "to": "Sigmoid"}


def test_a_warm_up_longer_than_the_training_is_taken_off() -> None:
    history = _history(optimizer="AdamW", lr=3e-8)
    history.planned_steps = 400
    for step in range(0, 80, 8):
        history.add(step, "lr", "0", 3e-3 * (step + 1) / 100_000)
    assert chart(history).rate_creeps
    assert _remedies(history, "learning-rate-too-low")[0] == ["hold-learning-rate"]
    usual = _history(optimizer="AdamW", lr=3e-4)
    usual.planned_steps = 400
    for step in range(0, 16, 2):
        usual.add(step, "lr", "0", 3e-3 * (step + 1) / 40)
    assert not chart(usual).rate_creeps


def test_functions_are_guarded_where_nothing_had_grown() -> None:
    assert ["guard-functions"] in _remedies(_history(), "non-finite")
    grown = [_found("exploding-gradient"), _found("non-finite")]
    assert "guard-functions" not in str([c.prescription for c in candidates(_history(), grown)])


@pytest.mark.parametrize(
    ("seen", "taken"),
    [((0.0, 255.0), (0.0, 255.0)), ((-1.0, 1.0), (-1.0, 1.0)), ((3.0, 255.0), (0.0, 255.0))],
)
def test_targets_beyond_what_the_loss_wants_are_scaled(
    seen: tuple[float, float], taken: tuple[float, float]
) -> None:
    found = replace(_found("improper-loss"), evidence={"target_range": list(seen)})
    history = _history(loss="binary_cross_entropy_with_logits", classes=1)
    first = candidates(history, [found])[0].prescription
    assert [dict(edit.values) for edit in first.of("scale-targets")] == [{"low": taken[0], "high": taken[1]}]
    within = replace(found, evidence={"target_range": [0.0, 1.0]})
    assert not any(one.prescription.of("scale-targets") for one in candidates(history, [within]))


def test_a_summed_loss_is_averaged_before_any_rate_is_lowered() -> None:
    history = _history(task="regression", loss="mse_loss", loss_args={"reduction": "sum"})
    for problem in ("learning-rate-too-high", "exploding-gradient"):
        assert _remedies(history, problem)[0] == ["mean-reduction"]
    assert _remedies(_history(), "learning-rate-too-high")[0] != ["mean-reduction"]


def test_values_under_a_sigmoid_lose_it_in_the_model_and_get_their_units() -> None:
    history = _history(task="regression", loss="mse_loss", output_activation="sigmoid", classes=1)
    first = candidates(history, [_found("improper-output-activation")])[0].prescription
    assert first[0].values == {"from": "Sigmoid", "to": "none", "in": "model"}
    coded = _history(task="autoencoder", loss="mse_loss", output_activation="sigmoid", classes=1)
    cure = candidates(coded, [_found("improper-output-activation")])[0].prescription
    assert cure[0].values == {"from": "Sigmoid", "to": "none", "in": "model"}
    several = _history(
        task="multilabel", loss="binary_cross_entropy_with_logits", output_activation="log_softmax"
    )
    cure = candidates(several, [_found("improper-output-activation")])[0].prescription
    assert cure[0].values == {"from": "LogSoftmax", "to": "none", "in": "model"}
    history.add(0, "target_max", "", 100.0)
    units = candidates(history, [_found("improper-output-activation")])[0].prescription
    assert [edit.remedy for edit in units] == ["substitute-activation", "standardise-targets"]


def test_a_divergence_of_probabilities_gets_their_logarithm() -> None:
    history = _history(loss="kl_div", output_activation="softmax", target_kind="distribution")
    first = candidates(history, [_found("improper-output-activation")])[0].prescription
    assert first[0].values["to"] == "LogSoftmax"


def test_a_function_that_was_seen_at_its_edge_is_guarded_first() -> None:
    seen = Diagnosis("non-finite", "error", 0.99, "", 3, {"function": "sqrt"}, (), (), "")
    assert candidates(_history(), [seen])[0].prescription[0].remedy == "guard-functions"


def _first_dose(**facts: Any) -> list[dict[str, Any]]:
    found = candidates(_history(**facts), [_found("improper-output-activation")])
    return [{**edit.values, "where": edit.where} for edit in found[0].prescription]


def test_the_output_gets_what_a_loss_is_made_for() -> None:
    answers = {"task": "binary", "classes": 1, "target_kind": "binary", "loss": "binary_cross_entropy"}
    for output, known in (("none", "none"), ("relu", "ReLU"), ("softmax", "Softmax")):
        assert _first_dose(**answers, output_activation=output) == [
            {"from": known, "to": "Sigmoid", "where": "output"}
        ]
    # By hand the logarithm is taken in the loss, and it wants probabilities.
    classes = {"loss": "nll_loss", "loss_args": {"by_hand": True}, "target_kind": "indices"}
    assert _first_dose(**classes, output_activation="relu")[0]["to"] == "Softmax"
    assert _first_dose(loss="nll_loss", target_kind="indices")[0]["to"] == "cross_entropy"
    # Probabilities need no more than their logarithm.
    (logarithm,) = _first_dose(loss="nll_loss", target_kind="indices", output_activation="softmax")
    assert logarithm == {"from": "Softmax", "to": "LogSoftmax", "where": "output"}
    # Nothing but the function is in question where answers and targets are of different lengths.
    (aligned,) = _first_dose(loss="ctc_loss")
    assert aligned == {"from": "everything", "to": "LogSoftmax", "where": "output"}
    # The right function found wrong is one over the wrong axis.
    again = _first_dose(loss="nll_loss", target_kind="indices", output_activation="log_softmax")
    assert again == [{"from": "LogSoftmax", "to": "LogSoftmax", "in": "model", "where": "output"}]


def test_a_loss_of_values_is_exchanged_alone_before_the_output_is_touched() -> None:
    facts = {"task": "regression", "classes": 1, "target_kind": "values", "loss": "l1_loss"}
    history = _history(**facts, output_activation="exp")
    doses = [c.prescription for c in candidates(history, [_found("improper-loss")])]
    assert [edit.values for edit in doses[0]] == [{"from": "l1_loss", "to": "mse_loss"}]
    assert [edit.remedy for edit in doses[1]] == ["substitute-activation", "substitute-loss"]


def test_of_two_functions_in_a_row_one_is_taken_away() -> None:
    facts = {"task": "binary", "classes": 1, "target_kind": "binary", "loss": "binary_cross_entropy"}
    history = _history(**facts, output_activation="sigmoid", output_activation_of="sigmoid")
    doses = [c.prescription[0].values for c in candidates(history, [_found("improper-output-activation")])]
    assert {"from": "Sigmoid", "to": "Sigmoid"} in doses[:2]
    assert {"from": "Sigmoid", "to": "none", "in": "model"} in doses[:2]


def test_a_recipe_says_what_is_asked_whatever_its_loss_makes_of_it() -> None:
    history = _history(
        loss="mse_loss", task="regression", classes=1, aim={"task": "multiclass", "classes": 10}
    )
    first = candidates(history, [_found("improper-loss")])[0].prescription
    assert first[0].values == {"from": "mse_loss", "to": "cross_entropy"}


@pytest.mark.parametrize(
    ("facts", "to"),
    [
        ({"loss": "cross_entropy"}, "none"),
        ({"loss": "binary_cross_entropy", "task": "binary", "classes": 1}, "Sigmoid"),
        ({"loss": "mse_loss", "task": "binary", "classes": 1}, "Sigmoid"),
        ({"loss": "mse_loss", "task": "regression", "classes": 1}, "none"),
        ({"loss": "nll_loss"}, "LogSoftmax"),
        ({"loss": "nll_loss", "loss_args": {"by_hand": True}}, "Softmax"),
    ],
)
@pytest.mark.parametrize(
    ("evidence", "offered"),
    [
        ({"grad_norm": 0.0}, True),
        ({"gradient_times_weight_over_loss": 1e-8, "gradient_first_over_last": 0.7}, True),
        (
            {"gradient_times_weight_over_loss": 1e-8, "gradient_first_over_last": 1e-9},
            False,
        ),  # it is lost on its way
        ({"gradient_times_weight_over_loss": 0.1, "gradient_first_over_last": 0.7}, False),
    ],
)
def test_where_no_gradient_gets_through_the_output_is_laid_bare(
    facts: dict[str, Any], to: str, evidence: dict[str, float], offered: bool
) -> None:
    found = Diagnosis("vanishing-gradient", "error", 0.9, "", 5, evidence, (), (), "")
    cures = [c.prescription for c in candidates(_history(**facts), [found])]
    bare = [cure[0].values["to"] for cure in cures if cure[0].values.get("from") == "everything"]
    assert bare == ([to] if offered else [])


def test_a_warm_up_is_no_cure_for_a_rate_that_is_too_high_to_the_end() -> None:
    found = _found("learning-rate-too-high")
    hot = Diagnosis("learning-rate-too-high", "warning", 0.7, "", 5, {"times_usual": 40.0}, (), (), "")
    history = _history(optimizer="SGD", lr=2.0)
    assert any("warm-up" in [e.remedy for e in c.prescription] for c in candidates(history, [found]))
    assert not any("warm-up" in [e.remedy for e in c.prescription] for c in candidates(history, [hot]))


def test_no_rate_makes_rprop_right_for_batches() -> None:
    cures = [c.prescription for c in candidates(_history(optimizer="Rprop"), [_found("oscillating-loss")])]
    assert cures[0][0].values == {"to": "Adam", "lr": 1e-3}
    assert (
        candidates(_history(), [_found("oscillating-loss")])[0].prescription[0].remedy == "set-learning-rate"
    )


@pytest.mark.parametrize(("each", "first"), [(1, "pace-schedule"), (25, "hold-learning-rate")])
def test_a_schedule_that_runs_out_with_every_batch_is_paced_before_it_is_taken_off(
    each: int, first: str
) -> None:
    history = _history(dataset_size=32 * 40)
    for step in range(60):
        history.add(step, "lr", "0", 0.05 * 0.8 ** (step if each == 1 else 12 * (step // each)))
    cures = [one.prescription for one in candidates(history, [_found("learning-rate-too-low")])]
    assert cures[0][0].remedy == first
    if first == "pace-schedule":
        assert cures[0][0].values == {"every": 40}


@pytest.mark.parametrize("problem", ["constant-prediction", "slow-convergence"])
def test_a_weight_decay_beyond_the_usual_is_lowered_before_anything_else_is_tried(problem: str) -> None:
    def first(name: str, decay: float) -> str:
        history = _history(optimizers=[{"name": name, "lr": 0.01, "weight_decay": decay}])
        return _remedies(history, problem)[0][0]

    assert first("Adam", 0.5) == "set-weight-decay"
    assert first("Adam", 5e-4) != "set-weight-decay"
    assert first("AdamW", 0.1) != "set-weight-decay"  # taken off the weights, not added to the gradient


@pytest.mark.parametrize("reason", ["left-behind", "rounded-away"])
def test_what_the_optimizer_has_or_only_follows_is_not_given_to_it(reason: str) -> None:
    found = replace(_found("parameters-not-trained"), evidence={"reason": reason})
    assert not candidates(_history(), [found])


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [({}, "set-mode"), ({"reason": "averages"}, "set-averaging")],
    ids=["mode", "averages"],
)
def test_averages_that_hardly_follow_are_no_matter_of_modes(reason: dict[str, str], remedy: str) -> None:
    found = candidates(_history(), [replace(_found("wrong-mode"), evidence=reason)])
    assert [edit.remedy for one in found for edit in one.prescription] == [remedy]
