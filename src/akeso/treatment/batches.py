"""Training and held-out data in whatever form they come, handed out batch by batch in a seeded order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)

from akeso.errors import BadInput

#: One batch: the model's inputs, and the target.
Batch = tuple[tuple[Any, ...], Any]

_TARGETS = ("target", "targets", "label", "labels", "y")


class Batches(ABC):
    """Data that can be gone through again and again."""

    #: Samples in all; None where that is not known.
    size: int | None

    @abstractmethod
    def epoch(self, batch_size: int, generator: torch.Generator | None) -> Iterator[Batch]:
        """One pass, shuffled where a generator is given."""

    @abstractmethod
    def steps(self, batch_size: int) -> int | None:
        """Batches in one pass; None where that is not known."""

    @abstractmethod
    def everything(self, limit: int) -> tuple[Any, Any]:
        """First inputs and targets of up to ``limit`` samples, for fitting scales and counting classes."""


class TensorBatches(Batches):
    """Tensors in memory: inputs, then the target."""

    def __init__(self, tensors: tuple[Tensor, ...], drop_last: bool = False) -> None:
        self.tensors = tensors
        self.size = len(tensors[0])
        self.drop_last = drop_last

    def epoch(self, batch_size: int, generator: torch.Generator | None) -> Iterator[Batch]:
        count = len(self.tensors[0])
        order = torch.randperm(count, generator=generator) if generator is not None else None
        end = count - count % batch_size if self.drop_last and generator is not None else count
        for start in range(0, end, batch_size):
            if order is None:
                parts = [tensor[start : start + batch_size] for tensor in self.tensors]
            else:
                chosen = order[start : start + batch_size]
                parts = [tensor[chosen] for tensor in self.tensors]
            yield tuple(parts[:-1]), parts[-1]

    def steps(self, batch_size: int) -> int:
        full, rest = divmod(len(self.tensors[0]), batch_size)
        return full + (1 if rest and not self.drop_last else 0)

    def everything(self, limit: int) -> tuple[Any, Any]:
        stride = max(1, len(self.tensors[0]) // limit)
        return self.tensors[0][::stride], self.tensors[-1][::stride]


class LoaderBatches(Batches):
    """A dataset or a loader of the user's own."""

    def __init__(self, source: Dataset[Any] | DataLoader[Any]) -> None:
        self.loader = source if isinstance(source, DataLoader) else None
        self.dataset: Any = source.dataset if isinstance(source, DataLoader) else source
        self.size = _length(self.dataset)

    def epoch(self, batch_size: int, generator: torch.Generator | None) -> Iterator[Batch]:
        for batch in self._loader(batch_size, generator):
            yield split(batch)

    def _loader(self, batch_size: int, generator: torch.Generator | None) -> DataLoader[Any]:
        own = self.loader
        if own is None:
            shuffle = generator is not None and self.size is not None
            return DataLoader(self.dataset, batch_size, shuffle=shuffle, generator=generator)
        plain = isinstance(own.sampler, RandomSampler | SequentialSampler) and own.batch_size is not None
        if self.size is None or not plain:
            return own
        shuffle = isinstance(own.sampler, RandomSampler) and generator is not None
        return DataLoader(
            self.dataset, batch_size, shuffle=shuffle, generator=generator, collate_fn=own.collate_fn,
            num_workers=own.num_workers, drop_last=own.drop_last,
        )  # fmt: skip

    def steps(self, batch_size: int) -> int | None:
        try:
            return len(self._loader(batch_size, None))
        except TypeError:
            return None

    def everything(self, limit: int) -> tuple[Any, Any]:
        inputs, targets, seen = [], [], 0
        for given, target in self.epoch(256 if self.loader is None else self.loader.batch_size or 1, None):
            inputs.append(given[0])
            targets.append(target)
            seen += len(target)
            if seen >= limit:
                break
        if not inputs:
            raise BadInput("The data has no samples.")
        return _joined(inputs), _joined(targets)


def _joined(parts: list[Any]) -> Any:
    """Batches one after the other, in whatever nest of mappings and lists they come."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(parts)
    if isinstance(first, Mapping):
        return {key: _joined([part[key] for part in parts]) for key in first}
    if isinstance(first, list | tuple):
        return [_joined([part[index] for part in parts]) for index in range(len(first))]
    return parts


def _length(dataset: Any) -> int | None:
    return None if isinstance(dataset, IterableDataset) else len(dataset)


def split(batch: Any) -> Batch:
    """The model's inputs and the target of one batch as loaders give it."""
    if isinstance(batch, Mapping):
        for name in _TARGETS:
            if name in batch:
                return tuple(value for key, value in batch.items() if key != name), batch[name]
        raise BadInput(
            f"A batch with the keys {sorted(batch)} has no target; name it one of {', '.join(_TARGETS)}."
        )
    if isinstance(batch, list | tuple) and len(batch) >= 2:
        return tuple(batch[:-1]), batch[-1]
    if isinstance(batch, Tensor):
        return (batch,), batch  # an autoencoder: what goes in should come out
    raise BadInput(f"A batch must be (inputs, target), but got {type(batch).__name__}.")


def as_batches(data: Any, what: str) -> tuple[Batches, int | None]:
    """Batches of tensors, arrays, a dataset or a loader; with the loader's batch size where there is one."""
    if isinstance(data, DataLoader):
        plain = isinstance(data.sampler, RandomSampler | SequentialSampler) and data.batch_size is not None
        if (
            isinstance(data.dataset, TensorDataset)
            and plain
            and data.collate_fn.__module__.startswith("torch.")
        ):
            return TensorBatches(tuple(data.dataset.tensors), data.drop_last), data.batch_size
        return LoaderBatches(data), data.batch_size
    if isinstance(data, TensorDataset):
        return TensorBatches(tuple(data.tensors)), None
    if isinstance(data, Dataset):
        return LoaderBatches(data), None
    if isinstance(data, Tensor | np.ndarray):
        return TensorBatches((_tensor(data), _tensor(data))), None
    if isinstance(data, list | tuple) and len(data) >= 2:
        tensors = tuple(_tensor(part) for part in data)
        sizes = [len(tensor) for tensor in tensors]
        if len(set(sizes)) > 1:
            raise BadInput(f"{what} has inputs and targets of different lengths: {sizes}.")
        if sizes[0] == 0:
            raise BadInput(f"{what} has no samples.")
        return TensorBatches(tensors), None
    raise BadInput(
        f"{what} must be (inputs, targets) as tensors or arrays, a Dataset or a DataLoader, "
        f"but got {type(data).__name__}."
    )


def _tensor(part: Any) -> Tensor:
    if isinstance(part, Tensor):
        return part
    array = np.asarray(part)
    if array.dtype == object:
        raise BadInput("Arrays of objects cannot be batched; give tensors, arrays of numbers or a Dataset.")
    return torch.as_tensor(array, dtype=torch.get_default_dtype() if array.dtype.kind == "f" else None)
