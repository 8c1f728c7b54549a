"""What layers are fed with: features the model makes itself, sequences along the right axis or the wrong one."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import akeso
from akeso.torch.losses import broadcast_of
from akeso.torch.recurrence import Recurrence


class _Timed(nn.Module):
    """Puts a time beside its input, as it comes or brought to the scale of the rest."""

    def __init__(self, longest: float) -> None:
        super().__init__()
        self.longest = longest
        self.first, self.last = nn.Linear(3, 16), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        fed = torch.cat([x, self.longest * time[:, None]], 1)
        return self.last(torch.tanh(self.first(fed)))


@pytest.mark.parametrize(("longest", "named"), [(5000.0, True), (1.0, False)])
def test_a_raw_time_that_the_model_puts_beside_its_input_is_data_out_of_scale(
    longest: float, named: bool
) -> None:
    torch.manual_seed(0)
    model = _Timed(longest)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(120):
            x, time = torch.randn(64, 2), torch.rand(64)
            optimizer.zero_grad()
            F.mse_loss(model(x, time), 2 * x * (1 - time[:, None])).backward()
            optimizer.step()
    found = [one for one in watch.diagnoses if one.problem == "abnormal-data"]
    assert bool(found) is named
    assert not named or "first is fed with values of a typical size" in found[0].sentence
    sizes = watch.history.series("fed_size", "first").values
    assert sizes[0] == pytest.approx(longest / 3 if named else 0.9, rel=0.2)
    assert not watch.history.series("fed_size", "last")  # something trained lies before it


def test_features_that_are_zero_in_nearly_every_sample_are_not_what_is_typical() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(200, 16), nn.Linear(16, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.relu(self.first(F.dropout(x, 0.5))))

    torch.manual_seed(0)
    model = Counting()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    often = torch.cat([torch.full((20,), 0.3), torch.full((180,), 0.002)])
    with akeso.watch(model, optimizer) as watch:
        for _ in range(60):
            x = torch.poisson(often.expand(32, 200))
            optimizer.zero_grad()
            F.cross_entropy(model(x), torch.randint(0, 2, (32,))).backward()
            optimizer.step()
    spreads = watch.history.series("fed_spread", "first").finite().values
    assert len(spreads)
    assert spreads.max() < 100
    assert not [one for one in watch.diagnoses if one.problem == "abnormal-data"]


class _Reader(nn.Module):
    def __init__(self, tokens: int, batch_first: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(tokens, 8)
        self.rnn = nn.GRU(8, 16, batch_first=batch_first)
        self.head = nn.Linear(16, tokens)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(self.table(x))[0])


@pytest.mark.parametrize(("batch_first", "time_first"), [(True, False), (False, True), (False, False)])
def test_a_recurrence_along_the_samples_is_named(batch_first: bool, time_first: bool) -> None:
    torch.manual_seed(0)
    text = torch.randint(0, 12, (400,))
    model = _Reader(12, batch_first)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(6):
            starts = torch.randint(0, 380, (5,)).tolist()
            x, y = (torch.stack([text[at + by : at + by + 9] for at in starts]) for by in (0, 1))
            x, y = (x.T, y.T) if time_first else (x, y)
            optimizer.zero_grad()
            F.cross_entropy(model(x).reshape(-1, 12), y.reshape(-1)).backward()
            optimizer.step()
    found = [one for one in watch.diagnoses if one.problem == "wrong-axis"]
    assert [one.layer for one in found] == ([] if batch_first or time_first else ["rnn"])


@pytest.mark.parametrize(
    ("batch_first", "fed", "target", "astray"),
    [
        (False, (32, 10), (32,), True),  # one target for what is taken for a moment
        (False, (10, 32), (32,), False),
        (True, (32, 10), (32,), False),
        (True, (10, 32), (32,), True),  # turned round on the way
        (True, (40, 32), (32,), False),  # other rows than the model was given
        (False, (32, 10), (32, 1), True),
        (False, (32, 10), (32, 10), False),  # a target for every moment: nobody knows
        (False, (32, 32), (32,), False),
        (False, (32, 1), (32,), False),  # one sequence
        (False, (32, 10), (320,), False),
    ],
)
def test_the_shapes_say_where_the_samples_lie(
    batch_first: bool, fed: tuple[int, int], target: tuple[int, ...], astray: bool
) -> None:
    recurrence = Recurrence("rnn", batch_first, fed)
    assert recurrence.astray(torch.zeros(32, 10, 3), torch.zeros(target)) is astray


@pytest.mark.parametrize(
    ("prediction", "target", "grown"),
    [
        ((8, 3), (8, 1, 1), (8, 8, 3)),
        ((8, 3), (8, 1), None),  # the same target for all predictions of a sample
        ((8, 3), (3,), None),
        ((8, 1, 3), (8, 3), (8, 8, 3)),  # as many targets as predictions
        ((8, 5, 3), (8, 1, 3), None),
        ((4, 8), (8,), None),
    ],
)
def test_one_target_for_each_sample_spreads_by_accident_where_its_dimensions_are_more(
    prediction: tuple[int, ...], target: tuple[int, ...], grown: tuple[int, ...] | None
) -> None:
    assert broadcast_of(torch.zeros(prediction), torch.zeros(target)) == grown


class Recurs(nn.Module):
    """A cell of its own that begins with a state of zeros; ``raw`` is how large the times beside its inputs are."""

    def __init__(self, raw: float) -> None:
        super().__init__()
        self.raw, self.cell, self.last = raw, nn.Linear(8 + 3, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(len(x), 8)
        for moment in range(x.shape[1]):
            beside = torch.cat([x[:, moment, :2], self.raw * x[:, moment, 2:]], 1)
            state = torch.tanh(self.cell(torch.cat([beside, state], 1)))
        return self.last(state)


@pytest.mark.parametrize("raw", [1.0, 5e4])
def test_a_state_that_begins_with_zeros_makes_no_feature_too_large(raw: float) -> None:
    torch.manual_seed(0)
    model = Recurs(raw)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(80):
            x = torch.randn(32, 4, 3)
            optimizer.zero_grad()
            F.mse_loss(model(x), torch.randn(32, 1)).backward()
            optimizer.step()
    found = [one.sentence for one in watch.diagnoses if "is fed with" in one.sentence]
    assert bool(found) is (raw > 1)
    spread = watch.history.series("fed_spread", "cell").values
    assert (spread > 1e3).all() if raw > 1 else (spread < 10).all()


@pytest.mark.parametrize(("own", "named"), [((1,), False), ((1, 1), True)])
def test_a_column_and_a_row_that_are_added_inside_of_a_model_are_named(
    own: tuple[int, ...], named: bool
) -> None:
    class Rates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.all, self.each = nn.Linear(4, 1), nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.all(x).squeeze(1) + self.each(x).view(-1, *own[1:])

    torch.manual_seed(0)
    model = Rates()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with akeso.watch(model, optimizer) as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(20):
            x = torch.randn(16, 4)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x[:, 0]).backward()
            optimizer.step()
    assert ("shape-broadcast" in [one.problem for one in watch.diagnoses]) is named
