"""Models of sequences that are asked for the wrong tokens, or do not know where a token stands."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import akeso
from akeso.torch.places import blind_to_places, places_on, told_apart

VOCABULARY, LENGTH, BATCH, WIDTH = 9, 12, 16, 16


class Encoder(nn.Module):
    """A transformer that sees all of a sequence, with or without an encoding of places."""

    def __init__(self, *, places: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH)) if places else 0.0
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.tokens(x) + self.places))


class Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.rnn = nn.Embedding(VOCABULARY, WIDTH), nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(self.tokens(x))[0])


def said(model: nn.Module, batch, *, evaluate: bool = False, steps: int = 32) -> list[str]:
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    watch = akeso.watch(model, optimizer)
    for step in range(steps):
        x, y = batch(torch.randint(VOCABULARY, (BATCH, LENGTH + 2)))
        scores = model.train()(x)[:, : y.shape[1]]
        optimizer.zero_grad()
        F.cross_entropy(scores.reshape(-1, VOCABULARY), y.reshape(-1)).backward()
        optimizer.step()
        if evaluate and step % 5 == 4:
            with torch.no_grad():
                model.eval()(x)
    watch.close()
    found = [one.sentence for one in watch.diagnoses if one.problem == "wrong-places"]
    assert not watch.history.events_of("probe-off")
    return found


def turned(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:, :LENGTH], x[:, :LENGTH].flip(1)


def by_token(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether a token is the largest of its sample: the same answer wherever it stands."""
    x = x[:, :LENGTH]
    return x, (x == x.amax(1, keepdim=True)).long()


@pytest.mark.parametrize(("dropout", "evaluate"), [(0.0, False), (0.1, True)])
def test_a_transformer_without_an_encoding_of_places_is_named_where_targets_ask_for_one(
    dropout: float, evaluate: bool
) -> None:
    (sentence,) = said(Encoder(places=False, dropout=dropout), turned, evaluate=evaluate)
    assert "does not know where a token stands" in sentence
    assert not said(Encoder(places=True, dropout=dropout), turned, evaluate=evaluate)


def test_no_places_are_missed_where_targets_do_not_depend_on_them() -> None:
    assert not said(Encoder(places=False), by_token)


def test_a_table_of_what_follows_each_token_knows_no_places_on_purpose() -> None:
    table = nn.Embedding(VOCABULARY, VOCABULARY)
    assert not said(table, lambda x: (x[:, :LENGTH], x[:, 1 : LENGTH + 1]))


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_targets_that_lie_more_than_one_place_on_are_named(shift: int) -> None:
    found = said(Causal(), lambda x: (x[:, : LENGTH - 1], x[:, shift : LENGTH + shift - 1]))
    assert len(found) == (shift > 1)
    assert not found or f"{shift} places further on" in found[0]


def test_targets_shifted_by_the_script_and_by_the_model_are_named() -> None:
    def twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        given, labels = x[:, :LENGTH], x[:, 1 : LENGTH + 1]
        return given, labels[:, 1:]

    assert said(Causal(), twice)


def test_a_model_that_is_asked_for_the_next_token_as_well_knows_what_it_does() -> None:
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH))
    later, following = tokens[:, 2:], tokens[:, 1:]
    assert places_on(tokens, [later], -100) == 2
    assert places_on(tokens, [later.reshape(-1)], -100) == 2
    assert places_on(tokens, [following, later], -100) == 0
    assert places_on(tokens, [tokens.flip(1)], -100) == 0
    assert places_on(tokens, [torch.randint(VOCABULARY, (BATCH,))], -100) == 0


def test_answers_that_differ_by_rounding_alone_are_the_same() -> None:
    tokens = torch.randint(3, (8, 10))
    answers = torch.randn(3, 5)[tokens]
    assert blind_to_places(tokens, answers + 1e-6 * torch.randn_like(answers))
    assert not blind_to_places(tokens, answers + 1e-2 * torch.randn_like(answers))
    assert told_apart(tokens, tokens, -100) == 0.0
    assert told_apart(tokens, torch.arange(80).reshape(8, 10), -100) == 1.0


@pytest.mark.parametrize(
    ("place", "learnable", "found"), [(0, False, True), (-1, False, False), (0, True, False)]
)
@pytest.mark.parametrize("units", [2, 1])
def test_answers_from_the_first_place_of_what_reads_on_are_named_where_nothing_comes_of_it(
    place: int, learnable: bool, found: bool, units: int
) -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.rnn = nn.Embedding(VOCABULARY, WIDTH), nn.GRU(WIDTH, WIDTH, batch_first=True)
            self.head = nn.Linear(WIDTH, units)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.rnn(self.tokens(x))[0][:, place])

    def asked(x: torch.Tensor) -> torch.Tensor:
        return (x[:, 0] > 4).long() if learnable else (x[:, 8:] > 4).sum(1).gt(2).long()

    torch.manual_seed(0)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(60):
            x = torch.randint(VOCABULARY, (32, LENGTH))
            optimizer.zero_grad()
            if units == 1:
                F.binary_cross_entropy_with_logits(model(x).squeeze(1), asked(x).float()).backward()
            else:
                F.cross_entropy(model(x), asked(x)).backward()
            optimizer.step()
    said = [one.sentence for one in watch.diagnoses if one.problem == "wrong-places"]
    assert bool(said) is found
    assert not found or f"the first of {LENGTH} tokens alone" in said[0]


@pytest.mark.parametrize(("there", "found"), [(False, True), (True, False)])
def test_answers_that_come_from_the_padding_alone_are_named(there: bool, found: bool) -> None:
    class Pools(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.reads = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.answer = nn.Linear(WIDTH, 2)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            counted = ((tokens != 0) == there).float().unsqueeze(2)
            h = self.reads(self.tokens(tokens)).relu()
            return self.answer((h * counted).sum(1) / counted.sum(1).clamp(min=1))

    torch.manual_seed(0)
    model = Pools()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(80):
            tokens = torch.randint(1, VOCABULARY, (32, LENGTH))
            tokens[torch.arange(LENGTH) < torch.randint(0, LENGTH - 4, (32, 1))] = 0
            labels = (tokens == 1).any(1).long()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(tokens), labels).backward()
            optimizer.step()
    said = [one for one in watch.diagnoses if one.problem == "wrong-places"]
    assert bool(said) is found
    # It was so from the first step on, whenever it was looked at, so that nothing else is to blame.
    assert not found or ("from the padding alone" in said[0].sentence and said[0].step == 0)
    assert "unlearnable-labels" not in [one.problem for one in watch.diagnoses]
