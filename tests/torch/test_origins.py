"""Where a value that is not finite came from, as far as the script's own functions near the loss show it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import akeso
from akeso.torch.nonfinite import edges


def _sentence(loss: Callable[[torch.Tensor], torch.Tensor]) -> str:
    """What is said of a model trained with ``loss`` of its output for pairs of the same and of other samples."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(8):
            optimizer.zero_grad()
            loss(model(torch.randn(16, 4))).backward()
            optimizer.step()
    found = [diagnosis for diagnosis in watch.diagnoses if diagnosis.problem == "non-finite"]
    assert len(found) == 1
    return found[0].sentence


def test_a_root_of_zero_is_named_where_only_the_gradient_shows_it() -> None:
    said = _sentence(lambda out: torch.sqrt(((out - out.roll(0, 0)) ** 2).sum(1)).mean())
    assert "`sqrt` was given 0" in said
    assert "gradient" in said


def test_a_root_written_as_a_power_is_named() -> None:
    assert "`pow`" in _sentence(lambda out: (((out - out.detach()) ** 2).sum(1) ** 0.5).mean())


def test_a_logarithm_of_zero_is_named() -> None:
    def by_hand(out: torch.Tensor) -> torch.Tensor:
        probabilities = torch.softmax(1e4 * out, 1)
        return -(torch.eye(3)[torch.arange(16) % 3] * torch.log(probabilities)).sum(1).mean()

    assert "`log` was given 0" in _sentence(by_hand)


def test_an_exponential_that_overflows_is_named() -> None:
    assert "`exp`" in _sentence(lambda out: torch.exp(1e4 * out.abs()).mean())


@pytest.mark.parametrize(
    ("loss", "at"),
    [
        (lambda x: (x**2).sum().sqrt(), False),
        (lambda x: (x - x).sum().sqrt(), True),
        (lambda x: (x - x).sum() ** 2, False),  # a square is smooth at 0
        (lambda x: torch.acos(x / x).sum(), True),
        (lambda x: (x - x + 1.0).std(), True),
    ],
)
def test_only_values_at_the_edge_count(loss: Callable[[torch.Tensor], torch.Tensor], at: bool) -> None:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    assert any(bool(flag) for _, flag in edges(loss(x))) is at
