"""Trainings in which one optimizer follows another."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import akeso
from akeso.detectors.stages import last_stage
from akeso.history import History
from akeso.report.document import metrics


def _train(model: nn.Module, steps: int, rate: float = 0.01) -> None:
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=rate)
    for _ in range(steps):
        x = torch.randn(32, 8)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), (x[:, 0] * x[:, 1] > 0).long()).backward()
        optimizer.step()


def _model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


@pytest.mark.parametrize(("rate", "found"), [(0.01, []), (1e-6, ["learning-rate-too-low"])])
def test_the_last_of_two_stages_is_judged(rate: float, found: list[str]) -> None:
    torch.manual_seed(0)
    teacher, student = _model(), _model()
    with akeso.watch(budget=0.1) as watch:
        _train(teacher, 300)
        _train(student, 400, rate)
    problems = [one.problem for one in watch.diagnoses if one.severity != "info"]
    assert problems[:1] == found
    assert "what another optimizer trained in the first 300 steps" in watch.examination.not_checked
    assert not any("several optimizers" in line for line in watch.examination.not_checked)
    loss = metrics(watch.history)["train_loss"]
    assert loss is not None
    assert (loss < 0.4) is not bool(found)


def test_a_head_and_then_the_whole_are_two_stages() -> None:
    torch.manual_seed(0)
    model = _model()
    with akeso.watch(budget=0.1) as watch:
        model[:4].requires_grad_(False)
        _train(model, 100)
        model.requires_grad_(True)
        _train(model, 400)
    part, start = last_stage(watch.history)
    assert start == 100
    assert len(part.series("loss")) == 400
    assert part.scopes("lr") == ["0"]
    assert [one.name for one in part.parameters if one.in_optimizer] == [
        n for n, _ in model.named_parameters()
    ]
    assert not [one for one in watch.diagnoses if one.severity != "info"]


def test_optimizers_that_take_turns_are_no_stages() -> None:
    torch.manual_seed(0)
    one, other = _model(), _model()
    with akeso.watch(budget=0.1) as watch:
        for _ in range(4):
            _train(one, 40)
            _train(other, 40)
    assert last_stage(watch.history)[1] == 0
    assert last_stage(History())[1] == 0
