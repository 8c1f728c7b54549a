"""Healthy trainings without labels: autoencoders, a variational one, adversarial pairs, diffusion, flows."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.corpus import models as m
from benchmarks.corpus import sets
from benchmarks.corpus._case import healthy_loop
from benchmarks.corpus._parts import r2


@healthy_loop("well-autoencoder-dense", dataset="mnist", metric="r2", expect=0.4)
def _(seed: int) -> float:
    (x, _), (xv, _) = sets.mnist(flat=True)
    model = nn.Sequential(
        nn.Linear(784, 96), nn.ReLU(), nn.Linear(96, 16), nn.Linear(16, 96), nn.ReLU(), nn.Linear(96, 784)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.MSELoss()
    score = 0.0
    for epoch in range(9):
        for (xb,) in DataLoader(TensorDataset(x), 64, shuffle=True):
            optimizer.zero_grad()
            loss = criterion(model(xb), xb)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            out = model(xv)
            print(epoch, criterion(out, xv).item())
            score = r2(out, xv)
    return score


@healthy_loop(
    "well-autoencoder-sigmoid-bce", dataset="mnist", family="convolutional", metric="r2", expect=0.3
)
def _(seed: int) -> float:
    # Grey values between 0 and 1 as soft targets of a cross entropy.
    (x, _), (xv, _) = sets.mnist(1500, 400)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.Sequential(
                nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 4, 2, 1), nn.ReLU()
            )
            self.decode = nn.Sequential(
                nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1)
            )

        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(self.decode(self.encode(x)))

    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(7):
        for idx in torch.randperm(len(x)).split(64):
            loss = F.binary_cross_entropy(net(x[idx]), x[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            F.binary_cross_entropy(net(xv), xv)
    with torch.no_grad():
        return r2(net(xv), xv)


@healthy_loop("well-denoiser", dataset="mnist", metric="r2", expect=0.35)
def _(seed: int) -> float:
    (x, _), (xv, _) = sets.mnist(flat=True)
    net = m.mlp([784, 128, 784], nn.LeakyReLU)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(9):
        for idx in torch.randperm(len(x)).split(50):
            noisy = x[idx] + 0.4 * torch.randn(len(idx), 784)
            loss = ((net(noisy) - x[idx]) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    with torch.no_grad():
        return r2(net(xv + 0.4 * torch.randn_like(xv)), xv)


class _Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(784, 96)
        self.mean = nn.Linear(96, 8)
        self.spread = nn.Linear(96, 8)
        self.up = nn.Linear(8, 96)
        self.out = nn.Linear(96, 784)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = F.relu(self.body(x))
        mean, spread = self.mean(h), self.spread(h)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * spread)
        return torch.sigmoid(self.out(F.relu(self.up(z)))), mean, spread


@healthy_loop("well-vae", dataset="mnist", metric="r2", expect=0.15)
def _(seed: int) -> float:
    (x, _), (xv, _) = sets.mnist(flat=True)
    model = _Vae()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(10):
        total = 0.0
        for (xb,) in DataLoader(TensorDataset(x), batch_size=64, shuffle=True):
            recon, mean, spread = model(xb)
            bce = F.binary_cross_entropy(recon, xb, reduction="sum")
            kld = -0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())
            loss = bce + kld
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"====> epoch {epoch} average loss {total / len(x):.2f}")
    with torch.no_grad():
        return r2(model(xv)[0], xv)


@healthy_loop("well-gan-ring", dataset="generated", metric="distance", higher_is_better=False, expect=0.3)
def _(seed: int) -> float:
    # Two losses that pull against each other and settle near ln 2; neither falls for long.
    generator = m.mlp([4, 48, 48, 2])
    critic = m.mlp([2, 48, 48, 1], lambda: nn.LeakyReLU(0.2))
    g_opt = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    d_opt = torch.optim.Adam(critic.parameters(), lr=3e-3, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    real_label, fake_label = torch.ones(64, 1), torch.zeros(64, 1)

    def real(count: int) -> Tensor:
        angle = torch.rand(count) * 2 * math.pi
        return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2)

    for _ in range(600):
        fake = generator(torch.randn(64, 4))
        d_loss = criterion(critic(real(64)), real_label) + criterion(critic(fake.detach()), fake_label)
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()
        g_loss = criterion(critic(fake), real_label)
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
    with torch.no_grad():
        made = generator(torch.randn(500, 4))
        return float(
            torch.cdist(made, real(500)).min(1).values.mean()
            + torch.cdist(real(500), made).min(1).values.mean()
        )


@healthy_loop("well-wgan-blobs", dataset="blob", metric="distance", higher_is_better=False, expect=2.5)
def _(seed: int) -> float:
    # A critic's loss is a difference of means: negative, drifting, healthy. Weights are clipped each step.
    points = sets.blob()[0][0] / 5
    generator = m.mlp([2, 32, 32, 2])
    critic = m.mlp([2, 32, 32, 1], nn.LeakyReLU)
    g_opt = torch.optim.RMSprop(generator.parameters(), lr=1e-3)
    c_opt = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
    for step in range(700):
        real = points[torch.randint(0, len(points), (64,))]
        fake = generator(torch.randn(64, 2)).detach()
        loss = critic(fake).mean() - critic(real).mean()
        c_opt.zero_grad()
        loss.backward()
        c_opt.step()
        with torch.no_grad():
            for parameter in critic.parameters():
                parameter.clamp_(-0.1, 0.1)
        if step % 3 == 0:
            g_opt.zero_grad()
            (-critic(generator(torch.randn(64, 2))).mean()).backward()
            g_opt.step()
    with torch.no_grad():
        made = generator(torch.randn(300, 2))
        return float(
            torch.cdist(points[:300], made).min(1).values.mean() + (made.mean(0) - points.mean(0)).norm()
        )


@healthy_loop("well-diffusion-blobs", dataset="blob", metric="loss", higher_is_better=False, expect=0.8)
def _(seed: int) -> float:
    # Predicting the noise: the loss cannot go to zero and is noisy by design.
    (x, _), (xv, _) = sets.blob()
    x, xv = x / 5, xv / 5
    net = m.mlp([3, 64, 64, 2], nn.SiLU)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)

    def loss_of(points: Tensor) -> Tensor:
        t = torch.rand(len(points), 1)
        noise = torch.randn_like(points)
        mixed = torch.cos(t * math.pi / 2) * points + torch.sin(t * math.pi / 2) * noise
        return F.mse_loss(net(torch.cat([mixed, t], 1)), noise)

    for _ in range(35):
        for idx in torch.randperm(len(x)).split(50):
            loss = loss_of(x[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
    with torch.no_grad():
        return float(sum(loss_of(xv).item() for _ in range(10)) / 10)


@healthy_loop("well-sparse-autoencoder", dataset="mnist", metric="r2", expect=0.3)
def _(seed: int) -> float:
    # A penalty on the code makes most of its units silent on most images.
    (x, _), (xv, _) = sets.mnist(flat=True)
    encoder, decoder = nn.Linear(784, 128), nn.Linear(128, 784)
    opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    for _ in range(10):
        for idx in torch.randperm(len(x)).split(64):
            code = torch.relu(encoder(x[idx]))
            loss = F.mse_loss(decoder(code), x[idx]) + 1e-4 * code.abs().sum(1).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    with torch.no_grad():
        return r2(decoder(torch.relu(encoder(xv))), xv)


@healthy_loop("well-physics-informed", dataset="generated", metric="r2", expect=0.8)
def _(seed: int) -> float:
    # y' = -y with y(0) = 1 from its residual: gradients of gradients, no data at all.
    net = m.mlp([1, 24, 24, 1], nn.Tanh)
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(400):
        t = (torch.rand(32, 1) * 3).requires_grad_(True)
        y = net(t)
        (slope,) = torch.autograd.grad(y.sum(), t, create_graph=True)
        loss = ((slope + y) ** 2).mean() + (net(torch.zeros(1, 1)) - 1).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        grid = torch.linspace(0, 3, 50).unsqueeze(1)
        return r2(net(grid), torch.exp(-grid))
