"""The three networks of the tasks, in plain PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ACTIVATIONS = {
    "ReLU": nn.ReLU,
    "Tanh": nn.Tanh,
    "Sigmoid": nn.Sigmoid,
    "ELU": nn.ELU,
    "LeakyReLU": nn.LeakyReLU,
}


def cifar_cnn(p: dict[str, Any]) -> nn.Module:
    """Four convolutions and three dense layers."""
    act, kernel = ACTIVATIONS[p["act"]], int(p["kernel"])
    size, layers, before = 32, [], 3
    for place, name in enumerate(("c1", "c2", "c3", "c4")):
        layers += [nn.Conv2d(before, p[name], kernel, padding=kernel // 2), act()]
        size = size + 2 * (kernel // 2) - kernel + 1
        if place % 2:
            layers.append(nn.MaxPool2d(2))
            size //= 2
        if p["bn"]:
            layers.append(nn.BatchNorm2d(p[name]))
        before = p[name]
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(before * size * size, p["mlp"]),
        act(),
        nn.Linear(p["mlp"], p["mlp"]),
        act(),
        nn.Dropout(p["dropout"]),
        nn.Linear(p["mlp"], 10),
    )


class CifarLstm(nn.Module):
    """Two stacked LSTMs over an image as 96 steps of 32, then dense layers."""

    def __init__(self, p: dict[str, Any]) -> None:
        super().__init__()
        self.first = nn.LSTM(32, p["hidden"], batch_first=True)
        self.second = nn.LSTM(p["hidden"], p["hidden"], batch_first=True)
        self.dense = nn.Linear(p["hidden"], p["mlp"])
        self.act = ACTIVATIONS[p["act"]]()
        self.dropout = nn.Dropout(p["dropout"])
        self.out = nn.Linear(p["mlp"], 10)

    def forward(self, images: Tensor) -> Tensor:
        steps, _ = self.first(images.reshape(len(images), 96, 32))
        steps, _ = self.second(steps)
        return self.out(self.dropout(self.act(self.dense(steps[:, -1]))))


class Attention(nn.Module):
    """Attention whose heads need not divide the width: each has ``width // heads`` units."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.units, self.drop = heads, width // heads, dropout
        inner = self.heads * self.units
        self.query, self.key, self.value = (nn.Linear(width, inner) for _ in range(3))
        self.out = nn.Linear(inner, width)

    def forward(self, x: Tensor, memory: Tensor, causal: bool = False) -> Tensor:
        def split(y: Tensor) -> Tensor:
            return y.view(len(y), -1, self.heads, self.units).transpose(1, 2)

        q, k, v = split(self.query(x)), split(self.key(memory)), split(self.value(memory))
        drop = self.drop if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=causal)
        return self.out(mixed.transpose(1, 2).reshape(len(x), x.shape[1], -1))


class Block(nn.Module):
    """One encoder or decoder layer, normalised after each part."""

    def __init__(self, p: dict[str, Any], cross: bool) -> None:
        super().__init__()
        width, drop = p["d_model"], p["dropout"]
        self.attention = Attention(width, p["heads"], drop)
        self.cross = Attention(width, p["heads"], drop) if cross else None
        self.wide, self.narrow = nn.Linear(width, p["d_ff"]), nn.Linear(p["d_ff"], width)
        self.act = nn.GELU()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if cross else 2))
        self.dropout = nn.Dropout(drop)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        x = self.norms[0](x + self.dropout(self.attention(x, x, causal=self.cross is not None)))
        if self.cross is not None and memory is not None:
            x = self.norms[1](x + self.dropout(self.cross(x, memory)))
        return self.norms[-1](x + self.dropout(self.narrow(self.act(self.wide(x)))))


class ExchangeTransformer(nn.Module):
    """Encoder and decoder over a window of daily rates: 96 days seen, 96 to come, 48 of the past as a start."""

    def __init__(self, p: dict[str, Any], series: int = 8) -> None:
        super().__init__()
        width = p["d_model"]
        self.embed_past, self.embed_future = nn.Linear(series, width), nn.Linear(series, width)
        self.encoder = nn.ModuleList(Block(p, cross=False) for _ in range(p["e_layers"]))
        self.decoder = nn.ModuleList(Block(p, cross=True) for _ in range(p["d_layers"]))
        self.out = nn.Linear(width, series)
        place = torch.arange(144)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
        self.register_buffer("places", torch.stack([place.sin(), place.cos()], -1).reshape(144, width))

    def forward(self, past: Tensor) -> Tensor:
        start = torch.cat([past[:, -48:], torch.zeros_like(past)], dim=1)
        memory = self.embed_past(past) + self.places[: past.shape[1]]
        for block in self.encoder:
            memory = block(memory)
        x = self.embed_future(start) + self.places[: start.shape[1]]
        for block in self.decoder:
            x = block(x, memory)
        return self.out(x)[:, -96:]
