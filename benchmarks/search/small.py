"""``python -m benchmarks.search.small``: real searches with Optuna's own samplers on two cores, with and without akeso.

A recorded pool ends where its trials end; these searches draw from a space without end. Six small tasks
(:mod:`benchmarks.search.small_tasks`) are searched over with random search, TPE and a Gaussian process. Both searches
of a repeat may train for the same number of epochs. What a trial that was ended would have come to is found out by
training it to its end afterwards.

    python -m benchmarks.search.small --quick     a few minutes
    python -m benchmarks.search.small --record runs/small --minutes 30    a pool for benchmarks.search instead
    python -m benchmarks.search.small             four repeats of everything, hours; goes on where it stopped
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from akeso.search.measures import Result, time_saved, top_hit_ratio
from akeso.search.recorded import StudyRecorder, load
from akeso.search.simulation import Ended
from akeso.search.tally import goal_among, is_wrong
from benchmarks.search.configurations import Drawn, made_sampler
from benchmarks.search.evaluation import WANTED
from benchmarks.search.live import made_pruner, objective, verdict_of
from benchmarks.search.pool import record_trial
from benchmarks.search.repeats import Line, Repeat, Searches, average, repeat_of
from benchmarks.search.small_tasks import SMALL
from benchmarks.search.tasks import Training


def search(name: str, sampler: str, rule: str, seed: int, trials: int) -> list[Ended]:
    """The trials of one search, with the epochs that were spent until each had ended."""
    import optuna

    task, size = SMALL[name]

    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        direction="maximize" if task.maximize else "minimize",
        sampler=made_sampler(sampler, seed),
        pruner=made_pruner(rule, size.epochs),
    )
    ended: list[Ended] = []
    spent = 0.0
    while spent < trials * size.epochs:
        study.optimize(partial(objective, task, rule, size, "cpu"), n_trials=1)
        trial = study.trials[-1]
        verdict, reports = verdict_of(trial), len(trial.intermediate_values)
        # One that was ended within an epoch is charged for the whole of it.
        reports += verdict.action == "stop" and verdict.indicator != "forecast"
        spent += reports
        value = trial.value if trial.state.name == "COMPLETE" and trial.value is not None else float("nan")
        would = to_its_end(name, trial.params, trial.number) if verdict else value
        ended.append(Ended(trial.number, spent, reports, reports, verdict, value, would))
    return ended


def to_its_end(name: str, params: dict[str, Any], number: int) -> float:
    """What a trial of a search comes to when nobody ends it."""
    task, size = SMALL[name]
    training = Training(task, params, size, "cpu", seed=number)
    values = []
    for _ in range(size.epochs):
        training.epoch()
        values.append(training.value())
    finite = [value for value in values if math.isfinite(value)]
    return (max if task.maximize else min)(finite, default=math.nan)


def repeat(trials: int, name: str, sampler: str, seed: int) -> Repeat:
    """One repeat of one sampler: akeso against nothing, for as many epochs as so many whole trials take."""
    task, size = SMALL[name]
    plain, ours = search(name, sampler, "none", seed, trials), search(name, sampler, "akeso", seed, trials)
    method = [Result(e.seconds, e.value) for e in ours]
    baseline = [Result(e.seconds, e.value) for e in plain]
    goal = goal_among([e.would for e in ours], maximize=task.maximize)
    wrong = [e for e in ours if is_wrong(e, goal, task.maximize)]
    budget = float(trials * size.epochs)
    return Repeat(
        top_hit_ratio(method, baseline, maximize=task.maximize),
        1.0,
        time_saved(method, baseline, maximize=task.maximize, horizon=budget),
        len(ours),
        len(plain),
        sum(not e.verdict for e in ours),
        len(ours),
        len(wrong),
        sum(e.verdict.action == "stop" for e in wrong),
        Searches(tuple(method), tuple(baseline), budget, task.maximize),
    )


def record(folder: Path, minutes: float, jobs: int, first: int) -> None:
    """Record random trials of all tasks, nothing stopped, from the trial with this number on."""
    context = multiprocessing.get_context("spawn")
    until = time.time() + 60 * minutes
    workers = [context.Process(target=_record, args=(folder, until, first + at, jobs)) for at in range(jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for name in SMALL:
        print(f"{name}: {len(load(folder / name).trials)} trials in the pool")


def _record(folder: Path, until: float, first: int, step: int) -> None:
    """One worker: trials ``first``, ``first + step``, ... of every task that are not there yet."""
    torch.set_num_threads(1)
    recorders = {
        name: StudyRecorder(
            folder / name, name=name, maximize=task.maximize, epochs=size.epochs, value_of="best"
        )
        for name, (task, size) in SMALL.items()
    }
    done = {(name, trial.number) for name in SMALL for trial in load(folder / name).trials}
    number = first
    while time.time() < until:
        for name, (task, size) in SMALL.items():
            if (name, number) not in done:
                params = Drawn(task.space, name).configuration(number)
                record_trial(task, number, params, size, "cpu", recorders[name], math.inf, keep=False)
        number += step


def _known(file: Path) -> dict[tuple[str, str, int, int], Repeat]:
    known = {}
    if file.exists():
        for line in file.read_text().splitlines():
            row = json.loads(line)
            known[row["task"], row["sampler"], row["seed"], row["trials"]] = repeat_of(row["repeat"])
    return known


def main() -> int:
    """Run what is missing, print the table; 1 when a figure falls short."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search.small", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="two repeats of shorter searches for one task")
    parser.add_argument("--repeats", type=int, default=None)
    parser.add_argument("--trials", type=int, default=None, help="whole trials that the budget is worth")
    parser.add_argument("--tasks", default=None, help=f"comma separated, of {', '.join(SMALL)}")
    parser.add_argument("--samplers", default="random,tpe,gp", help="comma separated")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None, help="folder of what is known (runs/search-small)")
    parser.add_argument("--record", type=Path, help="record random trials into this folder instead")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to record")
    parser.add_argument("--first", type=int, default=0, help="number of the first recorded trial")
    given = parser.parse_args()
    if given.record is not None:
        record(given.record, given.minutes, given.jobs, given.first)
        return 0
    repeats = given.repeats or (2 if given.quick else 4)
    trials = given.trials or (16 if given.quick else 40)
    samplers = given.samplers.split(",")
    for sampler in samplers:
        made_sampler(sampler, 0)
    tasks = given.tasks.split(",") if given.tasks else ["Digits"] if given.quick else list(SMALL)
    for name in tasks:
        if name not in SMALL:
            raise SystemExit(f"small searches are for {', '.join(SMALL)}, but --tasks names {name!r}")
    with tempfile.TemporaryDirectory() as empty:
        folder = given.out or (Path(empty) if given.quick else Path("runs/search-small"))
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "repeats.jsonl"
        known = _known(file)
        wanted = [(task, s, seed, trials) for seed in range(repeats) for s in samplers for task in tasks]
        missing = [key for key in wanted if key not in known]
        with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
            done = pool.map(partial(repeat, trials), *([key[at] for key in missing] for at in range(3)))
            for key, result in zip(missing, done, strict=True):
                known[key] = result
                with file.open("a") as out:
                    row = dict(zip(("task", "sampler", "seed", "trials"), key, strict=True))
                    row["repeat"] = asdict(result)
                    out.write(json.dumps(row) + "\n")
    lines = [
        Line(task, sampler, "akeso", tuple(known[task, sampler, seed, trials] for seed in range(repeats)))
        for task in tasks
        for sampler in samplers
    ]
    return _verdict(lines, repeats, trials)


def _verdict(lines: list[Line], repeats: int, trials: int) -> int:
    print(f"trained for real: {repeats} repeats, as many epochs for each search as {trials} trials take")
    print(
        f"{'task':10} {'sampler':8} {'Top10HR':22} {'TSBA':24} {'of single pairs':24} {'trials':>7} {'whole':>6} "
        f"{'false':>6} {'stops':>6}"
    )
    for line in lines:
        print(
            f"{line.task:10} {line.sampler:8} {line.hit_ratio!s:22} {line.averaged!s:24} {line.tsba!s:24} "
            f"{line.more_trials:6.2f}x {line.whole:6.1f} {line.false:6.2%} {line.false_stops:6.2%}"
        )
    for sampler in dict.fromkeys(line.sampler for line in lines):
        print(f"{'all':10} {sampler:8} {average([one for one in lines if one.sampler == sampler], 'akeso')}")
    mine = average(lines, "akeso")
    print(f"{'all':10} {'all':8} {mine}")
    saved, hits, false = mine.saved.mean, mine.hit_ratio.mean, mine.false
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
