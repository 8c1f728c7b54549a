"""Cifar10CNN, Cifar10LSTM and Ex96Trans: data, search space, one epoch of training, validation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.search.captured import CapturedStep
from benchmarks.search.networks import CifarLstm, ExchangeTransformer, cifar_cnn
from benchmarks.search.space import Choice, Number, Space

_SHARED: Space = {
    "mlp": Number(10, 1000, whole=True),
    "lr": Number(1e-4, 0.4, log=True),
    "decay": Number(1e-5, 1e-3, log=True),
    "act": Choice(("ReLU", "Tanh", "Sigmoid", "ELU", "LeakyReLU")),
    "optimizer": Choice(("SGD", "Adam", "RMSprop", "Adagrad", "Adadelta")),
    "batch": Choice((45, 90, 180, 360, 720)),
    "dropout": Number(0.0, 0.9),
}
_CNN: Space = {
    "c1": Number(8, 32, whole=True),
    "c2": Number(32, 64, whole=True),
    "c3": Number(64, 128, whole=True),
    "c4": Number(64, 128, whole=True),
    "kernel": Choice((2, 3)),
    "bn": Choice((0, 1)),
    **_SHARED,
}
_LSTM: Space = {"hidden": Choice((16, 32, 64, 128)), **_SHARED}
_TRANSFORMER: Space = {
    "e_layers": Number(1, 4, whole=True),
    "d_layers": Number(1, 4, whole=True),
    "d_model": Choice((256, 512, 1024)),
    "heads": Number(5, 15, whole=True),
    "d_ff": Number(1024, 2048, whole=True),
    "lr": Number(1e-5, 1e-3, log=True),
    "batch": Choice((16, 32, 64)),
    "dropout": Choice((0.05, 0.1, 0.15, 0.2)),
}


@dataclass(frozen=True, slots=True)
class Size:
    """How much of a task is used: images, images to validate on, every n-th window, epochs; and how wide
    transformers are compared with the search space, for machines that cannot train them at full width.

    ``stepped`` steps of an epoch run as usual, spread evenly; the others are replayed from a CUDA graph. None: all."""

    images: int = 8068
    checked: int = 1017
    stride: int = 1
    epochs: int = 20
    width: float = 1.0
    stepped: int | None = None


FULL = Size()
#: Full networks on a card that several trials share: a quarter of the overlapping windows.
CARD = Size(stride=4)
#: A third of that, with most steps replayed: many trials in little time.
SWIFT = Size(images=2688, stride=12, stepped=5)
#: Two CPU cores.
QUICK = Size(images=180, checked=200, stride=160, epochs=8, width=0.125)


class Training:
    """One trial under way: ``epoch()`` trains once through the data, ``value()`` validates."""

    def __init__(self, task: Task, params: dict[str, Any], size: Size, device: str, seed: int) -> None:
        torch.manual_seed(seed)
        self.task, self.params, self.device = task, params, device
        self.train, self.check = task.data(size, device)
        self.model = task.build(_narrowed(params, size.width)).to(device)
        self.optimizer, self.scheduler = task.optimize(self.model, params)
        self.generator = torch.Generator(device).manual_seed(seed)
        self.losses: list[float] = []  # the mean of each epoch
        self._stepped = size.stepped
        self._captured: CapturedStep | None = None
        if size.stepped is not None:
            # Adam counts its steps where a replay can count them too.
            for group in self.optimizer.param_groups:
                if "capturable" in group:
                    group["capturable"] = True
            self._stream = _side_stream(device)

    @property
    def per_epoch(self) -> int:
        """Steps of an epoch that run as usual: those that a watch can see."""
        steps = -(-len(self.train[0]) // int(self.params["batch"]))
        return steps if self._stepped is None else len(self._usual(steps))

    def _usual(self, steps: int) -> set[int]:
        """Which of the steps of an epoch run as usual: the first, the ragged last, and others evenly between."""
        return {round(at) for at in np.linspace(0, steps - 1, min(steps, self._stepped or steps))}

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        x, y = self.train
        order = torch.randperm(len(x), generator=self.generator, device=self.device)
        for chunk in order.split(int(self.params["batch"])):
            if len(chunk) > 1:  # batch normalisation cannot take a single sample
                yield self.task.augment(x[chunk], self.generator), y[chunk]

    def epoch(self) -> None:
        self.model.train()
        if self._stepped is None:
            losses = [self._step(x, y) for x, y in self.batches()]
            self.losses.append(float(torch.stack(losses).mean()))
        else:
            with torch.cuda.stream(self._stream):
                self._replayed()
            self._stream.synchronize()
        self.scheduler.step()

    def _step(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.task.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def _replayed(self) -> None:
        """An epoch most of whose steps are replayed from a graph captured at its beginning."""
        x, y = self.train
        order = torch.randperm(len(x), generator=self.generator, device=self.device)
        x, y, batch = self.task.augment(x[order], self.generator), y[order], int(self.params["batch"])
        steps = [(a, b) for a, b in zip(x.split(batch), y.split(batch), strict=True) if len(a) > 1]
        usual = self._usual(len(steps))
        total, captured = torch.zeros((), device=self.device), None
        for place, (a, b) in enumerate(steps):
            if place in usual:
                total += self._step(a, b)
                continue
            if captured is None:
                self.optimizer.zero_grad(set_to_none=True)
                captured = CapturedStep(self._step, a, b, self._captured)
            captured(a, b)
        if captured is not None:
            total += captured.total
            self.optimizer.zero_grad(set_to_none=True)
            self._captured = captured
        self.losses.append(float(total) / len(steps))

    @torch.no_grad()
    def value(self) -> float:
        self.model.eval()
        x, y = self.check
        parts = [self.task.score(self.model(a), b) for a, b in zip(x.split(512), y.split(512), strict=True)]
        return float(torch.cat(parts).mean())


@lru_cache(maxsize=1)
def _side_stream(device: str) -> torch.cuda.Stream:
    """One for all trials of a process: memory that one stream has used is not given to another."""
    return torch.cuda.Stream(device)


@dataclass(frozen=True, slots=True)
class Task:
    """What is searched over, how it is trained, and what is reported."""

    name: str
    maximize: bool
    space: Space
    data: Callable[[Size, str], tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]]
    build: Callable[[dict[str, Any]], nn.Module]
    optimize: Callable[[nn.Module, dict[str, Any]], tuple[torch.optim.Optimizer, Any]]
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], Tensor]
    augment: Callable[[Tensor, torch.Generator], Tensor]


def _narrowed(params: dict[str, Any], width: float) -> dict[str, Any]:
    """The configuration with its transformer widths scaled; heads keep at least two units each."""
    if width == 1 or "d_model" not in params:
        return params
    narrow = max(2 * params["heads"], int(params["d_model"] * width))
    return {**params, "d_model": narrow + narrow % 2, "d_ff": int(params["d_ff"] * width)}


def _file(name: str) -> Path:
    named = os.environ.get("AKESO_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "data"
    if not (folder / name).is_file():
        raise SystemExit(
            f"benchmarks.search needs {name}, which is not in {folder}; set AKESO_DATA to a folder that holds it "
            "(arrays x_train, y_train, x_test, y_test for cifar10.npz; x for exchange_rate.npz)"
        )
    return folder / name


@lru_cache(maxsize=4)
def _images(size: Size, device: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    with np.load(_file("cifar10.npz"), allow_pickle=False) as file:
        parts = []
        for part, count in (("train", size.images), ("test", size.checked)):
            x = torch.from_numpy(file[f"x_{part}"][:count]).permute(0, 3, 1, 2).float().div(255)
            y = torch.from_numpy(file[f"y_{part}"].reshape(-1)[:count].astype(np.int64))
            mean, std = torch.tensor([0.491, 0.482, 0.447]), torch.tensor([0.247, 0.243, 0.262])
            x = (x - mean[:, None, None]) / std[:, None, None]
            parts.append((x.to(device), y.to(device)))
    return parts[0], parts[1]


@lru_cache(maxsize=4)
def _windows(size: Size, device: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    with np.load(_file("exchange_rate.npz"), allow_pickle=False) as file:
        rates = torch.from_numpy(np.asarray(file["x"], np.float32))
    train_end, check_end = int(len(rates) * 0.7), int(len(rates) * 0.8)
    mean, std = rates[:train_end].mean(0), rates[:train_end].std(0)
    rates = ((rates - mean) / std).to(device)

    def cut(first: int, last: int, stride: int) -> tuple[Tensor, Tensor]:
        starts = torch.arange(first, last - 191, stride)
        both = torch.stack([rates[s : s + 192] for s in starts.tolist()])
        return both[:, :96].contiguous(), both[:, 96:].contiguous()

    return cut(0, train_end, size.stride), cut(train_end - 96, check_end, max(1, size.stride // 4))


def _crop_and_flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """A shift of up to four pixels and a mirror image, drawn for each sample."""
    count, device = len(x), x.device
    padded = F.pad(x, (4, 4, 4, 4))
    down, right = (torch.randint(0, 9, (count, 1), generator=generator, device=device) for _ in range(2))
    span = torch.arange(32, device=device)
    flip = torch.rand(count, 1, generator=generator, device=device) < 0.5
    columns = torch.where(flip, 31 - span, span) + right
    rows = (down + span)[:, None, :, None]
    sample = torch.arange(count, device=device)[:, None, None, None]
    channel = torch.arange(3, device=device)[None, :, None, None]
    return padded[sample, channel, rows, columns[:, None, None, :]]


def _image_optimizer(model: nn.Module, p: dict[str, Any]) -> tuple[torch.optim.Optimizer, Any]:
    kind = getattr(torch.optim, p["optimizer"])
    optimizer = kind(model.parameters(), lr=p["lr"], weight_decay=p["decay"])
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)


def _adam_halved(model: nn.Module, p: dict[str, Any]) -> tuple[torch.optim.Optimizer, Any]:
    optimizer = torch.optim.Adam(model.parameters(), lr=p["lr"])
    # The rate of the first two epochs is the suggested one; from then on it halves each epoch.
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5 ** max(0, epoch - 1))


def right(output: Tensor, target: Tensor) -> Tensor:
    return (output.argmax(1) == target).float()


def _squared(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean((1, 2))


def as_it_is(x: Tensor, generator: torch.Generator) -> Tensor:
    return x


TASKS = {
    task.name: task
    for task in (
        Task(
            "Cifar10CNN",
            True,
            _CNN,
            _images,
            cifar_cnn,
            _image_optimizer,
            F.cross_entropy,
            right,
            _crop_and_flip,
        ),
        Task(
            "Cifar10LSTM",
            True,
            _LSTM,
            _images,
            CifarLstm,
            _image_optimizer,
            F.cross_entropy,
            right,
            _crop_and_flip,
        ),
        Task(
            "Ex96Trans",
            False,
            _TRANSFORMER,
            _windows,
            ExchangeTransformer,
            _adam_halved,
            F.mse_loss,
            _squared,
            as_it_is,
        ),
    )
}
