"""What watching costs: ``python -m benchmarks.overhead [--quick] [--device cuda] [--json FILE]``.

One training runs in short blocks, watched and unwatched in turn, and the ratio of neighbouring blocks is taken:
slow drifts of the machine cancel. The usual alternatives run in the same rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Step = Callable[[], Any]


@dataclass(frozen=True)
class Training:
    """A training whose step is timed."""

    name: str
    build: Callable[[torch.device], tuple[nn.Module, torch.optim.Optimizer, Step]]
    limit: float
    block: int  # steps in one timed block


def _tiny_mlp(device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    layers: list[nn.Module] = [nn.Linear(2, 5), nn.ReLU()]
    for _ in range(8):
        layers += [nn.Linear(5, 5), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(5, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(128, 2, device=device)
    y = (x.norm(dim=1, keepdim=True) > 1).float()

    def step() -> None:
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(x), y).backward()
        optimizer.step()

    return model, optimizer, step


def _images(count: int, channels: int, size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    if channels == 1:
        from benchmarks.data import mnist

        data = mnist()
        x = torch.as_tensor(data.x_train[:count], dtype=torch.float32).reshape(-1, 1, 28, 28) / 255
        return x.to(device), torch.as_tensor(data.y_train[:count], dtype=torch.int64).to(device)
    x = torch.randn(count, channels, size, size, device=device)
    return x, torch.randint(0, 10, (count,), device=device)


def _lenet(device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = _images(64, 1, 28, device)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return model, optimizer, step


class _Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5000, 32)
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(tokens))[0][:, -1])


def _lstm(device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    model = _Reader().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randint(0, 5000, (32, 60), device=device)
    y = torch.randint(0, 2, (32,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return model, optimizer, step


def _resnet_like(device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    width = 64
    for stage in range(4):
        for block in range(2):
            wider = width * 2 if stage and block == 0 else width
            stride = 2 if stage and block == 0 else 1
            layers += [nn.Conv2d(width, wider, 3, stride, 1), nn.BatchNorm2d(wider), nn.ReLU()]
            width = wider
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = _images(256, 3, 32, device)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return model, optimizer, step


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.qkv(self.ln1(x)).split(c, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class _Gpt(nn.Module):
    def __init__(
        self, vocabulary: int = 50304, width: int = 768, depth: int = 12, length: int = 1024
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(_Block(width, 12) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _gpt(device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    model = _Gpt().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    tokens = torch.randint(0, 50304, (32, 1025), device=device)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            scores = model(tokens[:, :-1])
            loss = F.cross_entropy(scores.reshape(-1, scores.shape[-1]), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()

    return model, optimizer, step


CPU = (
    Training("tiny MLP, 10 × 5", _tiny_mlp, 0.02, 250),
    Training("LeNet on MNIST", _lenet, 0.01, 120),
    Training("LSTM", _lstm, 0.01, 120),
)
CUDA = (
    Training("CNN", _resnet_like, 0.01, 200),
    Training("transformer, 124 M", _gpt, 0.01, 15),
)


# the alternatives ------------------------------------------------------------------------------------


def _item_loop(model: nn.Module, step: Step, block: int) -> None:
    for _ in range(block):
        step()
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.norm().item()


def _anomaly(model: nn.Module, step: Step, block: int) -> None:
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        for _ in range(block):
            step()


@contextmanager
def _histograms(folder: Path) -> Iterator[Callable[[nn.Module, Step, int], None] | None]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield None
        return
    writer = SummaryWriter(str(folder))
    done = 0

    def block_of(model: nn.Module, step: Step, block: int) -> None:
        nonlocal done
        for _ in range(block):
            step()
            done += 1
            if done % 100 == 0:
                for name, parameter in model.named_parameters():
                    if parameter.grad is not None:
                        writer.add_histogram(name, parameter.grad, done)

    yield block_of
    writer.close()


def plain(model: nn.Module, step: Step, block: int) -> None:
    """Train for a block of steps, unwatched."""
    for _ in range(block):
        step()


# measuring -------------------------------------------------------------------------------------------


class _Clock:
    """Wall time and CPU time of a block, the device included."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"

    def time(self, work: Callable[[], None]) -> tuple[float, float]:
        if self._cuda:
            torch.cuda.synchronize()
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - wall, time.process_time() - cpu


def measure(
    training: Training, device: torch.device, rounds: int, folder: Path, *, alone: bool
) -> dict[str, Any]:
    """Median ratios to the plain training, for akeso and the alternatives.

    One training is watched in turns: a block with the watch paused, a block with it on. Each watched block is
    held against the plain ones before and after it, and holds several looks.
    """
    import akeso

    clock = _Clock(device)
    torch.manual_seed(0)
    model, optimizer, step = training.build(device)
    block = training.block

    def unwatched() -> tuple[float, float]:
        return clock.time(lambda: plain(model, step, block))

    unwatched()
    results: dict[str, list[tuple[float, float]]] = {}
    watch = akeso.watch(model, optimizer, run=folder / "run")
    clock.time(lambda: plain(model, step, block))  # imports and first looks, the dense ones
    watch.pause()
    with _histograms(folder / "tb") as histograms:
        others: dict[str, Callable[[], None]] = {
            ".grad.norm().item() loop": lambda: _item_loop(model, step, block),
            "detect_anomaly": lambda: _anomaly(model, step, block),
        }
        if histograms is not None:
            others["histograms every 100"] = lambda: histograms(model, step, block)
        before = unwatched()
        for number in range(rounds):
            # the alternatives are far away from any limit: fewer rounds will do
            for name in ("akeso", *(() if alone or number % 4 else others)):
                if name == "akeso":
                    watch.resume()
                    mine = clock.time(lambda: plain(model, step, block))
                    watch.pause()
                else:
                    mine = clock.time(others[name])
                after = unwatched()
                ratios = (2 * mine[0] / (before[0] + after[0]), 2 * mine[1] / (before[1] + after[1]))
                results.setdefault(name, []).append(ratios)
                before = after
    watch.close()
    found = {
        name: {
            "wall": statistics.median(wall for wall, _ in ratios) - 1,
            "cpu": statistics.median(cpu for _, cpu in ratios) - 1,
        }
        for name, ratios in results.items()
    }
    memory, more = _memory(training, device)
    return {
        "training": training.name,
        "limit": training.limit,
        "rounds": rounds,
        "overheads": found,
        "own_account": watch.overhead,
        "memory": memory,
        "memory_bytes": more,
    }


def _memory(training: Training, device: torch.device) -> tuple[float, float]:
    """Peak memory with watching over peak memory without, minus one, and the difference in bytes.

    On a card what torch allocated there; on the CPU the resident memory of a process of its own.
    """
    if device.type == "cuda":
        mine, without = (_peak(training, device, watched=watched) for watched in (True, False))
        return mine / without - 1, mine - without
    peaks: dict[bool, list[int]] = {False: [], True: []}
    for _ in range(3):
        for watched, found in peaks.items():
            found.append(_resident(training, watched))
    mine, without = statistics.median(peaks[True]), statistics.median(peaks[False])
    return mine / without - 1, 1024 * (mine - without)


def _peak(training: Training, device: torch.device, *, watched: bool) -> float:
    import akeso

    torch.manual_seed(0)
    model, optimizer, step = training.build(device)
    torch.cuda.reset_peak_memory_stats()
    with akeso.watch(model, optimizer) if watched else nullcontext():
        plain(model, step, 12)
    return float(torch.cuda.max_memory_allocated())


_RESIDENT = """
import re, sys, torch
from pathlib import Path
from contextlib import nullcontext
from benchmarks.overhead import CPU, plain
torch.set_num_threads(1)
training = next(one for one in CPU if one.name == sys.argv[1])
model, optimizer, step = training.build(torch.device("cpu"))
if sys.argv[2] == "watched":
    import akeso
    watch = akeso.watch(model, optimizer, run=sys.argv[3])
else:
    watch = nullcontext()
with watch:
    plain(model, step, 500)
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def _resident(training: Training, watched: bool) -> int:
    """Peak resident memory in kB of a process that trains, its imports included."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _RESIDENT, training.name, "watched" if watched else "plain", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def main() -> int:
    """Measure, print a table, and say which figures are reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="part of a training's name")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of torch")
    parser.add_argument("--alone", action="store_true", help="leave the alternatives out")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    rounds = options.rounds or (10 if options.quick else 60)
    reached = True
    found = []
    for training in CUDA if device.type == "cuda" else CPU:
        if options.only not in training.name:
            continue
        with TemporaryDirectory() as folder:
            result = measure(training, device, rounds, Path(folder), alone=options.alone)
        found.append(result)
        print(f"\n{training.name} ({device}, {rounds} rounds of {training.block} steps, medians)")
        for name, over in result["overheads"].items():
            print(f"  {name:28} wall {over['wall']:+7.2%}   cpu {over['cpu']:+7.2%}")
        print(
            f"  akeso's own account: {result['own_account']:.2%}; memory {result['memory']:+.2%}, "
            f"{result['memory_bytes'] / 2**20:.0f} MiB"
        )
        mine = result["overheads"]["akeso"]
        # the clock of a shared machine counts what others do; the time of the process, threads and all, is ours
        value = mine["wall"] if device.type == "cuda" else mine["cpu"]
        good = value <= training.limit and result["memory"] <= 0.01
        reached &= good
        print(
            f"  asked: at most {training.limit:.0%}, memory at most 1 %; reached: {'yes' if good else 'NO'}"
        )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
