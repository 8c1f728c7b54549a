"""``python -m benchmarks.search``: record pools of trials, then compare samplers and stopping rules on them.

    python -m benchmarks.search --quick                                   two CPU cores, a few minutes
    python -m benchmarks.search --device cuda --minutes 8 --jobs 14       record on a card; compare afterwards
    python -m benchmarks.search --only overhead                           what watching adds to a trial, measured
    python -m benchmarks.search --only evaluate --pool FOLDER [FOLDER]    compare on pools that are there
    python -m benchmarks.search --only record --suggested --pool NEW OLD  what TPE and GP suggest after random trials
    python -m benchmarks.search --only live --rules akeso --pool FOLDER   search for real; goes on where it stopped
    python -m benchmarks.search --only evaluate --pool benchmarks/search/pools/swift.tar.gz --share 0.1

The pools kept beside this file were recorded on an H200 with most steps replayed from CUDA graphs: those called
``card`` with ``--size card --stepped 8``, those called ``swift`` with a third of the data (``--size swift``).
``small`` holds six other tasks (``python -m benchmarks.search.small --record``).

Recording goes on where it stopped. Pools of different trials (``--first``) are compared as one. Every figure of
the comparison is simulated from recorded trials and their wall-clock times; ``--only live`` trains for real.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from akeso.search.recorded import RecordedTrial, load
from benchmarks.search import evaluation, overhead
from benchmarks.search.configurations import BEGINNING
from benchmarks.search.evaluation import LOOSER, RULES, SHARE, WANTED, YARDSTICKS, evaluate
from benchmarks.search.kept import Kept
from benchmarks.search.pool import EACH, SUGGESTED, pack, record, unpacked
from benchmarks.search.repeats import Line, average
from benchmarks.search.samplers import SAMPLERS
from benchmarks.search.small_tasks import SMALL
from benchmarks.search.space import Space
from benchmarks.search.tasks import CARD, FULL, QUICK, SWIFT, TASKS

#: Pools of fewer whole trials are not compared.
FEWEST = 20
#: What is searched over in every task that a pool may hold.
SPACES: dict[str, Space] = {
    **{name: task.space for name, task in TASKS.items()},
    **{name: task.space for name, (task, _) in SMALL.items()},
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes for two CPU cores")
    parser.add_argument(
        "--only", choices=["record", "overhead", "evaluate", "live"], help="one part of the benchmark"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--minutes",
        type=float,
        default=None,
        help=f"time for recording (4 or 60, and until {FEWEST} trials of each task are there), or for live searches "
        "(0: show those of before)",
    )
    parser.add_argument("--jobs", type=int, default=None, help="processes that share the device")
    parser.add_argument("--size", choices=["quick", "card", "swift", "full"], default=None)
    parser.add_argument(
        "--stepped",
        type=int,
        default=None,
        help="on a card: steps of an epoch that are not replayed from a graph",
    )
    parser.add_argument(
        "--pool",
        type=Path,
        nargs="+",
        default=[Path("runs/search")],
        help="where the pools are, folders or archives; the first is written to",
    )
    parser.add_argument("--tasks", default=None, help="comma separated; all, or those that the pools hold")
    rules = [rule for rule in RULES if rule not in (*YARDSTICKS, *LOOSER)]
    parser.add_argument("--rules", default=",".join(rules), help=f"comma separated, of {', '.join(RULES)}")
    parser.add_argument(
        "--samplers",
        default=None,
        help=f"comma separated, of {', '.join(SAMPLERS)}; all, smac where it is installed",
    )
    parser.add_argument("--repeats", type=int, default=None, help="repeats of the random sampler")
    parser.add_argument("--workers", type=int, default=1, help="simulated workers")
    parser.add_argument(
        "--trials",
        type=int,
        default=None,
        help=f"trials of a plain live search: the time of all (30); or of one that is recorded ({EACH})",
    )
    parser.add_argument(
        "--share", type=float, default=SHARE, help="budget: share of the pool the plain search sees"
    )
    parser.add_argument(
        "--suggested",
        action="store_true",
        help="record what TPE and GP suggest after random trials of the pools",
    )
    parser.add_argument(
        "--deeper",
        type=int,
        nargs="?",
        const=BEGINNING,
        help=f"with --suggested: after so many of those that the pools hold of such trials, too ({BEGINNING})",
    )
    parser.add_argument("--journals", action="store_true", help="keep the journals of all trials")
    parser.add_argument(
        "--kept",
        type=Path,
        default=Path("runs/search/repeats.jsonl"),
        help="where simulated repeats are kept: a comparison goes on where it stopped",
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first trial: others than before")
    parser.add_argument("--pack", type=Path, help="also write one archive per task into this folder")
    given = parser.parse_args(argv)
    if given.samplers is None:
        there = find_spec("smac") is not None and given.only != "live"  # Optuna has no sampler of that name
        given.samplers = ",".join(name for name in SAMPLERS if name != "smac" or there)
    name = given.size or ("quick" if given.quick else "card" if given.device.startswith("cuda") else "full")
    size = {"quick": QUICK, "card": CARD, "swift": SWIFT, "full": FULL}[name]
    if given.stepped is not None:
        size = replace(size, stepped=given.stepped)
    trains = given.only != "evaluate" and not (given.only == "live" and given.minutes == 0)
    if trains and size.stepped is not None and not given.device.startswith("cuda"):
        parser.error(
            f"most steps are replayed from CUDA graphs in this size: add --device cuda, not {given.device}"
        )
    known = SPACES if given.only == "evaluate" else TASKS
    tasks = [task for task in given.tasks.split(",") if task] if given.tasks else list(known)
    unknown = [task for task in tasks if task not in known]
    if unknown:
        parser.error(f"unknown tasks {unknown}; there are {', '.join(known)}")
    strange = [rule for rule in given.rules.split(",") if rule not in RULES]
    if strange:
        parser.error(f"unknown rules {strange}; there are {', '.join(RULES)}")
    minutes = given.minutes if given.minutes is not None else (4.0 if given.quick else 60.0)
    jobs = given.jobs or (2 if given.quick else 14 if given.device.startswith("cuda") else 2)
    if given.only == "live":
        from benchmarks.search.live import run_live

        with tempfile.TemporaryDirectory() as scratch:
            return run_live(
                dict.fromkeys(tasks, size), unpacked(given.pool[0], Path(scratch)), given.device, minutes=minutes,
                jobs=jobs, samplers=given.samplers.split(","), rules=given.rules.split(","),
                repeats=given.repeats or 4, trials=given.trials or 30,
            )  # fmt: skip
    if given.only in (None, "overhead"):
        # A quarter of the time that recording takes: a ratio needs fewer trials.
        overhead.measure(
            tasks, given.pool[0], size, given.device, minutes=minutes if given.only else minutes / 4, jobs=jobs,
            first=given.first,
        )  # fmt: skip
        if given.only:
            overhead.show(overhead.read(given.pool))
            return 0
    if given.only in (None, "record"):
        record(
            tasks,
            given.pool[0],
            size,
            given.device,
            minutes=minutes,
            jobs=jobs,
            keep=given.journals,
            first=given.first,
            known=_drawn(given.pool, tasks) if given.suggested else None,
            each=given.trials or EACH,
            earlier=_held(given.pool, tasks, SUGGESTED) if given.deeper else None,
            deeper=given.deeper or 0,
            fewest=FEWEST if given.minutes is None and not given.suggested else 0,
        )
        if given.pack:
            pack(given.pool[0], tasks, given.pack)
    if given.only == "record" or (given.only is None and given.device.startswith("cuda")):
        print(f"recorded; compare with: python -m benchmarks.search --only evaluate --pool {given.pool[0]}")
        return 0
    repeats = given.repeats or (6 if given.quick else 20)
    chosen = [sampler for sampler in given.samplers.split(",") if sampler]
    if not chosen or any(sampler not in SAMPLERS for sampler in chosen):
        parser.error(f"--samplers names {given.samplers!r}; there are {', '.join(SAMPLERS)}")
    samplers = {name: repeats if name == "random" else max(2, repeats // 2) for name in chosen}
    with tempfile.TemporaryDirectory() as folder:
        pools = [unpacked(pool, Path(folder)) for pool in given.pool]
        if not given.tasks:
            tasks = [task for task in tasks if any((pool / task).is_dir() for pool in pools)]
        kept = Kept(given.kept)
        return judge(pools, tasks, samplers, given.rules.split(","), given.workers, given.share, jobs, kept)


def _held(pools: Sequence[Path], tasks: Sequence[str], kind: str = "") -> dict[str, list[RecordedTrial]]:
    """The trials of every task that pools hold, those drawn at random or of another kind."""
    found: dict[str, list[RecordedTrial]] = {task: [] for task in tasks}
    with tempfile.TemporaryDirectory() as folder:
        for pool in (unpacked(given, Path(folder)) for given in pools):
            for task in tasks:
                if (pool / kind / task).is_dir():
                    found[task] += load(pool / kind / task).trials
    return found


def _drawn(pools: Sequence[Path], tasks: Sequence[str]) -> dict[str, list[RecordedTrial]]:
    """The random trials that are known of every task."""
    found = _held(pools, tasks)
    missing = [task for task in tasks if not found[task]]
    if missing:
        raise SystemExit(
            f"--suggested begins with random trials, but there are none of {', '.join(missing)} in "
            f"{', '.join(map(str, pools))}; give a pool that has them after the one to write to"
        )
    return found


def judge(
    pools: list[Path],
    tasks: list[str],
    samplers: dict[str, int],
    rules: list[str],
    workers: int,
    share: float,
    jobs: int = 1,
    kept: Kept | None = None,
) -> int:
    """Print the comparison and the issue's figures beside those reached; 1 when one falls short."""
    print("All figures below are simulated from recorded trials with their recorded wall-clock times.")
    print(f"{'task':12} {'sampler':7} {'rule':14} {'Top10HR':22} {'at most':>7} {'TSBA':24} "
          f"{'of single pairs':24} {'trials':>7} {'whole':>6} "
          f"{'false':>6} {'stops':>6}")  # fmt: skip
    lines: list[Line] = []
    overheads: list[float] = []
    shortest = math.inf
    for task in tasks:
        holding = [pool for pool in pools if (pool / task).is_dir()] or pools
        study = evaluation.whole_trials(evaluation.merged([load(pool / task) for pool in holding]))
        if len(study.trials) < FEWEST:
            print(f"{task}: only {len(study.trials)} whole trials are recorded, {FEWEST} are needed; skipped")
            continue
        overheads += [t.overhead for t in study.trials]
        shortest = min(shortest, share * len(study.trials))
        folders = [pool / SUGGESTED / task for pool in pools]
        suggested = [trial for folder in folders if folder.is_dir() for trial in load(folder).trials]
        lines += evaluate(
            study, SPACES[task], samplers=samplers, rules=rules, workers=workers, share=share, jobs=jobs,
            suggested=suggested, say=show, kept=kept,
        )  # fmt: skip
    if not lines:
        print(f"nothing to compare: no pool holds {FEWEST} whole trials; record more of them first")
        return 1
    if shortest < FEWEST:
        print(
            f"a plain search here has {shortest:.0f} trials or a few more, too few for any rule to learn from; longer "
            "ones: --only evaluate --pool benchmarks/search/pools/swift.tar.gz --share 0.1"
        )
    pairs = overhead.read(pools)
    if pairs:
        overhead.show(pairs)
        return verdict(lines, rules, overhead.added(pairs)[0], pools[0])
    print("overhead is the watch's own account: nothing was measured beside these pools (--only overhead)")
    return verdict(lines, rules, float(np.mean(overheads)), pools[0])


def show(line: Line) -> None:
    """One row."""
    print(
        f"{line.task:12} {line.sampler:7} {line.rule:14} {line.hit_ratio!s:22} {line.ceiling:7.1%} "
        f"{line.averaged!s:24} {line.tsba!s:24} {line.more_trials:6.2f}x {line.whole:6.1f} "
        f"{line.false:6.2%} {line.false_stops:6.2%}",
        flush=True,
    )


def verdict(lines: list[Line], rules: list[str], added: float, pool: Path) -> int:
    """The averages, the wanted figures beside those reached, and the exit code."""
    print("\naverages over tasks and samplers, with 95 % intervals")
    averages = {rule: average(lines, rule) for rule in rules}
    for rule, one in averages.items():
        print(f"{rule:14} {one}")
    for sampler in dict.fromkeys(line.sampler for line in lines if "akeso" in averages):
        theirs = [line for line in lines if line.sampler == sampler]
        print(f"akeso {sampler:8} {average(theirs, 'akeso')}")
    if "akeso" not in averages:
        return 0
    mine = averages["akeso"]
    saved, hits, false = mine.saved.mean, mine.hit_ratio.mean, mine.false
    others = [averages[rule] for rule in rules if rule not in ("akeso", *LOOSER, *YARDSTICKS)]
    checks = [
        ("TSBA", f">= {WANTED['TSBA']:.0%}", f"{saved:.1%}", saved >= WANTED["TSBA"]),
        ("Top10HR", f">= {WANTED['Top10HR']:.0%}", f"{hits:.1%}", hits >= WANTED["Top10HR"]),
        ("false stops", f"<= {WANTED['false stops']:.0%}", f"{false:.2%}", false <= WANTED["false stops"]),
        ("overhead", f"<= {WANTED['overhead']:.0%}", f"{added:.2%}", added <= WANTED["overhead"]),
    ]
    if others:
        best_saved = max(o.saved.mean for o in others)
        best_hits = max(o.hit_ratio.mean for o in others)
        checks += [
            ("TSBA, best other rule", f"> {best_saved:.1%}", f"{saved:.1%}", saved > best_saved),
            ("Top10HR, best other rule", f"> {best_hits:.1%}", f"{hits:.1%}", hits > best_hits),
        ]
    print(f"\n{'figure':26} {'wanted':>10} {'reached':>10}")
    for name, wanted, reached, held in checks:
        print(f"{name:26} {wanted:>10} {reached:>10}  {'' if held else 'short'}")
    document = {
        "averages": {
            rule: {
                "tsba": one.saved.mean,
                "tsba_of_pairs": one.saved_of_pairs.mean,
                "hit_ratio": one.hit_ratio.mean,
                "trials": one.more_trials,
                "false_stops": one.false,
            }
            for rule, one in averages.items()
        },
        "overhead": added,
        "held": {name: held for name, _, _, held in checks},
    }
    (pool / "comparison.json").write_text(json.dumps(document, indent=1))
    return 0 if all(held for *_, held in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
