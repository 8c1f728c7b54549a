"""On a card: watching changes no bit there either. Skipped where there is none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import akeso
from akeso.torch import inputs
from tests.torch.loops import LOOPS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

#: A shuffled DataLoader wants its generator on the default device, with or without akeso.
_OWN_GENERATOR = {"validated"}


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    yield
    torch.set_default_device("cpu")
    torch.use_deterministic_algorithms(False)


@pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning")
@pytest.mark.parametrize("name", [name for name in LOOPS if name not in _OWN_GENERATOR])
def test_same_bits_with_everything_on_the_card(name: str, tmp_path) -> None:
    torch.set_default_device("cuda")
    found = []
    for watched in (False, False, True):
        torch._dynamo.reset()
        torch.manual_seed(0)
        if watched:
            with akeso.watch(run=tmp_path) as watch:
                found.append(LOOPS[name]())
            assert not watch.history.events_of("probe-off")
        else:
            found.append(LOOPS[name]())
    first, again, seen = found
    if not all(torch.equal(a, b) for a, b in zip(first, again, strict=True)):
        pytest.skip("the loop differs from itself here, unwatched")
    assert all(torch.equal(a, b) for a, b in zip(first, seen, strict=True))


def _convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4),
    ).cuda().to(memory_format=torch.channels_last)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_same_bits_under_autocast_with_a_scaler(dtype: torch.dtype, tmp_path) -> None:
    found = []
    for watched in (False, True):
        torch.manual_seed(0)
        model = _convolutions()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        scaler = torch.amp.GradScaler("cuda", enabled=dtype is torch.float16)
        images, labels = torch.randn(64, 3, 16, 16).cuda(), torch.randint(0, 4, (64,)).cuda()
        watch = akeso.watch(model, optimizer, run=tmp_path) if watched else None
        for step in range(40):
            rows = torch.arange(step * 16, step * 16 + 16) % 64
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=dtype):
                loss = functional.cross_entropy(model(images[rows]), labels[rows])
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        if watch is not None:
            watch.close()
            assert len(watch.history.series("loss")) == 40
            assert watch.history.series("loss").values.max() < 5
        found.append([parameter.detach().cpu() for parameter in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_a_captured_step_is_left_alone(tmp_path) -> None:
    """A script that captures its step in a CUDA graph: the capture holds nothing of ours, the steps before are seen."""
    found = []
    for watched in (False, True):
        torch.manual_seed(0)
        model = _convolutions()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        images, labels = torch.randn(16, 3, 16, 16).cuda(), torch.randint(0, 4, (16,)).cuda()

        def step(model=model, optimizer=optimizer, images=images, labels=labels) -> None:
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(model(images), labels).backward()
            optimizer.step()

        watch = akeso.watch(model, optimizer, run=tmp_path) if watched else None
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(4):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            step()
        for _ in range(20):
            graph.replay()
        step()
        if watch is not None:
            watch.close()
            assert not watch.history.events_of("probe-off")
            assert watch.history.facts["captured"]
            assert watch.steps == len(watch.history.series("loss")) == 5
        found.append([parameter.detach().cpu() for parameter in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_shares_of_nothing_are_nothing() -> None:
    for rows, size in ((64, 28), (41, 7), (55, 3), (61, 1)):
        found = dict(inputs.input_items(torch.rand(rows, 1, size, size, device="cuda")))
        assert float(found["input_nonfinite"]) == 0.0


_ASSERTS = """
import torch
from torch import nn

x, y = torch.randn(4096, 16, device="cuda"), torch.zeros(4096, dtype=torch.long, device="cuda")
y[3000] = 10
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    for part in torch.arange(4096, device="cuda").split(64):
        loss = nn.functional.cross_entropy(model(x[part]), y[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
"""


def test_a_mistake_that_ends_the_device_ends_the_script_as_without_akeso(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_ASSERTS, "utf-8")
    command = [sys.executable, "-m", "akeso", "run", "--run", str(tmp_path / "run"), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr[-2000:]
    assert "akeso's own" not in done.stderr + done.stdout
    assert "akeso: " in done.stderr + done.stdout
