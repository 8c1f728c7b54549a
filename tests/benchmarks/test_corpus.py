"""The corpus keeps what it promises: enough of everything, sane parts, repeatable runs, a fixed split."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
import torch

from akeso.catalogue import PROBLEMS
from benchmarks import data
from benchmarks.corpus import Case, case, cases, held_out
from benchmarks.corpus.__main__ import main
from benchmarks.corpus.styles import STYLES
from benchmarks.corpus.truth import TRUTH, holds, sick_that_time, truth

_EIGHT = (
    "vanishing-gradient",
    "exploding-gradient",
    "dying-relu",
    "oscillating-loss",
    "slow-convergence",
    "improper-output-activation",
    "improper-loss",
    "abnormal-data",
)
_LOADERS = ("circle", "blob", "mnist", "cifar10", "imdb", "reuters", "exchange_rate", "shakespeare")


def test_there_are_enough_cases_of_every_kind() -> None:
    every = list(cases().values())
    sick = [one for one in every if one.sick]
    assert len(sick) >= 100
    assert len(every) - len(sick) >= 60
    for problem in _EIGHT:
        sets = {one.dataset for one in sick if one.problem == problem}
        assert len(sets) >= 4, (problem, sets)
    assert {one.family for one in sick} == {"dense", "convolutional", "recurrent", "transformer"}


def test_every_problem_named_is_in_the_catalogue() -> None:
    for one in cases().values():
        assert one.names() <= set(PROBLEMS), one.name
        assert one.problem is None or one.expect is None
        assert one.is_recipe == (one.style in STYLES), one.name


def test_cases_of_the_eight_problems_are_recipes() -> None:
    assert [one.name for one in cases().values() if one.problem in _EIGHT and not one.is_recipe] == []


def test_the_split_is_fixed_and_has_both_halves_of_everything_frequent() -> None:
    assert held_out("circle-sigmoid-12x5") == held_out("circle-sigmoid-12x5")
    halves = Counter((one.problem, held_out(one.name)) for one in cases().values())
    for problem in (*_EIGHT, None):
        low, high = sorted((halves[problem, True], halves[problem, False]))
        assert low >= 0.3 * (low + high), problem


@pytest.mark.parametrize(
    "name", ["circle-exponential-5", "blob-nll-without-log", "regression-sigmoid-output"]
)
def test_parts_fit_together(name: str) -> None:
    for variant in ("sick", "fixed"):
        parts = case(name).parts(variant)
        model = parts.model()
        optimizer = parts.optimizer(model.parameters())
        x, y = parts.train
        loss = parts.loss(model(x[: parts.batch_size]), y[: parts.batch_size])
        loss.backward()
        optimizer.step()
        assert loss.ndim == 0
        assert parts.steps == parts.epochs * -(-len(x) // parts.batch_size)


def test_same_seed_same_metric() -> None:
    one = case("well-blob-rprop")
    first, second = one.run(seed=3), one.run(seed=3)
    assert first == second
    assert one.expect is not None
    assert first >= one.expect


def test_sick_case_is_worse_than_its_cured_twin() -> None:
    one = case("blob-nll-without-log")
    assert one.run("fixed") - one.run("sick") > 0.1


def test_a_loop_has_no_parts_and_says_so() -> None:
    with pytest.raises(ValueError, match="has no parts"):
        case("mnist-no-zero-grad-sgd").parts()
    with pytest.raises(ValueError, match="variants"):
        case("well-blob-linear").run("sick")
    with pytest.raises(ValueError, match="there is no case 'circle-nonsense'"):
        case("circle-nonsense")


def test_verification_wants_a_gap_beyond_the_noise() -> None:
    one = case("circle-sigmoid-12x5")
    assert holds(one, {"sick": [0.5, 0.5, 0.52], "fixed": [0.8, 0.82, 0.79]})
    assert not holds(one, {"sick": [0.5, 0.5, 0.52], "fixed": [0.52, 0.51, 0.52]})
    assert not holds(one, {"sick": [0.2, 0.9, 0.5], "fixed": [0.3, 0.9, 0.8]})
    well = case("well-gpt")
    assert not well.higher_is_better
    assert holds(well, {"healthy": [2.4, 2.5, 2.6]})
    assert not holds(well, {"healthy": [2.4, 3.5, 2.6]})


def test_committed_truth_covers_the_corpus() -> None:
    known = json.loads(TRUTH.read_text())
    assert known["seeds"] >= 3
    assert set(known["cases"]) == set(cases())
    good = [name for name, row in known["cases"].items() if row["holds"]]
    assert sum(cases()[name].sick for name in good) >= 100
    assert sum(not cases()[name].sick for name in good) >= 60


def test_a_lucky_run_of_a_sick_case_counts_as_well() -> None:
    one = next(c for c in cases().values() if c.sick and truth()[c.name]["holds"])
    figures = truth()[one.name]
    assert sick_that_time(one, float(np.mean(figures["sick"])))
    assert not sick_that_time(one, float(np.mean(figures["fixed"])))
    assert sick_that_time(one, float("nan"))
    assert not sick_that_time(case("well-blob-linear"), 0.0)


def test_run_command_trains_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "well-blob-rprop", "--seed", "1"]) == 0
    assert "metric 0." in capsys.readouterr().out
    assert main(["script", "well-blob-linear"]) == 0
    assert "case('well-blob-linear').run('healthy', seed=0)" in capsys.readouterr().out


def test_missing_data_is_replaced_and_said(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaders = [getattr(data, name) for name in _LOADERS]
    for loader in (*loaders, data._say_missing):
        loader.cache_clear()
    monkeypatch.setenv("AKESO_DATA", str(tmp_path))
    try:
        assert "mnist" in data.missing()
        assert data.mnist().x_train.shape[1:] == (28, 28)
        assert data.cifar10().x_train.shape[1:] == (32, 32, 3)
        for texts in (data.imdb(), data.reuters()):
            assert texts.x_train.shape[1] == 200
            assert texts.x_train.min() >= 0
            assert texts.x_train.max() < 5000
            assert not texts.real
        assert data.exchange_rate().shape[1] == 8
        assert len(data.shakespeare(1000)) == 1000
        assert "mnist.npz is not in" in capsys.readouterr().err
    finally:
        for loader in (*loaders, data._say_missing):
            loader.cache_clear()


def test_styles_leave_the_model_trained_and_agree_on_the_task() -> None:
    def short(one: Case, style: str) -> float:
        parts = one.parts()
        torch.manual_seed(0)
        return STYLES[style](parts, 0)

    one = case("well-blob-rprop")
    assert all(short(one, style) > 0.75 for style in STYLES)
