"""A study on a local Ray cluster with two workers; prints what came of it as one JSON line."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

import akeso.search

EPOCHS = 12


def train(config: dict[str, Any]) -> None:
    kind = config["kind"]
    if kind == "diverges":
        from tests.search.trials import build, train_epoch

        model, optimizer = build(9e4)
        # The scheduler goes by a metric of its own, and this one breaks before it has reported any.
        options: dict[str, Any] = {"metric": "loss", "mode": "min", "others": {"score": -1e12}}
        with akeso.search.ray_watch(model, optimizer, **options) as health:
            for _ in range(EPOCHS):
                loss = train_epoch(model, optimizer)
                health.report({"loss": loss, "score": -loss})
        return
    for epoch in range(EPOCHS):
        loss = 0.2 + math.exp(-0.6 * epoch) + 0.01 * config["index"]
        if kind == "settles":
            loss = 0.05 + (1.0, 0.5, 0.2, 0.05, 0.01)[min(epoch, 4)] + 0.001 * (epoch % 3) * (epoch > 4)
        if kind == "nan" and epoch == 3:
            loss = math.nan
        if kind == "killed" and epoch == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        akeso.search.ray_report({"loss": loss, "score": -loss}, metric="loss", mode="min")


def main(folder: str) -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    kinds = ["plain", "diverges", "killed", "settles", "nan", "plain", "plain", "plain"]
    stopper = akeso.search.DiagnosisStopper(
        "loss", "min", epochs=EPOCHS, log=os.path.join(folder, "reasons.jsonl")
    )
    tuner = tune.Tuner(
        train,
        param_space={"kind": tune.grid_search(kinds), "index": 1},
        tune_config=tune.TuneConfig(
            max_concurrent_trials=2,
            reuse_actors=True,
            # Beside a scheduler that compares trials: it must not choke on the one that reported NaN.
            scheduler=ASHAScheduler(metric="score", mode="max", max_t=EPOCHS, grace_period=EPOCHS),
        ),
        run_config=tune.RunConfig(
            storage_path=folder, stop=stopper, verbose=0, failure_config=tune.FailureConfig(max_failures=0)
        ),
    )
    rows = []
    for result in tuner.fit():
        metrics = result.metrics or {}
        reason = stopper.reasons.get(metrics.get("trial_id", ""))
        rows.append(
            {
                "kind": result.config["kind"] if result.config else "",
                "failed": result.error is not None,
                "iterations": metrics.get("training_iteration"),
                "loss": metrics.get("loss"),
                "column": metrics.get("akeso_problem"),
                "params": stopper._params.get(metrics.get("trial_id", "")),
                "reason": reason.to_dict() if reason else None,
            }
        )
    print("RESULT " + json.dumps(rows, allow_nan=False), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
