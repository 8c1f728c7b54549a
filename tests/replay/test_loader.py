"""Loading: the same bits from anywhere, whoever reads, however often a dataset draws."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from akeso.errors import BadInput, Refused
from akeso.replay.loader import KeyedLoader, Loading
from akeso.replay.loader_own import take_over
from akeso.replay.sampler import DrawnOrder, KeyedOrder

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


class Drawing(Dataset[torch.Tensor]):
    """Draws from every kind of generator, from some only for a few samples."""

    def __init__(self, rare: int = 0) -> None:
        self.rng = np.random.default_rng()
        self.rare = rare

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> torch.Tensor:
        if index < self.rare:
            return torch.tensor([float(index), 0.0, 0.0, 0.0])
        return torch.tensor([random.random(), np.random.rand(), float(torch.rand(())), self.rng.random()])


def _all(dataset: Any, workers: int = 0, start: tuple[int, int] = (0, 0), **more: Any) -> list[Any]:
    order = KeyedOrder(len(dataset), 4, seed=1, shuffle=more.pop("shuffle", True))
    loader = KeyedLoader(Loading(dataset, workers, **more), order, 1)
    return [(batch.epoch, batch.number, batch.data.tolist()) for batch in loader.read(*start, 3)]


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_do_not_show(workers: int) -> None:
    assert _all(Drawing(), workers) == _all(Drawing())


def test_the_middle_of_an_epoch_is_the_tail_of_the_whole() -> None:
    whole = _all(Drawing())
    assert len(whole) == 18
    assert _all(Drawing(), start=(1, 3)) == whole[9:]


def test_a_dataset_that_seldom_draws_gives_the_bits_of_thorough_seeding() -> None:
    late = _all(Drawing(rare=6), shuffle=False)
    thorough = _all(Drawing(), shuffle=False)
    rows = [row for _, _, batch in late[:6] for row in batch]
    wanted = [row for _, _, batch in thorough[:6] for row in batch]
    assert rows[6:] == wanted[6:]


def test_what_was_drawn_before_does_not_matter() -> None:
    first = _all(Drawing())
    random.random()
    torch.rand(5)
    assert _all(Drawing()) == first


def _masking(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples) * (torch.rand(len(samples), 1) > 0.5) + np.random.rand()


def test_a_collate_function_that_draws_is_keyed_too() -> None:
    assert _all(Drawing(), 1, collate=_masking) == _all(Drawing(), collate=_masking)
    assert _all(Drawing(), start=(1, 3), collate=_masking) == _all(Drawing(), collate=_masking)[9:]


def test_plain_tensors_are_read_as_a_loader_reads_them() -> None:
    data = TensorDataset(torch.randn(10, 3), torch.arange(10))
    order = KeyedOrder(10, 4, seed=1, shuffle=False)
    ours = [batch.data for batch in KeyedLoader(Loading(data), order, 1).read(0, 0, 1)]
    theirs = list(DataLoader(data, 4))
    assert [type(batch) for batch in ours] == [type(batch) for batch in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert all(torch.equal(one, two) for one, two in zip(mine, other, strict=True))


class Stateful(Sampler[int]):
    """Keeps a counter of its own: its order cannot be found again."""

    def __init__(self) -> None:
        self.times = 0

    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[int]:
        self.times += 1
        return iter([(index + self.times) % 10 for index in range(10)])


def _taken(loader: DataLoader[Any]) -> list[list[list[int]]]:
    _, order = take_over(loader, 5, None, None)
    return [[order.batch(epoch, number) for number in range(order.length(epoch))] for epoch in (0, 1)]


def test_a_loader_of_the_users_keeps_the_kind_of_its_order() -> None:
    data = TensorDataset(torch.arange(10))
    assert _taken(DataLoader(data, 4))[0] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert _taken(DataLoader(data, 4, drop_last=True))[0] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    shuffled = _taken(DataLoader(data, 4, shuffle=True))
    assert sorted(index for batch in shuffled[0] for index in batch) == list(range(10))
    assert shuffled[0] != shuffled[1]
    weighted = DataLoader(data, 4, sampler=WeightedRandomSampler([0.0] * 5 + [1.0] * 5, 8))
    assert _taken(weighted) == _taken(weighted)
    assert min(index for batch in _taken(weighted)[0] for index in batch) >= 5
    own = DataLoader(
        data, 4, sampler=RandomSampler(data, generator=torch.Generator().manual_seed(3), num_samples=6)
    )
    assert _taken(own) == _taken(own)


def test_samplers_whose_order_cannot_be_found_again_are_refused() -> None:
    data = TensorDataset(torch.arange(10))
    with pytest.raises(Refused, match="Stateful gives another order"):
        DrawnOrder(Stateful(), 4, seed=0).length(0)
    spread = DistributedSampler(data, num_replicas=2, rank=0)
    with pytest.raises(Refused, match="DistributedSampler"):
        take_over(DataLoader(data, 4, sampler=spread), 0, None, None)


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def test_a_dataset_without_length_is_refused_with_a_way_out() -> None:
    with pytest.raises(BadInput, match=r"no length.*run\.iterations"):
        KeyedLoader(Loading(Endless()), KeyedOrder(3, 1, seed=0), 0)


class Unpicklable(Drawing):
    def __init__(self) -> None:
        super().__init__()
        self.hook = lambda x: x


def test_an_unpicklable_dataset_with_workers_is_said() -> None:
    loading = Loading(Unpicklable(), 1, more={"multiprocessing_context": "spawn"})
    loader = KeyedLoader(loading, KeyedOrder(23, 4, seed=0), 0)
    with pytest.raises(BadInput, match="cannot be handed to 1 worker"):
        next(loader.read(0, 0, 1))


class Levelled(Dataset[Any]):
    def __init__(self) -> None:
        self.level = 0

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return self.level


def test_workers_see_what_the_program_made_of_the_dataset_between_epochs() -> None:
    data = Levelled()
    loader = KeyedLoader(Loading(data, workers=1), KeyedOrder(4, 2, seed=0), 0)
    seen = []
    for epoch in range(3):
        data.level = epoch
        seen.append([batch.data.tolist() for batch in loader.read(epoch, 0, epoch + 1)])
    assert seen == [[[epoch] * 2] * 2 for epoch in range(3)]
