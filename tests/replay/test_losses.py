"""Losses as they are recorded: the bits of the moment, wherever they are."""

from __future__ import annotations

import pytest
import torch

from akeso.replay import digests
from akeso.replay.run_losses import _SEATS, Courier

card = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (None, []),
        (1.5, [1.5]),
        (3, [3.0]),
        (torch.tensor(0.1), [float(torch.tensor(0.1))]),
        (torch.tensor([[0.25]], requires_grad=True), [0.25]),
        (torch.tensor([1.0, 2.0]), [3.0]),
        ([0.5, torch.tensor(2.0)], [0.5, 2.0]),
        ({"a": torch.tensor(1.0, dtype=torch.bfloat16), "b": 2.0}, [1.0, 2.0]),
    ],
)
def test_every_form_of_a_loss_gives_its_bits(loss: object, expected: list[float]) -> None:
    assert str(Courier().take(loss)) == "".join(digests.bits(number) for number in expected)


@card
def test_a_loss_on_a_card_is_recorded_as_it_was_at_its_step() -> None:
    courier = Courier()
    loss = torch.tensor(0.0, device="cuda")
    taken = []
    for _ in range(2 * _SEATS + 7):  # more than fit on a page
        loss += 1
        taken.append(courier.take({"both": loss, "half": loss.half()}))
    assert courier.full
    pages = courier.leave()
    assert not courier.full
    for page in pages:
        page.land()
    for number, one in enumerate(taken, 1):
        half = torch.tensor(float(number)).half().item()
        assert str(one) == digests.bits(float(number)) + digests.bits(half)
    courier.back(pages)
    again = courier.take(loss)
    (page,) = courier.leave()
    assert page in pages
    page.land()
    assert str(again) == digests.bits(float(len(taken)))
