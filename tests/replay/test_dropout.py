from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from akeso.errors import BadInput, Refused
from akeso.replay.dropout import per_sample

MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "dropout": lambda: torch.nn.Sequential(torch.nn.Dropout(0.4), torch.nn.Dropout(0.2)),
    "channels": lambda: torch.nn.Dropout1d(0.5),
    "alpha": lambda: torch.nn.AlphaDropout(0.3),
    "encoder": lambda: torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True),
    "attention": lambda: Attention(),
    "recurrent": lambda: Recurrent(),
}


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.MultiheadAttention(8, 2, dropout=0.4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.LSTM(8, 8, num_layers=2, dropout=0.5)  # time first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.transpose(0, 1))[0].transpose(0, 1)


def outputs(model: torch.nn.Module, inputs: torch.Tensor, parts: list[list[int]]) -> dict[int, torch.Tensor]:
    found = {}
    for part in parts:
        with per_sample(3, 7, part):
            result = model(inputs[part])
        found.update(zip(part, result.detach(), strict=True))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_sample_has_the_same_mask_in_any_company(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    inputs = torch.randn(6, 5, 8)
    together = outputs(model, inputs, [[0, 1, 2, 3, 4, 5]])
    apart = outputs(model, inputs, [[4, 1], [3, 0, 2], [5]])
    for sample in range(6):
        torch.testing.assert_close(together[sample], apart[sample])
    plain = model(inputs)
    assert not torch.allclose(torch.stack([together[sample] for sample in range(6)]), plain)


def test_masks_differ_by_sample_step_module_and_call_and_keep_the_right_share() -> None:
    drop = torch.nn.Dropout(0.25)
    ones = torch.ones(4, 20000)
    with per_sample(0, 0, range(4)):
        first, second = drop(ones), drop(ones)
    with per_sample(0, 1, range(4)):
        later = drop(ones)
    rows = {tuple(row.tolist()) for part in (first, second, later) for row in part}
    assert len(rows) == 12
    assert (first == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert first.max().item() == pytest.approx(1 / 0.75)


def test_the_generators_are_not_touched_and_evaluation_is_left_alone() -> None:
    drop = torch.nn.Dropout(0.5)
    state = torch.get_rng_state()
    with per_sample(0, 0, [1, 2]):
        drop(torch.ones(2, 3))
        assert torch.equal(drop.eval()(torch.ones(2, 3)), torch.ones(2, 3))
    assert torch.equal(torch.get_rng_state(), state)


class Noisy(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn_like(x)


def test_randomness_that_belongs_to_no_sample_is_refused() -> None:
    with per_sample(0, 0, [0, 1]), pytest.raises(Refused, match="Noisy draws random numbers"):
        Noisy()(torch.ones(2, 3))


def test_a_batch_of_another_size_and_an_empty_one_are_errors() -> None:
    with per_sample(0, 0, [0, 1, 2]), pytest.raises(Refused, match="3 samples cannot be told apart"):
        torch.nn.Dropout(0.5)(torch.ones(4, 5))
    with pytest.raises(BadInput, match="at least one sample"), per_sample(0, 0, []):
        pass
