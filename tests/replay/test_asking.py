"""From where a stream is asked: a resumed process comes to the same place, or the program is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from akeso.errors import Refused
from akeso.replay import snapshot
from akeso.replay.run import Run
from akeso.replay.state_digest import exact_digest
from tests.replay.lives import Stop, live

pytestmark = pytest.mark.usefixtures("process_as_before")
FEW, MANY = TensorDataset(torch.arange(20.0)[:, None]), TensorDataset(torch.arange(100.0, 156.0)[:, None])


class Learner:
    """A model that remembers the order of all it has seen, and how often it was shown something."""

    def __init__(self, run: Run, stop: int) -> None:
        self.run, self.stop, self.seen = run, stop, 0
        self.model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-6, momentum=0.9)
        run.track(model=self.model, optimizer=self.optimizer)

    def learn(self, *inputs: torch.Tensor, scale: float = 1.0) -> None:
        loss = scale * sum((self.model(x).square().mean() for x in inputs), torch.zeros(()))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.seen += 1
        self.run.step(loss)
        self.run._writer.wait()  # so that every snapshot that is due is taken
        if self.run.steps == self.stop:
            raise Stop

    def result(self) -> Any:
        return self.seen, exact_digest([self.model.state_dict(), self.optimizer.state_dict()])


def older_than_the_loop_of_every_epoch(run: Run, stop: int) -> Any:
    """A stream that goes on over the epochs, beside one that begins anew in each."""
    learner = Learner(run, stop)
    second = run.batches(MANY, batch_size=4, epochs=10, name="second")
    for _ in run.epochs(4):
        for (x,) in run.batches(FEW, batch_size=4):
            learner.learn(x, *next(second))
    return learner.result()


def steps_an_epoch(run: Run, stop: int) -> Any:
    """Epochs of so many steps, whatever the length of the data."""
    learner = Learner(run, stop)
    stream = run.batches(MANY, batch_size=4, epochs=1000)
    for _ in run.epochs(4, name="rounds"):
        for _ in range(6):
            learner.learn(*next(stream))
    return learner.result()


def from_where_the_run_says(run: Run, stop: int) -> Any:
    """A plain loop that the program itself lets go on."""
    learner = Learner(run, stop)
    stream = run.batches(MANY, batch_size=4, epochs=1000)
    begun = run.steps
    for _ in range(begun, 24):
        learner.learn(*next(stream))
    return learner.result()


def what_is_left_of_the_run(run: Run, stop: int) -> Any:
    learner = Learner(run, stop)
    stream = run.batches(MANY, batch_size=4, epochs=1000)
    for _ in range(24 - run.steps):
        learner.learn(*next(stream))
    return learner.result()


def two_in_an_iteration(run: Run, stop: int) -> Any:
    """Two batches for every step, weighed by what the iteration finds before it asks for them."""
    learner = Learner(run, stop)
    stream = run.batches(MANY, batch_size=4, epochs=1000)
    while run.steps < 24:
        scale = learner.model[0].weight.sum().item()
        (x,) = next(stream)
        (y,) = next(stream)
        learner.learn(x, y, scale=scale)
    return learner.result()


class Feeder:
    """Begins its stream again when that is over."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.stream = iter(run.batches(FEW, batch_size=4, name="fed"))

    def feed(self) -> Any:
        try:
            return next(self.stream)
        except StopIteration:
            self.stream = iter(self.run.batches(FEW, batch_size=4, name="fed"))
            return next(self.stream)


def begun_again_while(run: Run, stop: int) -> Any:
    learner, feeder = Learner(run, stop), Feeder(run)
    while run.steps < 24:
        learner.learn(*feeder.feed())
    return learner.result()


def begun_again_in_iterations(run: Run, stop: int) -> Any:
    learner, feeder = Learner(run, stop), Feeder(run)
    for _ in run.iterations(24):
        learner.learn(*feeder.feed())
    return learner.result()


def phases(run: Run, stop: int) -> Any:
    """A plain loop over training and validation, each with a stream of its own."""
    learner, held = Learner(run, stop), 0.0
    for _ in run.epochs(4):
        streams = {
            "train": run.batches(MANY, batch_size=8),
            "val": run.batches(FEW, batch_size=8, name="val"),
        }
        for phase in ("train", "val"):
            for (x,) in streams[phase]:
                if phase == "train":
                    learner.learn(x)
                else:
                    held += learner.model(x).sum().item()
    return learner.result(), held


def stages_of_one_name(run: Run, stop: int) -> Any:
    """Two loops one after another, in two places of the program, over epochs that follow each other."""
    learner = Learner(run, stop)
    for (x,) in run.batches(FEW, batch_size=4, epochs=2):
        learner.learn(x)
    for (x,) in run.batches(FEW, batch_size=4, epochs=3):
        learner.learn(x, x)
    return learner.result()


@pytest.mark.parametrize(
    "program",
    [
        older_than_the_loop_of_every_epoch,
        steps_an_epoch,
        from_where_the_run_says,
        what_is_left_of_the_run,
        two_in_an_iteration,
        begun_again_while,
        begun_again_in_iterations,
        phases,
        stages_of_one_name,
    ],
)
def test_a_resumed_process_asks_for_what_is_left(program: Callable[[Run, int], Any], tmp_path: Path) -> None:
    whole = live(program, tmp_path / "whole")
    for stop in (5, 6, 10, 15, 20):
        live(program, tmp_path / "cut", stop)
    assert snapshot.found(tmp_path / "cut")[-1].step > 12
    assert live(program, tmp_path / "cut") == whole


def _counted(run: Run) -> None:
    stream = run.batches(MANY, batch_size=4, epochs=1000)
    for _ in range(9):
        run.step(next(stream)[0].sum())


def _counted_around_a_function(run: Run) -> None:
    feeder = Feeder(run)
    for _ in range(9):
        run.step(feeder.feed()[0].sum())


def _progress(items: Iterable[Any]) -> Iterable[Any]:
    return items


def _enumerated(run: Run) -> None:
    for number, (x,) in _progress(enumerate(run.batches(MANY, batch_size=4))):
        run.step(x.sum() * number)


def _sliced(run: Run) -> None:
    for _ in run.epochs(2):
        for (x,) in itertools.islice(run.batches(MANY, batch_size=4), 5):
            run.step(x.sum())


def _of_one_name(run: Run) -> None:
    for number in run.iterations(9):
        for (x,) in run.batches(FEW, batch_size=4):
            run.step(x.sum() * number)


def _twice_an_epoch(run: Run) -> None:
    for _ in run.epochs(3):
        for (x,) in run.batches(MANY, batch_size=8):
            run.step(x.sum())
        for (_x,) in run.batches(MANY, batch_size=8):
            pass


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (_twice_an_epoch, r"a second time in epoch 0 .* loop 'train'; .* validation"),
        (_counted, r"line \d+ of test_asking.py: this for counts from its beginning again .*'train'"),
        (_counted_around_a_function, r"this for counts from its beginning again .*'fed' .*run\.iterations"),
        (_enumerated, r"number: enumerate\(\) on line \d+ counts from 0 again"),
        (_sliced, r"islice\(\) counts from 0 again"),
        (_of_one_name, r"two loops of the run are called 'train'"),
    ],
)
def test_what_would_count_from_its_beginning_again_is_refused(
    program: Callable[[Run], None], reason: str, tmp_path: Path
) -> None:
    with Run(tmp_path) as run, pytest.raises(Refused, match=reason):
        program(run)


def test_a_stream_without_a_place_to_go_on_from_is_told_of(tmp_path: Path) -> None:
    def program(run: Run, stop: int) -> Any:
        learner = Learner(run, stop)
        stream = run.batches(MANY, batch_size=4, epochs=4)
        first = next(stream)
        for (x,) in stream:
            learner.learn(x, *first)
        return learner.result()

    with Run(tmp_path / "whole", snapshot_every=2) as run:
        whole = program(run, 0)
        assert sum("no snapshot since step 0: the batches of 'train'" in note for note in run.notes) == 1
    with Run(tmp_path / "cut", snapshot_every=2) as run, pytest.raises(Stop):
        program(run, 30)
    with Run(tmp_path / "cut", snapshot_every=2) as run:
        assert program(run, 0) == whole


def test_what_was_handed_out_last_is_known_at_the_end_of_a_stream(tmp_path: Path) -> None:
    def program(run: Run, stop: int) -> Any:
        learner = Learner(run, stop)
        for (x,) in run.batches(FEW, batch_size=4, epochs=4):
            learner.learn(x)
        learner.learn(torch.ones(4, 1))
        return run.epoch, learner.result()

    whole = live(program, tmp_path / "whole")
    assert whole[0] == 3
    live(program, tmp_path / "cut", 21)
    assert live(program, tmp_path / "cut") == whole


def test_a_loop_may_go_on_under_its_name_after_the_epochs(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        for epoch in run.epochs(5):
            for (x,) in run.batches(FEW, batch_size=10):
                run.step(x.sum())
            if epoch == 1:
                break
        assert len(list(run.batches(FEW, batch_size=10))) == 2
        assert [epoch for epoch in run.epochs(4) for _ in run.batches(FEW, batch_size=20)] == [2, 3]
        assert len(list(run.batches(FEW, batch_size=10))) == 2
