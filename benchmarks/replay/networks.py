"""Small networks of the programs."""

from __future__ import annotations

import torch
from torch import nn


class Residual(nn.Module):
    """Two convolutions with batch normalisation and a way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


class Recurrent(nn.Module):
    """A recurrent classifier of word sequences."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(2000, width)
        self.body = kind(width, width, num_layers=2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.body(self.embed(x))
        return self.head(states[:, -1])


class Transformer(nn.Module):
    """An encoder that classifies, or a decoder that predicts the next character."""

    def __init__(self, width: int, causal: bool, vocabulary: int, outputs: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(0.02 * torch.randn(64, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.1, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, outputs)
        self.causal = causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        mask = None
        if self.causal:
            mask = torch.triu(torch.full((length, length), float("-inf"), device=x.device), 1)
        states = self.body(self.embed(x) + self.place[:length], mask=mask)
        return self.head(states if self.causal else states.mean(1))


class Variational(nn.Module):
    """A variational autoencoder; the noise comes from the global generator."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 32))
        self.decode = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 784))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, spread = self.encode(x).chunk(2, 1)
        sample = mean + torch.randn_like(mean) * torch.exp(0.5 * spread)
        return self.decode(sample), mean, spread


def perceptron(width: int, outputs: int = 10) -> nn.Sequential:
    """Two hidden layers with dropout."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, width),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, outputs),
    )


def convolutions(width: int, outputs: int = 10) -> nn.Sequential:
    """Two convolutions, pooling by strides, dropout."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Linear(2 * width * 49, outputs),
    )


def residual(width: int) -> nn.Sequential:
    """A small ResNet."""
    stem = [nn.Conv2d(1, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*stem, Residual(width), Residual(width), nn.Flatten(), nn.Linear(width * 196, 10))
