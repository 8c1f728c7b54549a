"""Real searches as a check of the simulated ones: the same sampler with and without akeso, trained for real.

Several processes share the device and one journal storage. Both searches get the same wall-clock time.
"""

from __future__ import annotations

import multiprocessing
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from akeso.search.measures import Result, time_saved, top_hit_ratio, tsba
from benchmarks.search.space import suggest
from benchmarks.search.tasks import TASKS, Size, Task, Training


def _storage(path: str) -> Any:
    import optuna

    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(path))


def made_pruner(rule: str, epochs: int) -> Any:
    import optuna

    from akeso.search import DiagnosisPruner

    return {
        "none": lambda: optuna.pruners.NopPruner(),
        "median": lambda: optuna.pruners.MedianPruner(),
        "asha": lambda: optuna.pruners.SuccessiveHalvingPruner(),
        "hyperband": lambda: optuna.pruners.HyperbandPruner(max_resource=epochs),
        "akeso": lambda: DiagnosisPruner(value="best"),
        "bttackler": lambda: DiagnosisPruner(profile="bttackler", value="best"),
    }[rule]()


def made_sampler(name: str, seed: int) -> Any:
    """Optuna's own; workers of one study do not all suggest the same."""
    import optuna

    made = {
        "random": lambda: optuna.samplers.RandomSampler(seed=seed),
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed, constant_liar=True),
        "gp": lambda: optuna.samplers.GPSampler(seed=seed),
    }
    if name not in made:
        raise SystemExit(f"live searches sample with {', '.join(made)}, but --samplers names {name!r}")
    return made[name]()


def objective(task: Task, rule: str, size: Size, device: str, trial: Any) -> float:
    """One trial, as a user would write it: under a watch where the rule is one of akeso's profiles."""
    import optuna

    import akeso

    training = Training(task, suggest(task.space, trial), size, device, seed=trial.number)
    if rule in ("akeso", "bttackler"):
        steps = training.per_epoch * size.epochs
        with akeso.search.watch(
            trial, training.model, training.optimizer, epochs=size.epochs, planned_steps=steps
        ) as health:
            for _ in range(size.epochs):
                training.epoch()
                health.report(training.value())
        return float(health.value)
    values = []
    for epoch in range(size.epochs):
        training.epoch()
        values.append(training.value())
        trial.report(values[-1], epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return max(values) if task.maximize else min(values)


def work(
    task_name: str, sampler: str, rule: str, path: str, size: Size, device: str, seed: int, until: float
) -> None:
    """One worker of one live study."""
    import optuna
    import torch

    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    task = TASKS[task_name]
    study = optuna.load_study(
        study_name=rule,
        storage=_storage(path),
        sampler=made_sampler(sampler, seed),
        pruner=made_pruner(rule, size.epochs),
    )

    one = partial(objective, task, rule, size, device)
    study.optimize(one, timeout=max(1.0, until - time.time()), catch=(Exception,))


def run_live(
    tasks: list[str],
    folder: Path,
    size: Size,
    device: str,
    *,
    minutes: float,
    jobs: int,
    samplers: list[str],
    rules: list[str],
) -> int:
    """Run ``none`` and each rule for so many minutes on each task with each sampler; print what came of them."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for sampler in samplers:
        made_sampler(sampler, 0)

    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    known = [
        rule
        for rule in ("none", "median", "asha", "hyperband", "bttackler", "akeso")
        if rule in {"none", *rules}
    ]
    print(f"live: trained for real, {minutes} minutes each, {jobs} processes on {device}")
    for task_name, sampler in product(tasks, samplers):
        maximize = TASKS[task_name].maximize
        found: dict[str, list[Result]] = {}
        without = 0
        for rule in known:
            path = str(folder / f"live-{task_name}-{sampler}-{rule}-{int(time.time())}.log")
            study = optuna.create_study(
                study_name=rule, storage=_storage(path), direction="maximize" if maximize else "minimize"
            )
            begun = time.time()
            arguments = [
                (task_name, sampler, rule, path, size, device, seed, begun + 60 * minutes)
                for seed in range(jobs)
            ]
            workers = [context.Process(target=work, args=argument) for argument in arguments]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join(max(1.0, begun + 60 * minutes - time.time()))
                if worker.is_alive():
                    worker.terminate()
                    worker.join(10)
            trials = study.get_trials(deepcopy=False)
            found[rule] = [
                Result(t.datetime_complete.timestamp() - begun, float(t.values[0]))
                for t in trials
                if t.state.name == "COMPLETE" and t.datetime_complete is not None and t.values
            ]
            states = {
                name: sum(t.state.name == name for t in trials) for name in ("COMPLETE", "PRUNED", "FAIL")
            }
            ended = sum(states.values())
            best = (max if maximize else min)((r.value for r in found[rule]), default=float("nan"))
            line = f"{task_name:12} {sampler:7} {rule:10} {states} best {best:.4f}"
            if rule == "none":
                without = ended
            else:
                pair = time_saved(found[rule], found["none"], maximize=maximize, horizon=60 * minutes)
                hits = top_hit_ratio(found[rule], found["none"], maximize=maximize)
                line += f"  Top10HR {hits:.1%}  TSBA {tsba([pair]) if pair else float('nan'):.1%}"
                line += f"  trials {ended / max(1, without):.2f}x"
            print(line, flush=True)
    return 0
