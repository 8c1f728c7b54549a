"""Runs: interrupted anywhere and gone on with, they end as if nothing had happened."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from akeso.errors import BadInput, Refused
from akeso.replay import run_folder, snapshot
from akeso.replay.journal import read
from akeso.replay.run import Run
from akeso.replay.state_digest import exact_digest
from tests.replay.lives import Stop, live

pytestmark = pytest.mark.usefixtures("process_as_before")
DATA = TensorDataset(torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3)


def _model() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8),
        torch.nn.Dropout(0.3),
        torch.nn.BatchNorm1d(8),
        torch.nn.ReLU(),
        torch.nn.Linear(8, 3),
    )


def _loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


def flat(run: Run, stop: int) -> Any:
    """One loop over all epochs, a scheduler stepped after the step, sums kept in variables."""
    model = _model()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.99**step)
    run.track(model=model, optimizer=optimizer, scheduler=scheduler)
    total, history, rng = 0.0, [], np.random.default_rng(3)
    for batch in run.batches(DATA, batch_size=4, epochs=4):
        loss = _loss(model, batch) * (1 + 0.1 * rng.random())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(loss)
        if run.steps == stop:
            raise Stop
        scheduler.step()
        total += loss.item()
        if run.steps % 7 == 0:
            torch.rand(3)
            random.random()
            history.append(total)
    return total, history, exact_digest([model.state_dict(), optimizer.state_dict(), scheduler.state_dict()])


def nested(run: Run, stop: int) -> Any:
    """Epochs and batches apart, work before and after each epoch, an early stop in run.state."""
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    run.track(model=model, optimizer=optimizer)
    run.state.best = 1e9
    run.state.bad = 0
    shown = []
    for epoch in run.epochs(6):
        optimizer.param_groups[0]["lr"] *= 0.9
        seen = 0.0
        for batch in run.batches(DATA, batch_size=4):
            loss = _loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss)
            seen += loss.item()
            if run.steps == stop:
                raise Stop
        shown.append((epoch, seen, float(torch.rand(1))))
        run.state.bad = 0 if seen < run.state.best else run.state.bad + 1
        run.state.best = min(seen, run.state.best)
        if run.state.bad >= 3:
            break
    return shown, run.state.best, exact_digest(model.state_dict())


def by_range(run: Run, stop: int) -> Any:
    """A plain loop over range, a loader handed over, accumulation over three batches, two optimizers, a "
    "scaler."""
    model, head = _model(), torch.nn.Linear(3, 3)
    one = torch.optim.Adam(model.parameters(), 1e-2)
    two = torch.optim.SGD(head.parameters(), 1e-2, momentum=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
    run.track(model=model, head=head, one=one, two=two, scaler=scaler)
    loader = DataLoader(DATA, 4, shuffle=True, drop_last=True)
    since = 0
    for _ in range(4):
        for x, y in run.batches(loader):
            loss = torch.nn.functional.cross_entropy(head(model(x)), y) / 3
            scaler.scale(loss).backward()
            since += 1
            if since % 3 == 0:
                for optimizer in (one, two):
                    scaler.step(optimizer)
                    optimizer.zero_grad()
                scaler.update()
            run.step(loss)
            if run.steps == stop:
                raise Stop
    return since, exact_digest([part.state_dict() for part in (model, head, one, two, scaler)])


class Trainer:
    """A loop inside a class that counts by itself."""

    def __init__(self, run: Run) -> None:
        self.run, self.model, self.count, self.seen = run, _model(), 0, [0.0]
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), 0.1)
        run.track(model=self.model, optimizer=self.optimizer)

    def fit(self, stop: int) -> None:
        for number in self.run.iterations(30):
            x = torch.randn(5, 4)
            loss = self.model(x).square().mean() * (1 + number)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.run.step({"loss": loss, "x": x.sum()})
            self.count += 1
            self.seen[0] += loss.item()
            if self.run.steps == stop:
                raise Stop


def in_a_class(run: Run, stop: int) -> Any:
    """No dataset at all: data drawn in the step, state in attributes."""
    trainer = Trainer(run)
    trainer.fit(stop)
    return trainer.count, trainer.seen, exact_digest(trainer.model.state_dict())


def tied(run: Run, stop: int) -> Any:
    """One weight under two names, as in language models."""
    model = torch.nn.ModuleDict({"first": torch.nn.Linear(4, 4), "last": torch.nn.Linear(4, 4)})
    model["last"].weight = model["first"].weight
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    run.track(model=model, optimizer=optimizer)
    for x, y in run.batches(DATA, batch_size=4, epochs=4):
        loss = torch.nn.functional.cross_entropy(model["last"](model["first"](x).relu()), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(loss)
        if run.steps == stop:
            raise Stop
    assert model["last"].weight is model["first"].weight
    return exact_digest([model.state_dict(), optimizer.state_dict()])


@pytest.mark.parametrize("program", [flat, nested, by_range, in_a_class, tied])
def test_interrupted_runs_end_like_whole_ones(program: Callable[[Run, int], Any], tmp_path: Path) -> None:
    whole = live(program, tmp_path / "whole")
    for stop in (3, 8, 9, 15, 17, 28):
        live(program, tmp_path / "cut", stop)
    assert live(program, tmp_path / "cut") == whole
    one, two = read(tmp_path / "whole").steps(), read(tmp_path / "cut").steps()
    assert list(one) == sorted(two)
    assert all(one[step].differences(two[step]) == () for step in one)
    # What has ended is not run again, and gives its result once more.
    assert live(program, tmp_path / "whole") == whole


def test_two_runs_are_equal_and_another_seed_is_not(tmp_path: Path) -> None:
    results = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        with Run(tmp_path / name, seed=seed) as run:
            results.append(flat(run, 0))
    assert results[0] == results[1]
    assert results[0] != results[2]


def test_going_on_reads_no_data_that_is_done(tmp_path: Path) -> None:
    class Counting(Dataset[Any]):
        # On the class: a list in a variable would be found to belong to the run, and be put back.
        asked = 0

        def __len__(self) -> int:
            return 30

        def __getitem__(self, index: int) -> Any:
            Counting.asked += 1
            return DATA[index]

    def program(run: Run, stop: int) -> Any:
        run.track(model=_model())
        for _ in run.batches(Counting(), batch_size=3, epochs=3):
            run.step(0.0)
            if run.steps == stop:
                raise Stop

    live(program, tmp_path, 22)
    Counting.asked = 0
    done = snapshot.found(tmp_path)[-1].step
    live(program, tmp_path)
    assert done > 0
    assert Counting.asked == 3 * (30 - done)


def test_a_damaged_snapshot_is_passed_over_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = live(flat, tmp_path / "whole")
    # A snapshot that falls due while one is being written is taken later: each life is sure of its first.
    live(flat, tmp_path / "cut", 7)
    live(flat, tmp_path / "cut", 15)
    before, newest = snapshot.found(tmp_path / "cut")
    tensors = newest.path / "tensors.safetensors"
    data = bytearray(tensors.read_bytes())
    data[-5] ^= 4
    tensors.write_bytes(bytes(data))
    assert live(flat, tmp_path / "cut") == whole
    said = capsys.readouterr().err
    assert f"the snapshot of step {newest.step} is damaged (tensors.safetensors has other bits" in said
    assert f"after step {before.step}" in said


def test_another_environment_is_refused_or_goes_on_and_says_how_far_it_drifts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live(in_a_class, tmp_path, 7)
    about = tmp_path / run_folder.FILE
    known = json.loads(about.read_text())
    known["fingerprint"]["versions"]["torch"] = "2.4.0"
    about.write_text(json.dumps(known))
    with pytest.raises(Refused, match=r"(?s)torch was '2\.4\.0'.*--allow"):
        Run(tmp_path, seed=5, snapshot_every=4)

    def on_other_kernels(run: Run) -> None:
        trainer = Trainer(run)
        real = trainer.model.forward
        trainer.model.forward = lambda x: real(x) * (1 + 1e-4)  # type: ignore[method-assign]
        trainer.fit(0)

    with Run(tmp_path, seed=5, snapshot_every=4, allow=True) as run:
        on_other_kernels(run)
    said = capsys.readouterr().err
    assert "allowed: versions: torch was '2.4.0'" in said
    found = re.search(r"of (\d+) steps run again, (\d+) differ; the loss by up to (\S+) of its value", said)
    assert found is not None
    assert 1 <= int(found[2]) <= int(found[1])
    assert 0 < float(found[3]) < 0.01


def test_steps_that_come_out_differently_are_reported(tmp_path: Path) -> None:
    live(in_a_class, tmp_path, 7)
    disturbed = 0

    def other(run: Run, stop: int) -> Any:
        trainer = Trainer(run)
        real = trainer.model.forward

        def forward(x: torch.Tensor) -> torch.Tensor:
            nonlocal disturbed
            disturbed += 1
            return real(x) * (1.5 if disturbed == 3 else 1.0)

        trainer.model.forward = forward  # type: ignore[method-assign]
        trainer.fit(stop)

    with Run(tmp_path, seed=5, snapshot_every=4, strict=False) as run:
        other(run, 0)
        assert run.mismatches[0].startswith("step 7: loss")
    assert read(tmp_path).all("mismatch")[0]["step"] == 7


def test_what_came_out_differently_once_is_not_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def disturbed(run: Run, stop: int) -> None:
        trainer = Trainer(run)
        real = trainer.model.forward
        trainer.model.forward = lambda x: real(x) * (1.5 if run.steps == 6 else 1)  # type: ignore[method-assign]
        trainer.fit(stop)

    def live(program: Callable[[Run, int], Any], stop: int) -> tuple[str, ...]:
        with Run(tmp_path, seed=5, snapshot_every=4) as run:
            try:
                program(run, stop)
            except Stop:
                run.close()
            return run.mismatches

    live(in_a_class, 7)
    assert live(disturbed, 7)[0].startswith("step 7: loss")
    # Disturbed the same way again, it still differs from what came first.
    assert live(disturbed, 13)[0].startswith("step 7: loss")
    capsys.readouterr()
    assert live(in_a_class, 0)[0].startswith("step 7: loss")
    assert "stands on steps that a process before had run again with another result: step 7" in (
        capsys.readouterr().err
    )


def test_an_untracked_optimizer_is_an_error_that_names_it(tmp_path: Path) -> None:
    def program(run: Run, stop: int) -> None:
        model = _model()
        forgotten = torch.optim.Adam(model.parameters(), 1e-2)
        run.track(model=model)
        for batch in run.batches(DATA, batch_size=4):
            loss = _loss(model, batch)
            loss.backward()
            forgotten.step()
            run.step(loss)

    with pytest.raises(Refused, match=r"forgotten: this Adam changes.*run\.track\(forgotten=forgotten\)"):
        live(program, tmp_path)


def test_counters_and_iterators_that_would_start_over_are_named(tmp_path: Path) -> None:
    def counting(run: Run, stop: int) -> None:
        for i, _ in enumerate(run.batches(DATA, batch_size=4)):
            run.step(float(i))

    def beside_it(run: Run, stop: int) -> None:
        beside = iter(DataLoader(DATA, 2))
        for _ in run.batches(DATA, batch_size=4):
            next(beside)
            run.step(0.0)

    with pytest.raises(Refused, match=r"i: enumerate\(\) on line .*run\.index"):
        live(counting, tmp_path / "a")
    with pytest.raises(Refused, match=r"beside: this .* is an iterator"):
        live(beside_it, tmp_path / "b")


def test_enumerate_with_the_index_of_the_run_goes_on(tmp_path: Path) -> None:
    def program(run: Run, stop: int) -> Any:
        numbers = []
        for i, _ in enumerate(run.batches(DATA, batch_size=4, epochs=2), run.index):
            numbers.append(i)
            run.step(float(i))
            if run.steps == stop:
                raise Stop
        return numbers

    live(program, tmp_path, 11)
    assert live(program, tmp_path) == list(range(16))


def test_healthy_loops_raise_nothing_and_frozen_models_are_constant(tmp_path: Path) -> None:
    with Run(tmp_path / "run") as run, open(tmp_path / "log.txt", "w") as log:
        model, teacher = _model(), _model().eval().requires_grad_(False)
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        run.track(model=model, optimizer=optimizer)
        names, label = {"a": 1}, "x"
        for batch in run.batches(DATA, batch_size=4, epochs=2):
            loss = (model(batch[0]) - teacher(batch[0])).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(label, names, loss.item(), file=log)
            run.step(loss)
        assert run.steps == 16
        assert run.notes == []


def test_bad_input_is_refused_and_nothing_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match=r"holds files that are not of a run \(notes.txt\)"):
        Run(tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["notes.txt"]
    live(in_a_class, tmp_path / "a", 6)
    before = (tmp_path / "a" / "replay.jsonl").read_bytes()
    with pytest.raises(Refused, match="was begun with seed 5, not 6"):
        Run(tmp_path / "a", seed=6)
    with Run(tmp_path / "b", seed=5), pytest.raises(Refused, match="in use by process"):
        Run(tmp_path / "b", seed=5)
    with Run(tmp_path / "c") as run:
        with pytest.raises(BadInput, match="no length"):
            run.batches(iter([1]), batch_size=2)
        with pytest.raises(BadInput, match="batch_size"):
            run.batches(DATA)
        with pytest.raises(BadInput, match="come from the DataLoader"):
            run.batches(DataLoader(DATA), batch_size=3)
        with pytest.raises(BadInput, match=r"run\.state\.f is of type"):
            run.state.f = object()
    assert (tmp_path / "a" / "replay.jsonl").read_bytes() == before


def test_a_folder_that_cannot_be_made_or_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"the run folder /proc/nowhere/a cannot be made: No such file"):
        Run("/proc/nowhere/a")
    with pytest.raises(BadInput, match=r"file/a cannot be made: Not a directory; give the run a folder"):
        Run(tmp_path / "file" / "a")
    (tmp_path / "run" / "lock").mkdir(parents=True)
    with pytest.raises(BadInput, match=r"run cannot be written: lock: Is a directory; give the run a folder"):
        Run(tmp_path / "run")


def test_missing_and_changed_data_are_named(tmp_path: Path) -> None:
    class Files(Dataset[Any]):
        def __init__(self) -> None:
            self.paths = [str(tmp_path / f"{number}.txt") for number in range(8)]

        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> float:
            return float(Path(self.paths[index]).read_text())

    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(str(number))

    def program(run: Run, stop: int) -> None:
        for batch in run.batches(Files(), batch_size=2, epochs=3):
            run.step(batch.sum())
            if run.steps == stop:
                raise Stop

    live(program, tmp_path / "run", 5)
    (tmp_path / "3.txt").write_text("33")
    with pytest.raises(Refused, match=r"the file .*3\.txt had 1 bytes, has 2"):
        live(program, tmp_path / "run")
    (tmp_path / "3.txt").unlink()
    with pytest.raises(Refused, match=r"the file .*3\.txt is missing"):
        live(program, tmp_path / "run")
    (tmp_path / "3.txt").write_text("3")
    live(program, tmp_path / "run")


def test_another_model_than_the_recorded_one_is_refused(tmp_path: Path) -> None:
    def program(width: int) -> Callable[[Run, int], None]:
        def run_it(run: Run, stop: int) -> None:
            run.track(model=torch.nn.ModuleDict({str(width): torch.nn.Linear(2, width)}))
            for _ in run.batches(DATA, batch_size=4, epochs=2):
                run.step(0.0)
                if run.steps == stop:
                    raise Stop

        return run_it

    live(program(2), tmp_path, 6)
    with pytest.raises(BadInput, match="another model than the one in the snapshot"):
        live(program(3), tmp_path)


def test_wrappers_of_what_is_tracked_and_loops_further_out_are_no_holes(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b")):
        with Run(tmp_path / name, seed=number) as run:
            model = _model()
            joined = torch.nn.Sequential(model, torch.nn.Softmax(1))
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            run.track(model=model, optimizer=optimizer)
            for x, y in run.batches(DATA, batch_size=8):
                loss = torch.nn.functional.nll_loss(joined(x).log(), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                run.step(loss)
            assert run.notes == []
            assert run.steps == 4


def test_other_objects_tracked_than_in_the_snapshot_are_named(tmp_path: Path) -> None:
    with Run(tmp_path, snapshot_every=1) as run:
        run.track(model=torch.nn.Linear(2, 2))
        for number in run.iterations(3):
            run.step(number)
    with Run(tmp_path) as run:
        run.track(model=torch.nn.Linear(2, 2), teacher=torch.nn.Linear(2, 2))
        with pytest.raises(
            BadInput, match=r"has \['model'\] tracked, this process .* new teacher; track the same"
        ):
            list(run.iterations(3))
