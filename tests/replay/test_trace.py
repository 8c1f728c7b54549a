from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from akeso.replay import journal
from akeso.replay.diff.operations import first_operation
from akeso.replay.trace.entropy import Entropy, Event, read_events
from akeso.replay.trace.modules import ModuleStack
from akeso.replay.trace.operation import Operation, read_trace, write_trace
from akeso.replay.trace.recorder import Enough, Recorder
from akeso.replay.trace.tracer import Tracer


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.drop = torch.nn.Dropout(0.5)
        self.last = torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(torch.relu(self.norm(self.first(x)))))


def traced(
    change: Callable[[torch.nn.Module], Any] = lambda model: None, log: bool = False
) -> list[Operation]:
    torch.manual_seed(0)
    model, inputs = Net(), torch.randn(6, 4)
    change(model)
    stack = ModuleStack()
    stack.start()
    tracer = Tracer(module=lambda: stack.path, names=stack.tensor_names)
    with tracer:
        loss = model(inputs).square().mean()
        if log:
            print(loss.item(), sum(p.detach().norm().item() for p in model.parameters()))
        loss.backward()
    stack.stop()
    return tracer.operations


def test_operations_carry_their_module_in_the_forward_and_the_backward_pass() -> None:
    operations = traced()
    forward = {op.module: op for op in operations if op.short_name == "native_layer_norm"}
    backward = {op.module: op for op in operations if op.short_name == "native_layer_norm_backward"}
    assert list(forward) == list(backward) == ["Net.norm"]
    assert backward["Net.norm"].phase == "backward"
    assert "Net.norm.weight" in forward["Net.norm"].sources
    assert forward["Net.norm"].line.startswith("test_trace.py:")
    assert [op.module for op in operations if op.random] == ["Net.drop"]


def test_tracing_changes_no_bit_and_a_trace_survives_its_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = Net(), torch.randn(6, 4)
    before = torch.get_rng_state()
    plain = model(inputs)
    torch.set_rng_state(before)
    with Tracer() as tracer:
        watched = model(inputs)
    assert torch.equal(plain, watched)
    write_trace(tmp_path / "trace", tracer.operations)
    assert read_trace(tmp_path / "trace") == tracer.operations


def test_memory_nobody_has_written_is_not_compared() -> None:
    with Tracer() as tracer:
        whole = torch.empty(10)
        whole[:4] = 1.0
        whole[4:] = 2.0
        whole.sum()
    digests = [value for op in tracer.operations[:-1] for value in op.inputs]
    assert "" in digests
    assert tracer.operations[-1].inputs[0] != ""


def test_two_traces_of_the_same_step_agree_and_logging_does_not_matter() -> None:
    assert first_operation(traced(), traced()) is None
    assert first_operation(traced(), traced(log=True)) is None


def test_the_first_operation_that_differs_is_named_with_what_it_was_given() -> None:
    def flip(model: Any) -> None:
        with torch.no_grad():
            model.norm.weight.view(torch.int32)[3] ^= 1

    found = first_operation(traced(), traced(flip))
    assert found is not None
    assert (found.kind, found.source, found.operation.module) == ("input", "Net.norm.weight", "Net.norm")

    def weaker(model: Any) -> None:
        model.drop.p = 0.4

    found = first_operation(traced(), traced(weaker))
    assert found is not None
    assert (found.kind, found.operation.module, found.operation.short_name) == (
        "call",
        "Net.drop",
        "bernoulli_",
    )


def train(steps: int = 6, clip: float | None = None) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = Net()
    data = TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    done = 0
    while done < steps:
        for inputs, targets in DataLoader(data, batch_size=8, shuffle=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            done += 1
            if done == steps:
                break
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_recording_changes_no_bit_repeats_itself_and_leaves_nothing_behind(tmp_path: Path) -> None:
    plain = train()
    backward, fetch = torch.autograd.backward, DataLoader.__iter__
    for name in ("a", "b"):
        with Recorder(tmp_path / name):
            recorded = train()
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(plain, recorded, strict=True))
    assert torch.autograd.backward is backward
    assert DataLoader.__iter__ is fetch
    assert not torch.nn.modules.module._global_forward_hooks
    first, second = (journal.read(tmp_path / name) for name in ("a", "b"))
    assert len(first.steps()) == 6
    assert first.steps() == second.steps()
    assert first.broken_at is None
    [model] = first.all("model")
    assert set(model["parameters"]) == {name for name, _ in Net().named_parameters()}


def test_every_kind_of_digest_is_taken_and_settings_are_noted(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run"):
        train(2)
    found = journal.read(tmp_path / "run")
    step = found.all("step")[0]
    assert all(step[name] for name in ("order", "samples", "generators", "loss", "gradient", "parameters"))
    settings = {line["name"]: line["values"] for line in found.all("settings")}
    assert settings["loader of TensorDataset"]["batch_size"] == 8
    assert settings["optimizer AdamW"]["groups"][0]["lr"] == 0.01


def test_a_program_is_ended_after_the_last_step_asked_for(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", stop_after=3, trace=2).start()
    with pytest.raises(Enough):
        train(6)
    recorder.close()
    assert recorder.steps == 3
    phases = {operation.phase for operation in read_trace(tmp_path / "run" / "trace.jsonl")}
    assert {"data", "forward", "backward", "optimizer"} <= phases


def events_of(path: Path, program: Callable[[], Any], **options: Any) -> tuple[Any, list[Event]]:
    entropy = Entropy(path, **options)
    entropy.start()
    try:
        result = program()
    finally:
        entropy.stop()
    return result, read_events(path)


def test_sources_that_no_seed_decides_are_noted_with_their_line(tmp_path: Path) -> None:
    def program() -> None:
        np.random.default_rng()
        random.Random()
        uuid.uuid4()
        time.time()
        os.listdir(tmp_path)
        np.random.default_rng(3)
        random.Random(3)

    _, events = events_of(tmp_path / "events", program)
    kinds = [event.kind for event in events]
    assert kinds == ["generator", "generator", "entropy", "time", "folder"]
    lines = [event.line for event in events]
    assert lines == list(range(lines[0], lines[0] + 5))
    assert "uuid.uuid4" in [event.what for event in events]


def test_what_is_fixed_repeats_and_everything_is_put_back(tmp_path: Path) -> None:
    def program() -> tuple[Any, ...]:
        return np.random.default_rng().random(), random.Random().random(), os.urandom(4), time.time()

    originals = (random.Random.seed, os.urandom, time.time, os.listdir, random.seed, torch.manual_seed)
    fixed = ["generator", "entropy", "time"]
    one, _ = events_of(tmp_path / "a", program, seed=1, fixed=fixed)
    again, _ = events_of(tmp_path / "b", program, seed=1, fixed=fixed)
    other, _ = events_of(tmp_path / "c", program, seed=2, fixed=fixed)
    plain, _ = events_of(tmp_path / "d", program, seed=1)
    assert one == again
    assert one[:3] != other[:3]
    assert all(mine != theirs for mine, theirs in zip(one, plain, strict=True))
    assert (
        random.Random.seed,
        os.urandom,
        time.time,
        os.listdir,
        random.seed,
        torch.manual_seed,
    ) == originals
