"""Statistics of a script's training data, from what its model and loss are given."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Subset, TensorDataset

import torch
from torch import Tensor

#: Samples after which statistics are not refined any more.
ENOUGH = 8192


class Moments:
    """Mean, spread and range per feature over the training batches so far; NaN and infinity are left out.

    ``over`` are the dimensions that are averaged away. Outliers beyond ten interquartile ranges of the first
    batch are limited to that before they count.
    """

    def __init__(self, over: tuple[int, ...], *, limit: bool = False) -> None:
        self.over = over
        self.samples = 0
        self._limit = limit
        self._count: Tensor | float = 0.0
        self._sum: Tensor | float = 0.0
        self._squares: Tensor | float = 0.0
        self._far: Tensor | float = 0.0
        self._shift: Tensor | None = None
        self.low: Tensor | None = None
        self.high: Tensor | None = None

    @property
    def settled(self) -> bool:
        """Whether enough was seen."""
        return self.samples >= ENOUGH

    @torch.no_grad()
    def add(self, batch: Tensor) -> None:
        """Take in a training batch."""
        value = batch.detach().double()
        finite = torch.isfinite(value)
        if self._limit and self.low is None:
            self._limits(torch.where(finite, value, torch.nan))
        value = self.limited(torch.where(finite, value, torch.zeros_like(value)))
        if self._shift is None:  # a shift near the mean keeps the squares exact
            present = finite.sum(self.over, keepdim=True).clamp(min=1)
            self._shift = (
                torch.where(finite, value, torch.zeros_like(value)).sum(self.over, keepdim=True) / present
            )
        away = torch.where(finite, value - self._shift, torch.zeros_like(value))
        self._count = self._count + finite.sum(self.over, keepdim=True)
        self._sum = self._sum + away.sum(self.over, keepdim=True)
        self._squares = self._squares + (away * away).sum(self.over, keepdim=True)
        self._far = torch.maximum(
            torch.as_tensor(self._far).to(away), away.abs().amax(self.over, keepdim=True)
        )
        self.samples += len(batch)

    def _limits(self, value: Tensor) -> None:
        flat = value.movedim(
            [d for d in range(value.dim()) if d not in self.over], list(range(-len(self._kept(value)), 0))
        )
        flat = flat.reshape(-1, *[value.shape[d] for d in self._kept(value)])[:ENOUGH]
        quartiles = torch.nanquantile(
            flat, torch.tensor([0.25, 0.5, 0.75], dtype=flat.dtype, device=flat.device), 0
        )
        reach = 10 * (quartiles[2] - quartiles[0])
        reach = torch.where(reach > 0, reach, torch.full_like(reach, torch.inf))
        shape = [1 if d in self.over else value.shape[d] for d in range(value.dim())]
        self.low, self.high = (quartiles[1] - reach).reshape(shape), (quartiles[1] + reach).reshape(shape)

    def _kept(self, value: Tensor) -> list[int]:
        return [d for d in range(value.dim()) if d not in self.over]

    def limited(self, value: Tensor) -> Tensor:
        """The value with outliers brought to the limit."""
        if self.low is None or self.high is None:
            return value
        return torch.minimum(torch.maximum(value, self.low.to(value)), self.high.to(value))

    def mean(self) -> Tensor:
        """Mean per feature."""
        assert self._shift is not None
        assert isinstance(self._count, Tensor)
        return self._shift + self._sum / self._count.clamp(min=1)

    def spread(self) -> Tensor:
        """Standard deviation per feature, at least a tenth of the range: rare values stay within ten."""
        assert isinstance(self._count, Tensor)
        assert isinstance(self._squares, Tensor)
        count = self._count.clamp(min=1)
        variance = self._squares / count - (self._sum / count) ** 2
        spread = torch.maximum(variance.clamp(min=0).sqrt(), torch.as_tensor(self._far) / 10)
        return torch.where(spread > 1e-12, spread, torch.ones_like(spread))


def known_targets(loader: Any, batch: Tensor) -> Tensor | None:
    """All training targets, where the loader's dataset keeps them in a way that can be read at once."""
    dataset = getattr(loader, "dataset", None)
    chosen: Any = slice(None)
    while isinstance(dataset, Subset):
        chosen = torch.as_tensor(dataset.indices)[chosen]
        dataset = dataset.dataset
    if isinstance(dataset, TensorDataset):
        found: Any = dataset.tensors[-1]
    else:
        found = next((getattr(dataset, n) for n in ("targets", "labels") if hasattr(dataset, n)), None)
    try:
        targets = torch.as_tensor(found)[chosen]
    except (TypeError, ValueError, RuntimeError, IndexError):
        return None
    if targets.dim() == 0 or targets[0].numel() != batch[0].numel():
        return None
    seen, all_of_them = batch.detach().double(), targets.to(batch.device).double()
    # What the loss is given may have been transformed on its way; then the dataset says nothing about it.
    inside = bool(seen.min() >= all_of_them.min() - 1e-6) and bool(seen.max() <= all_of_them.max() + 1e-6)
    return all_of_them.to(batch.dtype).reshape(-1, *batch.shape[1:]) if inside else None
