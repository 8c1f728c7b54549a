"""Data that the program changes while it trains: pools that grow, samplers that follow the losses, new subsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Sampler, Subset, TensorDataset, WeightedRandomSampler

from akeso.errors import Refused
from akeso.replay import snapshot
from akeso.replay.run import Run
from akeso.replay.state_digest import exact_digest
from tests.replay.lives import Stop, live

pytestmark = pytest.mark.usefixtures("process_as_before")
INPUTS = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
LABELS = (INPUTS[:, 0] > 0).long()


class Pool(Dataset[Any]):
    """Samples that the program takes in by and by, noisier from level to level."""

    def __init__(self, taken: int = 12) -> None:
        self.taken, self.level = list(range(taken)), 0.0

    def __len__(self) -> int:
        return len(self.taken)

    def __getitem__(self, index: int) -> Any:
        at = self.taken[index]
        return INPUTS[at] + self.level * torch.randn(4), LABELS[at], at


class Share(Sampler[int]):
    """Random samples, more of them when the program says so."""

    def __init__(self, samples: int) -> None:
        self.samples, self.use = samples, 8

    def __len__(self) -> int:
        return self.use

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.samples)[: self.use].tolist())


class Learner:
    """A model that takes steps, and stops where it is told to."""

    def __init__(self, run: Run, stop: int) -> None:
        self.run, self.stop = run, stop
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.5, momentum=0.9)
        run.track(model=self.model, optimizer=self.optimizer)

    def take(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        losses = torch.nn.functional.cross_entropy(self.model(inputs), labels, reduction="none")
        self.optimizer.zero_grad()
        losses.mean().backward()
        self.optimizer.step()
        self.run.step(losses.mean())
        if self.run.steps == self.stop:
            raise Stop
        return losses.detach()

    def result(self, seen: list[Any]) -> Any:
        return seen, exact_digest(self.model.state_dict())


def pool_that_grows(run: Run, stop: int) -> Any:
    learner, pool, seen = Learner(run, stop), Pool(), []
    for _ in run.epochs(4):
        count = 0
        for x, y, _at in run.batches(pool, batch_size=4):
            learner.take(x, y)
            count += len(x)
        rest = [at for at in learner.model(INPUTS)[:, 0].argsort().tolist() if at not in pool.taken]
        pool.taken += rest[:8]
        seen.append(count)
    return learner.result(seen)


def pool_made_from_the_state(run: Run, stop: int) -> Any:
    """Data that is made once, from what the run keeps, and then grows."""
    learner, seen = Learner(run, stop), []
    if not hasattr(run.state, "taken"):
        run.state.taken = list(range(12))
    pool = Pool()
    pool.taken = run.state.taken
    for _ in run.epochs(4):
        count = 0
        for x, y, _at in run.batches(pool, batch_size=4):
            learner.take(x, y)
            count += len(x)
        run.state.taken = pool.taken = [*pool.taken, *range(count, count + 8)]
        seen.append(count)
    return learner.result(seen)


def pool_and_a_step_after_the_batches(run: Run, stop: int) -> Any:
    """Snapshots become due between the epochs, where the pool has grown."""
    learner, pool, seen = Learner(run, stop), Pool(), []
    for _ in run.epochs(4):
        count = 0
        for x, y, _at in run.batches(pool, batch_size=4):
            learner.take(x, y)
            count += len(x)
        learner.take(INPUTS[:4], LABELS[:4])
        pool.taken += range(len(pool.taken), len(pool.taken) + 4)
        seen.append(count)
    return learner.result(seen)


def batches_that_grow(run: Run, stop: int) -> Any:
    """The same data, read in another way in later epochs."""
    learner, data, seen = Learner(run, stop), TensorDataset(INPUTS, LABELS), []
    for epoch in run.epochs(4):
        count = 0
        noisy = lambda sample, level=epoch / 10: (sample[0] + level * torch.randn(4), sample[1])  # noqa: E731
        for x, y in run.batches(data, batch_size=4 + 4 * epoch, transform=noisy):
            learner.take(x, y)
            count += 1
        seen.append(count)
    return learner.result(seen)


def only_in_a_loader(run: Run, stop: int) -> Any:
    learner, seen = Learner(run, stop), []
    loaders: dict[str, Any] = {"train": DataLoader(Pool(40), 4, sampler=Share(40))}
    for _ in run.epochs(4):
        count = 0
        for x, y, _at in run.batches(loaders["train"]):
            learner.take(x, y)
            count += len(x)
        loaders["train"].dataset.level += 0.5
        loaders["train"].sampler.use += 4
        seen.append(count)
    return learner.result(seen)


def sampler_by_losses(run: Run, stop: int) -> Any:
    learner, seen = Learner(run, stop), []
    weights = torch.ones(40)
    for _ in run.epochs(3):
        loader = DataLoader(Pool(40), 4, sampler=WeightedRandomSampler(weights, 24))  # type: ignore[arg-type]
        order = []
        for x, y, at in run.batches(loader):
            order.append(at.tolist())
            weights[at] = 0.01 + learner.take(x, y)
        seen.append(order)
    return learner.result(seen)


def rounds_of_subsets(run: Run, stop: int) -> Any:
    learner, seen = Learner(run, stop), []
    data = TensorDataset(INPUTS, LABELS)
    if not hasattr(run.state, "labelled"):
        run.state.labelled = list(range(12))
    for _ in run.epochs(4):
        count = 0
        for x, y in run.batches(Subset(data, run.state.labelled), batch_size=4):
            learner.take(x, y)
            count += len(x)
        run.state.labelled = run.state.labelled + [len(run.state.labelled) + at for at in range(8)]
        seen.append(count)
    return learner.result(seen)


def rounds_of_iterations(run: Run, stop: int) -> Any:
    learner, seen = Learner(run, stop), []
    for turn in run.iterations(10**12, name="turns"):
        count = 0
        for _ in run.iterations(2 + 3 * turn, name="inner"):
            at = torch.randint(0, 40, (4,))
            learner.take(INPUTS[at], LABELS[at])
            count += 4
        seen.append(count)
        if turn == 3:
            break
    return learner.result(seen)


@pytest.mark.parametrize(
    ("program", "counts"),
    [
        (pool_that_grows, [12, 20, 28, 36]),
        (pool_made_from_the_state, [12, 20, 28, 36]),
        (pool_and_a_step_after_the_batches, [12, 16, 20, 24]),
        (batches_that_grow, [10, 5, 4, 3]),
        (only_in_a_loader, [8, 12, 16, 20]),
        (sampler_by_losses, None),
        (rounds_of_subsets, [12, 20, 28, 36]),
        (rounds_of_iterations, [8, 20, 32, 44]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_it_is_read_as_it_is_and_gone_on_with(
    program: Callable[[Run, int], Any], counts: list[int] | None, tmp_path: Path
) -> None:
    whole = live(program, tmp_path / "whole")
    assert counts is None or whole[0] == counts
    for stop in (11, 14):  # in the middle of the third epoch, and at the end of another snapshot
        folder = tmp_path / f"cut at {stop}"
        assert live(program, folder, stop) is None
        assert snapshot.found(folder)
        assert live(program, folder) == whole
    for stop in (11, 14, 20):
        live(program, tmp_path / "cut again and again", stop)
    assert live(program, tmp_path / "cut again and again") == whole


def test_data_that_the_program_makes_otherwise_after_a_kill_is_refused(tmp_path: Path) -> None:
    def program(run: Run, stop: int) -> Any:
        learner, labelled = Learner(run, stop), list(range(12))
        for _ in run.epochs(4):
            for x, y in run.batches(Subset(TensorDataset(INPUTS, LABELS), labelled), batch_size=4):
                learner.take(x, y)
            labelled = labelled + [len(labelled) + at for at in range(8)]

    live(program, tmp_path, 11)
    with pytest.raises(Refused, match=r"other data for epoch [12] .*in run\.state"):
        live(program, tmp_path)


def test_data_that_changes_in_the_middle_of_a_stream_is_refused(tmp_path: Path) -> None:
    def program(run: Run, stop: int) -> Any:
        learner, pool = Learner(run, stop), Pool()
        for x, y, _at in run.batches(pool, batch_size=4, epochs=3):
            learner.take(x, y)
            pool.taken.append(13)

    with pytest.raises(Refused, match=r"had 12 samples .* has 15 .*inside of for epoch in run\.epochs"):
        live(program, tmp_path)
