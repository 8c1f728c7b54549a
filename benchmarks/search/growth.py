"""``python -m benchmarks.search.growth``: how the cost of a report grows with the trials of a study.

Trials report made-up curves through real storages; printed are milliseconds per report, those of the slowest report
(one at which the forecast is made anew), and writes per trial at various sizes of the study, up to 1,000 trials.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna

import akeso
from akeso.search import DiagnosisPruner


def storage(kind: str, folder: Path) -> Any:
    """An empty storage of a kind."""
    if kind == "memory":
        return optuna.storages.InMemoryStorage()
    if kind == "journal":
        return optuna.storages.JournalStorage(
            optuna.storages.journal.JournalFileBackend(str(folder / "s.log"))
        )
    return f"sqlite:///{folder / 's.db'}"


def measure(kind: str, trials: int, epochs: int, with_akeso: bool) -> list[tuple[int, float, float, float]]:
    """For growing sizes of the study: trials so far, milliseconds per report, of the slowest one, writes per trial."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        pruner = DiagnosisPruner() if with_akeso else optuna.pruners.NopPruner()
        study = optuna.create_study(
            storage=storage(kind, Path(folder)), pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=0)
        )
        backend = study._storage
        counts = {"writes": 0}
        for name in ("set_trial_user_attr", "set_trial_intermediate_value", "set_study_user_attr"):
            _count(backend, name, counts)
        draw = np.random.default_rng(0)
        slowest = 0.0

        def timed(report: Callable[..., None], *values: float) -> None:
            nonlocal slowest
            begun = time.perf_counter()
            try:
                report(*values)
            finally:
                slowest = max(slowest, time.perf_counter() - begun)

        def objective(trial: optuna.Trial) -> float:
            floor, power = trial.suggest_float("floor", 0.1, 1.0), math.exp(draw.normal(0, 0.3))
            curve = floor + np.arange(1, epochs + 1.0) ** -power + draw.normal(0, 0.01, epochs)
            if not with_akeso:
                for epoch, value in enumerate(curve):
                    timed(trial.report, float(value), epoch)
                return float(curve[-1])
            with akeso.search.watch(trial, epochs=epochs) as health:
                for value in curve:
                    timed(health.report, float(value))
            return float(health.value)

        marks = [n for n in (10, 30, 100, 300, 1000) if n <= trials]
        done = 0
        for mark in marks:
            begun, written, slowest = time.perf_counter(), counts["writes"], 0.0
            before = sum(len(t.intermediate_values) for t in study.get_trials(deepcopy=False))
            study.optimize(objective, n_trials=mark - done)
            reports = sum(len(t.intermediate_values) for t in study.get_trials(deepcopy=False)) - before
            spent = time.perf_counter() - begun
            writes = (counts["writes"] - written) / (mark - done)
            rows.append((mark, 1000 * spent / max(reports, 1), 1000 * slowest, writes))
            done = mark
    return rows


def _count(backend: Any, name: str, counts: dict[str, int]) -> None:
    inner = getattr(backend, name)

    def counted(*arguments: Any, **options: Any) -> Any:
        counts["writes"] += 1
        return inner(*arguments, **options)

    setattr(backend, name, counted)


def main() -> int:
    """Print the table; 1 when writes per trial are not bounded."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search.growth", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="100 trials instead of 1,000")
    parser.add_argument("--epochs", type=int, default=20)
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    trials, bounded = 100 if given.quick else 1000, True
    print(f"{'storage':8} {'akeso':5} {'trials':>6} {'ms/report':>10} {'slowest':>8} {'writes/trial':>12}")
    for kind in ("memory", "journal", "sqlite"):
        for with_akeso in (False, True):
            for count, cost, slowest, writes in measure(kind, trials, given.epochs, with_akeso):
                print(
                    f"{kind:8} {'yes' if with_akeso else 'no':5} {count:6d} {cost:10.2f} {slowest:8.0f} {writes:12.1f}",
                    flush=True,
                )
                bounded = bounded and writes <= given.epochs + 7
    print(f"writes per trial bounded by reports + 7: {'yes' if bounded else 'no'}")
    return 0 if bounded else 1


if __name__ == "__main__":
    sys.exit(main())
