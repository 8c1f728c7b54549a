"""Batches whose bits do not depend on who loads them: keyed order, keyed augmentation, any number of workers.

Before a sample is read, Python's, NumPy's and torch's generators, and the private ones found in the dataset,
are seeded under (seed, epoch, sample); before a batch is put together, under (seed, epoch, batch). Most
datasets draw nothing, and seeding costs: so a generator that the first batch left alone is seeded once a
batch, and looked at afterwards; should it have moved after all, the batch is read again with every sample
seeded. The bits are those of the thorough way in every case.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pickle import PicklingError
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    default_collate,
    default_convert,
)

from akeso.errors import BadInput
from akeso.replay import generators
from akeso.replay.keys import extend, key, mix
from akeso.replay.sampler import Address, Addresses, Order
from akeso.replay.state_marks import mark
from akeso.replay.state_places import changeable

_GLOBALS = ("python", "numpy", "torch")
_WORD = torch.empty((), dtype=torch.int64)


def _seed(name: str, under: int) -> None:
    if name == "python":
        random.seed(under)
    elif name == "numpy":
        np.random.seed(mix(under) >> 32)
    else:
        torch.default_generator.manual_seed(under)


def _drawn(name: str) -> object:
    """Draw one number from a global generator: what it gives tells where it stood."""
    if name == "python":
        return random.getrandbits(64)
    if name == "numpy":
        return np.random.random_sample()
    return _WORD.random_().item()


def _moved(name: str, under: int) -> bool:
    """Tell whether a generator has been used since it was seeded, at the price of its state."""
    now = _drawn(name)
    _seed(name, under)
    return now != _drawn(name)


class KeyedDataset(Dataset[Any]):
    """A dataset that reads whole batches by address, each sample under its own key."""

    def __init__(self, dataset: Any, seed: int, transform: Callable[[Any], Any] | None, collate: Any) -> None:
        self.dataset, self.seed, self.transform, self.collate = dataset, seed, transform, collate
        # Exactly this type draws nothing; a subclass may.
        self._still = type(dataset) is TensorDataset and transform is None
        self._owner = 0
        self._epoch = (-1, 0)
        self._moving: set[str] = set(_GLOBALS)
        self._watched = False
        self._private: list[generators.Private] = []
        self._joining: list[generators.Private] = []

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, address: Address) -> Any:
        return self.__getitems__(address)[0]

    def __getitems__(self, address: Address) -> list[Any]:
        epoch, batch, indices = address
        if self._owner != os.getpid():
            # Found anew in every worker: they hold copies of the dataset.
            self._owner = os.getpid()
            found = list(generators.find(self.dataset)) + list(generators.find(self.transform))
            self._private = [private for _, private in found]
            self._joining = [private for _, private in generators.find(self.collate)]
        samples = [self.dataset[index] for index in indices] if self._still else self._read(epoch, indices)
        if self.collate is not None and self.collate not in (default_collate, default_convert):
            # A user's own way of putting batches together may draw (masks, mixtures): per batch, not per
            # sample.
            under = key(self.seed, "batch", epoch, batch)
            for name in _GLOBALS:
                _seed(name, under)
            for number, private in enumerate(self._joining):
                generators.seed_private(private, extend(under, number))
        return samples

    def batch(self, address: Address, batched: bool) -> Any:
        """Read and put together one batch in this process, as a loader without workers does."""
        if batched and self._still and self.collate in (None, default_collate):
            # The same bits as reading samples and stacking them, in one go.
            indices = torch.from_numpy(np.array(address[2], dtype=np.int64))
            return [tensor[indices] for tensor in self.dataset.tensors]
        if not batched:
            return (self.collate or default_convert)(self[address])
        return (self.collate or default_collate)(self.__getitems__(address))

    def _read(self, epoch: int, indices: list[Any]) -> list[Any]:
        if not self._watched:
            self._watched = True
            self._moving = set()
            return [self._sample(epoch, index, _GLOBALS, watch=True) for index in indices]
        calm = [name for name in _GLOBALS if name not in self._moving]
        under = self._key(epoch, indices[0])
        for name in calm:
            _seed(name, under)
        samples = [self._sample(epoch, index, self._moving) for index in indices]
        surprised = [name for name in calm if _moved(name, under)]
        if surprised:
            self._moving.update(surprised)
            samples = [self._sample(epoch, index, _GLOBALS) for index in indices]
        return samples

    def _key(self, epoch: int, index: Any) -> int:
        """Return ``generators.sample_key``; the part that is the same for a whole epoch is kept."""
        if self._epoch[0] != epoch:
            self._epoch = (epoch, key(self.seed, "sample", epoch))
        return extend(self._epoch[1], index if isinstance(index, int) else str(index))

    def _sample(self, epoch: int, index: Any, names: Any, watch: bool = False) -> Any:
        under = self._key(epoch, index)
        for name in names:
            _seed(name, under)
        for number, private in enumerate(self._private):
            generators.seed_private(private, extend(under, number))
        sample = self.dataset[index]
        if self.transform is not None:
            sample = self.transform(sample)
        if watch:
            self._moving.update(name for name in names if _moved(name, under))
        return sample


@dataclass(frozen=True, slots=True)
class Loading:
    """How batches are made: the settings of a loader apart from its order."""

    dataset: Any
    workers: int = 0
    transform: Callable[[Any], Any] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    batched: bool = True
    """False where the dataset itself gives whole batches (``DataLoader(batch_size=None)``)."""
    pin_memory: bool = False
    more: dict[str, Any] = field(default_factory=dict)


class Batch(NamedTuple):
    """One batch with the place it comes from."""

    epoch: int
    number: int
    indices: list[Any]
    data: Any
    last: bool
    """Whether it is the last of its epoch."""


class KeyedLoader:
    """Reads batches in order from any place in the run; keeps its workers over epochs."""

    def __init__(self, loading: Loading, order: Order, seed: int) -> None:
        check_dataset(loading.dataset)
        self.order, self.loading = order, loading
        self._addresses = Addresses(order)
        self._marks: dict[str, Any] | None = None
        self._keyed = keyed = KeyedDataset(loading.dataset, seed, loading.transform, loading.collate)
        options: dict[str, Any] = dict(loading.more)
        if loading.workers:
            options["persistent_workers"] = True
        options["batch_sampler" if loading.batched else "sampler"] = self._addresses
        if not loading.batched:
            options["batch_size"] = None
        self._loader: DataLoader[Any] = _quietly(
            keyed,
            num_workers=loading.workers,
            collate_fn=loading.collate,
            pin_memory=loading.pin_memory,
            # Without one of its own, a loader draws from the default generator whenever it is started.
            generator=torch.Generator(),
            **options,
        )

    def read(self, epoch: int, batch: int, stop_epoch: int) -> Iterator[Batch]:
        """Yield the batches from one place up to the start of an epoch."""
        self._addresses.start, self._addresses.stop_epoch = (epoch, batch), stop_epoch
        self._refresh()
        if not self.loading.workers and not self.loading.pin_memory:
            for address, last in self._addresses.walk():
                yield Batch(*address, self._keyed.batch(address, self.loading.batched), last)
            return
        try:
            with warnings.catch_warnings():
                # More workers than cores, and what cannot be pickled: the first was asked for, the second is
                # said better below.
                warnings.filterwarnings("ignore", "This DataLoader will create|Got pickle error")
                source = iter(self._loader)
        except (TypeError, AttributeError, PicklingError, OSError) as error:
            if not self.loading.workers:
                raise
            kind = type(self.loading.dataset).__name__
            raise BadInput(
                f"the dataset {kind} cannot be handed to {self.loading.workers} worker processes: {error}; "
                "move what cannot be pickled (open files, lambdas, locks) out of it, or use workers=0"
            ) from error
        for (at_epoch, number, indices), last in self._addresses.walk():
            yield Batch(at_epoch, number, indices, next(source), last)

    def _refresh(self) -> None:
        """Let workers go whose copy of the dataset is no longer what the program has made of it."""
        if self.loading.workers:
            places = changeable(self.loading.dataset, self.loading.transform)
            marks = {place.path: mark(place.value) for place in places}
            if self._marks is not None and marks != self._marks:
                self._loader._iterator = None
            self._marks = marks


def _quietly(*arguments: Any, **options: Any) -> DataLoader[Any]:
    """Make a loader without the remark that it has more workers than there are cores."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")
        return DataLoader(*arguments, **options)


def check_dataset(dataset: Any) -> None:
    """Refuse what has no samples one could name."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise BadInput(
            f"the dataset {type(dataset).__name__} has no length: samples that cannot be numbered cannot be "
            "found again in the middle of an epoch; give it __len__ and __getitem__, or use "
            "run.iterations(n) and draw the data of a step from the generators, which are seeded for it"
        )
    if not hasattr(dataset, "__getitem__"):
        raise BadInput(f"the dataset {type(dataset).__name__} has no __getitem__; pass a map-style dataset")
