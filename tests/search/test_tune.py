"""Ray Tune: the stopper by itself, and a study on a real local cluster."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray.tune")

from akeso.errors import BadInput
from akeso.search.results import WORST
from akeso.search.stopper import DiagnosisStopper
from akeso.search.tune import ray_report

ROOT = Path(__file__).resolve().parents[2]


def feed(stopper: DiagnosisStopper, name: str, losses: list[float]) -> int | None:
    """The iteration at which the trial ends, if it does."""
    for i, loss in enumerate(losses, 1):
        if stopper(name, {"loss": loss, "training_iteration": i}):
            return i
    return None


def test_a_worst_value_and_a_nan_both_stop_a_trial() -> None:
    stopper = DiagnosisStopper("loss", "min", epochs=10)
    assert feed(stopper, "a", [1.0, math.nan, 0.5]) == 2
    assert feed(stopper, "b", [1.0, 0.9, WORST]) == 3
    assert stopper.reasons["a"].problem == "non-finite"
    assert not stopper.stop_all()
    assert not stopper("c", {"accuracy": 1.0})


def test_diagnosis_columns_end_a_trial_with_their_reason(tmp_path: Path) -> None:
    log = tmp_path / "reasons.jsonl"
    stopper = DiagnosisStopper("loss", "min", epochs=10, log=log)
    columns = {
        "akeso_action": "stop",
        "akeso_problem": "dying-relu",
        "akeso_layer": "net.0",
        "akeso_step": 40,
    }
    assert stopper("a", {"loss": 0.5, "akeso_sentence": "Dead.", **columns})
    reason = stopper.reasons["a"]
    assert (reason.problem, reason.layer, reason.step, reason.sentence) == (
        "dying-relu",
        "net.0",
        40,
        "Dead.",
    )
    assert json.loads(log.read_text())["trial"] == "a"


def test_hopeless_curves_are_stopped_and_a_perturbed_trial_starts_again() -> None:
    stopper = DiagnosisStopper("loss", "min", epochs=8)
    for i in range(8):
        curve = [0.1 * i + 1 / (t + 1) + 0.003 * math.sin(5 * t + i) for t in range(8)]
        assert feed(stopper, f"good {i}", curve) is None or i > 2
    # One that stands still may be a late learner: the study sees the first to its end.
    assert feed(stopper, "still", [5.0] * 8) is None
    ended = feed(stopper, "bad", [5.0] * 8)
    assert ended is not None
    assert ended < 8
    assert stopper.reasons["bad"].problem == "hopeless-curve"
    # Population-based training sets a trial back: the later reports are forgotten, not counted twice.
    fresh = DiagnosisStopper("loss", "min", epochs=8)
    for at, loss in ((1, 1.0), (2, 0.9), (3, 0.8), (2, 0.7), (3, 0.6)):
        assert not fresh("a", {"loss": loss, "training_iteration": at})
    assert fresh._values["a"] == [1.0, 0.7, 0.6]


def test_a_trial_that_stands_still_ends_sooner_where_its_losses_and_hyperparameters_are_known() -> None:
    def ended(known: bool) -> int:
        stopper = DiagnosisStopper("loss", "min", epochs=20)

        def run(name: str, values: list[float], losses: list[float], rate: float) -> int:
            for i, (value, loss) in enumerate(zip(values, losses, strict=True), 1):
                beside = {"akeso_loss": loss, "config": {"model": {"rate": rate}, "data": object()}}
                if stopper(name, {"loss": value, "training_iteration": i, **(beside if known else {})}):
                    return i
            return len(values)

        for i in range(10):
            curve = [0.1 * i + 2 / (t + 1) + 0.003 * math.sin(5 * t + i) for t in range(20)]
            run(f"good {i}", curve, [2 * value for value in curve], 0.1 + 0.01 * i)
        for i in range(2):
            run(f"dead {i}", [2.3 - 0.001 * i] * 20, [2.303] * 20, 1e-6 * (1 + i))
        return run("dead too", [2.3005] * 20, [2.303] * 20, 2e-6)

    assert ended(known=True) < ended(known=False) < 20


def test_wrong_arguments_are_clear_errors() -> None:
    with pytest.raises(BadInput, match="mode is 'min' or 'max'"):
        DiagnosisStopper("loss", "lowest", epochs=3)
    with pytest.raises(BadInput, match="epochs must be a whole number of at least 1"):
        DiagnosisStopper("loss", "min", epochs=0)
    with pytest.raises(BadInput, match="not among the reported"):
        ray_report({"accuracy": 1.0}, metric="loss", mode="min")


def test_a_study_on_a_local_cluster(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AIR_NEW_OUTPUT": "0",
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
    }
    command = [sys.executable, "-m", "tests.search.ray_study", str(tmp_path)]
    for _ in range(3):  # on a busy machine the cluster itself may not get up in Ray's own time limit
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if "timed out during startup" not in done.stderr:
            break
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout[-2000:] + done.stderr[-4000:]
    rows = json.loads(lines[0].removeprefix("RESULT "))
    assert len(rows) == 8
    by_kind = {row["kind"]: row for row in rows}
    assert by_kind["diverges"]["reason"]["problem"] == "non-finite"
    assert by_kind["diverges"]["column"] == "non-finite"
    assert by_kind["diverges"]["iterations"] == 1
    assert by_kind["nan"]["reason"]["action"] == "stop"
    assert by_kind["nan"]["params"] == {"kind": "nan", "index": 1}  # the stopper knows what was tried
    assert by_kind["nan"]["loss"] == WORST
    assert by_kind["settles"]["reason"]["action"] == "finish"
    assert by_kind["settles"]["iterations"] < 12
    assert [row["kind"] for row in rows if row["failed"]] == ["killed"]
    plain = [row for row in rows if row["kind"] == "plain"]
    assert len(plain) == 4
    # None of them is lost; once enough of them have finished, a like one may end early with its value.
    assert all(row["reason"] is None or row["reason"]["action"] == "finish" for row in plain)
    assert sum(row["iterations"] == 12 for row in plain) >= 2
    assert all(row["loss"] < 0.6 for row in plain)
    reasons = [json.loads(line) for line in (tmp_path / "reasons.jsonl").read_text().splitlines()]
    assert {"non-finite", "no-more-gain"} <= {reason["problem"] for reason in reasons}
