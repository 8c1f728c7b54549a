"""A model that gives what its last layer gives, whatever came after that."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from akeso.remedies.edit import Edit
from akeso.torch.surgery.operation import operate


class Net(nn.Module):
    """Two layers, and something done to what they give."""

    def __init__(self, after: Callable[[Tensor], Tensor], out: int = 3) -> None:
        super().__init__()
        self.one, self.last, self.after = nn.Linear(4, 5), nn.Linear(5, out), after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.last(torch.relu(self.one(x))))

    def raw(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.one(x)))


def _bare(to: str = "none") -> Edit:
    return Edit("substitute-activation", "output", {"from": "everything", "to": to})


def _rounded(x: Tensor) -> Tensor:
    return torch.sigmoid(x).round()


def _normalised(x: Tensor) -> Tensor:
    return F.normalize(x, dim=1)


def _formula(x: Tensor) -> Tensor:
    return (x.abs() + 0.1 * torch.sin(x)).flatten()


@pytest.mark.parametrize("after", [_rounded, _normalised, _formula])
def test_whatever_comes_after_the_last_layer_is_left_out(after: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    model, x = Net(after), torch.randn(6, 4)
    shape = model(x).shape
    done = operate(model, [_bare()], (x,))
    assert done.refused == []
    assert "the output of last" in done.notes[0]
    assert model(x).shape == shape
    assert torch.equal(model(x), model.raw(x).reshape(shape))
    model(x).sum().backward()
    assert model.one.weight.grad is not None
    assert float(model.one.weight.grad.norm()) > 0
    assert torch.equal(copy.deepcopy(model)(x), model(x))
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(x), model(x))
    twin = Net(after)
    operate(twin, [_bare()], (x,))
    twin.load_state_dict(model.state_dict())
    assert torch.equal(twin(x), model(x))


def test_the_function_that_a_loss_wants_is_put_in_its_place() -> None:
    model, x = Net(_rounded, 1), torch.randn(6, 4)
    operate(model, [_bare("Sigmoid")], (x,))
    assert torch.equal(model(x), torch.sigmoid(model.raw(x)))
    assert "already" in operate(model, [_bare("Sigmoid")], (x,)).refused[0][1]


def test_a_sequence_keeps_its_links() -> None:
    model, x = nn.Sequential(nn.Linear(4, 3), nn.Softmax(0)), torch.randn(6, 4)
    assert not operate(model, [_bare("LogSoftmax")], (x,)).refused
    assert len(model) == 2
    assert torch.equal(model(x), model[0](x).log_softmax(-1))
    assert torch.equal(copy.deepcopy(model)(x), model(x))


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.a(x), self.b(x)], 1)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Heads(), "2 last layers"),
        (Net(lambda x: x.mean(1, keepdim=True)), "do not pair up"),
        (Net(lambda x: x), "nothing stands between"),
        (Net(lambda x: {"logits": x}), "not one tensor"),  # type: ignore[arg-type, return-value]
    ],
)
def test_what_cannot_be_told_is_refused(model: nn.Module, reason: str) -> None:
    x = torch.randn(6, 4)
    before = model(x)
    assert reason in operate(model, [_bare()], (x,)).refused[0][1]
    after = model(x)
    assert before is not after
    assert isinstance(before, dict) or torch.equal(before, after)


def test_batches_of_another_size_are_answered_alike() -> None:
    model = Net(_normalised)
    operate(model, [_bare()], (torch.randn(6, 4),))
    x = torch.randn(2, 4)
    assert torch.equal(model(x), model.raw(x))
    with pytest.raises(RuntimeError):
        model(torch.randn(2, 3))
    assert torch.equal(model(x), model.raw(x))
