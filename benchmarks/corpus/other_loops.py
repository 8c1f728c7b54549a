"""Faults of the loop itself: forgotten calls, wrong modes, parts that are never trained."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import sick_loop
from benchmarks.corpus._parts import accuracy


@sick_loop(
    "mnist-no-zero-grad-sgd",
    "missing-zero-grad",
    dataset="mnist",
    also=("exploding-gradient", "oscillating-loss"),
)
def _(fixed: bool, seed: int) -> float:
    (x, y), (xv, yv) = sets.mnist(flat=True)
    model = m.mlp([784, 64, 64, 10])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = nn.CrossEntropyLoss()
    for _ in range(9):
        for i in range(0, len(x), 50):
            if fixed:
                optimizer.zero_grad()
            loss = criterion(model(x[i : i + 50]), y[i : i + 50])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            criterion(model(xv), yv)
    with torch.no_grad():
        return accuracy(model(xv), yv)


@sick_loop("circle-zero-grad-once", "missing-zero-grad", dataset="circle", also=("oscillating-loss",))
def _(fixed: bool, seed: int) -> float:
    # zero_grad stands before the inner loop, not in it.
    (x, y), (xv, yv) = sets.circle()
    net = m.mlp([2, 16, 16, 2], nn.Tanh)
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    data = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)
    acc = 0.0
    for _ in range(30):
        opt.zero_grad()
        for xb, yb in data:
            if fixed:
                opt.zero_grad()
            F.cross_entropy(net(xb), yb).backward()
            opt.step()
        with torch.no_grad():
            acc = accuracy(net(xv), yv)
    return acc


@sick_loop(
    "reuters-no-zero-grad-adam",
    "missing-zero-grad",
    dataset="reuters",
    family="recurrent",
    also=("oscillating-loss", "exploding-gradient"),
)
def _(fixed: bool, seed: int) -> float:
    (x, y), (xv, yv) = sets.words("reuters", 2000, 500, 50)
    model = m.TextNet(43, cell=nn.GRU, hidden=32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    acc = 0.0
    for _ in range(10):
        model.train()
        for idx in torch.randperm(len(x)).split(40):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            if fixed:
                model.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            out = model(xv)
            F.cross_entropy(out, yv)
            acc = accuracy(out, yv)
    return acc


@sick_loop("mnist-evaluated-with-dropout", "wrong-mode", dataset="mnist")
def _(fixed: bool, seed: int) -> float:
    (x, y), (xv, yv) = sets.mnist(flat=True)
    model = nn.Sequential(
        nn.Linear(784, 96),
        nn.ReLU(),
        nn.Dropout(0.7),
        nn.Linear(96, 96),
        nn.ReLU(),
        nn.Dropout(0.7),
        nn.Linear(96, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    acc = 0.0
    for _ in range(10):
        model.train()
        for idx in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(x[idx]), y[idx]).backward()
            optimizer.step()
        if fixed:
            model.eval()
        with torch.no_grad():
            out = model(xv)
            F.cross_entropy(out, yv)
            acc = accuracy(out, yv)
    return acc


@sick_loop("cifar-evaluated-in-train-mode", "wrong-mode", dataset="cifar10", family="convolutional")
def _(fixed: bool, seed: int) -> float:
    # Sorted validation batches and batch statistics: each batch holds one class and is normalised away.
    (x, y), (xv, yv) = sets.cifar(2500)
    order = yv.argsort()
    xv, yv = xv[order], yv[order]
    model = m.conv_chain(widths=(12, 24, 24), norm=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    val = DataLoader(TensorDataset(xv, yv), batch_size=25)
    acc = 0.0
    for epoch in range(9):
        model.train()
        for idx in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            criterion(model(x[idx]), y[idx]).backward()
            optimizer.step()
        if fixed:
            model.eval()
        right, val_loss = 0, 0.0
        with torch.no_grad():
            for xb, yb in val:
                out = model(xb)
                val_loss += criterion(out, yb).item()
                right += (out.argmax(1) == yb).sum().item()
        acc = right / len(yv)
        print(f"epoch {epoch} val loss {val_loss / len(val):.3f} acc {acc:.3f}")
    return acc


@sick_loop("mnist-eval-left-on", "wrong-mode", dataset="mnist", family="convolutional", also=("overfitting",))
def _(fixed: bool, seed: int) -> float:
    # eval() before the first epoch, train() never: batch norm keeps its first statistics for ever.
    (x, y), (xv, yv) = sets.mnist(1500, 400, scale=8.0)
    model = m.conv_chain(1, widths=(8, 16, 16, 16), norm=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model.eval()
    acc = 0.0
    for _ in range(8):
        for idx in torch.randperm(len(x)).split(64):
            if fixed:
                model.train()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[idx]), y[idx])
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            out = model(xv)
            acc = (out.argmax(1) == yv).float().mean().item()
    return acc


@sick_loop("mnist-body-not-in-optimizer", "parameters-not-trained", dataset="mnist")
def _(fixed: bool, seed: int) -> float:
    (x, y), (xv, yv) = sets.mnist(flat=True)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(nn.Linear(784, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU())
            self.classifier = nn.Linear(12, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.classifier(self.features(x))

    net = Net()
    optimizer = torch.optim.Adam(net.parameters() if fixed else net.classifier.parameters(), lr=3e-3)
    acc = 0.0
    for _ in range(10):
        for idx in torch.randperm(len(x)).split(50):
            optimizer.zero_grad()
            F.cross_entropy(net(x[idx]), y[idx]).backward()
            optimizer.step()
        with torch.no_grad():
            out = net(xv)
            F.cross_entropy(out, yv)
            acc = accuracy(out, yv)
    return acc


@sick_loop("imdb-embedding-detached", "parameters-not-trained", dataset="imdb", family="recurrent")
def _(fixed: bool, seed: int) -> float:
    # A .detach() left over from debugging cuts the embedding off.
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5000, 16)
            self.rnn = nn.GRU(16, 24, batch_first=True)
            self.fc = nn.Linear(24, 2)

        def forward(self, ids: Tensor) -> Tensor:
            vectors = self.embedding(ids)
            if not fixed:
                vectors = vectors.detach()
            states, _ = self.rnn(vectors)
            return self.fc(states.amax(dim=1))

    (x, y), (xv, yv) = sets.words("imdb", 2500, 600, 60)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    criterion = nn.CrossEntropyLoss()
    acc = 0.0
    for epoch in range(6):
        for xb, yb in DataLoader(TensorDataset(x, y), 64, shuffle=True):
            optimizer.zero_grad()
            loss = criterion(model(xb), yb)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            out = model(xv)
            acc = accuracy(out, yv)
            print(epoch, criterion(out, yv).item(), acc)
    return acc


@sick_loop("circle-layers-in-a-list", "parameters-not-trained", dataset="circle")
def _(fixed: bool, seed: int) -> float:
    # A Python list hides its layers from parameters().
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [nn.Linear(2, 8), nn.Linear(8, 5)]
            self.layers = nn.ModuleList(layers) if fixed else layers
            self.head = nn.Linear(5, 1)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = F.leaky_relu(layer(x), 0.1)
            return self.head(x)

    (x, y), (xv, yv) = sets.binary(sets.circle())
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    loss_fn = nn.BCEWithLogitsLoss()
    acc = 0.0
    for _ in range(60):
        for i in range(0, len(x), 35):
            opt.zero_grad()
            loss_fn(net(x[i : i + 35]), y[i : i + 35]).backward()
            opt.step()
        with torch.no_grad():
            loss_fn(net(xv), yv)
            acc = accuracy(net(xv), yv, 0.0)
    return acc


@sick_loop(
    "mnist-optimizer-before-reset",
    "parameters-not-trained",
    dataset="mnist",
    also=("slow-convergence", "learning-rate-too-low"),
)
def _(fixed: bool, seed: int) -> float:
    # The model is built anew after the optimizer took the old one's parameters.
    (x, y), (xv, yv) = sets.mnist(1500, 400, flat=True)
    model = m.ThreeLayer(784, 64, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    if not fixed:
        model = m.ThreeLayer(784, 64, 10)
    for _ in range(10):
        for idx in torch.randperm(len(x)).split(50):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[idx]), y[idx])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            F.cross_entropy(model(xv), yv)
    with torch.no_grad():
        return accuracy(model(xv), yv)
