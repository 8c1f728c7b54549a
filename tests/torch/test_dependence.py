"""What an answer of a sequence model depends on: leaks and mixed samples are named, sound models are left alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import akeso
from akeso.torch.dependence import alignment

VOCABULARY, LENGTH, BATCH, WIDTH = 11, 12, 6, 16


class Attends(nn.Module):
    """A small transformer; ``mask`` and ``axis`` are what people get wrong."""

    def __init__(self, *, mask: bool = True, batch_first: bool = True, norm: bool = False) -> None:
        super().__init__()
        self.batch_first, self.mask = batch_first, mask
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.queries = nn.Linear(WIDTH, 3 * WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH) if norm else nn.Identity()
        self.mixes = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        q, k, v = self.queries(h if self.batch_first else h.transpose(0, 1)).chunk(3, dim=-1)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=self.mask)
        h = h + self.mixes(a if self.batch_first else a.transpose(0, 1))
        return self.head(self.norm(h.transpose(1, 2)).transpose(1, 2))


class Recurs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.rnn = nn.Embedding(VOCABULARY, WIDTH), nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(self.tokens(x))[0])


def following(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:, :-1], x[:, 1:]


def the_same(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x, x.clone()


def hidden(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Masked tokens are to be said, as a masked language model does."""
    away = torch.rand(x.shape) < 0.3
    return x.masked_fill(away, 0), x.masked_fill(~away, -100)


def shown(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The mask the wrong way round: what is seen is to be said."""
    away = torch.rand(x.shape) < 0.3
    return x.masked_fill(away, 0), x.masked_fill(away, -100)


def found_in(model: nn.Module, batch, *, steps: int = 40, seed: int = 0, loss=None) -> list[tuple[str, str]]:
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    watch = akeso.watch(model, optimizer)
    for _ in range(steps):
        x, y = batch(torch.randint(1, VOCABULARY, (BATCH, LENGTH)))
        optimizer.zero_grad()
        (loss or flat)(model(x), y).backward()
        optimizer.step()
    found = [(one.problem, one.sentence) for one in watch.diagnoses]
    watch.close()
    assert not watch.history.events_of("probe-off")
    return [one for one in found if one[0] in ("sequence-leak", "wrong-axis")]


def flat(scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))


@pytest.mark.parametrize(
    ("model", "batch"),
    [
        (lambda: Attends(), following),
        (lambda: Attends(norm=True), following),
        (lambda: Recurs(), following),
        (lambda: Attends(mask=False), hidden),
        (lambda: Attends(mask=False), the_same),  # an autoencoder of sequences
    ],
    ids=["causal", "with a norm over the batch", "recurrent", "masked", "autoencoder"],
)
def test_sound_models_of_sequences_are_left_alone(model, batch):
    assert found_in(model(), batch) == []


def test_a_model_that_shifts_by_itself_may_be_given_its_targets():
    class Shifts(Recurs):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(F.pad(x, (1, 0))[:, :-1])

    assert found_in(Shifts(), the_same) == []


@pytest.mark.parametrize(
    ("loss", "model"),
    [
        (flat, lambda: Attends(mask=False)),
        (lambda s, y: F.cross_entropy(s.transpose(1, 2), y), lambda: Attends(mask=False)),
        (lambda s, y: F.nll_loss(s.log_softmax(-1).flatten(0, 1), y.flatten()), lambda: Attends(mask=False)),
    ],
    ids=["flat", "classes second", "logarithms"],
)  # fmt: skip
def test_a_missing_causal_mask_is_named(loss, model):
    [(problem, sentence)] = found_in(model(), following, loss=loss)
    assert problem == "sequence-leak"
    assert "causal mask" in sentence


class LooksAhead(Attends):
    """The causal mask the wrong way round: every token sees itself and what comes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        q, k, v = self.queries(h).chunk(3, dim=-1)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu()
        return self.head(h + 0.1 * self.mixes(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))


def test_a_causal_mask_the_wrong_way_round_is_named():
    [(problem, sentence)] = found_in(LooksAhead(), following)
    assert problem == "sequence-leak"
    assert "causal mask" in sentence


@pytest.mark.parametrize("model", [lambda: Attends(), lambda: Recurs()], ids=["causal", "recurrent"])
def test_targets_that_are_not_shifted_are_named(model):
    [(problem, sentence)] = found_in(model(), the_same)
    assert problem == "sequence-leak"
    assert "copy" in sentence


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_a_mask_of_targets_the_wrong_way_round_is_named(seed):
    torch.manual_seed(seed)
    [(problem, sentence)] = found_in(Attends(mask=False), shown, seed=seed)
    assert problem == "sequence-leak"
    assert "copy" in sentence


def test_attention_along_the_samples_is_named():
    found = found_in(Attends(batch_first=False, mask=True), following)
    assert [problem for problem, _ in found] == ["wrong-axis"]


def test_an_encoder_layer_that_wants_time_first_is_named():
    class Encodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=False)
            self.inner, self.head = nn.Linear(3, WIDTH), nn.Linear(WIDTH, VOCABULARY)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.layer(self.inner(x)).mean(1))

    def batch(_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(32, 9, 3), torch.randint(VOCABULARY, (32,))

    [(problem, sentence)] = found_in(Encodes(), batch)
    assert problem == "wrong-axis"
    assert "looks at the others of its batch" in sentence


@pytest.mark.parametrize("turned", [True, False])
def test_answers_whose_axes_a_reshape_mixes_up_are_named(turned):
    def loss(scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scores = scores.transpose(1, 2) if turned else scores.reshape(len(scores), VOCABULARY, -1)
        return F.cross_entropy(scores, y)

    found = found_in(Recurs(), lambda x: (x, (x * 3) % VOCABULARY), loss=loss)
    assert [problem for problem, _ in found] == ([] if turned else ["wrong-axis"])


def test_the_look_changes_no_bit():
    def train(*, watched: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = nn.Sequential(Attends(mask=False), nn.Dropout(0.2))
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        watch = akeso.watch(model, optimizer) if watched else None
        for _ in range(40):
            x, y = following(torch.randint(1, VOCABULARY, (BATCH, LENGTH)))
            optimizer.zero_grad()
            flat(model(x), y).backward()
            optimizer.step()
        if watch is not None:
            assert watch.history.events_of("depends-ahead")
            watch.close()
        return [tensor.detach().clone() for tensor in model.state_dict().values()]

    assert all(map(torch.equal, train(watched=True), train(watched=False)))


def test_no_look_where_somebody_would_notice():
    seen: list[int] = []
    model = Attends(mask=False)
    model.mixes.register_full_backward_hook(lambda *_: seen.append(1))
    assert found_in(model, following) == []
    assert len(seen) == 40


def test_operations_that_may_work_only_once_are_left_alone():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.kept = [torch.full_like(x, 2.0)]
            return 2.0 * x

        @staticmethod
        def backward(ctx, gradient):
            return ctx.kept.pop() * gradient

    class Uses(Attends):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Once.apply(super().forward(x))

    assert found_in(Uses(mask=False), following) == []


def test_targets_are_told_from_tokens():
    x = torch.randint(1, VOCABULARY, (BATCH, LENGTH), generator=torch.Generator().manual_seed(0))
    following_ones = alignment(x[:, :-1], x[:, 1:].reshape(-1), -100)
    assert following_ones is not None
    assert (following_ones.kind, following_ones.axis) == ("next", 1)
    short = alignment(x, x[:, 1:].reshape(-1), -100)
    assert short is not None
    assert short.kind == "next"
    time_first = alignment(x[:, :-1].T.contiguous(), x[:, 1:].T.reshape(-1), -100)
    assert time_first is not None
    assert (time_first.kind, time_first.axis) == ("next", 0)
    same = alignment(x, x, -100)
    assert same is not None
    assert same.kind == "same"
    assert alignment(x, x.flip(1), -100) is None
    assert alignment(torch.ones_like(x), torch.ones_like(x), -100) is None


@pytest.mark.parametrize("masked", [True, False])
def test_time_may_come_first(masked):
    class TimeFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.1)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(WIDTH, VOCABULARY)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(len(x)) if masked else None
            return self.head(self.encoder(self.tokens(x), mask))

    def batch(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.T[:-1].contiguous(), x.T[1:].contiguous()

    found = found_in(TimeFirst(), batch)
    assert [problem for problem, _ in found] == ([] if masked else ["sequence-leak"])
