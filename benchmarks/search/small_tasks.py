"""Small searches of several kinds that two cores train in seconds: data that scikit-learn brings along or draws."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.search.space import Choice, Number, Space
from benchmarks.search.tasks import Size, Task, as_it_is, right

Data = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]

_COMMON: Space = {
    "lr": Number(1e-4, 1.0, log=True),
    "act": Choice(("ReLU", "Tanh", "Sigmoid")),
    "optimizer": Choice(("SGD", "Adam", "RMSprop")),
    "batch": Choice((16, 64, 256)),
    "dropout": Number(0.0, 0.8),
}
_STACK: Space = {"width": Number(4, 97, whole=True), "depth": Number(1, 6, whole=True), **_COMMON}
_CONVOLUTIONS: Space = {
    "channels": Number(2, 33, whole=True),
    "blocks": Number(1, 4, whole=True),
    "norm": Choice((0, 1)),
    "momentum": Number(0.0, 0.99),
    "decay": Number(1e-6, 1e-1, log=True),
    **{name: _COMMON[name] for name in ("lr", "act", "batch", "dropout")},
}
_RECURRENT: Space = {
    "cell": Choice(("RNN", "GRU", "LSTM")),
    "hidden": Number(4, 65, whole=True),
    "layers": Number(1, 3, whole=True),
    "clip": Number(0.01, 10.0, log=True),
    "lr": Number(1e-4, 0.3, log=True),
    "batch": Choice((32, 128)),
}


def _cut(x: Any, y: Any, train: int, check: int, kind: torch.dtype) -> Data:
    """So many samples to train on and to check with, in an order of their own."""
    inputs = torch.as_tensor(x, dtype=torch.float32)
    targets = torch.as_tensor(y).to(kind)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    first, second = order[:train], order[train : train + check]
    return (inputs[first], targets[first]), (inputs[second], targets[second])


@lru_cache(maxsize=1)
def _digits(size: Size, device: str) -> Data:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return _cut(digits.data / 16 - 0.3, digits.target, 600, 600, torch.long)


@lru_cache(maxsize=1)
def _pictures(size: Size, device: str) -> Data:
    (x, y), (u, v) = _digits(size, device)
    return (x.view(-1, 1, 8, 8), y), (u.view(-1, 1, 8, 8), v)


@lru_cache(maxsize=1)
def _copies(size: Size, device: str) -> Data:
    (x, _), (u, _) = _digits(size, device)
    return (x, x), (u, u)


@lru_cache(maxsize=1)
def _diabetes(size: Size, device: str) -> Data:
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    return _cut(x / x.std(0), ((y - y.mean()) / y.std())[:, None], 300, 142, torch.float32)


@lru_cache(maxsize=1)
def _friedman(size: Size, device: str) -> Data:
    from sklearn.datasets import make_friedman1

    x, y = make_friedman1(1200, noise=1.0, random_state=0)
    return _cut(2 * x - 1, ((y - y.mean()) / y.std())[:, None], 800, 400, torch.float32)


@lru_cache(maxsize=1)
def _marks(size: Size, device: str) -> Data:
    """Sequences of noise with two marks; which of the four kinds of pairs they are has to be remembered."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(900, 16, 3, generator=draw) * 0.6
    kinds = torch.randint(0, 2, (900, 2), generator=draw)
    at = torch.stack([torch.randint(low, low + 5, (900,), generator=draw) for low in (1, 8)], 1)
    for place in range(2):
        x[torch.arange(900), at[:, place], kinds[:, place]] += 2.0
    return _cut(x, 2 * kinds[:, 0] + kinds[:, 1], 500, 400, torch.long)


def _stack(params: dict[str, Any], inputs: int, outputs: int) -> nn.Module:
    layers: list[nn.Module] = []
    units = inputs
    for _ in range(params["depth"]):
        layers += [
            nn.Linear(units, params["width"]),
            getattr(nn, params["act"])(),
            nn.Dropout(params["dropout"]),
        ]
        units = params["width"]
    return nn.Sequential(*layers, nn.Linear(units, outputs))


def _convolutions(params: dict[str, Any]) -> nn.Module:
    layers: list[nn.Module] = []
    channels = 1
    for block in range(params["blocks"]):
        wide = params["channels"] * 2**block
        layers.append(nn.Conv2d(channels, wide, 3, padding=1))
        if params["norm"]:
            layers.append(nn.BatchNorm2d(wide))
        layers += [getattr(nn, params["act"])(), nn.MaxPool2d(2)]
        channels = wide
    side = 8 // 2 ** params["blocks"]
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Dropout(params["dropout"]), nn.Linear(channels * side**2, 10)
    )


class _Reader(nn.Module):
    """A recurrent network that answers after the last element."""

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__()
        kind = getattr(nn, params["cell"])
        self.cells = kind(3, params["hidden"], params["layers"], batch_first=True)
        self.answer = nn.Linear(params["hidden"], 4)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.cells(x)
        answer: Tensor = self.answer(states[:, -1])
        return answer


def _constant(optimizer: torch.optim.Optimizer) -> tuple[torch.optim.Optimizer, Any]:
    return optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)


def _named(model: nn.Module, params: dict[str, Any]) -> tuple[torch.optim.Optimizer, Any]:
    return _constant(getattr(torch.optim, params["optimizer"])(model.parameters(), lr=params["lr"]))


def _momentum(model: nn.Module, params: dict[str, Any]) -> tuple[torch.optim.Optimizer, Any]:
    optimizer = torch.optim.SGD(
        model.parameters(), lr=params["lr"], momentum=params["momentum"], weight_decay=params["decay"]
    )
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)


def _clipped(model: nn.Module, params: dict[str, Any]) -> tuple[torch.optim.Optimizer, Any]:
    optimizer = torch.optim.Adam(model.parameters(), lr=params["lr"])
    optimizer.register_step_pre_hook(
        lambda *_: nn.utils.clip_grad_norm_(model.parameters(), params["clip"]) and None
    )
    return _constant(optimizer)


def _squared(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean(1)


def _surprise(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, reduction="none")


#: Name, task and epochs of each.
SMALL: dict[str, tuple[Task, Size]] = {
    task.name: (task, Size(epochs=epochs))
    for task, epochs in (
        (
            Task(
                "Digits", True, _STACK, _digits, lambda p: _stack(p, 64, 10), _named, F.cross_entropy, right,
                as_it_is,
            ),
            15,
        ),
        (
            Task(
                "Pictures", True, _CONVOLUTIONS, _pictures, _convolutions, _momentum, F.cross_entropy, right,
                as_it_is,
            ),
            12,
        ),
        (
            Task(
                "Copies", False, _STACK, _copies, lambda p: _stack(p, 64, 64), _named, F.mse_loss, _squared,
                as_it_is,
            ),
            10,
        ),
        (
            Task(
                "Diabetes", False, _STACK, _diabetes, lambda p: _stack(p, 10, 1), _named, F.mse_loss, _squared,
                as_it_is,
            ),
            25,
        ),
        (
            Task(
                "Friedman", False, _STACK, _friedman, lambda p: _stack(p, 10, 1), _named, F.mse_loss, _squared,
                as_it_is,
            ),
            20,
        ),
        (
            Task("Marks", False, _RECURRENT, _marks, _Reader, _clipped, F.cross_entropy, _surprise, as_it_is),
            20,
        ),
    )
}  # fmt: skip
