"""Healthy trainings whose loop is their own: accumulation, clipping, LBFGS, frozen parts, late learners."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import healthy_loop
from benchmarks.corpus._parts import accuracy, r2


def _batches(x: Tensor, y: Tensor, size: int) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(x, y), batch_size=size, shuffle=True)


@healthy_loop("well-mnist-accumulation", dataset="mnist", expect=0.8)
def _(seed: int) -> float:
    (x, y), (xv, yv) = sets.mnist(flat=True)
    model = m.mlp([784, 64, 10])
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    acc = 0.0
    for _ in range(10):
        optimizer.zero_grad()
        for step, (xb, yb) in enumerate(_batches(x, y, 16)):
            loss = F.cross_entropy(model(xb), yb) / 4
            loss.backward()
            if (step + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
        with torch.no_grad():
            out = model(xv)
            F.cross_entropy(out, yv)
            acc = accuracy(out, yv)
    return acc


@healthy_loop("well-reuters-lstm-clipped", dataset="reuters", family="recurrent", expect=0.55)
def _(seed: int) -> float:
    (x, y), (xv, yv) = sets.words("reuters", 2500, 500, 50)
    model = m.TextNet(43, hidden=32)
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    criterion = nn.CrossEntropyLoss()
    acc = 0.0
    for _ in range(7):
        model.train()
        for xb, yb in _batches(x, y, 64):
            optimizer.zero_grad()
            loss = criterion(model(xb), yb)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            out = model(xv)
            criterion(out, yv)
            acc = accuracy(out, yv)
    return acc


@healthy_loop("well-circle-lbfgs", dataset="circle", expect=0.75)
def _(seed: int) -> float:
    (x, y), (xv, yv) = sets.binary(sets.circle())
    net = m.mlp([2, 16, 1], nn.Tanh)
    opt = torch.optim.LBFGS(net.parameters(), max_iter=5, line_search_fn="strong_wolfe")
    loss_fn = nn.BCEWithLogitsLoss()

    def closure() -> Tensor:
        opt.zero_grad()
        loss = loss_fn(net(x), y)
        loss.backward()
        return loss

    for _ in range(60):
        opt.step(closure)
        with torch.no_grad():
            loss_fn(net(xv), yv)
    with torch.no_grad():
        return accuracy(net(xv), yv, 0.0)


class Backbone(nn.Module):
    """Two convolutions that turn an image into 800 features."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).flatten(1)


@healthy_loop("well-mnist-frozen-backbone", dataset="mnist", family="convolutional", expect=0.75)
def _(seed: int) -> float:
    (x, y), (xv, yv) = sets.mnist(1500, 400)
    backbone = Backbone()
    for parameter in backbone.parameters():
        parameter.requires_grad = False
    model = nn.Sequential(backbone, nn.Linear(32 * 25, 10))
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    acc = 0.0
    for _ in range(7):
        for xb, yb in _batches(x, y, 64):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
        with torch.no_grad():
            out = model(xv)
            F.cross_entropy(out, yv)
            acc = accuracy(out, yv)
    return acc


@healthy_loop("well-mnist-fine-tuning", dataset="mnist", expect=0.85)
def _(seed: int) -> float:
    # Trained before; goes on with a small rate and has little left to gain.
    (x, y), (xv, yv) = sets.mnist(3000, 500, flat=True)
    model = m.ThreeLayer(784, 64, 10)
    weights = pretrained(x, y)
    model.load_state_dict(weights)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    acc = 0.0
    for _ in range(6):
        for xb, yb in _batches(x, y, 64):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
        with torch.no_grad():
            out = model(xv)
            F.cross_entropy(out, yv)
            acc = accuracy(out, yv)
    return acc


def pretrained(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Weights from an earlier training, made without an optimizer so that it is no part of the run."""
    model = m.ThreeLayer(784, 64, 10)
    parameters = list(model.parameters())
    with torch.random.fork_rng():
        torch.manual_seed(5)
        for _ in range(400):
            idx = torch.randint(0, len(x), (64,))
            loss = F.cross_entropy(model(x[idx]), y[idx])
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=False):
                parameter.data -= 0.2 * gradient
    return copy.deepcopy(model.state_dict())


@healthy_loop("well-blob-converged-from-start", dataset="blob", expect=0.78)
def _(seed: int) -> float:
    # The weights already are the solution: the loss is low and flat from the first step.
    (x, y), (xv, yv) = sets.blob()
    centres = torch.stack([x[y == c].mean(0) for c in range(3)])
    net = nn.Linear(2, 3)
    with torch.no_grad():
        net.weight.copy_(centres / 4)
        net.bias.copy_(-(centres**2).sum(1) / 8)
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    acc = 0.0
    for _ in range(15):
        for idx in torch.randperm(len(x)).split(50):
            loss = F.cross_entropy(net(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            out = net(xv)
            F.cross_entropy(out, yv)
            acc = accuracy(out, yv)
    return acc


@healthy_loop("well-parity-late-learner", dataset="generated", expect=0.9)
def _(seed: int) -> float:
    # The parity of three bits among ten: nothing for a while, then all at once.
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, 2, (3000, 10), generator=draw).float() * 2 - 1
    y = ((x[:, 0] * x[:, 3] * x[:, 7]) > 0).long()
    model = m.mlp([10, 96, 2], nn.ReLU)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.5e-3)
    acc = 0.0
    for _ in range(25):
        for xb, yb in _batches(x[:2400], y[:2400], 64):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
        with torch.no_grad():
            out = model(x[2400:])
            F.cross_entropy(out, y[2400:])
            acc = accuracy(out, y[2400:])
    return acc


@healthy_loop("well-deep-linear-plateau", dataset="generated", metric="r2", expect=0.7)
def _(seed: int) -> float:
    # A deep linear net from small weights stays at a saddle before it learns.
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(900, 10, generator=draw)
    y = x @ torch.randn(10, 2, generator=draw) / 2
    net = nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in ((10, 16), (16, 16), (16, 2))))
    for layer in net:
        nn.init.normal_(layer.weight, std=0.09)  # type: ignore[arg-type, union-attr]
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    score = 0.0
    for _ in range(40):
        for i in range(0, 600, 30):
            loss = F.mse_loss(net(x[i : i + 30]), y[i : i + 30])
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            out = net(x[600:])
            F.mse_loss(out, y[600:])
            score = r2(out, y[600:])
    return score


@healthy_loop("well-circle-imbalanced-learned", dataset="circle", metric="balanced accuracy", expect=0.68)
def _(seed: int) -> float:
    (x, y), (xv, yv) = sets.circle()
    keep = torch.cat([torch.nonzero(y == 0).flatten(), torch.nonzero(y == 1).flatten()[:80]])
    x, y = x[keep], y[keep]
    net = m.mlp([2, 32, 32, 2])
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    score = 0.0
    for _ in range(40):
        for idx in torch.randperm(len(x)).split(32):
            opt.zero_grad()
            F.cross_entropy(net(x[idx]), y[idx]).backward()
            opt.step()
        with torch.no_grad():
            guess = net(xv).argmax(1)
            score = sum(float((guess[yv == c] == c).float().mean()) for c in (0, 1)) / 2
    return score


@healthy_loop("well-mnist-class-weights", dataset="mnist", expect=0.7)
def _(seed: int) -> float:
    (x, y), (xv, yv) = sets.mnist(4000, 500, flat=True)
    keep = torch.cat([torch.nonzero(y == c).flatten()[: 30 * (c + 2)] for c in range(10)])
    x, y = x[keep], y[keep]
    weight = len(y) / (10 * torch.bincount(y).float())
    criterion = nn.CrossEntropyLoss(weight=weight)
    model = m.ThreeLayer(784, 64, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    acc = 0.0
    for _ in range(8):
        for xb, yb in _batches(x, y, 32):
            optimizer.zero_grad()
            criterion(model(xb), yb).backward()
            optimizer.step()
        with torch.no_grad():
            out = model(xv)
            criterion(out, yv)
            acc = accuracy(out, yv)
    return acc


@healthy_loop("well-mnist-some-labels-ignored", dataset="mnist", expect=0.75)
def _(seed: int) -> float:
    (x, y), (xv, yv) = sets.mnist(2500, 500, flat=True)
    y = y.clone()
    y[::3] = -100
    model = m.mlp([784, 64, 10])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    acc = 0.0
    for _ in range(8):
        for xb, yb in _batches(x, y, 50):
            loss = F.cross_entropy(model(xb), yb, ignore_index=-100)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.inference_mode():
            acc = (model(xv).argmax(dim=1) == yv).float().mean().item()
    return acc


@healthy_loop("well-multilabel", dataset="generated", expect=0.85)
def _(seed: int) -> float:
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(1300, 12, generator=draw)
    y = (x @ torch.randn(12, 6, generator=draw) + torch.randn(12, 6, generator=draw)[0] - 2 > 0).float()
    model = m.mlp([12, 32, 6])
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    criterion = nn.BCEWithLogitsLoss()
    acc = 0.0
    for _ in range(25):
        for xb, yb in _batches(x[:1000], y[:1000], 32):
            opt.zero_grad()
            criterion(model(xb), yb).backward()
            opt.step()
        with torch.no_grad():
            out = model(x[1000:])
            criterion(out, y[1000:])
            acc = ((out > 0) == (y[1000:] > 0.5)).float().mean().item()
    return acc


@healthy_loop("well-two-heads", dataset="mnist", expect=0.75)
def _(seed: int) -> float:
    # One head names the digit, the other says how much ink there is.
    (x, y), (xv, yv) = sets.mnist(flat=True)
    ink, scale = x.mean(1, keepdim=True), x.mean(1).std()

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(784, 64), nn.ReLU())
            self.digit = nn.Linear(64, 10)
            self.ink = nn.Linear(64, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.trunk(x)
            return self.digit(h), self.ink(h)

    model = Heads()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    acc = 0.0
    for _ in range(8):
        for xb, yb, ib in DataLoader(TensorDataset(x, y, ink / scale), 64, shuffle=True):
            optimizer.zero_grad()
            digit, amount = model(xb)
            loss = F.cross_entropy(digit, yb) + 0.3 * F.mse_loss(amount, ib)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            acc = accuracy(model(xv)[0], yv)
    return acc


@healthy_loop("well-mnist-bfloat16", dataset="mnist", expect=0.78)
def _(seed: int) -> float:
    (x, y), (xv, yv) = sets.mnist(1500, 400, flat=True)
    model = m.mlp([784, 64, 64, 10])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    acc = 0.0
    for _ in range(8):
        for xb, yb in _batches(x, y, 64):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            optimizer.step()
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(xv)
            F.cross_entropy(out, yv)
            acc = accuracy(out, yv)
    return acc


@healthy_loop("well-mnist-ema", dataset="mnist", expect=0.78)
def _(seed: int) -> float:
    (x, y), (xv, yv) = sets.mnist(flat=True)
    model = m.ThreeLayer(784, 64, 10)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    acc = 0.0
    for _ in range(8):
        for xb, yb in _batches(x, y, 64):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(average.parameters(), model.parameters(), strict=False):
                    slow.lerp_(fast, 0.05)
        with torch.no_grad():
            out = average(xv)
            F.cross_entropy(out, yv)
            acc = accuracy(out, yv)
    return acc
