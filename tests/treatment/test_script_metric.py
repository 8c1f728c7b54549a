"""The figures that a script is judged by, and how much of them is luck."""

from __future__ import annotations

import pytest

from akeso.history import History
from akeso.treatment import Attempt, Prescription
from akeso.treatment.plans.ledger import better, margin
from akeso.treatment.script_metric import Figure, agreed_on, chosen, directions, figures, unknown


def _read(values: list[float], batch: float = 32.0) -> History:
    history = History(planned_steps=100)
    for step, value in enumerate(values):
        history.add(10 * step, "accuracy", "", value)
        history.add(10 * step, "batch_size", "", batch)
    return history


def test_an_accuracy_of_the_training_is_that_of_several_batches() -> None:
    found = figures(_read([0.1, 0.2, 0.5, 0.7, 0.4, 0.6, 0.6, 0.6, 0.8, 0.9, 0.7, 0.8]), (), None)
    assert [(figure.name, [round(value, 3) for _, value in figure.curve]) for figure in found] == [
        ("train_accuracy", [0.375, 0.55, 0.8])
    ]
    few = figures(_read([0.2, 0.4]), (), None)[0]
    assert few.curve == ((0, 0.2), (10, 0.4))


def test_what_was_evaluated_before_the_first_step_says_nothing() -> None:
    """Lightning tries its validation out on the untrained model."""
    history = _read([0.4, 0.6])
    history.add(0, "val_accuracy", "", 0.5)
    assert figures(history, (), None)[0].name == "train_accuracy"
    history.add(30, "val_accuracy", "", 0.7)
    assert figures(history, (), None)[0].curve == ((30, 0.7),)


@pytest.mark.parametrize(
    ("printed", "judged_by"),
    [
        (["val_perplexity", "val_loss"], "val_perplexity"),
        (["test_precision", "test_f1"], "test_f1"),
        (["test_f1", "test_accuracy"], "val_accuracy"),
        (["val_loss"], "val_accuracy"),
        (["train_f1"], "val_accuracy"),
    ],
)
def test_who_prints_a_figure_of_their_own_and_no_accuracy_is_judged_by_it(
    printed: list[str], judged_by: str
) -> None:
    history = _read([0.4, 0.6])
    history.add(30, "val_accuracy", "", 0.7)
    history.facts["printed_metrics"] = {label: [[30, 0.5]] for label in printed}
    assert figures(history, (), None)[0].name == judged_by


@pytest.mark.parametrize(
    ("printed", "judged_by", "higher"),
    [
        ("error", "error", False),
        ("wer", "wer", False),
        ("psnr", "psnr", True),
        ("train_error", "train_loss", False),
        ("mse", "train_loss", False),  # may well be the loss itself, whatever is put in its place
    ],
)
def test_errors_that_are_counted_apart_from_the_loss_come_before_it(
    printed: str, judged_by: str, higher: bool
) -> None:
    history = History(planned_steps=100)
    for step in range(0, 60, 10):
        history.add(step, "loss", "", 1.0 - step / 100)
    history.facts["printed_metrics"] = {printed: [[30, 0.5], [60, 0.4]]}
    found = figures(history, (), None)[0]
    assert (found.name, found.higher_is_better) == (judged_by, higher)


def _printing(values: list[float], losses: list[float]) -> tuple[History, tuple[tuple[int, float], ...]]:
    history = _read([0.4, 0.6])
    steps = range(10, 10 * len(values) + 1, 10)
    history.facts["printed_figures"] = {"val_zeal": [list(pair) for pair in zip(steps, values, strict=True)]}
    return history, tuple(zip(steps, losses, strict=True))


FALLING = [0.9, 0.7, 0.5, 0.4, 0.3, 0.35]


@pytest.mark.parametrize(
    ("values", "losses", "known"),
    [
        ([1.0 - loss for loss in FALLING], FALLING, {"val_zeal": True}),
        ([loss**2 for loss in FALLING], FALLING, {"val_zeal": False}),
        ([0.1, 0.5, 0.2, 0.6, 0.1, 0.3], FALLING, {}),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.5] * 6, {}),
        ([0.9, 0.7, 0.5], FALLING[:3], {}),
    ],
)
def test_a_figure_without_a_known_name_is_good_the_way_it_moves_with_the_held_out_loss(
    values: list[float], losses: list[float], known: dict[str, bool]
) -> None:
    history, own = _printing(values, losses)
    assert directions(history, own) == known
    figure = figures(history, own, None, known)[0]
    assert figure.name == ("val_zeal" if known else "val_loss")
    assert figure.higher_is_better is known.get("val_zeal", False)
    assert unknown(history, known) == ([] if known else ["val_zeal"])


def _attempt(value: float, name: str, batch: float) -> Attempt:
    history = _read([value], batch)
    history.facts["val_size"] = 2000
    return Attempt(Prescription(), 0, 30, 1.0, value, name, history=history, curve=((30, value),))


@pytest.mark.parametrize(("name", "batch", "ahead"), [("train_accuracy", 8, False), ("train_accuracy", 256, True),
                                                      ("val_accuracy", 8, True)])  # fmt: skip
def test_a_few_batches_say_little(name: str, batch: float, ahead: bool) -> None:
    low, high = _attempt(0.6, name, batch), _attempt(0.7, name, batch)
    assert better(high, low) is ahead
    assert margin(low) > 0


@pytest.mark.parametrize(("gap", "judged_by"), [(0.3, "val_printed_accuracy"), (0.001, "val_accuracy")])
def test_an_accuracy_of_another_kind_that_a_script_prints_comes_before_the_one_that_was_seen(
    gap: float, judged_by: str
) -> None:
    """Balanced over classes, say: what is right of the rare ones hardly shows in the share of right answers."""
    history = _read([0.4, 0.6])
    for step in (10, 20, 30):
        history.add(step - 1, "val_accuracy", "", 0.97)
    history.facts["printed_metrics"] = {
        "val_accuracy": [[step, round(0.97 - gap, 3)] for step in (10, 20, 30)]
    }
    first = figures(history, (), None)[0]
    assert (first.name, first.last) == (judged_by, round(0.97 - gap, 3) if gap > 0.1 else 0.97)
    # A run that has hardly begun is judged by the same figure.
    history.facts["printed_metrics"] = {"val_accuracy": [[10, 0.61]]}
    agreed = chosen(figures(history, (), None), (first.name, True))
    assert agreed is not None
    assert agreed.last == (0.61 if gap > 0.1 else 0.97)


def test_a_curve_that_only_rises_is_no_noise():
    def run(*values: float) -> Attempt:
        curve = tuple((10 * number, value) for number, value in enumerate(values, start=1))
        return Attempt(Prescription(), 0, 50, 0.1, values[-1], "val_dice", True, curve=curve)

    rising, jumping = run(0.1, 0.5, 0.7, 0.8), run(0.7, 0.8, 0.66, 0.8)
    assert better(run(0.1, 0.6, 0.8, 0.85), rising)
    assert margin(jumping) > 2 * margin(rising)
    assert not better(run(0.7, 0.8, 0.7, 0.83), jumping)


def test_an_accuracy_that_every_run_prints_stays_the_one_to_judge_by():
    loss, printed = Figure("test_loss", False, ((9, 1.0),), 4), Figure("test_accuracy", True, ((9, 0.7),), 3)
    seen, apart = (
        Figure("val_accuracy", True, ((9, 0.9),), 2),
        Figure("val_printed_accuracy", True, ((9, 0.8),), 1),
    )
    assert agreed_on(None, [printed]) is printed
    assert agreed_on(printed, [seen, printed]) is printed
    assert agreed_on(printed, [seen]) is seen, "not every run has it"
    assert agreed_on(loss, [seen, loss]) is seen
    assert agreed_on(seen, [apart, seen]) is apart
    assert agreed_on(seen, []) is seen
