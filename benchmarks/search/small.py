"""``python -m benchmarks.search.small``: real searches with Optuna's own samplers on two cores, with and without akeso.

A recorded pool ends where its trials end; these searches draw from a space without end. Networks for handwritten digits
are searched over with random search, TPE and a Gaussian process. Both searches of a repeat may train for the same
number of epochs. What a trial that was ended would have come to is found out by training it to its end afterwards.

    python -m benchmarks.search.small --quick     a few minutes
    python -m benchmarks.search.small             eight repeats of each sampler; goes on where it stopped
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from akeso.search import memory
from akeso.search.measures import Result, time_saved, top_hit_ratio
from akeso.search.simulation import Ended
from akeso.search.tally import goal_among, is_wrong
from akeso.search.verdict import CONTINUE, Verdict
from benchmarks.search.evaluation import Line, Repeat, average
from benchmarks.search.live import made_pruner, made_sampler, objective
from benchmarks.search.space import Choice, Number, Space
from benchmarks.search.tasks import Size, Task, Training, as_it_is, right

SIZE = Size(epochs=15)
_SPACE: Space = {
    "lr": Number(1e-4, 1.0, log=True),
    "width": Number(4, 97, whole=True),
    "depth": Number(1, 6, whole=True),
    "act": Choice(("ReLU", "Tanh", "Sigmoid")),
    "optimizer": Choice(("SGD", "Adam", "RMSprop")),
    "batch": Choice((16, 64, 256)),
    "dropout": Number(0.0, 0.8),
}
WANTED = {"TSBA": 0.45, "Top10HR": 0.75, "false stops": 0.02}


@lru_cache(maxsize=1)
def _digits(size: Size, device: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = torch.tensor(digits.data / 16 - 0.3, dtype=torch.float32)
    y = torch.tensor(digits.target, dtype=torch.long)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, check = order[:600], order[600:1200]
    return (x[train], y[train]), (x[check], y[check])


def _network(params: dict[str, Any]) -> nn.Module:
    layers: list[nn.Module] = []
    units = 64
    for _ in range(params["depth"]):
        layers += [
            nn.Linear(units, params["width"]),
            getattr(nn, params["act"])(),
            nn.Dropout(params["dropout"]),
        ]
        units = params["width"]
    return nn.Sequential(*layers, nn.Linear(units, 10))


def _optimizer(model: nn.Module, params: dict[str, Any]) -> tuple[torch.optim.Optimizer, Any]:
    optimizer = getattr(torch.optim, params["optimizer"])(model.parameters(), lr=params["lr"])
    return optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)


DIGITS = Task("Digits", True, _SPACE, _digits, _network, _optimizer, F.cross_entropy, right, as_it_is)


def search(sampler: str, rule: str, seed: int, trials: int) -> list[Ended]:
    """The trials of one search, with the epochs that were spent until each had ended."""
    import optuna

    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        direction="maximize", sampler=made_sampler(sampler, seed), pruner=made_pruner(rule, SIZE.epochs)
    )
    ended: list[Ended] = []
    spent = 0.0
    while spent < trials * SIZE.epochs:
        study.optimize(partial(objective, DIGITS, rule, SIZE, "cpu"), n_trials=1)
        trial = study.trials[-1]
        about = trial.user_attrs.get(memory.TRIAL, {})
        verdict, reports = CONTINUE, len(trial.intermediate_values)
        if about.get("indicator"):
            action = "stop" if trial.state.name == "PRUNED" else "finish"
            verdict = Verdict(action, about["indicator"], epoch=reports - 1)
            # One that was ended within an epoch is charged for the whole of it.
            reports += action == "stop" and about["indicator"] != "forecast"
        spent += reports
        value = trial.value if trial.state.name == "COMPLETE" and trial.value is not None else float("nan")
        would = to_its_end(trial.params, trial.number) if verdict else value
        ended.append(Ended(trial.number, spent, reports, reports, verdict, value, would))
    return ended


def to_its_end(params: dict[str, Any], number: int) -> float:
    """What a trial of a search comes to when nobody ends it."""
    training = Training(DIGITS, params, SIZE, "cpu", seed=number)
    values = []
    for _ in range(SIZE.epochs):
        training.epoch()
        values.append(training.value())
    return max(values)


def repeat(trials: int, sampler: str, seed: int) -> Repeat:
    """One repeat of one sampler: akeso against nothing, for as many epochs as so many whole trials take."""
    plain, ours = search(sampler, "none", seed, trials), search(sampler, "akeso", seed, trials)
    method = [Result(e.seconds, e.value) for e in ours]
    baseline = [Result(e.seconds, e.value) for e in plain]
    goal = goal_among([e.would for e in ours], maximize=True)
    wrong = [e for e in ours if is_wrong(e, goal, True)]
    return Repeat(
        top_hit_ratio(method, baseline, maximize=True),
        1.0,
        time_saved(method, baseline, maximize=True, horizon=float(trials * SIZE.epochs)),
        len(ours),
        len(plain),
        sum(not e.verdict for e in ours),
        len(ours),
        len(wrong),
        sum(e.verdict.action == "stop" for e in wrong),
    )


def _known(file: Path) -> dict[tuple[str, int, int], Repeat]:
    known = {}
    if file.exists():
        for line in file.read_text().splitlines():
            row = json.loads(line)
            pair = row["repeat"].pop("times")
            times = None if pair is None else (float(pair[0]), float(pair[1]))
            known[row["sampler"], row["seed"], row["trials"]] = Repeat(times=times, **row["repeat"])
    return known


def main() -> int:
    """Run what is missing, print the table; 1 when a figure falls short."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search.small", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="two repeats of shorter searches")
    parser.add_argument("--repeats", type=int, default=None)
    parser.add_argument("--trials", type=int, default=None, help="whole trials that the budget is worth")
    parser.add_argument("--samplers", default="random,tpe,gp", help="comma separated")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None, help="folder of what is known (runs/search-small)")
    given = parser.parse_args()
    repeats = given.repeats or (2 if given.quick else 8)
    trials = given.trials or (16 if given.quick else 40)
    samplers = given.samplers.split(",")
    for sampler in samplers:
        made_sampler(sampler, 0)
    with tempfile.TemporaryDirectory() as empty:
        folder = given.out or (Path(empty) if given.quick else Path("runs/search-small"))
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "repeats.jsonl"
        known = _known(file)
        wanted = [(s, seed, trials) for seed in range(repeats) for s in samplers]
        missing = [key for key in wanted if key not in known]
        with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
            done = pool.map(partial(repeat, trials), [key[0] for key in missing], [key[1] for key in missing])
            for key, result in zip(missing, done, strict=True):
                known[key] = result
                with file.open("a") as out:
                    row = {"sampler": key[0], "seed": key[1], "trials": trials, "repeat": asdict(result)}
                    out.write(json.dumps(row) + "\n")
    lines = [
        Line("Digits", sampler, "akeso", tuple(known[sampler, seed, trials] for seed in range(repeats)))
        for sampler in samplers
    ]
    return _verdict(lines, repeats, trials)


def _verdict(lines: list[Line], repeats: int, trials: int) -> int:
    print(f"trained for real: {repeats} repeats, {trials * SIZE.epochs} epochs for each search")
    print(f"{'sampler':8} {'Top10HR':22} {'TSBA':24} {'trials':>7} {'whole':>6} {'false':>6} {'stops':>6}")
    for line in lines:
        print(
            f"{line.sampler:8} {line.hit_ratio!s:22} {line.tsba!s:24} {line.more_trials:6.2f}x {line.whole:6.1f} "
            f"{line.false:6.2%} {line.false_stops:6.2%}"
        )
    saved, hits, false = average(lines, "akeso")
    checks = [
        ("TSBA", f">= {WANTED['TSBA']:.0%}", saved, saved >= WANTED["TSBA"]),
        ("Top10HR", f">= {WANTED['Top10HR']:.0%}", hits, hits >= WANTED["Top10HR"]),
        ("false stops", f"<= {WANTED['false stops']:.0%}", false, false <= WANTED["false stops"]),
    ]
    print(f"\n{'figure':12} {'wanted':>8} {'reached':>8}")
    for name, wanted, reached, held in checks:
        print(f"{name:12} {wanted:>8} {reached:8.1%}  {'' if held else 'short'}")
    return 0 if all(held for *_, held in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
