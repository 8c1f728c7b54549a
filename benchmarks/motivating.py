"""AUTOTRAINER's two motivating examples: how often they fail, untreated and treated.

    python -m benchmarks.motivating [--seeds 20] [--jobs N] [--epochs 6] [--samples 2000] [--quick]

34 and 20 dense layers of 128 ReLUs on MNIST under Adam 1e-3, weights drawn as Keras draws them (Glorot uniform,
biases zero). The paper: dying ReLU in 80 % of runs of the first, oscillating loss in 71 % of the second.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

DEPTHS = (34, 20)


def one(depth: int, seed: int, samples: int, epochs: int) -> dict[str, Any]:
    """One seed of one example: a plain run to its end, then a treatment."""
    import torch
    from torch import nn

    import akeso
    from akeso.treatment import Prescription
    from akeso.treatment.recipe import Recipe
    from akeso.treatment.recipe_program import RecipeProgram
    from benchmarks.corpus import sets

    torch.set_num_threads(1)

    def build() -> nn.Module:
        widths = [784] + [128] * depth + [10]
        parts: list[nn.Module] = []
        for number, (before, after) in enumerate(itertools.pairwise(widths)):
            layer = nn.Linear(before, after)
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
            parts += [layer] if number == depth else [layer, nn.ReLU()]
        return nn.Sequential(*parts)

    train, val = sets.mnist(samples, 500, flat=True)

    def recipe() -> Recipe:
        return Recipe(
            build,
            train,
            val,
            loss=nn.CrossEntropyLoss(),
            optimizer="Adam",
            lr=1e-3,
            epochs=epochs,
            batch_size=32,
            seed=seed,
        )

    plain = RecipeProgram(recipe()).attempt(Prescription())
    outcome = akeso.treat(recipe())
    return {
        "depth": depth, "seed": seed, "before": plain.metric, "found": list(plain.problems), "after": outcome.after,
        "left": [found.problem for found in outcome.remaining], "status": outcome.status, "cost": outcome.cost.steps,
        "prescription": outcome.prescription.describe(),
    }  # fmt: skip


def main() -> int:
    """Run all seeds and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.motivating", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/motivating.jsonl"))
    parser.add_argument("--quick", action="store_true", help="two seeds, fewer samples")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        depth, seed = map(int, asked.one.split(","))
        print(json.dumps(one(depth, seed, asked.samples, asked.epochs)))
        return 0
    if asked.quick:
        asked.seeds, asked.samples, asked.epochs = 2, 600, 3
    rows = _done(asked.results)
    wanted = [(depth, seed) for seed in range(asked.seeds) for depth in DEPTHS]
    waiting = [pair for pair in wanted if not any((row["depth"], row["seed"]) == pair for row in rows)]
    with ThreadPoolExecutor(asked.jobs) as pool:
        for row in pool.map(lambda pair: _apart(pair, asked), waiting):
            if row is not None:
                rows.append(row)
                asked.results.parent.mkdir(parents=True, exist_ok=True)
                with asked.results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    return _show([row for row in rows if (row["depth"], row["seed"]) in wanted], asked.seeds)


def _done(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _apart(pair: tuple[int, int], asked: argparse.Namespace) -> dict[str, Any] | None:
    command = [sys.executable, "-m", "benchmarks.motivating", "--one", f"{pair[0]},{pair[1]}"]
    command += ["--samples", str(asked.samples), "--epochs", str(asked.epochs)]
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )
    if ran.returncode:
        print(ran.stderr[-500:], file=sys.stderr)
        return None
    row: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return row


def _show(rows: list[dict[str, Any]], seeds: int) -> int:
    print(
        "| model | runs | failed untreated | accuracy untreated | failed treated | accuracy treated | cost |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    short = False
    for depth in DEPTHS:
        here = [row for row in rows if row["depth"] == depth]
        if not here:
            short = True
            continue
        # failed, before and after alike: a problem that calls for treatment, or less than half right
        sick = sum(
            bool(set(row["found"]) - {"no-more-gain", "overfitting"}) or row["before"] < 0.5 for row in here
        )
        left = sum(bool(row["left"]) or row["after"] < 0.5 for row in here)
        short |= len(here) < seeds or left > 0
        print(
            f"| {depth} × Dense128 ReLU | {len(here)} | {sick} ({sick / len(here):.0%}) | "
            f"{mean(row['before'] for row in here):.3f} | {left} ({left / len(here):.0%}) | "
            f"{mean(row['after'] for row in here):.3f} | {mean(row['cost'] for row in here):.2f} |"
        )
    for depth in DEPTHS:
        names = [name for row in rows if row["depth"] == depth for name in row["found"]]
        counts = {name: names.count(name) for name in sorted(set(names), key=names.count, reverse=True)}
        print(f"{depth} layers, found untreated: {counts}")
    print(
        "asked for: occurrence over at least 20 seeds; treated runs without failure:",
        "short" if short else "reached",
    )
    return 1 if short else 0


if __name__ == "__main__":
    raise SystemExit(main())
