"""A DataLoader of the user's, taken over: the same batches in kind and number, in a keyed order."""

from __future__ import annotations

from typing import Any

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from akeso.errors import BadInput, Refused
from akeso.replay.loader import Loading, check_dataset
from akeso.replay.sampler import DrawnOrder, KeyedOrder, Order


def is_loader(value: Any) -> bool:
    """Tell whether a value is a DataLoader, of torch or made after it."""
    return all(
        hasattr(value, name) for name in ("dataset", "batch_size", "collate_fn", "num_workers", "sampler")
    )


def take_over(loader: Any, seed: int, workers: int | None, transform: Any) -> tuple[Loading, Order]:
    """Return how a DataLoader makes its batches, and a keyed order of the kind its sampler gives."""
    check_dataset(loader.dataset)
    more: dict[str, Any] = {"worker_init_fn": loader.worker_init_fn}
    count = loader.num_workers if workers is None else workers
    if count:
        more["timeout"] = loader.timeout
        more["prefetch_factor"] = loader.prefetch_factor
        more["multiprocessing_context"] = loader.multiprocessing_context
    batched = loader.batch_sampler is not None
    loading = Loading(
        loader.dataset,
        workers=count,
        transform=transform,
        collate=loader.collate_fn,
        batched=batched,
        pin_memory=loader.pin_memory,
        more=more,
    )
    return loading, _order(loader, seed, batched)


def loading_of(
    data: Any,
    seed: int,
    *,
    workers: int | None,
    batch_size: int | None,
    shuffle: bool | None,
    transform: Any,
    collate: Any,
    drop_last: bool,
    pin_memory: bool,
) -> tuple[Loading, Order]:
    """Return how the batches of a dataset, or of a DataLoader handed over, are made, and in which order."""
    if is_loader(data):
        if batch_size is not None or shuffle is not None or collate is not None or drop_last:
            raise BadInput(
                "batch_size, shuffle, collate_fn and drop_last come from the DataLoader handed over"
            )
        return take_over(data, seed, workers, transform)
    check_dataset(data)
    if batch_size is None:
        raise BadInput("run.batches needs batch_size=, unless it is given a DataLoader")
    loading = Loading(data, workers or 0, transform, collate, pin_memory=pin_memory)
    chosen = True if shuffle is None else shuffle
    return loading, KeyedOrder(data, batch_size, seed=seed, shuffle=chosen, drop_last=drop_last)


def _order(loader: Any, seed: int, batched: bool) -> Order:
    sampler = loader.sampler
    if isinstance(sampler, DistributedSampler):
        raise Refused(
            "the loader has a DistributedSampler, whose order depends on the number of processes; hand over "
            "a loader without it and divide batches with akeso.replay.parallel"
        )
    if batched and type(loader.batch_sampler) is not BatchSampler:
        return DrawnOrder(loader.batch_sampler, None, seed=seed)
    size = loader.batch_size if batched else 1
    whole = len(loader.dataset)
    plain = type(sampler) is SequentialSampler
    shuffled = type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == whole
    if plain or shuffled:
        return KeyedOrder(loader.dataset, size, seed=seed, shuffle=shuffled, drop_last=bool(loader.drop_last))
    return DrawnOrder(sampler, size, seed=seed, drop_last=bool(loader.drop_last))
