"""What a constant prediction loses against soft targets, and students that learn nothing from theirs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import akeso
from akeso.detectors.standing import standing


def _distilled(reduction: str, *, temperature: float = 3.0, learns: bool = False) -> float:
    """The share of a constant prediction's loss that is left of a student that says the mean of its targets."""
    torch.manual_seed(0)
    wanted = (torch.randn(64, 5) * 3 / temperature).softmax(1)
    model = nn.Linear(64, 5, bias=False)
    with torch.no_grad():
        model.weight.copy_((wanted if learns else wanted.mean(0).expand(64, 5)).log().T * temperature)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(12):
            optimizer.zero_grad()
            said = F.log_softmax(model(torch.eye(64)) / temperature, 1)
            (F.kl_div(said, wanted, reduction=reduction) * temperature**2).backward()
            optimizer.step()
    return standing(watch.history).remaining_loss


@pytest.mark.filterwarnings("ignore:reduction:UserWarning")
@pytest.mark.parametrize("reduction", ["batchmean", "sum", "mean"])
def test_a_constant_answer_to_soft_targets_leaves_everything_and_the_right_one_nothing(
    reduction: str,
) -> None:
    assert _distilled(reduction) == pytest.approx(1.0, rel=0.01)
    assert _distilled(reduction, learns=True) == pytest.approx(0.0, abs=0.01)


def test_a_divergence_that_is_averaged_by_hand_has_no_yardstick() -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(12):
            said, wanted = model(torch.randn(16, 4)).log_softmax(1), torch.randn(16, 3).softmax(1)
            optimizer.zero_grad()
            F.kl_div(said, wanted, reduction="none").sum(1).mean().backward()
            optimizer.step()
    assert not watch.history.series("baseline_loss")


@pytest.mark.parametrize("written", ["mean of sums", "minus first", "everything"])
@pytest.mark.parametrize("learns", [False, True])
def test_a_cross_entropy_over_shares_that_is_written_out_is_known(written: str, learns: bool) -> None:
    torch.manual_seed(0)
    wanted = (torch.randn(64, 5) * 2).softmax(1)
    model = nn.Linear(64, 5, bias=False)
    with torch.no_grad():
        model.weight.copy_((wanted if learns else wanted.mean(0).expand(64, 5)).log().T)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(12):
            optimizer.zero_grad()
            logs = torch.log_softmax(model(torch.eye(64)), dim=1)
            if written == "mean of sums":
                loss = -(wanted * logs).sum(1).mean()
            elif written == "minus first":
                loss = torch.sum(-wanted * logs, dim=-1).mean()
            else:
                loss = torch.mean(-torch.sum(logs * wanted, 1), 0)
            loss.backward()
            optimizer.step()
    assert watch.history.facts["loss"] == "cross_entropy"
    assert standing(watch.history).remaining_loss == pytest.approx(0.0 if learns else 1.0, abs=0.01)


def test_rewards_times_logarithms_of_probabilities_are_no_cross_entropy() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(12):
            optimizer.zero_grad()
            logs, worth = torch.log_softmax(model(torch.randn(16, 4)), dim=1), torch.randn(16, 3)
            (-(logs * worth).sum(1).mean()).backward()
            optimizer.step()
    assert watch.history.facts["loss"] == "custom"
