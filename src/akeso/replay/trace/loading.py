"""What data loaders hand out, seen from outside: which samples were asked for, and what came."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data import dataloader as _dataloader

from akeso.replay import digests

# Wrapping methods of classes is what types forbid; the wrappers are taken off again by stop().
_Iterator: Any = _dataloader._BaseDataLoaderIter
_Loader: Any = DataLoader


class Loading:
    """Watches every ``DataLoader`` of the process while it is started.

    Args:
        opened: Called with the settings of a loader when it begins to be iterated over.
        fetching: Called with True when a loader begins to prepare a batch, with False when it has it.
        workers: Added to the number of workers of every loader that does not hand over its own generator
            state to them; a perturbation for audits.
    """

    def __init__(
        self,
        opened: Callable[[dict[str, Any]], None],
        fetching: Callable[[bool], None] = lambda inside: None,
        workers: int = 0,
    ) -> None:
        self._opened, self._fetching = opened, fetching
        self._extra = workers
        self._asked: WeakKeyDictionary[Any, deque[Any]] = WeakKeyDictionary()
        self._original: tuple[Any, Any, Any] | None = None
        self.batches: list[Any] = []
        """The batches handed out since the last call of ``take``."""
        self.orders: list[Any] = []

    def start(self) -> None:
        """Wrap the iterators of the loaders."""
        following, indices, opening = (
            _Iterator.__next__,
            _Iterator._next_index,
            _Loader.__iter__,
        )
        self._original = (following, indices, opening)

        def next_index(iterator: Any) -> Any:
            found = indices(iterator)
            # Workers are asked ahead of time; the order belongs to the batch when it arrives.
            self._asked.setdefault(iterator, deque()).append(found)
            return found

        def next_batch(iterator: Any) -> Any:
            self._fetching(True)
            try:
                batch = following(iterator)
            finally:
                self._fetching(False)
            asked = self._asked.get(iterator)
            if asked:
                self.orders.append(asked.popleft())
            self.batches.append(batch)
            return batch

        def open_loader(loader: Any) -> Any:
            if self._extra and not isinstance(loader.dataset, IterableDataset):
                object.__setattr__(loader, "num_workers", loader.num_workers + self._extra)
            self._opened(settings(loader))
            return opening(loader)

        _Iterator.__next__ = next_batch
        _Iterator._next_index = next_index
        _Loader.__iter__ = open_loader

    def stop(self) -> None:
        """Put the loaders back as they were."""
        if self._original is not None:
            _Iterator.__next__ = self._original[0]
            _Iterator._next_index = self._original[1]
            _Loader.__iter__ = self._original[2]
            self._original = None

    def take(self) -> tuple[list[Any], list[Any]]:
        """Batches and orders since the last call."""
        taken = (self.batches, self.orders)
        self.batches, self.orders = [], []
        return taken


def settings(loader: Any) -> dict[str, Any]:
    """What of a loader decides over the data: as plain values."""
    return {
        "dataset": type(loader.dataset).__name__,
        "length": _length(loader),
        "batch_size": loader.batch_size,
        "workers": loader.num_workers,
        "sampler": type(loader.sampler).__name__,
        "drop_last": loader.drop_last,
        "worker_init_fn": loader.worker_init_fn is not None,
        "generator": loader.generator is not None,
    }


def sample_digests(batch: Any) -> list[str]:
    """One digest per sample of a batch, over all its tensors; empty where samples cannot be told apart."""
    tensors: list[torch.Tensor] = []
    _gather(batch, tensors)
    length = tensors[0].shape[0] if tensors and tensors[0].ndim else 0
    if any(tensor.ndim == 0 or tensor.shape[0] != length for tensor in tensors):
        return []
    return [str(digests.of_tensors([tensor[index] for tensor in tensors])) for index in range(length)]


def _gather(batch: Any, found: list[torch.Tensor]) -> None:
    if isinstance(batch, torch.Tensor):
        found.append(batch)
    elif isinstance(batch, dict):
        for value in batch.values():
            _gather(value, found)
    elif isinstance(batch, tuple | list):
        for value in batch:
            _gather(value, found)


def _length(loader: Any) -> int | None:
    try:
        return len(loader.dataset)
    except TypeError:
        return None
