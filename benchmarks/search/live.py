"""Real searches: Optuna's own samplers with and without akeso, trained for real on a device that they share.

A recorded pool ends where its trials end: samplers that learn use up its best trials, and then draw worse ones. These
searches draw from the space itself. In a repeat the plain search trains so many trials, and every rule gets the time
that these took; it is followed for longer where it has not reached the plain search's best by then. The clock of a
search is the time of its trials. Both begin with the same random numbers and run side by side, so that they share the
device with as many others.

Every search is a journal of Optuna in one folder. What is missing there is done, so that it can be spread over several
days; a trial that the end of the time cuts short is not counted.
"""

from __future__ import annotations

import math
import multiprocessing
import queue
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from akeso.search import attributes
from akeso.search.measures import Result, time_of_best, time_saved, time_to_reach, top_hit_ratio
from akeso.search.simulation import Ended
from akeso.search.verdict import CONTINUE, Action, Verdict
from benchmarks.search.configurations import made_sampler
from benchmarks.search.evaluation import WANTED
from benchmarks.search.pool import OutOfTime, start_mps
from benchmarks.search.repeats import HORIZON, Line, Repeat, Searches, average
from benchmarks.search.small_tasks import SMALL
from benchmarks.search.space import suggest
from benchmarks.search.tasks import TASKS, Size, Task, Training

#: Rules that can be run for real; the first is the plain search.
LIVE = ("none", "median", "asha", "hyperband", "bttackler", "akeso")
#: What marks a trial that the end of the time cut short.
_CUT = "benchmark:cut"


@dataclass(frozen=True, slots=True)
class Search:
    """One search: what it is over, how, and which repeat."""

    task: str
    sampler: str
    rule: str
    seed: int

    def file(self, folder: Path) -> Path:
        """Where its trials are kept."""
        return folder / f"{self.task}-{self.sampler}-{self.rule}-{self.seed}.log"

    @property
    def plain(self) -> Search:
        """The search that it is compared with."""
        return Search(self.task, self.sampler, LIVE[0], self.seed)


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


def objective(
    task: Task, rule: str, size: Size, device: str, trial: Any, *, until: float = math.inf
) -> float:
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
                _in_time(trial, until)
                health.report(training.value())
        return float(health.value)
    values = []
    for epoch in range(size.epochs):
        training.epoch()
        _in_time(trial, until)
        values.append(training.value())
        trial.report(values[-1], epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return max(values) if task.maximize else min(values)


def _in_time(trial: Any, until: float) -> None:
    if time.time() > until:
        trial.set_user_attr(_CUT, True)
        raise OutOfTime


def opened(search: Search, folder: Path, task: Task, size: Size) -> Any:
    """The study of a search, which goes on with other random numbers than it began with."""
    import optuna

    backend = optuna.storages.journal.JournalFileBackend(str(search.file(folder)))
    study = optuna.create_study(
        study_name="search",
        storage=optuna.storages.JournalStorage(backend),
        direction="maximize" if task.maximize else "minimize",
        pruner=made_pruner(search.rule, size.epochs),
        load_if_exists=True,
    )
    study.sampler = made_sampler(search.sampler, 1000 * search.seed + len(study.get_trials(deepcopy=False)))
    return study


def verdict_of(trial: Any) -> Verdict:
    """How akeso, if it was that, ended a trial."""
    indicator = trial.user_attrs.get(attributes.TRIAL, {}).get("indicator")
    if not indicator:
        return CONTINUE
    action: Action = "stop" if trial.state.name == "PRUNED" else "finish"
    return Verdict(action, indicator, epoch=len(trial.intermediate_values) - 1)


def ended_in(study: Any) -> list[Ended]:
    """The trials of a search, with the seconds that had gone by on its clock when each had ended."""
    ended: list[Ended] = []
    clock = 0.0
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name not in ("COMPLETE", "PRUNED", "FAIL") or trial.user_attrs.get(_CUT):
            continue
        spent = trial.duration.total_seconds()
        clock += spent
        value = trial.value if trial.state.name == "COMPLETE" and trial.value is not None else math.nan
        reports = len(trial.intermediate_values)
        ended.append(Ended(trial.number, clock, spent, reports, verdict_of(trial), value, math.nan))
    return ended


def _results(ended: Sequence[Ended]) -> list[Result]:
    return [Result(e.seconds, e.value) for e in ended if math.isfinite(e.value)]


def is_over(mine: Sequence[Ended], plain: Sequence[Ended], trials: int, *, maximize: bool) -> bool:
    """Whether a search with a rule has had its time: that of the plain search, or twice that to reach its best."""
    if len(plain) < trials or not mine:
        return False
    budget, clock = plain[trials - 1].seconds, mine[-1].seconds
    if clock < budget:
        return False
    best = time_of_best(_results(plain[:trials]), maximize=maximize)
    reached = best is None or time_to_reach(_results(mine), best[1], maximize=maximize) is not None
    return reached or clock >= HORIZON * budget


def compared(mine: Sequence[Ended], plain: Sequence[Ended], trials: int, *, maximize: bool) -> Repeat:
    """One repeat as figures; what ended trials would have come to is not known."""
    budget = plain[trials - 1].seconds
    theirs, within = _results(plain[:trials]), [e for e in mine if e.seconds <= budget]
    return Repeat(
        top_hit_ratio(_results(within), theirs, maximize=maximize),
        1.0,
        time_saved(_results(mine), theirs, maximize=maximize, horizon=HORIZON * budget),
        len(within),
        trials,
        sum(not e.verdict and math.isfinite(e.value) for e in within),
        0,
        0,
        0,
        # Every repeat has a budget of its own: times are shares of it.
        Searches(_hurried(_results(mine), budget), _hurried(theirs, budget), 1.0, maximize),
    )


def _hurried(results: Sequence[Result], factor: float) -> tuple[Result, ...]:
    return tuple(Result(one.seconds / factor, one.value) for one in results)


#: How much of each task is trained on; tasks go by name, for they have parts that cannot be sent to a process.
Sizes = Mapping[str, Size]


def task_of(name: str) -> Task:
    """The task of that name."""
    return TASKS[name] if name in TASKS else SMALL[name][0]


def go_on(search: Search, sizes: Sizes, folder: Path, device: str, trials: int, until: float) -> None:
    """Train trials of a search until it is over, or the time is."""
    import torch

    task, size = task_of(search.task), sizes[search.task]
    task.data(size, device)  # loaded before the clock runs
    study = opened(search, folder, task, size)
    base = opened(search.plain, folder, task, size) if search != search.plain else None
    one = partial(objective, task, search.rule, size, device, until=until)
    while time.time() < until:
        mine = ended_in(study)
        if base is None and len(mine) >= trials:
            return
        if base is not None and is_over(mine, ended_in(base), trials, maximize=task.maximize):
            return
        study.optimize(one, n_trials=1, catch=(Exception,))
        if device.startswith("cuda"):
            torch.cuda.empty_cache()  # others on the card may need it


def work(sizes: Sizes, folder: Path, device: str, trials: int, until: float, waiting: Any) -> None:
    """One process: takes searches that wait until there are none."""
    import optuna
    import torch

    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # a trial that fails is told of, with its traceback
    while time.time() < until:
        try:
            search = waiting.get(timeout=1.0)
        except queue.Empty:
            return
        go_on(search, sizes, folder, device, trials, until)


def run_live(
    sizes: Sizes,
    folder: Path,
    device: str,
    *,
    minutes: float,
    jobs: int,
    samplers: Sequence[str],
    rules: Sequence[str],
    repeats: int,
    trials: int,
) -> int:
    """Go on with all searches for so many minutes, then print what has come of them; 1 when a figure falls short."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for sampler in samplers:
        made_sampler(sampler, 0)
    chosen = [rule for rule in LIVE[1:] if rule in rules]
    if not chosen:
        raise SystemExit(
            f"live searches compare {', '.join(LIVE[1:])}, but --rules names {','.join(rules)!r}"
        )
    if minutes > 0:
        wanted = [
            Search(task, sampler, rule, seed)
            for seed, task, sampler in product(range(repeats), sizes, samplers)
            for rule in (LIVE[0], *chosen)
        ]
        _train(wanted, sizes, folder, device, trials, until=time.time() + 60 * minutes, jobs=jobs)
    return verdict(lines_in(folder, sizes, samplers, chosen, repeats, trials), trials)


def _train(
    searches: Sequence[Search],
    sizes: Sizes,
    folder: Path,
    device: str,
    trials: int,
    *,
    until: float,
    jobs: int,
) -> None:
    """Go on with the searches in several processes until they are over, or the time is."""
    folder.mkdir(parents=True, exist_ok=True)
    with_service = device.startswith("cuda") and start_mps()
    context = multiprocessing.get_context("spawn")
    waiting = context.Queue()
    for search in searches:
        waiting.put(search)
    arguments = (sizes, folder, device, trials, until, waiting)
    workers = [context.Process(target=work, args=arguments) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if with_service:
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=False)
    waiting.cancel_join_thread()


def lines_in(
    folder: Path, sizes: Sizes, samplers: Sequence[str], rules: Sequence[str], repeats: int, trials: int
) -> list[Line]:
    """The repeats that are over, by task, sampler and rule."""
    lines = []
    for name, sampler, rule in product(sizes, samplers, rules):
        task, size = task_of(name), sizes[name]
        done = []
        for search in (Search(name, sampler, rule, seed) for seed in range(repeats)):
            if not (search.file(folder).exists() and search.plain.file(folder).exists()):
                continue
            mine, plain = (ended_in(opened(one, folder, task, size)) for one in (search, search.plain))
            if is_over(mine, plain, trials, maximize=task.maximize):
                done.append(compared(mine, plain, trials, maximize=task.maximize))
        if done:
            lines.append(Line(name, sampler, rule, tuple(done)))
    return lines


def verdict(lines: list[Line], trials: int) -> int:
    """The table, and the wanted figures beside those reached."""
    if not lines:
        print("no repeat is over yet: go on with the same command")
        return 1
    print(f"trained for real: as much time for each search as {trials} trials of the plain one took")
    print(
        f"{'task':12} {'sampler':8} {'rule':10} {'repeats':>7} {'Top10HR':22} {'TSBA':24} {'of single pairs':24} "
        f"{'trials':>7} {'whole':>6}"
    )
    for line in lines:
        print(
            f"{line.task:12} {line.sampler:8} {line.rule:10} {len(line.repeats):7} {line.hit_ratio!s:22} "
            f"{line.averaged!s:24} {line.tsba!s:24} {line.more_trials:6.2f}x {line.whole:6.1f}"
        )
    held = True
    for rule in dict.fromkeys(line.rule for line in lines):
        mine = [line for line in lines if line.rule == rule]
        for sampler in dict.fromkeys(line.sampler for line in mine):
            theirs = average([line for line in mine if line.sampler == sampler], rule)
            print(f"{'all':12} {sampler:8} {rule:10} {theirs}")
        everything = average(mine, rule)
        print(f"{'all':12} {'all':8} {rule:10} {everything}")
        if rule == "akeso":
            held = everything.saved.mean >= WANTED["TSBA"] and everything.hit_ratio.mean >= WANTED["Top10HR"]
    print(f"wanted of akeso: Top10HR {WANTED['Top10HR']:.0%}, TSBA {WANTED['TSBA']:.0%}")
    return 0 if held else 1
