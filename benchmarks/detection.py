"""How well training problems are told apart from healthy trainings: ``python -m benchmarks.detection``.

Runs every case of the corpus watched from outside, judges the journals under the three profiles as they
stood at each part of the way, sets what a user would install instead beside them, and ends with the figures
to reach.
Finished journals in ``--journals`` are used again. Cases of the held-out half are counted, never named.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus import cases, held_out
from benchmarks.corpus.judging import PROFILES, Run, counted, judge
from benchmarks.corpus.recording import record, record_all
from benchmarks.corpus.rivals import NAMES, installed

_FAMILIES = {
    "gradient": ("vanishing-gradient", "exploding-gradient", "dying-relu"),
    "data": ("abnormal-data",),
    "task": ("improper-output-activation", "improper-loss"),
    "non-finite": ("non-finite",),
    "pace": ("oscillating-loss", "slow-convergence", "learning-rate-too-high", "learning-rate-too-low"),
}
_EARLY = ("gradient", "data", "task", "non-finite")


def wilson(hits: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    if not count:
        return 0.0, 1.0
    z, share = 1.96, hits / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * float(np.sqrt(share * (1 - share) / count + z * z / (4 * count * count))) / (1 + z * z / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def median_interval(values: Sequence[float], draws: int = 2000) -> tuple[float, float, float]:
    """The median with its 95 % bootstrap interval."""
    if not values:
        return float("nan"), float("nan"), float("nan")
    drawn = np.random.default_rng(0).choice(np.asarray(values), (draws, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(np.median(values)), float(low), float(high)


def _share(hits: int, count: int) -> dict[str, Any]:
    low, high = wilson(hits, count)
    return {
        "value": hits / count if count else float("nan"),
        "low": low,
        "high": high,
        "hits": hits,
        "of": count,
    }


def figures(runs: Sequence[Run], judge_name: str) -> dict[str, Any]:
    """All figures of one judge over some runs. A root that is never named counts as found at the very end."""
    judged = [run for run in runs if judge_name in run.verdicts and not run.recovered]
    sick = [run for run in judged if run.sick]
    well = [run for run in judged if not run.sick]
    said = {id(run): run.verdicts[judge_name] for run in judged}
    flagged = [run for run in sick if said[id(run)].problems]
    alarms = [run for run in well if said[id(run)].problems]
    first = [run for run in flagged if said[id(run)].problems[0] in run.names]
    named = [run for run in flagged if run.names & set(said[id(run)].problems)]
    ever = [run for run in well if said[id(run)].flagged_at is not None]
    delays = {run.case + str(run.seed): said[id(run)].named_at or 1.0 for run in sick}

    def delay(problems: Sequence[str] | None = None) -> list[float]:
        return [delays[r.case + str(r.seed)] for r in sick if problems is None or r.problem in problems]

    return {
        "sick": len(sick),
        "healthy": len(well),
        "recall": _share(len(flagged), len(sick)),
        "precision": _share(len(flagged), len(flagged) + len(alarms)),
        "root first": _share(len(first), len(sick)),
        "root named": _share(len(named), len(sick)),
        "healthy flagged": _share(len(alarms), len(well)),
        "healthy flagged at any time": _share(len(ever), len(well)),
        "delay": median_interval(delay()),
        "delay by family": {
            name: (len(delay(p)), *median_interval(delay(p))) for name, p in _FAMILIES.items()
        },
        "missed": sorted(f"{r.case} ({r.problem})" for r in sick if not said[id(r)].problems),
        "misnamed": sorted(
            f"{r.case} ({r.problem}): {', '.join(said[id(r)].problems)}" for r in flagged if r not in first
        ),
        "false alarms": sorted(f"{r.case}: {', '.join(said[id(r)].problems)}" for r in alarms),
        "per problem": _per_problem(sick, said),
    }


def _per_problem(sick: Sequence[Run], said: dict[int, Any]) -> dict[str, tuple[int, int, int]]:
    rows: dict[str, list[int]] = {}
    for run in sick:
        row = rows.setdefault(str(run.problem), [0, 0, 0])
        problems = said[id(run)].problems
        row[0] += 1
        row[1] += bool(problems)
        row[2] += bool(problems) and problems[0] in run.names
    return {problem: (row[0], row[1], row[2]) for problem, row in sorted(rows.items())}


def _table(results: dict[str, dict[str, Any]]) -> None:
    names = list(results)
    print(f"{'':30}" + "".join(f"{name:>24}" for name in names))
    for row in (
        "recall",
        "precision",
        "root first",
        "root named",
        "healthy flagged",
        "healthy flagged at any time",
    ):
        line = f"{row:30}"
        for name in names:
            share = results[name][row]
            hidden = name in NAMES and row in ("root first", "root named", "healthy flagged at any time")
            text = "-" if hidden else f"{share['value']:.3f} [{share['low']:.2f}, {share['high']:.2f}]"
            line += f"{text:>24}"
        print(line)
    delays = {name: results[name]["delay"] for name in names}
    line = "".join(
        f"{'-' if name in NAMES else '{:.0%} [{:.0%}, {:.0%}]'.format(*delays[name]):>24}" for name in names
    )
    print(f"{'median delay until root named':30}" + line)
    for family in _FAMILIES:
        cells = [results[name]["delay by family"][family] for name in names]
        text = "".join(
            f"{'-' if name in NAMES or not cell[0] else f'{cell[1]:.0%} (n={cell[0]})':>24}"
            for name, cell in zip(names, cells, strict=False)
        )
        print(f"{'  ' + family:30}{text}")


def _report(runs: Sequence[Run], half: str, name_them: bool) -> dict[str, dict[str, Any]]:
    judges = [*PROFILES, *(n for n in NAMES if any(n in run.verdicts for run in runs))]
    results = {name: figures(runs, name) for name in judges}
    own = results["akeso"]
    recovered = sum(run.recovered for run in runs)
    print(f"\n== {half}: {own['sick']} sick and {own['healthy']} healthy runs", end="")
    print(f"; {recovered} runs of sick cases went well that time and are left out" if recovered else "")
    _table(results)
    print("\nprofile akeso per problem: runs, flagged, root first")
    for problem, (count, found, first) in own["per problem"].items():
        print(f"  {problem:30}{count:4}{found:5}{first:5}")
    for title in ("missed", "misnamed", "false alarms"):
        print(f"{title}: {len(own[title])}")
        if name_them:
            for line in own[title]:
                print(f"  {line}")
    return results


def _goals(own: dict[str, Any]) -> bool:
    """Print the figures asked for beside those reached; whether all are reached."""
    rows = [
        ("recall", own["recall"]["value"], ">=", 0.95),
        ("right root named first", own["root first"]["value"], ">=", 0.85),
        ("healthy runs flagged", own["healthy flagged"]["value"], "<=", 0.02),
    ]
    for family in _EARLY:
        count, median, *_ = own["delay by family"][family]
        if count:
            rows.append((f"median delay, {family} (n={count})", median, "<=", 0.15))
    well = True
    for title, value, relation, goal in rows:
        if value != value:
            print(f"  {title:38}  nothing to judge")
            continue
        reached = value >= goal if relation == ">=" else value <= goal
        well &= bool(reached)
        print(
            f"  {title:38}{value:8.3f}  asked {relation} {goal:<6} {'reached' if reached else 'NOT REACHED'}"
        )
    return well


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 when every figure is reached."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="every tenth case of the dev half")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--journals", type=Path, default=Path("runs/detection"))
    parser.add_argument("--record-only", action="store_true")
    parser.add_argument("--judge-only", action="store_true", help="judge the journals that are there")
    parser.add_argument("--unverified", action="store_true", help="count cases whose truth is not measured")
    parser.add_argument("--split", choices=["dev", "held-out", "all"], default="all")
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose name holds this")
    parser.add_argument("--seeds", type=int, default=1, help="runs per case")
    parser.add_argument("--no-rivals", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--record", metavar="CASE", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.record:
        record(options.journals, options.record, options.seed, not options.no_rivals)
        return 0

    absent = [name for name in NAMES if name not in installed()]
    if absent:
        print(f"not installed, so not compared with: {', '.join(absent)}")
    chosen = [n for n in cases() if options.only in n and counted(n, options.unverified)]
    if options.quick:
        chosen = [n for n in chosen if not held_out(n)][::10]
    elif options.split != "all":
        chosen = [n for n in chosen if held_out(n) == (options.split == "held-out")]
    wanted = [(name, seed) for name in chosen for seed in range(options.seeds)]
    failed: list[str] = []
    if not options.judge_only:
        failed = record_all(options.journals, wanted, options.jobs, not options.no_rivals)
    if failed:
        print(f"{len(failed)} runs could not be recorded")
    if options.record_only:
        return 1 if failed else 0

    with ProcessPoolExecutor(options.jobs) as pool:
        found = pool.map(
            partial(judge, options.journals, not options.no_rivals), *zip(*wanted, strict=False), chunksize=4
        )
        runs = [run for run in found if run is not None]
    results = {}
    for half, part in (
        ("dev half", [r for r in runs if not held_out(r.case)]),
        ("held-out half", [r for r in runs if held_out(r.case)]),
    ):
        if part:
            results[half] = _report(part, half, name_them=half == "dev half")
    if options.json:
        for half in results.get("held-out half", {}).values():
            for title in ("missed", "misnamed", "false alarms"):
                half[title] = len(half[title])
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    judged = "held-out half" if "held-out half" in results else "dev half"
    if judged not in results:
        print("there is nothing to judge")
        return 1
    overhead = [run.overhead for run in runs]
    print(f"\nmedian overhead of watching {np.median(overhead):.1%}, worst {max(overhead):.1%}")
    print(f"profile akeso on the {judged}:")
    return 0 if _goals(results[judged]["akeso"]) and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
