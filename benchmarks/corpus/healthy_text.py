"""Healthy trainings on sequences: language models, tagging, forecasting, tied weights, copying."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import data
from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import healthy_loop
from benchmarks.corpus._parts import accuracy, r2


def _characters(count: int = 60_000) -> tuple[Tensor, int]:
    text = data.shakespeare(count)
    letters = sorted(set(text))
    index = {letter: i for i, letter in enumerate(letters)}
    return torch.tensor([index[letter] for letter in text]), len(letters)


class _Gpt(nn.Module):
    def __init__(
        self, letters: int, width: int = 48, layers: int = 2, length: int = 32, tied: bool = False
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(letters, width)
        self.place = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 3 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, letters, bias=False)
        if tied:
            for table in (self.token, self.place):
                nn.init.normal_(table.weight, std=0.1)
            self.head.weight = self.token.weight

    def forward(self, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        mask = torch.full((length, length), -math.inf).triu(1)
        x = self.token(ids) + self.place(torch.arange(length))
        for block in self.blocks:
            x = block(x, src_mask=mask)
        return self.head(self.norm(x))


def _language_model(model: nn.Module, letters: int, ids: Tensor, steps: int, lr: float) -> float:
    """Train on next letters; returns the loss on the last tenth, in nats per letter."""
    cut = int(0.9 * len(ids))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    def batch(part: Tensor) -> tuple[Tensor, Tensor]:
        start = torch.randint(0, len(part) - 33, (16,))
        rows = torch.stack([part[i : i + 33] for i in start])
        return rows[:, :-1], rows[:, 1:]

    value = 0.0
    for step in range(steps):
        x, y = batch(ids[:cut])
        loss = F.cross_entropy(model(x).reshape(-1, letters), y.reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 60 == 59:
            model.eval()
            with torch.no_grad():
                losses = []
                for _ in range(4):
                    x, y = batch(ids[cut:])
                    losses.append(F.cross_entropy(model(x).reshape(-1, letters), y.reshape(-1)).item())
                value = sum(losses) / len(losses)
            model.train()
            print(f"step {step}: train {loss.item():.3f} val {value:.3f}")
    return value


@healthy_loop(
    "well-gpt",
    dataset="shakespeare",
    family="transformer",
    metric="loss",
    higher_is_better=False,
    expect=2.75,
)
def _(seed: int) -> float:
    ids, letters = _characters()
    return _language_model(_Gpt(letters), letters, ids, 360, 3e-3)


@healthy_loop(
    "well-gpt-tied",
    dataset="shakespeare",
    family="transformer",
    metric="loss",
    higher_is_better=False,
    expect=2.85,
)
def _(seed: int) -> float:
    ids, letters = _characters()
    return _language_model(_Gpt(letters, layers=1, tied=True), letters, ids, 360, 3e-3)


@healthy_loop(
    "well-char-lstm",
    dataset="shakespeare",
    family="recurrent",
    metric="loss",
    higher_is_better=False,
    expect=2.75,
)
def _(seed: int) -> float:
    ids, letters = _characters()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(letters, 24)
            self.lstm = nn.LSTM(24, 64, batch_first=True)
            self.out = nn.Linear(64, letters)

        def forward(self, ids: Tensor) -> Tensor:
            return self.out(self.lstm(self.embed(ids))[0])

    return _language_model(Net(), letters, ids, 420, 6e-3)


@healthy_loop("well-copy-gru-late", dataset="generated", family="recurrent", expect=0.7)
def _(seed: int) -> float:
    # Name the symbol seen first, eleven steps ago: flat at chance until the gate learns to hold.
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(8, 16)
            self.gru = nn.GRU(16, 32, batch_first=True)
            self.out = nn.Linear(32, 8)

        def forward(self, ids: Tensor) -> Tensor:
            _, h = self.gru(self.embed(ids))
            return self.out(h.squeeze(0))

    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=6e-3)
    acc = 0.0
    for step in range(450):
        x = torch.randint(0, 8, (48, 12))
        loss = F.cross_entropy(net(x), x[:, 0])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 45 == 44:
            with torch.no_grad():
                x = torch.randint(0, 8, (300, 12))
                acc = accuracy(net(x), x[:, 0])
    return acc


@healthy_loop("well-tagging-masked", dataset="reuters", family="recurrent", expect=0.8)
def _(seed: int) -> float:
    # A tag for every word (is its id even?), padding left out of the loss.
    (x, _), (xv, _) = sets.words("reuters", 1000, 300, 40)

    def tags(ids: Tensor) -> Tensor:
        return torch.where(ids == 0, -100, (ids < 200).long() + (ids < 30).long())

    embed, rnn, out = (
        nn.Embedding(5000, 16),
        nn.GRU(16, 24, batch_first=True, bidirectional=True),
        nn.Linear(48, 3),
    )
    model = nn.ModuleList([embed, rnn, out])
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    criterion = nn.CrossEntropyLoss(ignore_index=-100)
    score = 0.0
    for _ in range(8):
        for idx in torch.randperm(len(x)).split(32):
            logits = out(rnn(embed(x[idx]))[0])
            loss = criterion(logits.transpose(1, 2), tags(x[idx]))
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            logits = out(rnn(embed(xv))[0])
            criterion(logits.transpose(1, 2), tags(xv))
            seen = xv > 0
            score = float((logits.argmax(-1) == tags(xv))[seen].float().mean())
    return score


@healthy_loop("well-forecast-gru", dataset="exchange_rate", family="recurrent", metric="r2", expect=0.8)
def _(seed: int) -> float:
    # Tomorrow's rates from the last twenty days, each scaled by its own past.
    rates = torch.tensor(data.exchange_rate()[:3000])
    rates = (rates - rates[:2400].mean(0)) / rates[:2400].std(0)
    windows = rates.unfold(0, 21, 1).transpose(1, 2)
    x, y = windows[:, :20], windows[:, 20]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(8, 24, batch_first=True)
            self.step = nn.Linear(24, 8)

        def forward(self, x: Tensor) -> Tensor:
            return x[:, -1] + 0.3 * self.step(self.gru(x)[0][:, -1])

    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    score = 0.0
    for _ in range(6):
        for idx in torch.randperm(2300).split(50):
            loss = F.mse_loss(net(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            out = net(x[2400:])
            F.mse_loss(out, y[2400:])
            score = r2(out, y[2400:])
    return score


@healthy_loop("well-forecast-linear-trend", dataset="exchange_rate", metric="r2", expect=0.6)
def _(seed: int) -> float:
    rates = torch.tensor(data.exchange_rate()[:2500, :1])
    rates = (rates - rates.mean()) / rates.std()
    windows = rates[:, 0].unfold(0, 31, 1)
    windows = windows[torch.randperm(len(windows), generator=torch.Generator().manual_seed(0))]
    x, y = windows[:, :30], windows[:, 30:]
    net = m.mlp([30, 32, 1], nn.Tanh)
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for _ in range(12):
        for idx in torch.randperm(2000).split(40):
            loss = (net(x[idx]) - y[idx]).abs().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            (net(x[2000:]) - y[2000:]).abs().mean()
    with torch.no_grad():
        return r2(net(x[2000:]), y[2000:])


@healthy_loop("well-word-vectors", dataset="reuters", metric="loss", higher_is_better=False, expect=2.4)
def _(seed: int) -> float:
    # Skip-gram with drawn negatives: two embedding tables, most rows untouched in any one step.
    (x, _), _ = sets.words("reuters", 2000, 100, 60)
    ids = x[x > 3] % 500
    inner, outer = nn.Embedding(500, 24, sparse=True), nn.Embedding(500, 24, sparse=True)
    nn.init.normal_(inner.weight, std=0.1)
    nn.init.normal_(outer.weight, std=0.1)
    opt = torch.optim.SparseAdam([inner.weight, outer.weight], lr=5e-3)
    losses = []
    for _ in range(700):
        at = torch.randint(2, len(ids) - 2, (96,))
        word, near = ids[at], ids[at + 1]
        fake = torch.randint(0, 500, (96, 4))
        good = (inner(word) * outer(near)).sum(1)
        bad = (inner(word).unsqueeze(1) * outer(fake)).sum(2)
        loss = -F.logsigmoid(good).mean() - F.logsigmoid(-bad).sum(1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return sum(losses[-50:]) / 50


@healthy_loop("well-matrix-factors", dataset="generated", metric="r2", expect=0.5)
def _(seed: int) -> float:
    # Users and films: ratings from the product of two small vectors plus biases.
    draw = torch.Generator().manual_seed(6)
    left, right = torch.randn(120, 4, generator=draw), torch.randn(90, 4, generator=draw)
    user, film = torch.randint(0, 120, (6000,), generator=draw), torch.randint(0, 90, (6000,), generator=draw)
    rating = 3.5 + 0.5 * (left[user] * right[film]).sum(1) + 0.2 * torch.randn(6000, generator=draw)

    class Factors(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user, self.film = nn.Embedding(120, 8), nn.Embedding(90, 8)
            self.bias = nn.Parameter(torch.tensor(3.0))
            for table in (self.user, self.film):
                nn.init.normal_(table.weight, std=0.3)

        def forward(self, u: Tensor, f: Tensor) -> Tensor:
            return (self.user(u) * self.film(f)).sum(-1) + self.bias

    net = Factors()
    opt = torch.optim.Adam(net.parameters(), lr=0.02)
    score = 0.0
    for _ in range(12):
        for idx in torch.randperm(5000).split(100):
            loss = F.mse_loss(net(user[idx], film[idx]), rating[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            out = net(user[5000:], film[5000:])
            F.mse_loss(out, rating[5000:])
            score = r2(out, rating[5000:])
    return score


@healthy_loop("well-graph-net", dataset="generated", expect=0.75)
def _(seed: int) -> float:
    # Two communities in one graph: the whole graph is one batch, a mask chooses the training nodes.
    draw = torch.Generator().manual_seed(7)
    label = torch.arange(200) % 2
    chance = torch.where(label[:, None] == label[None], 0.12, 0.02)
    edges = (torch.rand(200, 200, generator=draw) < chance).float()
    edges = ((edges + edges.T) > 0).float() + torch.eye(200)
    norm = edges / edges.sum(1, keepdim=True)
    features = torch.randn(200, 8, generator=draw) + 0.4 * label[:, None].float()
    train = torch.rand(200, generator=draw) < 0.3
    one, two = nn.Linear(8, 16), nn.Linear(16, 2)
    opt = torch.optim.Adam([*one.parameters(), *two.parameters()], lr=0.01, weight_decay=5e-4)
    for _ in range(150):
        out = norm @ two(F.relu(norm @ one(features)))
        loss = F.cross_entropy(out[train], label[train])
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            accuracy(out[~train], label[~train])
    with torch.no_grad():
        out = norm @ two(F.relu(norm @ one(features)))
        return accuracy(out[~train], label[~train])
