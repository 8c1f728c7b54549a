"""Numbers of names are looked up instead of multiplied."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from akeso.remedies.edit import Edit
from akeso.torch.surgery.names import NameEmbedding
from akeso.torch.surgery.operation import operate

EDIT = Edit("embed-inputs", "", {"names": 99})


class Own(nn.Module):
    """A forward pass of its own, with functions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))


def _names(rows: int = 5) -> torch.Tensor:
    return torch.randint(0, 100, (rows, 12)).float()


@pytest.mark.parametrize(
    "build", [Own, lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 2))]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_first_layer_looks_its_inputs_up(build: type[nn.Module], dtype: torch.dtype) -> None:
    model = build().to(dtype)
    x = _names().to(dtype)
    done = operate(model, [EDIT], (x,))
    assert not done.refused
    assert sum(isinstance(module, NameEmbedding) for module in model.modules()) == 1
    out = model(x)
    assert out.shape == (5, 2)
    assert out.dtype == dtype
    assert {id(p) for p in done.new_parameters} <= {id(p) for p in model.parameters()}
    assert torch.equal(model(x[:, torch.randperm(12)]), out) or torch.allclose(
        model(x[:, torch.randperm(12)]), out, atol=1e-5
    )
    assert torch.isfinite(model(x + 1000)).all()  # names that were never met
    again = build().to(dtype)
    operate(again, [EDIT], (x,))
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(x), out)


@pytest.mark.parametrize(
    ("model", "given", "why"),
    [
        (Own(), torch.rand(5, 12), "no whole numbers"),
        (nn.Sequential(nn.Conv1d(3, 4, 1)), torch.ones(2, 3, 4), "no table"),
        (
            nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 2)),
            torch.ones(2, 3).long(),
            "linear",
        ),
    ],
)
def test_what_takes_no_names_is_refused(model: nn.Module, given: torch.Tensor, why: str) -> None:
    done = operate(model, [EDIT], (given,))
    assert why in done.refused[0][1]
