"""Shared storages: SQLite, journal file and gRPC; several processes, one of them killed; bounded writes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import optuna
import pytest
from click.testing import CliRunner
from optuna.trial import TrialState

import akeso
from akeso.search import DiagnosisPruner, attributes, memory
from akeso.search.cli import search
from tests.search.worker import storage

optuna.logging.set_verbosity(optuna.logging.ERROR)
ROOT = Path(__file__).resolve().parents[2]


def worker(where: str, kind: str, trials: int, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.search.worker", where, kind, str(trials), *more]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_two_processes_share_a_study_and_survive_the_death_of_one(kind: str, tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path / 'study.db'}" if kind == "sqlite" else str(tmp_path / "study.log")
    made = optuna.create_study(study_name="shared", storage=storage(where, kind), direction="maximize")
    doomed = worker(where, kind, 3, "hang")
    assert doomed.stdout is not None
    assert doomed.stdout.readline() == "reported\n"
    doomed.send_signal(signal.SIGKILL)
    doomed.wait()
    survivor = worker(where, kind, 5)
    assert survivor.wait() == 0
    for process in (doomed, survivor):
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
    trials = made.get_trials()
    states = [t.state for t in trials]
    assert states.count(TrialState.RUNNING) == 1  # the killed one; nothing of it was lost or made up
    ended = [t for t in trials if t.state != TrialState.RUNNING]
    assert len(ended) == 5
    assert all(t.state in (TrialState.COMPLETE, TrialState.PRUNED) for t in ended)
    assert all(t.user_attrs[attributes.TRIAL]["epochs"] == 4 for t in ended)
    # What was learnt lies in the storage: a new process judges with the knowledge of the old ones.
    judges = memory.Memory(DiagnosisPruner().profile).judges(made, 4)
    # Those that ended early with nothing more to gain teach as much as whole ones.
    assert len(judges[0].knowledge) == sum(t.state == TrialState.COMPLETE for t in ended)
    target = str(tmp_path / ("study.db" if kind == "sqlite" else "study.log"))
    shown = CliRunner().invoke(search, ["report", target])
    assert shown.exit_code == 0, shown.output
    assert "6 trials" in shown.output
    assert "1 running" in shown.output


def test_a_study_behind_a_grpc_proxy(tmp_path: Path) -> None:
    grpc = pytest.importorskip("grpc")
    from concurrent.futures import ThreadPoolExecutor

    from optuna.storages._grpc.server import make_server

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        server = make_server(optuna.storages.InMemoryStorage(), "localhost", port, ThreadPoolExecutor(4))
        server.start()
        proxy = optuna.storages.GrpcStorageProxy(host="localhost", port=port)
        proxy.wait_server_ready(timeout=60)
    try:
        made = optuna.create_study(storage=proxy, pruner=DiagnosisPruner())

        def run(trial: optuna.Trial) -> Any:
            with akeso.search.watch(trial, epochs=3) as health:
                for value in (0.5, 0.4, float("nan") if trial.number == 1 else 0.3):
                    health.report(value)
            return health.value

        made.optimize(run, n_trials=2)
        assert made.trials[0].value == 0.3
        assert made.trials[1].state == TrialState.PRUNED
        assert made.trials[1].user_attrs["akeso:problem"] == "non-finite"
    finally:
        proxy.close()
        server.stop(None)
        assert grpc is not None


class Counting(optuna.storages.InMemoryStorage):
    """A storage that counts what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self._count = threading.Lock()

    def set_trial_user_attr(self, *arguments: Any) -> None:
        self.writes += 1
        super().set_trial_user_attr(*arguments)

    def set_trial_intermediate_value(self, *arguments: Any) -> None:
        self.writes += 1
        super().set_trial_intermediate_value(*arguments)

    def set_study_user_attr(self, *arguments: Any) -> None:
        self.writes += 1
        super().set_study_user_attr(*arguments)


def test_writes_per_trial_do_not_grow_with_the_study() -> None:
    counting = Counting()
    made = optuna.create_study(
        storage=counting,
        pruner=DiagnosisPruner(),
        direction="maximize",
        sampler=optuna.samplers.RandomSampler(seed=0),
    )
    epochs, per_trial = 4, []

    def run(trial: optuna.Trial) -> Any:
        top = trial.suggest_float("top", 0.2, 0.9)
        with akeso.search.watch(trial, epochs=epochs) as health:
            for epoch in range(epochs):
                health.report(top * (1 - 0.5 ** (epoch + 1)))
        return health.value

    for _ in range(60):
        before = counting.writes
        made.optimize(run, n_trials=1)
        per_trial.append(counting.writes - before)
    # A report per epoch, one note at the end, five attributes for a reason; the study's profile once.
    assert max(per_trial[1:]) <= epochs + 6
    # Later trials are stopped more often, which is written down; the size of the study does not come into it.
    assert sum(per_trial[30:]) <= 1.5 * sum(per_trial[:30])


@pytest.mark.parametrize("mode", ["stop", "shadow", "unheeded"])
def test_without_watch_writes_do_not_grow_with_the_reports(mode: str) -> None:
    """A pruner is shown the trial as it was when it began: what was noted since is not to be written anew."""
    counting = Counting()
    made = optuna.create_study(
        storage=counting,
        pruner=DiagnosisPruner(
            optuna.pruners.ThresholdPruner(upper=1.7),
            on_problem="shadow" if mode == "shadow" else "stop",
            epochs=40,
        ),
        sampler=optuna.samplers.RandomSampler(seed=0),
    )
    said, reports = [], []

    def run(trial: optuna.Trial) -> float:
        end = trial.suggest_float("end", 0.2, 0.9)
        for epoch in range(40):
            trial.report(end + 0.9**epoch, epoch)
            if trial.should_prune() and mode != "unheeded":
                raise optuna.TrialPruned
        return end

    for _ in range(30):
        before = counting.writes
        made.optimize(run, n_trials=1)
        reports.append(len(made.trials[-1].intermediate_values))
        said.append(counting.writes - before - reports[-1])
    # One note that the trial can be judged, one that it was stopped, five attributes for the reason.
    assert max(said) <= (1 if mode == "shadow" else 7)
    assert max(said) > 0
    assert (min(reports) < 40) == (mode == "stop")


class Read(optuna.storages.InMemoryStorage):
    """Counts how often all trials of the study are asked for."""

    times = 0

    def get_all_trials(self, *arguments: Any, **options: Any) -> Any:
        self.times += 1
        return super().get_all_trials(*arguments, **options)


@pytest.mark.parametrize("epochs", [5, 19, 29, 200])
def test_the_study_is_read_a_dozen_times_a_trial_whatever_its_length(epochs: int) -> None:
    counting = Read()
    made = optuna.create_study(storage=counting, sampler=optuna.samplers.RandomSampler(seed=0))

    def run(trial: optuna.Trial) -> Any:
        with akeso.search.watch(trial, epochs=epochs, on_problem="shadow") as health:
            for epoch in range(epochs):
                health.report(1 / (epoch + 1))
        return health.value

    made.optimize(run, n_trials=1)
    before = counting.times
    made.optimize(lambda trial: 1.0, n_trials=1)
    unwatched, before = counting.times - before, counting.times
    made.optimize(run, n_trials=1)
    assert counting.times - before - unwatched <= 12


def test_errors_of_the_report_command(tmp_path: Path) -> None:
    run = CliRunner()
    assert "there is no study" in str(run.invoke(search, ["report", str(tmp_path / "none.db")]).exception)
    where = f"sqlite:///{tmp_path / 'two.db'}"
    for name in ("a", "b"):
        optuna.create_study(study_name=name, storage=where)
    assert "name one with --name" in str(run.invoke(search, ["report", where]).exception)
    assert "holds no study" in str(run.invoke(search, ["report", where, "--name", "c"]).exception)
    assert "no trials yet" in run.invoke(search, ["report", where, "--name", "a"]).output
