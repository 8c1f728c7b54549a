"""The trainings whose steps are timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Step = Callable[[], Any]
Parts = tuple[nn.Module, torch.optim.Optimizer, Step]


@dataclass(frozen=True)
class Training:
    """A training whose step is timed."""

    name: str
    build: Callable[[torch.device], Parts]
    limit: float
    block: int  # steps in one timed block
    together: int = 10  # blocks judged together, so that they hold several looks


def _stepped(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], torch.Tensor]) -> Parts:
    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return model, optimizer, step


def _tiny_mlp(device: torch.device) -> Parts:
    layers: list[nn.Module] = [nn.Linear(2, 5), nn.ReLU()]
    for _ in range(8):
        layers += [nn.Linear(5, 5), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(5, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(128, 2, device=device)
    y = (x.norm(dim=1, keepdim=True) > 1).float()

    return _stepped(model, optimizer, lambda: F.binary_cross_entropy_with_logits(model(x), y))


def _images(count: int, channels: int, size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    if channels == 1:
        from benchmarks.data import mnist

        data = mnist()
        x = torch.as_tensor(data.x_train[:count], dtype=torch.float32).reshape(-1, 1, 28, 28) / 255
        return x.to(device), torch.as_tensor(data.y_train[:count], dtype=torch.int64).to(device)
    x = torch.randn(count, channels, size, size, device=device)
    return x, torch.randint(0, 10, (count,), device=device)


def _lenet(device: torch.device) -> Parts:
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = _images(64, 1, 28, device)

    return _stepped(model, optimizer, lambda: F.cross_entropy(model(x), y))


class _Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5000, 32)
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(tokens))[0][:, -1])


def _lstm(device: torch.device) -> Parts:
    model = _Reader().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randint(0, 5000, (32, 60), device=device)
    y = torch.randint(0, 2, (32,), device=device)

    return _stepped(model, optimizer, lambda: F.cross_entropy(model(x), y))


def _resnet_like(device: torch.device) -> Parts:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    width = 64
    for stage in range(4):
        for block in range(2):
            wider = width * 2 if stage and block == 0 else width
            stride = 2 if stage and block == 0 else 1
            layers += [nn.Conv2d(width, wider, 3, stride, 1), nn.BatchNorm2d(wider), nn.ReLU()]
            width = wider
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = _images(256, 3, 32, device)

    return _stepped(model, optimizer, lambda: F.cross_entropy(model(x), y))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.qkv(self.ln1(x)).split(c, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class _Gpt(nn.Module):
    def __init__(
        self, vocabulary: int = 50304, width: int = 768, depth: int = 12, length: int = 1024
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(_Block(width, 12) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _gpt(device: torch.device) -> Parts:
    model = _Gpt().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    tokens = torch.randint(0, 50304, (32, 1025), device=device)

    def loss() -> torch.Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            scores = model(tokens[:, :-1])
            return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), tokens[:, 1:].reshape(-1))

    return _stepped(model, optimizer, loss)


CPU = (
    Training("tiny MLP, 10 × 5", _tiny_mlp, 0.02, 50, 50),
    Training("LeNet on MNIST", _lenet, 0.01, 20, 60),
    Training("LSTM", _lstm, 0.01, 20, 60),
)
CUDA = (
    Training("CNN", _resnet_like, 0.01, 200, 5),
    Training("transformer, 124 M", _gpt, 0.01, 15, 5),
)


def plain(model: nn.Module, step: Step, block: int) -> None:
    """Train for a block of steps, unwatched."""
    for _ in range(block):
        step()
