"""One activation module for layers and output alike: what is meant for one of its places leaves the others alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from akeso.remedies.edit import Edit
from akeso.torch.surgery.operation import operate

BATCH = Edit("insert-normalisation", "hidden", {"kind": "batch"})


class EverywhereTheSame(nn.Module):
    """One activation module after every layer, the last one among them."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.one, self.two, self.last, self.act = (
            nn.Linear(3, 4),
            nn.Linear(4, 4),
            nn.Linear(4, 1),
            activation,
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.last(self.act(self.two(self.act(self.one(x))))))


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU(inplace=True), nn.Tanh()], ids=repr)
def test_a_module_that_layers_and_output_share_is_changed_where_it_is_meant(activation: nn.Module) -> None:
    torch.manual_seed(0)
    f = torch.tanh if isinstance(activation, nn.Tanh) else F.relu
    model, x = EverywhereTheSame(activation), torch.randn(6, 3)
    hidden = f(model.two(f(model.one(x))))
    assert not operate(model, [Edit("substitute-activation", "output", {"to": "Sigmoid"})], (x,)).refused
    assert torch.equal(model(x), torch.sigmoid(model.last(hidden)))
    assert not operate(model, [Edit("substitute-activation", "hidden", {"to": "ELU"})], (x,)).refused
    assert torch.equal(model(x), torch.sigmoid(model.last(F.elu(model.two(F.elu(model.one(x)))))))
    assert not operate(model, [BATCH], (x,)).refused
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
    assert [norm.num_features for norm in norms] == [4, 4]
    inner = F.elu(F.batch_norm(model.one(x), None, None, training=True))
    inner = F.elu(F.batch_norm(model.two(inner), None, None, training=True))
    assert torch.allclose(model(x), torch.sigmoid(model.last(inner)), atol=1e-6)
    again = copy.deepcopy(model)
    assert torch.equal(again(x), model(x))


def test_weights_of_an_activation_that_layers_and_output_share_stay() -> None:
    model, x = EverywhereTheSame(nn.PReLU()), torch.randn(6, 3)
    refused = operate(model, [Edit("substitute-activation", "output", {"to": "Sigmoid"})], (x,)).refused
    assert "several places share" in refused[0][1]


class Pairs(nn.Module):
    """The same encoder for both halves of a pair."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))

    def forward(self, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        return self.encoder(one), self.encoder(other)


def test_a_place_that_is_passed_twice_gets_one_norm() -> None:
    torch.manual_seed(0)
    model, pair = Pairs(), (torch.randn(6, 3), torch.randn(6, 3))
    assert not operate(model, [BATCH], pair).refused
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
    assert [norm.num_features for norm in norms] == [6, 5]
    assert list(model.encoder._modules) == ["0", "1", "2", "3", "4"]
    assert [tuple(half.shape) for half in model(*pair)] == [(6, 4), (6, 4)]
