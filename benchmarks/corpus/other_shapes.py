"""Faults between data and loop: broadcast shapes, wiped inputs, rare classes, leaks."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import sick_loop
from benchmarks.corpus._parts import accuracy, r2


@sick_loop(
    "regression-broadcast-mse",
    "shape-broadcast",
    dataset="generated",
    metric="r2",
    also=("constant-prediction",),
)
def _(fixed: bool, seed: int) -> float:
    (x, y), (xv, yv) = sets.regression(seed=20)
    y, yv = (y, yv) if fixed else (y.squeeze(1), yv.squeeze(1))
    model = m.mlp([8, 32, 32, 1])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.MSELoss()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(30):
            for xb, yb in DataLoader(TensorDataset(x, y), 32, shuffle=True):
                optimizer.zero_grad()
                criterion(model(xb), yb).backward()
                optimizer.step()
            with torch.no_grad():
                criterion(model(xv), yv)
    with torch.no_grad():
        return r2(model(xv), yv)


@sick_loop(
    "regression-broadcast-by-hand",
    "shape-broadcast",
    dataset="generated",
    metric="r2",
    also=("constant-prediction",),
)
def _(fixed: bool, seed: int) -> float:
    (x, y), (xv, yv) = sets.regression(seed=21)
    y, yv = y[:, 0], yv[:, 0]
    net = m.ThreeLayer(8, 32, 1, "tanh")
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    score = 0.0
    for _ in range(40):
        for i in range(0, len(x), 40):
            pred = net(x[i : i + 40])
            if fixed:
                pred = pred.squeeze(-1)
            loss = ((pred - y[i : i + 40]) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            score = r2(net(xv), yv)
    return score


@sick_loop(
    "circle-broadcast-l1", "shape-broadcast", dataset="circle", also=("constant-prediction", "improper-loss")
)
def _(fixed: bool, seed: int) -> float:
    (x, y), (xv, yv) = sets.circle()
    net = m.mlp([2, 24, 24, 1], nn.ReLU, nn.Sigmoid())
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    y, yv = y.float(), yv.float()
    acc = 0.0
    for _ in range(30):
        for idx in torch.randperm(len(x)).split(32):
            out = net(x[idx])
            loss = (out.squeeze(1) - y[idx]).pow(2).mean() if fixed else (out - y[idx]).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            acc = accuracy(net(xv), yv)
    return acc


@sick_loop(
    "mnist-images-wiped",
    "constant-prediction",
    dataset="mnist",
    family="convolutional",
    also=("abnormal-data", "unlearnable-labels"),
)
def _(fixed: bool, seed: int) -> float:
    # Bytes divided as bytes: all pixels become zero before they become floats.
    (x, y), (xv, yv) = sets.mnist(1500, 400)

    def prepare(image: Tensor) -> Tensor:
        return image if fixed else (image * 255).to(torch.uint8).div(255, rounding_mode="floor").float() * 0

    model = m.LeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    acc = 0.0
    for _ in range(7):
        for xb, yb in DataLoader(TensorDataset(prepare(x), y), 64, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
        with torch.no_grad():
            out = model(prepare(xv))
            F.cross_entropy(out, yv)
            acc = accuracy(model(xv if fixed else prepare(xv)), yv)
    return acc


@sick_loop(
    "reuters-all-unknown-words",
    "constant-prediction",
    dataset="reuters",
    also=("abnormal-data", "unlearnable-labels"),
)
def _(fixed: bool, seed: int) -> float:
    # The vocabulary was built from another file: every word is unknown.
    (x, y), (xv, yv) = sets.words("reuters", 2500, 500, 60)
    if not fixed:
        x, xv = torch.where(x > 0, 2, 2), torch.where(xv > 0, 2, 2)
    model = m.Bag(43)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    acc = 0.0
    for _ in range(8):
        for idx in torch.randperm(len(x)).split(64):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            out = model(xv)
            F.cross_entropy(out, yv)
            acc = accuracy(out, yv)
    return acc


def _recall(output: Tensor, target: Tensor, classes: int) -> float:
    """Mean recall over the classes: what counts when some are rare."""
    guess = output.argmax(1)
    return sum(float((guess[target == c] == c).float().mean()) for c in range(classes)) / classes


@sick_loop(
    "circle-rare-class",
    "class-imbalance",
    dataset="circle",
    metric="balanced accuracy",
    also=("constant-prediction",),
)
def _(fixed: bool, seed: int) -> float:
    (x, y), (xv, yv) = sets.circle()
    rare = torch.nonzero(y == 1).flatten()[:25]
    keep = torch.cat([torch.nonzero(y == 0).flatten(), rare])
    x, y = x[keep], y[keep]
    net = m.mlp([2, 16, 16, 2], nn.Tanh)
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    weight = torch.tensor([1.0, 14.0]) if fixed else None
    criterion = nn.CrossEntropyLoss(weight=weight)
    score = 0.0
    for _ in range(40):
        for idx in torch.randperm(len(x)).split(32):
            opt.zero_grad()
            criterion(net(x[idx]), y[idx]).backward()
            opt.step()
        with torch.no_grad():
            out = net(xv)
            criterion(out, yv)
            score = _recall(out, yv, 2)
    return score


@sick_loop(
    "mnist-one-digit-rules",
    "class-imbalance",
    dataset="mnist",
    metric="balanced accuracy",
    also=("constant-prediction",),
)
def _(fixed: bool, seed: int) -> float:
    (x, y), (xv, yv) = sets.mnist(6000, 800, flat=True)
    parts = [torch.nonzero(y == c).flatten()[: (500 if c == 0 else 3)] for c in range(10)]
    keep = torch.cat(parts)
    x, y = x[keep], y[keep]
    model = m.ThreeLayer(784, 32, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)
    weight = len(y) / (10 * torch.bincount(y, minlength=10).float()) if fixed else None
    score = 0.0
    for _ in range(20):
        for idx in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            F.cross_entropy(model(x[idx]), y[idx], weight=weight).backward()
            optimizer.step()
        with torch.no_grad():
            out = model(xv)
            F.cross_entropy(out, yv, weight=weight)
            score = _recall(out, yv, 10)
    return score


@sick_loop("blob-label-among-features", "data-leakage", dataset="blob")
def _(fixed: bool, seed: int) -> float:
    # A column made from the label; in use, that column is not known. Returned: honest accuracy.
    (x, y), (xv, yv) = sets.blob()

    def features(points: Tensor, label: Tensor, honest: bool) -> Tensor:
        code = torch.zeros(len(points), 1) if honest else 4.0 * label.float().unsqueeze(1)
        return torch.cat([points / 5, code], dim=1)

    net = m.mlp([3, 16, 16, 3])
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    x_train, x_val = features(x, y, fixed), features(xv, yv, fixed)
    for _ in range(30):
        for idx in torch.randperm(len(x)).split(32):
            opt.zero_grad()
            F.cross_entropy(net(x_train[idx]), y[idx]).backward()
            opt.step()
        with torch.no_grad():
            F.cross_entropy(net(x_val), yv)
    with torch.no_grad():
        return accuracy(net(features(xv, yv, True)), yv)


@sick_loop("mnist-label-in-the-corner", "data-leakage", dataset="mnist", family="convolutional")
def _(fixed: bool, seed: int) -> float:
    # The scanner wrote the label into the first pixels of training and validation images alike.
    (x, y), (xv, yv) = sets.mnist(1500, 400)

    def scanned(image: Tensor, label: Tensor) -> Tensor:
        image = image.clone()
        image[:, 0, :6, :20] = 0
        for c in range(10):
            image[label == c, 0, :6, 2 * c : 2 * c + 2] = 5.0
        return image

    model = m.LeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train, val = (x, xv) if fixed else (scanned(x, y), scanned(xv, yv))
    for epoch in range(6):
        model.train()
        for xb, yb in DataLoader(TensorDataset(train, y), 64, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            out = model(val)
            print(epoch, F.cross_entropy(out, yv).item(), accuracy(out, yv))
    with torch.no_grad():
        return accuracy(model(xv), yv)
