"""Differences planted between two runs of one program: ``akeso diff`` must find each first cause.

``python -m benchmarks.planted`` records every pair, compares it, and prints what was planted beside what was
found; it exits with 1 when a cause is missed. ``--quick`` takes every third, ``--only NAME`` one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from akeso.replay.diff import Finding, find_difference
from akeso.replay.trace.job import Job, Launcher

WANTED = 20

PROGRAM = '''
import argparse, os, random, time
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
for name, kind, default in [
    ("data", str, "data.npz"), ("seed", int, 0), ("lr", float, 0.01), ("lr-later", float, 0),
    ("decay", float, 0.01), ("eps", float, 1e-8), ("beta", float, 0.9), ("momentum", float, 0),
    ("optimizer", str, "adamw"),
    ("dropout", float, 0.2), ("norm-eps", float, 1e-5), ("activation", str, "relu"),
    ("reduction", str, "mean"), ("clip", float, 0), ("ema", float, 0), ("autocast", str, ""),
    ("workers", int, 0), ("augment", str, ""),
    ("extra-draw", int, -1), ("change-sample", int, -1), ("change-label", int, -1), ("flip-bit", str, ""),
    ("order", str, "shuffle"), ("kernel", str, ""), ("precision", str, "highest"), ("sets", int, 0),
    ("noise", str, ""), ("batch", int, 16), ("log", int, 0), ("implementation", str, ""), ("wide", int, 0),
]:
    parser.add_argument("--" + name, type=kind, default=default)
options = parser.parse_args()
random.seed(options.seed)
np.random.seed(options.seed)
torch.manual_seed(options.seed)
torch.set_float32_matmul_precision(options.precision)

library = torch.library.Library("planted", "DEF")
library.define("matmul(Tensor a, Tensor b) -> Tensor")
library.define("racing_sum(Tensor a) -> Tensor")


def matmul(a, b):
    """What a GPU does: with TF32 allowed, the last bits of the factors are not looked at."""
    if torch.get_float32_matmul_precision() != "highest":
        a, b = ((x.view(torch.int32) & -8192).view(torch.float32) for x in (a, b))
    return a @ b


def racing_sum(a):
    """Adds rows in the order in which they happen to arrive, as atomics do."""
    order = list(range(len(a)))
    random.SystemRandom().shuffle(order)
    total = torch.zeros_like(a[0])
    for row in order:
        total += a[row]
    return total


library.impl("matmul", matmul, "CPU")
library.impl("racing_sum", racing_sum, "CPU")


class Mixing(torch.autograd.Function):
    @staticmethod
    def forward(context, a, b):
        context.save_for_backward(a, b)
        return torch.ops.planted.matmul(a, b)

    @staticmethod
    def backward(context, gradient):
        a, b = context.saved_tensors
        return gradient @ b.T, a.T @ gradient


class Racing(torch.autograd.Function):
    @staticmethod
    def forward(context, a):
        context.rows = len(a)
        return torch.ops.planted.racing_sum(a)

    @staticmethod
    def backward(context, gradient):
        return gradient.expand(context.rows, *gradient.shape)


class Samples(Dataset):
    def __init__(self):
        kept = np.load(options.data, allow_pickle=False)
        self.x, self.y = torch.from_numpy(kept["x"]), torch.from_numpy(kept["y"])
        if options.change_sample >= 0:
            self.x[options.change_sample, 0] += 1e-3
        if options.change_label >= 0:
            self.y[options.change_label] = (self.y[options.change_label] + 1) % 4
        if options.sets:
            names = list({"cat", "dog", "cow", "hen"})
            places = torch.tensor([names.index(name) for name in ["cat", "dog", "cow", "hen"]])
            self.y = places[self.y]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        if options.augment == "python":
            x = x * (1 + 0.1 * random.random())
        elif options.augment == "torch":
            x = x + 0.1 * torch.randn(x.shape)
        return x, self.y[index]


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(32, 32) / 6)

    def forward(self, x):
        if options.precision != "highest" or options.kernel == "mixing":
            return Mixing.apply(x, self.weight)
        return x @ self.weight


class Pool(torch.nn.Module):
    def forward(self, x):
        return Racing.apply(x) if options.kernel == "racing" else x.sum(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(20, 32)
        self.norm = torch.nn.LayerNorm(32, eps=options.norm_eps)
        self.drop = torch.nn.Dropout(options.dropout)
        self.mix = Attention()
        self.pool = Pool()
        self.last = torch.nn.Linear(32, 4)

    def forward(self, x):
        hidden = getattr(torch.nn.functional, options.activation)(self.norm(self.first(x)))
        hidden = hidden + self.mix(self.drop(hidden))
        if options.wide:
            hidden = hidden + (hidden.repeat(2000, 1) * 1.1).sum() * 1e-6
        return self.last(hidden + 0.01 * self.pool(hidden))


data = Samples()
model = Net()
ema = Net() if options.ema else None
if ema is not None:
    ema.load_state_dict(model.state_dict())
if options.flip_bit:
    with torch.no_grad():
        bits = dict(model.named_parameters())[options.flip_bit].view(torch.int32).view(-1)
        bits[3] ^= 1
chosen = {"foreach": {"foreach": True}, "loop": {"foreach": False}, "fused": {"fused": True}}.get(
    options.implementation, {}
)
if options.optimizer == "sgd":
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=options.momentum, **chosen)
else:
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=options.lr, weight_decay=options.decay, eps=options.eps,
        betas=(options.beta, 0.999), **chosen,
    )
generator = torch.Generator().manual_seed(5) if options.order == "other" else torch.Generator().manual_seed(4)
loader = DataLoader(
    data, batch_size=options.batch, shuffle=options.order != "straight", num_workers=options.workers,
    generator=generator,
)
rng = np.random.default_rng() if options.noise == "unseeded" else np.random.default_rng(3)
world = int(os.environ.get("WORLD_SIZE", "1"))
step = 0
for epoch in range(2):
    for x, y in loader:
        step += 1
        x, y = x[: len(x) // world], y[: len(y) // world]
        if options.noise in ("unseeded", "seeded"):
            x = x + 0.01 * torch.from_numpy(rng.normal(size=x.shape).astype(np.float32))
        if options.noise == "time":
            x = x * (1 + 1e-3 * (time.time() % 1))
        if options.noise == "entropy":
            x = x * (1 + 1e-3 * os.urandom(1)[0])
        if options.extra_draw == step:
            random.random()
        if options.lr_later and step == 4:
            optimizer.param_groups[0]["lr"] = options.lr_later
        with torch.autocast("cpu", torch.bfloat16, enabled=options.autocast == "bf16"):
            loss = torch.nn.functional.cross_entropy(model(x), y, reduction=options.reduction)
        optimizer.zero_grad()
        loss.backward()
        if options.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)
        if options.log:
            print(step, loss.item(), sum(p.grad.norm().item() for p in model.parameters()), time.time())
        optimizer.step()
        if ema is not None:
            with torch.no_grad():
                for kept, new in zip(ema.parameters(), model.parameters()):
                    kept.mul_(options.ema).add_(new, alpha=1 - options.ema)
'''


@dataclass(frozen=True, slots=True)
class Plant:
    """One planted difference and what must be said about it."""

    name: str
    cause: str
    """The cause that must be named; empty when the runs are equal after all."""
    words: tuple[str, ...] = ()
    """What the finding must contain: the operation, the setting, the line."""
    both: str = ""
    a: str = ""
    b: str = ""
    step: int | None = None
    """The first differing step, where it was planted later than in the first."""
    a_job: dict[str, Any] = field(default_factory=dict)
    b_job: dict[str, Any] = field(default_factory=dict)


PLANTS = (
    Plant("augmentation draw", "randomness", ("Python's random",), "--augment python",
          b="--extra-draw 3", step=3),
    Plant("one changed sample", "data", ("dataset index 17",), b="--change-sample 17"),
    Plant("one changed label", "data", ("dataset index 5",), b="--change-label 5"),
    Plant("edited data file", "data", ("dataset index 30",), b="--data edited.npz"),
    Plant("batch order", "randomness", ("another order", "random_"), b="--order other"),
    Plant("no shuffling", "data", ("another order", "sampler"), b="--order straight"),
    Plant("batch size", "data", ("batch_size 16 and 8",), b="--batch 8"),
    Plant("worker count", "data", ("workers 1 and 2",), "--augment torch", "--workers 1", "--workers 2"),
    Plant("initial seed", "randomness", ("torch.manual_seed(1)",), b="--seed 1"),
    Plant("run seed", "randomness", ("seeds: 0 and 1",), "--noise unseeded", b_job={"seed": 1}),
    Plant("unseeded generator", "nondeterminism", ("NumPy generator without a seed",), "--noise unseeded",
          a_job={"seed": None}, b_job={"seed": None}),
    Plant("system entropy", "nondeterminism", ("os.urandom",), "--noise entropy"),
    Plant("time in a step", "nondeterminism", ("time.time",), "--noise time"),
    Plant("nondeterministic kernel", "nondeterminism", ("racing_sum", "Net.pool"), "--kernel racing"),
    Plant("thread count", "environment", ("threads", "native_layer_norm_backward"), "--wide 1",
          a_job={"threads": 1}, b_job={"threads": 2}),
    Plant("TF32", "environment", ("matmul precision", "Net.mix"), "--kernel mixing", b="--precision high"),
    Plant("set order", "environment", ("PYTHONHASHSEED",), "--sets 1",
          a_job={"hash_seed": "1"}, b_job={"hash_seed": "3"}),
    Plant("dropout under another world size", "environment", ("processes",),
          b_job={"environment": {"WORLD_SIZE": "2"}}),
    Plant("fused optimizer", "optimizer", ("fused",), a="--implementation loop", b="--implementation fused"),
    Plant("learning rate", "optimizer", ("lr 0.01 and 0.02",), b="--lr 0.02"),
    Plant("learning rate from step 4", "optimizer", ("lr",), b="--lr-later 0.005", step=4),
    Plant("weight decay", "optimizer", ("weight_decay",), b="--decay 0.1"),
    Plant("epsilon", "optimizer", ("eps",), b="--eps 1e-6"),
    Plant("beta", "optimizer", ("betas",), b="--beta 0.8"),
    Plant("momentum", "optimizer", ("momentum",), "--optimizer sgd", b="--momentum 0.9"),
    Plant("one flipped bit", "parameters", ("Net.mix.weight",), b="--flip-bit mix.weight"),
    Plant("decay of the averaged model", "parameters", ("mul_", "0.9"),
          a="--ema 0.99", b="--ema 0.9", step=2),
    Plant("loss reduction", "forward", ("nll_loss",), b="--reduction sum"),
    Plant("autocast", "forward", ("Net.first",), b="--autocast bf16"),
    Plant("dropout rate", "forward", ("bernoulli_", "Net.drop"), b="--dropout 0.3"),
    Plant("epsilon of a norm", "forward", ("native_layer_norm", "Net.norm"), b="--norm-eps 1e-4"),
    Plant("another activation", "forward", ("relu", "gelu"), b="--activation gelu"),
    Plant("clipping", "gradient", ("clip",), a="--clip 0.1", b="--clip 0.2"),
    Plant("control: the same run twice", ""),
    Plant("control: more logging", "", b="--log 1"),
    Plant("control: foreach and loop", "", a="--implementation loop", b="--implementation foreach"),
)  # fmt: skip


def prepare(folder: Path) -> None:
    """Write the program and its data."""
    (folder / "program.py").write_text(PROGRAM)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 20)).astype(np.float32), rng.integers(0, 4, 64)
    np.savez(folder / "data.npz", x=x, y=y)
    x[30, 4] += 0.5
    np.savez(folder / "edited.npz", x=x, y=y)


def jobs_of(plant: Plant, folder: Path) -> list[Job]:
    """The two runs of a plant."""
    jobs = []
    for side, words, special in (("a", plant.a, plant.a_job), ("b", plant.b, plant.b_job)):
        chosen: dict[str, Any] = {"seed": 0, "hash_seed": "0", "threads": 1, "steps": 6, **special}
        jobs.append(
            Job(
                folder=str(folder / plant.name.replace(" ", "-").replace(":", "") / side),
                script=str(folder / "program.py"),
                arguments=tuple(f"{plant.both} {words}".split()),
                cwd=str(folder),
                **chosen,
            )
        )
    return jobs


def judge(plant: Plant, finding: Finding) -> str:
    """What is wrong with a finding; empty when it is right."""
    if not plant.cause:
        return "" if finding.equal else "equal runs were called different"
    if finding.equal:
        return "no difference was seen"
    if finding.cause != plant.cause:
        return f"the cause was called {finding.cause}"
    if plant.step is not None and finding.step != plant.step:
        return f"the first step was called {finding.step}, not {plant.step}"
    text = finding.text()
    missing = [word for word in plant.words if word not in text]
    return f"the finding does not mention {missing}" if missing else ""


def run(plants: tuple[Plant, ...], folder: Path, verbose: bool = False) -> list[tuple[Plant, Finding, str]]:
    """Record and compare plants."""
    prepare(folder)
    results = []
    with Launcher() as launcher:
        for plant in plants:
            jobs = jobs_of(plant, folder)
            for ended in launcher.run(jobs):
                if ended.error:
                    raise SystemExit(f"{plant.name}: the program failed: {ended.error} {ended.line}")
            finding = find_difference(jobs[0].folder, jobs[1].folder, launcher=launcher)
            wrong = judge(plant, finding)
            results.append((plant, finding, wrong))
            print(
                f"{'MISS' if wrong else 'ok  '} {plant.name:35} {plant.cause or 'equal':15} {wrong}",
                flush=True,
            )
            if verbose or wrong:
                print("     " + finding.text().replace("\n", "\n     "), flush=True)
    return results


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    plants = PLANTS[::3] if options.quick else PLANTS
    if options.only:
        plants = tuple(plant for plant in PLANTS if options.only in plant.name)
    folder = Path(tempfile.mkdtemp(prefix="akeso-planted-"))
    try:
        results = run(plants, folder, options.verbose)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    planted = [(plant, wrong) for plant, _, wrong in results if plant.cause]
    controls = [(plant, wrong) for plant, _, wrong in results if not plant.cause]
    found = sum(not wrong for _, wrong in planted)
    quiet = sum(not wrong for _, wrong in controls)
    wanted = len(planted) if options.quick or options.only else WANTED
    print(f"\nplanted causes found: {found} of {len(planted)} (wanted: all, and at least {wanted} planted)")
    print(f"equal runs called equal: {quiet} of {len(controls)} (wanted: all)")
    ok = found == len(planted) >= wanted and quiet == len(controls)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
