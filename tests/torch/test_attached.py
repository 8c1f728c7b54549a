"""What a model cuts off from the graph is kept, and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import akeso
from akeso.torch.attached import keep_attached


class _Cut(nn.Module):
    def __init__(self, how: str = "detach") -> None:
        super().__init__()
        self.body, self.head, self.how = nn.Sequential(nn.Linear(6, 32), nn.ReLU()), nn.Linear(32, 2), how

    def forward(self, x: Tensor) -> Tensor:
        features = self.body(x)
        features = features.detach() if self.how == "detach" else features.data
        return torch.as_tensor(self.head(features))


def _gradient(model: _Cut) -> Tensor | None:
    with keep_attached():
        output = model(torch.ones(3, 6))
    output.sum().backward()
    return model.body[0].weight.grad


def test_what_is_cut_off_learns_again() -> None:
    for how in ("detach", "data"):
        assert _gradient(_Cut(how)) is not None


def test_hooks_and_leaves_are_left_alone() -> None:
    model, seen = nn.Linear(2, 2), []
    with keep_attached():
        seen.append(model.weight.detach())  # a leaf: nothing lies before it
        shape = model(torch.ones(1, 2)).shape
    assert not seen[0].requires_grad
    assert shape == (1, 2)


def test_a_model_that_cuts_itself_off_is_repaired() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 6, generator=generator)
    y = (x[:, 0] * x[:, 1] > 0).long()
    outcome = akeso.treat(
        akeso.Recipe(_Cut, (x[:300], y[:300]), (x[300:], y[300:]), loss=nn.CrossEntropyLoss(), optimizer="Adam",
                     lr=1e-2, epochs=20, batch_size=30)
    )  # fmt: skip
    assert outcome.status == "repaired"
    assert outcome.prescription.of("keep-attached")
    assert outcome.model.body[0].weight.grad is not None
