"""The programs: what each trains, on what, with which optimizers and what it carries besides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from benchmarks.replay import networks, sources

Loss = Callable[[Any], torch.Tensor]


@dataclass(slots=True)
class Phase:
    """One optimizer's share of a step: the modules it trains and their loss on a batch."""

    modules: list[nn.Module]
    optimizer: torch.optim.Optimizer
    loss: Loss
    clip: float | None = None


@dataclass(slots=True)
class Program:
    """Everything one program trains."""

    data: Any
    phases: list[Phase]
    tracked: dict[str, Any]
    batch_size: int
    scaler: Any = None
    after: Callable[[Any, torch.Tensor], None] | None = None
    """Run after the optimizers with the plain state of the run and the loss: averages, schedules."""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scale:
    """How large the programs are: small for many kills, real for timing."""

    width: int
    samples: int
    batch: int


SMALL = Scale(width=16, samples=156, batch=8)
REAL = Scale(width=128, samples=3200, batch=32)


def _classifier(model: nn.Module, data: Any, scale: Scale, device: str, **more: Any) -> Program:
    model.to(device)
    optimizer = more.pop("optimizer", None) or torch.optim.Adam(model.parameters(), 1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 500)

    def loss(batch: Any) -> torch.Tensor:
        x, y = batch
        return functional.cross_entropy(model(x), y)

    tracked = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    phase = Phase([model], optimizer, loss, more.pop("clip", None))
    return Program(data, [phase], tracked, scale.batch, after=lambda state, value: scheduler.step(), **more)


def mlp(scale: Scale, device: str) -> Program:
    return _classifier(
        networks.perceptron(4 * scale.width), TensorDataset(*sources.images(scale.samples)), scale, device
    )


def cnn(scale: Scale, device: str) -> Program:
    model = networks.convolutions(scale.width // 2)
    optimizer = torch.optim.SGD(model.to(device).parameters(), 0.05, momentum=0.9, nesterov=True)
    data = TensorDataset(*sources.images(scale.samples))
    return _classifier(model, data, scale, device, optimizer=optimizer)


def resnet(scale: Scale, device: str) -> Program:
    return _classifier(
        networks.residual(scale.width // 4), TensorDataset(*sources.images(scale.samples)), scale, device
    )


def lstm(scale: Scale, device: str) -> Program:
    model = networks.Recurrent(nn.LSTM, scale.width)
    return _classifier(model, TensorDataset(*sources.words(scale.samples)), scale, device, clip=1.0)


def gru(scale: Scale, device: str) -> Program:
    model = networks.Recurrent(nn.GRU, scale.width)
    return _classifier(model, TensorDataset(*sources.words(scale.samples)), scale, device, clip=1.0)


def encoder(scale: Scale, device: str) -> Program:
    model = networks.Transformer(scale.width, False, 2000, 2).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.1)
    data = TensorDataset(*sources.words(scale.samples))
    return _classifier(model, data, scale, device, optimizer=optimizer)


def decoder(scale: Scale, device: str) -> Program:
    model = networks.Transformer(scale.width, True, 128, 128)
    program = _classifier(model, TensorDataset(sources.text(scale.samples)), scale, device, clip=1.0)

    def loss(batch: Any) -> torch.Tensor:
        (x,) = batch
        return functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())

    program.phases[0].loss = loss
    return program


def vae(scale: Scale, device: str) -> Program:
    model = networks.Variational(2 * scale.width)
    program = _classifier(model, TensorDataset(*sources.images(scale.samples)), scale, device)

    def loss(batch: Any) -> torch.Tensor:
        x = batch[0]
        shown, mean, spread = model(x)
        away = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(1).mean()
        return functional.mse_loss(shown, x.flatten(1)) + 1e-3 * away

    program.phases[0].loss = loss
    return program


def gan(scale: Scale, device: str) -> Program:
    width = 2 * scale.width
    maker = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 784), nn.Tanh()).to(device)
    judge = nn.Sequential(
        nn.Flatten(), nn.Linear(784, width), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(width, 1)
    ).to(device)
    making = torch.optim.Adam(maker.parameters(), 2e-4, betas=(0.5, 0.999))
    judging = torch.optim.Adam(judge.parameters(), 2e-4, betas=(0.5, 0.999))
    score = functional.binary_cross_entropy_with_logits

    def made(x: torch.Tensor) -> torch.Tensor:
        return maker(torch.randn(len(x), 16, device=x.device))

    def judge_loss(batch: Any) -> torch.Tensor:
        x = batch[0]
        with torch.no_grad():
            false = made(x)
        real, fake = judge(x), judge(false)
        return score(real, torch.ones_like(real)) + score(fake, torch.zeros_like(fake))

    def maker_loss(batch: Any) -> torch.Tensor:
        verdict = judge(made(batch[0]))
        judge.zero_grad(set_to_none=True)
        return score(verdict, torch.ones_like(verdict))

    phases = [Phase([judge], judging, judge_loss), Phase([maker], making, maker_loss)]
    tracked = {"maker": maker, "judge": judge, "making": making, "judging": judging}
    return Program(TensorDataset(*sources.images(scale.samples)), phases, tracked, scale.batch)


def autoencoder(scale: Scale, device: str) -> Program:
    width = 2 * scale.width
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 16), nn.Linear(16, width), nn.ReLU()
    )
    model.append(nn.Linear(width, 784))
    program = _classifier(model, TensorDataset(*sources.images(scale.samples)), scale, device)
    program.phases[0].loss = lambda batch: functional.mse_loss(
        model(batch[0] + 0.1 * torch.randn_like(batch[0])), batch[0].flatten(1)
    )
    return program


def embedding_bag(scale: Scale, device: str) -> Program:
    model = nn.Sequential(
        nn.EmbeddingBag(2000, 4 * scale.width, mode="mean"),
        nn.Linear(4 * scale.width, 4 * scale.width),
        nn.ReLU(),
        nn.Linear(4 * scale.width, 2),
    ).to(device)
    optimizer = torch.optim.Adagrad(model.parameters(), 0.05)
    data = TensorDataset(*sources.words(scale.samples))
    return _classifier(model, data, scale, device, optimizer=optimizer)


def contrastive(scale: Scale, device: str) -> Program:
    model = networks.convolutions(scale.width // 2, 32)
    program = _classifier(model, sources.Pictures(scale.samples, views=2), scale, device)

    def loss(batch: Any) -> torch.Tensor:
        pairs = batch[0]
        left = functional.normalize(model(pairs[:, 0]), dim=1)
        right = functional.normalize(model(pairs[:, 1]), dim=1)
        likeness = left @ right.T / 0.2
        return functional.cross_entropy(likeness, torch.arange(len(pairs), device=pairs.device))

    program.phases[0].loss = loss
    return program


def distillation(scale: Scale, device: str) -> Program:
    teacher = networks.perceptron(8 * scale.width).to(device).eval().requires_grad_(False)
    student = networks.perceptron(2 * scale.width)
    program = _classifier(student, TensorDataset(*sources.images(scale.samples)), scale, device)

    def loss(batch: Any) -> torch.Tensor:
        x, y = batch
        shown = student(x)
        softly = functional.kl_div(
            functional.log_softmax(shown / 2, 1), functional.softmax(teacher(x) / 2, 1), reduction="batchmean"
        )
        return functional.cross_entropy(shown, y) + softly

    program.phases[0].loss = loss
    program.tracked["teacher"] = teacher
    return program


def mixed_precision(scale: Scale, device: str) -> Program:
    model = networks.perceptron(4 * scale.width)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**12, growth_interval=20)
    data = TensorDataset(*sources.images(scale.samples))
    program = _classifier(model, data, scale, device, scaler=scaler, clip=5.0)
    kind = torch.float16 if device == "cuda" else torch.bfloat16

    def loss(batch: Any) -> torch.Tensor:
        x, y = batch
        with torch.autocast(device, kind):
            return functional.cross_entropy(model(x), y)

    program.phases[0].loss = loss
    program.tracked["scaler"] = scaler
    return program


def augmentation(scale: Scale, device: str) -> Program:
    return _classifier(
        networks.convolutions(scale.width // 2), sources.Pictures(scale.samples), scale, device
    )


def ema(scale: Scale, device: str) -> Program:
    program = _classifier(
        networks.residual(scale.width // 4), TensorDataset(*sources.images(scale.samples)), scale, device
    )
    model = program.tracked["model"]
    averaged = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
    )
    stepping = program.after

    def after(state: Any, value: torch.Tensor) -> None:
        averaged.update_parameters(model)
        if stepping is not None:
            stepping(state, value)

    program.after = after
    program.tracked["ema"] = averaged
    return program


def curriculum(scale: Scale, device: str) -> Program:
    """Hard samples come in as the loss falls; level and average are plain state of the run."""
    model = networks.perceptron(4 * scale.width)
    program = _classifier(model, TensorDataset(*sources.images(scale.samples)), scale, device)
    level = {"share": 0.25, "average": 3.0, "patience": 0}

    def loss(batch: Any) -> torch.Tensor:
        x, y = batch
        each = functional.cross_entropy(model(x), y, reduction="none")
        easiest = each.sort().values[: max(1, int(len(each) * level["share"]))]
        return easiest.mean()

    def after(state: Any, value: torch.Tensor) -> None:
        level["average"] = 0.9 * level["average"] + 0.1 * float(value)
        if level["average"] < 2.2:
            level["share"] = min(1.0, level["share"] * 1.1)
        level["patience"] = level["patience"] + 1 if level["average"] > 2.0 else 0

    program.phases[0].loss = loss
    program.after = after
    program.tracked["level"] = level
    return program


PROGRAMS: dict[str, Callable[[Scale, str], Program]] = {
    make.__name__: make
    for make in (
        mlp,
        cnn,
        resnet,
        lstm,
        gru,
        encoder,
        decoder,
        vae,
        gan,
        autoencoder,
        embedding_bag,
        contrastive,
        distillation,
        mixed_precision,
        augmentation,
        ema,
        curriculum,
    )
}
