"""A worker process of a shared study: ``python -m tests.search.worker STORAGE KIND TRIALS [hang]``.

With ``hang`` the first trial reports once, says so on its standard output, and then waits to be killed.
"""

from __future__ import annotations

import sys
from typing import Any

import optuna

import akeso
from akeso.search import DiagnosisPruner


def storage(where: str, kind: str) -> Any:
    if kind == "journal":
        return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(where))
    return where


def main(where: str, kind: str, trials: int, hang: bool) -> None:
    study = optuna.load_study(study_name="shared", storage=storage(where, kind), pruner=DiagnosisPruner())

    def objective(trial: optuna.Trial) -> Any:
        top = trial.suggest_float("top", 0.2, 0.9)
        with akeso.search.watch(trial, epochs=4) as health:
            for epoch in range(4):
                health.report(top * (1 - 0.5 ** (epoch + 1)))
                if hang:
                    print("reported", flush=True)
                    sys.stdin.read()  # until killed
        return health.value

    study.optimize(objective, n_trials=trials)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), "hang" in sys.argv)
