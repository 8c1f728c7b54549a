"""Several loops in one run: each goes on where it was, whichever of them a snapshot was taken at."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from akeso.replay import snapshot
from akeso.replay.journal import read
from akeso.replay.run import Run
from akeso.replay.state_digest import exact_digest
from tests.replay.lives import Stop, live

pytestmark = pytest.mark.usefixtures("process_as_before")
FEW, MANY = TensorDataset(torch.arange(20.0)[:, None]), TensorDataset(torch.arange(100.0, 156.0)[:, None])


class Learner:
    """A model that remembers the order of all it has seen."""

    def __init__(self, run: Run, stop: int) -> None:
        self.run, self.stop = run, stop
        self.model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-6, momentum=0.9)
        run.track(model=self.model, optimizer=self.optimizer)

    def learn(self, *inputs: torch.Tensor) -> None:
        loss = sum((self.model(x).square().mean() for x in inputs), torch.zeros(()))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.run.step(loss)
        if self.run.steps == self.stop:
            raise Stop

    def result(self) -> str:
        return exact_digest([self.model.state_dict(), self.optimizer.state_dict()])


def side_by_side(run: Run, stop: int) -> Any:
    """Two datasets of different length, the second asked with ``next``."""
    learner = Learner(run, stop)
    second = run.batches(MANY, batch_size=4, epochs=10, name="second")
    for (x,) in run.batches(FEW, batch_size=4, epochs=4):
        learner.learn(x, *next(second))
    return learner.result()


def several_steps_an_iteration(run: Run, stop: int) -> Any:
    """Three steps for every batch of the first, each with a batch of the second, counted by a plain loop."""
    learner = Learner(run, stop)
    second = run.batches(MANY, batch_size=4, epochs=10, name="second")
    for (x,) in run.batches(FEW, batch_size=4, epochs=2):
        for _ in range(3):
            learner.learn(x, *next(second))
    return learner.result()


def one_inside_of_the_other(run: Run, stop: int) -> Any:
    """A loop made anew in every iteration of the one around it."""
    learner = Learner(run, stop)
    for number in run.iterations(3, name="tasks"):
        for (x,) in run.batches(MANY, batch_size=8, name="shots"):
            learner.learn(x + number)
    return learner.result()


def left_early(run: Run, stop: int) -> Any:
    """A first loop that is left by ``break``, and a second one after it."""
    learner = Learner(run, stop)
    for (x,) in run.batches(FEW, batch_size=4, epochs=10, name="first"):
        learner.learn(x)
        if run.steps > 6:
            break
    for (x,) in run.batches(MANY, batch_size=4, epochs=2, name="second"):
        learner.learn(x)
    return learner.result()


def validation_in_between(run: Run, stop: int) -> Any:
    """Epochs cut short, and batches of the run for validation after each."""
    learner = Learner(run, stop)
    seen = 0.0
    for _ in run.epochs(4):
        for number, (x,) in enumerate(run.batches(MANY, batch_size=8), run.index):
            learner.learn(x)
            if number == 4:
                break
        for (x,) in run.batches(FEW, batch_size=4, name="validation"):
            seen += learner.model(x).sum().item()
    return learner.result(), seen


@pytest.mark.parametrize(
    "program",
    [side_by_side, several_steps_an_iteration, one_inside_of_the_other, left_early, validation_in_between],
)
def test_all_loops_go_on_where_they_were(program: Callable[[Run, int], Any], tmp_path: Path) -> None:
    whole = live(program, tmp_path / "whole")
    for stop in (3, 9, 10, 14, 15, 19):
        live(program, tmp_path / "cut", stop)
    assert live(program, tmp_path / "cut") == whole
    one, two = read(tmp_path / "whole").steps(), read(tmp_path / "cut").steps()
    assert list(one) == sorted(two)
    assert all(one[step].differences(two[step]) == () for step in one)


def test_switches_that_torch_or_the_program_turns_are_part_of_the_state(tmp_path: Path) -> None:
    """A kernel that fails turns oneDNN off for good: the next process must not turn it on again."""
    stood = []
    try:
        for stop in (9, 0):
            torch._C._set_mkldnn_enabled(True)
            torch.set_default_dtype(torch.float32)
            with Run(tmp_path / "run", snapshot_every=2) as run:
                for number in run.iterations(12):
                    stood.append((number, torch._C._get_mkldnn_enabled(), torch.get_default_dtype()))
                    if number == 5:
                        torch._C._set_mkldnn_enabled(False)
                        torch.set_default_dtype(torch.float64)
                    run.step(number)
                    run._writer.wait()  # so that no snapshot is left out
                    if run.steps == stop:
                        break
            if stop:
                assert [info.step for info in snapshot.found(tmp_path / "run")] == [6, 8]
        assert {seen[1:] for seen in stood if seen[0] < 6} == {(True, torch.float32)}
        assert {seen[1:] for seen in stood if seen[0] > 5} == {(False, torch.float64)}
    finally:
        torch._C._set_mkldnn_enabled(True)
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("counting", [True, False])
def test_batches_that_are_over_are_not_gone_over_again_in_silence(tmp_path: Path, counting: bool) -> None:
    with Run(tmp_path / "run", seed=0) as run:
        learner = Learner(run, 0)
        batches = run.batches(FEW, batch_size=4, epochs=1)
        for (x,) in batches:
            learner.learn(x)
            if counting and run.steps == 5:
                break  # without asking whether there is one more
        for _ in range(3):
            assert list(batches) == []
        assert sum("go over it once" in note for note in run.notes) == 1


def test_batches_that_are_taken_in_pieces_come_to_their_end(tmp_path: Path) -> None:
    with Run(tmp_path / "run", seed=0) as run:
        learner, pieces = Learner(run, 0), []
        batches = run.batches(FEW, batch_size=4, epochs=1)
        while piece := list(islice(batches, 2)):
            pieces.append(len(piece))
            for (x,) in piece:
                learner.learn(x)
        assert pieces == [2, 2, 1]


def test_what_is_left_after_the_first_batch_may_be_nothing(tmp_path: Path) -> None:
    with Run(tmp_path / "run", seed=0) as run:
        learner = Learner(run, 0)
        batches = run.batches(FEW, batch_size=20, epochs=1)
        learner.learn(*next(batches))
        for (x,) in batches:
            learner.learn(x)
        assert run.steps == 1
