"""Real trainings under ``akeso run``: what is said, what is written, how it ends."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from akeso.journal import read
from tests.script.commands import READY, akeso, akeso_at_once, environment, python, python_at_once, write

TRAINING = """
    import os, sys, torch
    from torch import nn
    torch.manual_seed(0)
    rate, steps = float(sys.argv[1]), int(sys.argv[2])
    x = torch.randn(256, 8)
    y = x[:, :2].sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for step in range(steps):
        batch = torch.randint(0, 256, (32,))
        loss = nn.functional.mse_loss(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step} score={loss.item():.6f}", flush=True)
"""


def test_a_healthy_training_is_left_alone_and_recorded(tmp_path: Path) -> None:
    write(tmp_path, "train.py", TRAINING)
    alone = python_at_once(tmp_path, "train.py", "0.05", "100")
    options = ["--metric", r"score=([\d.]+)", "--lower-is-better", "--json", "out.json", "--run", "here"]
    watched = akeso(tmp_path, "run", *options, "train.py", "0.05", "100")
    assert watched.returncode == 0, watched.stderr.decode()
    assert watched.stdout == alone.stdout
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["schema"] == 1
    assert document["status"] == "healthy"
    assert [entry for entry in document["diagnoses"] if entry["severity"] != "info"] == []
    assert document["task"] == "regression"
    assert document["steps"] == 100
    assert document["metrics"]["train_loss"] < 0.5
    assert document["run"] == str(tmp_path / "here")
    reading = read(tmp_path / "here")
    assert reading.ended
    assert reading.notes == ()
    printed = [float(line.split("=")[1]) for line in alone.stdout.decode().splitlines()]
    metric = reading.history.series("metric")
    assert metric.values.tolist() == printed
    assert metric.steps.tolist() == [19, 39, 59, 79, 99]
    assert reading.history.facts["metric_higher_is_better"] is False
    assert len(reading.history.series("loss")) == 100
    report = akeso_at_once(tmp_path, "report", "here", "--json", "again.json", "--html", "page.html")
    assert report.returncode == 0
    again = json.loads((tmp_path / "again.json").read_text())
    assert again.pop("overhead") == pytest.approx(document.pop("overhead"), abs=0.001)
    assert {**again, "run": 0, "notes": 0} == {**document, "run": 0, "notes": 0}
    assert "healthy" in (tmp_path / "page.html").read_text()


def test_a_hopeless_training_is_stopped_said_at_once_and_found(tmp_path: Path) -> None:
    write(tmp_path, "train.py", TRAINING + "\n    print('to the end')\n")
    done = akeso_at_once(
        tmp_path, "run", "--stop-on", "error", "--json", "out.json", "train.py", "1e6", "5000"
    )
    stderr = done.stderr.decode()
    assert done.returncode == 1
    assert b"to the end" not in done.stdout
    assert stderr.count("akeso ✖ step") == 1
    assert "\x1b" not in stderr
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["status"] == "findings"
    assert document["diagnoses"][0]["severity"] == "error"
    assert document["steps"] < 5000
    assert "stopped at step" in document["stopped"]
    (folder,) = (tmp_path / "akeso-runs").iterdir()
    assert folder.name.endswith("-train")


def test_a_training_with_children_that_ends_at_once_loses_nothing(tmp_path: Path) -> None:
    children = """\
    from torch.utils.data import DataLoader
    for _ in DataLoader(list(range(8)), num_workers=1, multiprocessing_context="fork"):
        pass
    child = os.fork()
    if child == 0:
        optimizer.step()
        sys.exit(0)
    os.waitpid(child, 0)
    os._exit(11)
    """
    write(tmp_path, "train.py", TRAINING + children)
    done = akeso_at_once(tmp_path, "run", "--run", "here", "train.py", "0.05", "40")
    stderr = done.stderr.decode()
    assert done.returncode == 11, stderr
    assert stderr.count("akeso: nothing found before the script failed, 40 steps on") == 1, stderr
    reading = read(tmp_path / "here")
    assert reading.ended
    assert len(reading.history.series("loss")) == 40
    assert len(list((tmp_path / "here").iterdir())) == 1


def test_a_training_that_fails_keeps_its_traceback_even_where_nothing_can_be_written(tmp_path: Path) -> None:
    write(tmp_path, "train.py", TRAINING + "    model(torch.randn(3, 9))\n")
    (tmp_path / "taken").write_text("a file")
    alone = python(tmp_path, "train.py", "0.05", "40")
    done = akeso_at_once(tmp_path, "run", "--run", "taken", "--json", "out.json", "train.py", "0.05", "40")
    assert done.returncode == alone.returncode == 1
    assert done.stdout == alone.stdout
    first, _, rest = done.stderr.decode().partition("\n")
    assert "cannot be written" in first
    assert "training goes on" in first
    assert rest.startswith(alone.stderr.decode())
    assert "cannot be written" not in rest
    assert json.loads((tmp_path / "out.json").read_text())["steps"] == 40


def test_a_training_that_is_killed_can_be_reported(tmp_path: Path) -> None:
    write(tmp_path, "train.py", TRAINING)
    output, end = os.pipe()
    command = ["-m", "akeso", "run", "--run", "here", "train.py", "0.05", "1000000"]
    with open(os.devnull, "r+b") as nothing, open(end, "wb"):
        files = {0: nothing.fileno(), 1: end, 2: nothing.fileno()}
        process = READY.start(command, str(tmp_path), environment(), files)
    with open(output) as printed:
        for _ in range(100):
            printed.readline()
        os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    reading = read(tmp_path / "here")
    assert not reading.ended
    assert len(reading.history.series("loss")) > 50
    report = akeso_at_once(tmp_path, "report", "here")
    assert report.returncode == 0
    assert "the run has not ended" in report.stdout.decode()


def test_all_ranks_of_a_distributed_training_give_one_verdict(tmp_path: Path) -> None:
    write(
        tmp_path,
        "train.py",
        """
        import sys, torch, torch.distributed as dist
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel
        dist.init_process_group("gloo")
        torch.manual_seed(dist.get_rank())
        model = DistributedDataParallel(nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in range(40):
            x = torch.randn(16, 4)
            loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        sys.stdout.write(f"rank {dist.get_rank()} done\\n")
        dist.destroy_process_group()
        """,
    )
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "akeso", "run"]
    done = python_at_once(tmp_path, *torchrun, "--json", "out.json", "train.py")
    stderr = done.stderr.decode()
    assert done.returncode == 0, stderr
    assert sorted(done.stdout.decode().split("\n"))[1:] == ["rank 0 done", "rank 1 done"]
    assert stderr.count("akeso: healthy") == 1
    (folder,) = (tmp_path / "akeso-runs").iterdir()
    assert read(folder).ranks == (0, 1)
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["steps"] == 40
    losses = [read(folder, rank=rank).history.series("loss").values for rank in (0, 1)]
    merged = read(folder).history.series("loss").values
    assert abs(merged - (losses[0] + losses[1]) / 2).max() < 1e-12


def test_a_deterministic_run_gives_the_same_bits_again(tmp_path: Path) -> None:
    write(
        tmp_path,
        "draws.py",
        """
        import random, torch, numpy as np
        print(list({"a", "b", "c", "d"}), random.random(), np.random.rand(), np.random.default_rng().random())
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.rand(4, 3)).pow(2).mean().backward()
            optimizer.step()
        print(model.weight.tolist())
        """,
    )
    options = ["-q", "--deterministic", "--seed", "5"]
    (tmp_path / "taken").write_text("a file: the second run cannot be recorded")
    first, second = (akeso(tmp_path, "run", *options, "--run", run, "draws.py") for run in ("a", "taken"))
    assert b"cannot be recorded" in second.stderr
    assert first.returncode == 0, first.stderr.decode()
    assert first.stdout == second.stdout
