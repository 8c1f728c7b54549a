"""Runs under training libraries: their counters are state, their wrappers stand for what they wrap."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from akeso.errors import Refused
from akeso.replay.journal import read
from akeso.replay.resume import resume
from akeso.replay.run import Run
from akeso.replay.state_digest import exact_digest
from akeso.replay.state_tracked import TrackedOptimizer, adopt
from akeso.replay.state_wrappers import unwrap
from tests.replay.lives import Stop
from tests.script.commands import python_at_once
from tests.test_docs import ROOT, blocks_of

pytestmark = pytest.mark.usefixtures("process_as_before")
DATA = TensorDataset(torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3)


def _in_two_lives(program: Callable[[Run, int], Any], home: Path, stop: int) -> tuple[Any, Any]:
    """Return what a whole run gives, and one that was cut after so many steps."""
    results = []
    for name, stops in (("whole", (0,)), ("cut", (stop, 0))):
        for at in stops:
            with Run(home / name, seed=5, snapshot_every=3) as run:
                try:
                    result = program(run, at)
                except Stop:
                    continue
                assert run.mismatches == ()
                assert run.notes[1:] == []
        results.append(result)
    return results[0], results[1]


def _accelerated(track: str) -> Callable[[Run, int], Any]:
    accelerate = pytest.importorskip("accelerate")
    from accelerate.state import AcceleratorState, GradientState

    def program(run: Run, stop: int) -> Any:
        AcceleratorState._reset_state(True)
        GradientState._reset_state()
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        bare = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 3))
        stepping = torch.optim.AdamW(bare.parameters(), 1e-2)
        schedule = torch.optim.lr_scheduler.ExponentialLR(stepping, 0.9)
        model, optimizer, scheduler = accelerator.prepare(bare, stepping, schedule)
        if track == "inner":
            run.track(model=bare, optimizer=stepping, scheduler=schedule)
        else:
            run.track(model=model, optimizer=optimizer, scheduler=scheduler)
        if track == "accelerator":
            run.track(accelerator=accelerator)
        flags = []
        for x, y in run.batches(DATA, batch_size=4, epochs=2):
            flags.append(accelerator.sync_gradients)
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            run.step(loss)
            if run.steps == stop:
                raise Stop
        return (
            flags,
            accelerator.step,
            exact_digest([part.state_dict() for part in (bare, stepping, schedule)]),
        )

    return program


@pytest.mark.parametrize("track", ["wrappers", "inner", "accelerator"])
def test_half_an_accumulation_of_accelerate_is_gone_on_with(track: str, tmp_path: Path) -> None:
    # The snapshot is of step 3: one of two batches has been accumulated.
    whole, cut = _in_two_lives(_accelerated(track), tmp_path, 5)
    assert cut == whole


@pytest.mark.usefixtures("runs_begin_at_once")
@pytest.mark.parametrize("name", ["accelerate", "lightning"])
def test_the_examples_of_the_docs_go_on_where_they_were(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    (block,) = (b for b in blocks_of(ROOT / "docs/replay.md") if f"import {name}" in b.code)
    cut = "os.environ.get('CUT') == str(run.steps) and (run._writer.wait(), os._exit(9))"
    code = re.sub(r"(run\.step\(.*\))", rf"\1; import os; {cut}", block.code)
    (tmp_path / "train.py").write_text(code)
    folder = tmp_path / "runs" / name
    done = python_at_once(tmp_path, "train.py")
    assert done.returncode == 0, done.stderr.decode()
    whole = read(folder).steps()
    shutil.rmtree(folder)
    assert python_at_once(tmp_path, "train.py", CUT="8").returncode == 9
    assert resume(folder) == 0
    found = read(folder)
    assert found.all("resume")[0]["from"] == 5
    assert found.all("mismatch") == ()
    assert whole.keys() == found.steps().keys()
    assert all(whole[step].differences(record) == () for step, record in found.steps().items())


@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="Keras is not installed")
def test_what_keras_trains_is_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        """
import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
import akeso.replay

run = akeso.replay.Run("run", seed=0)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
for name, value in (("model", model), ("optimizer", keras.optimizers.Adam())):
    try:
        run.track(**{name: value})
    except akeso.errors.BadInput as error:
        print(name, "BackupAndRestore" in str(error))
"""
    )
    done = python_at_once(tmp_path, "train.py")
    assert done.stdout.decode().split() == ["model", "True", "optimizer", "True"], done.stderr.decode()


def test_an_accumulation_that_lightning_counts_itself_is_refused(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, accumulate_grad_batches=2
    )

    def program(run: Run) -> None:
        for _ in run.batches(DATA, batch_size=4):
            run.step(float(trainer.accumulate_grad_batches))

    with (
        Run(tmp_path) as run,
        pytest.raises(Refused, match=r"trainer\.accumulate_grad_batches: .* over 2 bat"),
    ):
        program(run)


def test_fabric_and_wrappers_of_its_kind_are_looked_through() -> None:
    fabric = pytest.importorskip("lightning.fabric").Fabric(accelerator="cpu", devices=1)
    bare = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(bare.parameters(), 0.1)
    _, wrapped = fabric.setup(bare, optimizer)
    assert wrapped is not optimizer
    assert adopt("optimizer", wrapped).value is optimizer


def test_a_wrapper_with_state_of_its_own_is_tracked_itself(tmp_path: Path) -> None:
    class Lookahead(torch.optim.Optimizer):
        """Made as such wrappers often are: without the constructor of the base."""

        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer, self.param_groups, self.defaults = optimizer, optimizer.param_groups, {}
            self.state: Any = {}

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.optimizer.step()
            for group in self.param_groups:
                for item in group["params"]:
                    slow = self.state.setdefault(item, {"slow": item.detach().clone()})["slow"]
                    item.data.copy_(slow.lerp_(item.detach(), 0.5))

    model = torch.nn.Linear(4, 3)
    outer = Lookahead(torch.optim.SGD(model.parameters(), 0.1))
    assert unwrap(outer) is outer
    assert isinstance(adopt("outer", outer), TrackedOptimizer)
    scheduler = torch.optim.lr_scheduler.ConstantLR(outer.optimizer)
    assert unwrap(scheduler) is scheduler
    with Run(tmp_path) as run:
        run.track(model=model, outer=outer, inner=outer.optimizer)
        for x, y in run.batches(DATA, batch_size=10):
            torch.nn.functional.cross_entropy(model(x), y).backward()
            outer.step()
            run.step()
    assert run.steps == 3


def test_numbers_of_objects_of_installed_packages_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "site-packages"
    place.mkdir()
    (place / "averaging.py").write_text(
        "class Meter:\n"
        "    def __init__(self):\n"
        "        self.total, self.count, self.machinery = 0.0, 0, object()\n"
        "class Bar:\n"
        "    shown = 0\n"
        "    def __init__(self):\n"
        "        self.shown = 0\n"
        "    def close(self):\n"
        "        pass\n"
    )
    monkeypatch.syspath_prepend(str(place))
    averaging = importlib.import_module("averaging")
    try:

        def program(run: Run, stop: int) -> Any:
            meter, bar = averaging.Meter(), averaging.Bar()
            for batch in run.batches(DATA, batch_size=4):
                meter.total += batch[0].sum().item()
                meter.count += 1
                bar.shown += 1
                run.step(batch[0].sum())
                if run.steps == stop:
                    raise Stop
            return meter.total, meter.count, bar.shown

        whole, cut = _in_two_lives(program, tmp_path, 5)
        assert cut[:2] == whole[:2]
        # A bar belongs to its process: it counts what it has seen.
        assert cut[2] == whole[2] - 3
    finally:
        del sys.modules["averaging"]
