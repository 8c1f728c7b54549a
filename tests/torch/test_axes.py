"""Axes mixed up inside of a model are named; models that move the same axes properly are left alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import akeso

SAMPLES, MOMENTS, WIDTH, HEADS = 24, 10, 16, 4


class Reads(nn.Module):
    """Answers one question per sequence of vectors; ``how`` is what people get wrong."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.lift, self.joint = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.over_time = nn.Conv1d(WIDTH, WIDTH, 3)
        self.recurrent = nn.GRU(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(2 * WIDTH if "states" in how else WIDTH, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.lift(x)
        how = self.how
        if how == "permuted":
            h = self.over_time(h.permute(0, 2, 1)).amax(2)
        elif how == "viewed":
            h = self.over_time(h.view(len(x), WIDTH, -1)).amax(2)
        elif how == "states-joined":
            h = self.recurrent(h)[1].transpose(0, 1).reshape(len(x), -1)
        elif how == "states-viewed":
            h = self.recurrent(h)[1].reshape(len(x), -1)
        else:
            h = self.attend(h).mean(1)
        return self.head(h)

    def attend(self, h: torch.Tensor) -> torch.Tensor:
        parts = self.joint(h).chunk(3, dim=-1)
        if self.how.startswith("called"):
            apart = [part.reshape(len(h), HEADS, MOMENTS, -1) for part in parts]
        else:
            apart = [part.view(len(h), MOMENTS, HEADS, -1) for part in parts]
        if not self.how.startswith(("heads", "called")):
            apart = [part.transpose(1, 2) for part in apart]
        q, k, v = apart
        if self.how.endswith("fused"):
            out = F.scaled_dot_product_attention(q, k, v)
        else:
            both = self.how.endswith("all-written")
            scores = torch.einsum("b h i d, b h j d -> b h i j", q, k) if both else q @ k.transpose(-2, -1)
            scores = scores / 2.0
            axis = {"samples": 0, "queries": -2}.get(self.how.partition("-")[0], -1)
            weights = self.drop(F.softmax(scores, dim=axis))
            written = self.how.endswith("written")
            out = torch.einsum("bhqk,bhkd->bhqd", weights, v) if written else weights @ v
        if not self.how.startswith("heads"):
            out = out.transpose(1, 2)
        return h + out.reshape(len(h), MOMENTS, WIDTH)


def sentences(how: str) -> list[str]:
    torch.manual_seed(0)
    model = Reads(how)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    watch = akeso.watch(model, optimizer)
    for _ in range(12):
        x = torch.randn(SAMPLES, MOMENTS, 3)
        optimizer.zero_grad()
        F.cross_entropy(model(x), (x[:, :, 0].mean(1) > 0).long()).backward()
        optimizer.step()
    found = [one.sentence for one in watch.diagnoses if one.problem == "wrong-axis"]
    watch.close()
    assert not watch.history.events_of("probe-off")
    return found


@pytest.mark.parametrize(
    "how", ["permuted", "states-joined", "right", "right-written", "right-all-written", "right-fused"]
)
def test_axes_that_are_moved_properly_are_left_alone(how: str) -> None:
    assert not sentences(how)


def test_a_view_inside_of_a_model_where_a_permutation_was_meant_is_named() -> None:
    (said,) = sentences("viewed")
    assert f"[{SAMPLES}, {MOMENTS}, {WIDTH}]" in said
    assert f"[{SAMPLES}, {WIDTH}, {MOMENTS}]" in said


def test_last_states_of_both_directions_put_together_across_samples_are_named() -> None:
    (said,) = sentences("states-viewed")
    assert f"[2, {SAMPLES}, {WIDTH}]" in said


@pytest.mark.parametrize(
    "how", ["queries", "queries-written", "queries-all-written", "samples", "samples-written"]
)
def test_a_softmax_over_another_axis_than_an_attention_sums_over_is_named(how: str) -> None:
    (said,) = sentences(how)
    assert f"sum to one over axis {0 if how.startswith('samples') else 2}" in said


@pytest.mark.parametrize("how", ["called", "called-fused"])
def test_heads_that_are_only_called_so_by_a_view_are_named(how: str) -> None:
    (said,) = sentences(how)
    assert f"[{SAMPLES}, {MOMENTS}, {WIDTH}]" in said
    assert f"[{SAMPLES}, {HEADS}, {MOMENTS}, {WIDTH // HEADS}]" in said


@pytest.mark.parametrize("how", ["heads", "heads-fused"])
def test_an_attention_along_the_heads_is_named(how: str) -> None:
    (said,) = sentences(how)
    assert f"given {MOMENTS} moments" in said


def test_weights_that_are_normalised_once_more_and_pools_are_left_alone() -> None:
    """Slots compete for places, and then take the mean of what they have won; a pool weighs moments by a column."""

    class Slots(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.keys, self.slots = nn.Linear(3, WIDTH), nn.Parameter(torch.randn(5, WIDTH))
            self.score, self.head = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            keys = self.keys(x)
            won = (self.slots.expand(len(x), -1, -1) @ keys.transpose(1, 2)).softmax(dim=1)
            slots = (won / won.sum(-1, keepdim=True)) @ keys
            pooled = (self.score(keys).softmax(dim=1).transpose(1, 2) @ keys).squeeze(1)
            return self.head(slots.mean(1) + pooled)

    torch.manual_seed(0)
    model = Slots()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    watch = akeso.watch(model, optimizer)
    for _ in range(12):
        x = torch.randn(SAMPLES, MOMENTS, 3)
        optimizer.zero_grad()
        F.cross_entropy(model(x), (x[:, :, 0].mean(1) > 0).long()).backward()
        optimizer.step()
    assert "wrong-axis" not in [one.problem for one in watch.diagnoses]
    watch.close()


class Groups(nn.Module):
    """Reshapes whose lengths look like a transposition by accident, and one that should have been one."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.lift, self.joint, self.head = nn.Linear(3, 16), nn.Linear(16, 48), nn.Linear(16, 2)
        self.first, self.patch = nn.Parameter(torch.zeros(1, 1, 16)), nn.Linear(64, 16)
        self.over_time = nn.Conv1d(16, 16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.lift(x)
        if self.how == "viewed":
            return self.head(self.over_time(h.view(len(x), 16, -1)).amax(2))
        if self.how == "patches":
            return self.head(self.patch(h.reshape(len(x), 16, 64)).amax(1))
        if self.how == "time first":
            h = h.transpose(0, 1)
            apart = [part.reshape(len(h), -1, 4).transpose(0, 1) for part in self.joint(h).chunk(3, dim=-1)]
            out = torch.softmax(apart[0] @ apart[1].transpose(1, 2), -1) @ apart[2]
            return self.head(out.transpose(0, 1).contiguous().view(len(h), -1, 16).mean(0))
        h = torch.cat([self.first.expand(len(x), -1, -1), h], 1)  # a token before all others to answer from
        apart = [
            part.view(len(x), -1, x.shape[1], 4).transpose(1, 2) for part in self.joint(h).chunk(3, dim=-1)
        ]
        return self.head(F.scaled_dot_product_attention(*apart).transpose(1, 2).reshape(h.shape)[:, 0])


@pytest.mark.parametrize(
    ("how", "samples", "moments", "named"),
    [
        ("viewed", 24, 64, True),
        ("patches", 24, 64, False),
        ("time first", 4, 64, False),
        ("a token more", 24, 4, False),
    ],
)
def test_lengths_that_look_like_a_transposition_by_accident_say_nothing(
    how: str, samples: int, moments: int, named: bool
) -> None:
    torch.manual_seed(0)
    model = Groups(how)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(12):
            x = torch.randn(samples, moments, 3)
            optimizer.zero_grad()
            F.cross_entropy(model(x), (x[:, :, 0].mean(1) > 0).long()).backward()
            optimizer.step()
    assert ("wrong-axis" in [one.problem for one in watch.diagnoses]) is named
    assert not watch.history.events_of("probe-off")


class Mixes(nn.Module):
    """Weights, means and deviations of a mixture, the weights brought to a sum of one over ``axis``."""

    def __init__(self, axis: int, parts: int = 5, *, logarithms: bool = False) -> None:
        super().__init__()
        self.axis, self.logarithms = axis, logarithms
        self.body, self.weigh = nn.Linear(3, 16), nn.Linear(16, parts)
        self.mean = nn.Linear(16, parts)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.tanh(self.body(x))
        shares = torch.log_softmax if self.logarithms else torch.softmax
        return shares(self.weigh(h), dim=self.axis), self.mean(h)


class Bag(Mixes):
    """One answer for a bag of things, and the weights of its things beside it."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, values = super().forward(x)
        return weights, (weights * values).sum(0, keepdim=True)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (Mixes(0), True),
        (Mixes(-2), True),
        (Mixes(1), False),
        (Mixes(0, logarithms=True), True),
        (Mixes(1, logarithms=True), False),
        (Mixes(0, parts=SAMPLES), False),  # likenesses of all with all
        (Mixes(0, parts=1), False),  # how much each sample counts
        (Bag(0), False),
    ],
)
def test_answers_that_sum_to_one_over_the_samples_are_named(model: nn.Module, named: bool) -> None:
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(12):
            x = torch.randn(SAMPLES, 3)
            weights, values = model(x)
            loss = (weights * (values - x[: len(values), :1]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    found = [one.sentence for one in watch.diagnoses if one.problem == "wrong-axis"]
    assert bool(found) is named
    assert not named or "over the samples of a batch" in found[0]
