"""Models as people write them: chains of modules, custom ``forward`` with functions or methods, blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Function = Callable[[Tensor], Tensor]


def mlp(
    sizes: Sequence[int],
    act: Callable[[], nn.Module] = nn.ReLU,
    out: nn.Module | None = None,
    norm: bool = False,
) -> nn.Sequential:
    """A chain of linear layers with an activation module after each hidden one."""
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes[:-1]):
        layers.append(nn.Linear(a, b))
        if norm:
            layers.append(nn.BatchNorm1d(b))
        layers.append(act())
    layers.append(nn.Linear(sizes[-2], sizes[-1]))
    if out is not None:
        layers.append(out)
    return nn.Sequential(*layers)


class Deep(nn.Module):
    """Linear layers in a ``ModuleList``, activated by a function."""

    def __init__(self, sizes: Sequence[int], act: Function = F.relu, out: Function | None = None) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes[:-1]))
        self.head = nn.Linear(sizes[-2], sizes[-1])
        self.act = act
        self.out = out

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in self.hidden:
            x = self.act(layer(x))
        x = self.head(x)
        return x if self.out is None else self.out(x)


class ThreeLayer(nn.Module):
    """Named layers and tensor methods."""

    def __init__(self, inputs: int, hidden: int, outputs: int, act: str = "relu", out: str = "") -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, outputs)
        self.kind = act
        self.last = out

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(x.size(0), -1)
        x = getattr(self.fc1(x), self.kind)()
        x = getattr(self.fc2(x), self.kind)()
        x = self.fc3(x)
        return getattr(x, self.last)() if self.last else x


class LeNet(nn.Module):
    """Two convolutions with pooling, then dense layers."""

    def __init__(
        self,
        channels: int = 1,
        size: int = 28,
        classes: int = 10,
        dense: Sequence[int] = (64,),
        act: Function = F.relu,
        conv_act: Function = F.relu,
        width: int = 6,
        out: Function | None = None,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 5)
        self.conv2 = nn.Conv2d(width, 2 * width, 5)
        side = ((size - 4) // 2 - 4) // 2
        sizes = [2 * width * side * side, *dense]
        self.dense = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.classify = nn.Linear(sizes[-1], classes)
        self.act, self.conv_act, self.out = act, conv_act, out

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv_act(self.conv1(x)), 2)
        x = F.max_pool2d(self.conv_act(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        for layer in self.dense:
            x = self.act(layer(x))
        x = self.classify(x)
        return x if self.out is None else self.out(x)


def conv_chain(
    channels: int = 3,
    classes: int = 10,
    widths: Sequence[int] = (8, 16, 16),
    act: Callable[[], nn.Module] = nn.ReLU,
    norm: bool = False,
    out: nn.Module | None = None,
) -> nn.Sequential:
    """Strided convolutions in a chain, global pooling, one linear layer."""
    layers: list[nn.Module] = []
    before = channels
    for width in widths:
        layers.append(nn.Conv2d(before, width, 3, stride=2, padding=1))
        if norm:
            layers.append(nn.BatchNorm2d(width))
        layers.append(act())
        before = width
    layers += [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(before * 4, classes)]
    if out is not None:
        layers.append(out)
    return nn.Sequential(*layers)


class TextNet(nn.Module):
    """Embedding, a recurrent layer of the given kind, dense layers on its pooled states."""

    def __init__(
        self,
        classes: int,
        cell: Callable[..., nn.Module] = nn.LSTM,
        embed: int = 16,
        hidden: int = 24,
        dense: Sequence[int] = (),
        act: Function = torch.tanh,
        pool: str = "max",
        vocabulary: int = 5000,
        out: Function | None = None,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embed)
        self.rnn = cell(embed, hidden, batch_first=True)
        sizes = [hidden, *dense]
        self.dense = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.fc = nn.Linear(sizes[-1], classes)
        self.act, self.pool, self.out = act, pool, out

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.rnn(self.embedding(ids))
        x = (
            states[:, -1]
            if self.pool == "last"
            else states.max(dim=1).values
            if self.pool == "max"
            else states.mean(1)
        )
        for layer in self.dense:
            x = self.act(layer(x))
        x = self.fc(x)
        return x if self.out is None else self.out(x)


class Bag(nn.Module):
    """A mean of word vectors followed by dense layers."""

    def __init__(
        self,
        classes: int,
        embed: int = 32,
        dense: Sequence[int] = (32,),
        act: Function = F.relu,
        vocabulary: int = 5000,
        out: Function | None = None,
    ) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(vocabulary, embed, mode="mean")
        sizes = [embed, *dense]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.out_layer = nn.Linear(sizes[-1], classes)
        self.act, self.out = act, out

    def forward(self, ids: Tensor) -> Tensor:
        x = self.bag(ids)
        for layer in self.layers:
            x = self.act(layer(x))
        x = self.out_layer(x)
        return x if self.out is None else self.out(x)


class Transformer(nn.Module):
    """Token and position vectors, encoder layers, mean over positions, one linear layer."""

    def __init__(
        self,
        classes: int,
        layers: int = 2,
        width: int = 32,
        heads: int = 2,
        length: int = 60,
        norm_first: bool = True,
        vocabulary: int = 5000,
        dropout: float = 0.0,
        out: Function | None = None,
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout=dropout, batch_first=True, norm_first=norm_first
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width) if norm_first else nn.Identity()
        self.head = nn.Linear(width, classes)
        self.out = out

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids) + self.position[: ids.shape[1]]
        x = self.norm(self.encoder(x)).mean(dim=1)
        x = self.head(x)
        return x if self.out is None else self.out(x)


class Attention(nn.Module):
    """Self-attention written out by hand."""

    def __init__(self, width: int, scaled: bool = True) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.factor = 1 / math.sqrt(width) if scaled else 1.0

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        weights = torch.softmax(q @ k.transpose(-2, -1) * self.factor, dim=-1)
        return self.proj(weights @ v)


class HandTransformer(nn.Module):
    """A transformer written out by hand, with or without the residual paths and norms."""

    def __init__(
        self,
        classes: int,
        layers: int = 3,
        width: int = 32,
        residual: bool = True,
        norm: bool = True,
        scaled: bool = True,
        vocabulary: int = 5000,
        act: Function = F.gelu,
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.attention = nn.ModuleList(Attention(width, scaled) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) if norm else nn.Identity() for _ in range(2 * layers))
        self.head = nn.Linear(width, classes)
        self.residual, self.act = residual, act

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        keep = 1.0 if self.residual else 0.0
        for i, (attention, up, down) in enumerate(zip(self.attention, self.up, self.down, strict=False)):
            x = keep * x + attention(self.norms[2 * i](x))
            x = keep * x + down(self.act(up(self.norms[2 * i + 1](x))))
        return self.head(x.mean(1))


class Residual(nn.Module):
    """Dense residual blocks, with or without normalisation."""

    def __init__(
        self, inputs: int, width: int, outputs: int, blocks: int, norm: bool = True, skip: bool = True
    ) -> None:
        super().__init__()
        self.stem = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(width) if norm else nn.Identity() for _ in range(blocks))
        self.head = nn.Linear(width, outputs)
        self.skip = skip

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x.flatten(1))
        for block, norm in zip(self.blocks, self.norms, strict=False):
            y = F.relu(block(norm(x)))
            x = x + y if self.skip else y
        return self.head(x)


def initialised(model: nn.Module, weight: Callable[[Tensor], Tensor], bias: float = 0.0) -> nn.Module:
    """Draw the weights of linear and convolutional layers anew."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            weight(module.weight)
            if module.bias is not None:
                nn.init.constant_(module.bias, bias)
        elif isinstance(module, (nn.RNN, nn.LSTM, nn.GRU)):
            for name, parameter in module.named_parameters():
                if "weight" in name:
                    weight(parameter)
    return model


xavier: Function = nn.init.xavier_uniform_
he: Function = partial(nn.init.kaiming_uniform_, nonlinearity="relu")
lecun: Function = partial(nn.init.kaiming_normal_, nonlinearity="linear")


def normal(std: float) -> Function:
    """Weights from a normal distribution of the given width."""
    return partial(nn.init.normal_, std=std)


def uniform(low: float, high: float) -> Function:
    """Weights from a uniform distribution."""
    return partial(nn.init.uniform_, a=low, b=high)


def adam(lr: float = 1e-3, **options: float) -> Callable[..., torch.optim.Optimizer]:
    """Adam, to be given the parameters later."""
    return lambda parameters: torch.optim.Adam(parameters, lr=lr, **options)


def sgd(lr: float = 1e-2, momentum: float = 0.0, **options: float) -> Callable[..., torch.optim.Optimizer]:
    """Stochastic gradient descent, to be given the parameters later."""
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=momentum, **options)


def rmsprop(lr: float = 1e-3) -> Callable[..., torch.optim.Optimizer]:
    """RMSprop, to be given the parameters later."""
    return lambda parameters: torch.optim.RMSprop(parameters, lr=lr)
