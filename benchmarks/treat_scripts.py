"""``python -m benchmarks.treat_scripts``: unmodified sick and healthy scripts under ``akeso treat``.

Every script of ``benchmarks/scripts`` is treated in a folder of its own; outcomes are kept in ``--folder`` and
not made again. ``--quick`` takes a few, ``--only NAME`` one. Exits with 1 where a sick script is not cured to what
is expected of it, or a healthy one is not left alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent / "scripts"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a script suffers from, and the figure its cure has to reach (a cured twin's, less some noise)."""

    problem: str
    reach: float = 0.0
    higher_is_better: bool = True


EXPECTED = {
    "sigmoid_stack": Expected("vanishing-gradient", 0.78),
    "functional_sigmoid": Expected("vanishing-gradient", 0.85),
    "exploding_init": Expected("exploding-gradient", 0.85),
    "dying_relu": Expected("dying-relu", 0.75),
    "oscillating": Expected("oscillating-loss", 0.85),
    "slow_adam": Expected("slow-convergence", 0.85),
    "slow_sgd": Expected("slow-convergence", 0.8),
    "double_softmax": Expected("improper-output-activation", 0.8),
    "relu_output": Expected("improper-output-activation", 0.85),
    "mse_on_classes": Expected("improper-loss", 0.8),
    "raw_pixels": Expected("abnormal-data", 0.85),
    "unscaled_table": Expected("abnormal-data", 0.8),
    "broadcast": Expected("shape-broadcast", 0.3, higher_is_better=False),
    "missing_zero_grad": Expected("missing-zero-grad", 0.85),
    "large_targets": Expected("abnormal-data", 1e9, higher_is_better=False),
    "healthy_digits": Expected(""),
    "healthy_regression": Expected(""),
    "healthy_lstm": Expected(""),
}
QUICK = ("functional_sigmoid", "slow_adam", "double_softmax", "healthy_digits")


def treat(name: str, folder: Path, seconds: float) -> dict[str, Any]:
    """Treat one script, or take the outcome that is there."""
    place = folder / name
    outcome = place / "outcome.json"
    if not outcome.is_file():
        place.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "akeso",
            "treat",
            "--json",
            "outcome.json",
            "--run",
            "run",
            str(SCRIPTS / f"{name}.py"),
        ]
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        with open(place / "stderr.log", "wb") as log:
            try:
                subprocess.run(command, cwd=place, env=environment, stderr=log, timeout=seconds, check=False)
            except subprocess.TimeoutExpired:
                return {"status": f"no outcome within {seconds:g} s"}
        if not outcome.is_file():
            return {"status": "no outcome", "error": (place / "stderr.log").read_text()[-300:]}
    found: dict[str, Any] = json.loads(outcome.read_text())
    return found


def is_right(expected: Expected, outcome: dict[str, Any]) -> bool:
    """Whether a sick script was cured as far as it should be, or a healthy one left alone after one run."""
    if not expected.problem:
        return outcome["status"] == "healthy" and len(outcome.get("attempts", ())) == 1
    after = outcome.get("after")
    if outcome["status"] not in ("repaired", "improved") or after is None:
        return False
    return after >= expected.reach if expected.higher_is_better else after <= expected.reach


def row(name: str, expected: Expected, outcome: dict[str, Any]) -> str:
    """One line of the table."""
    figures = [outcome.get("before"), outcome.get("after")]
    shown = ["-" if value is None else f"{value:.4g}" for value in figures]
    cost = outcome.get("cost", {}).get("steps", 0.0)
    cure = " + ".join(edit["remedy"] for edit in outcome.get("prescription", ())) or "-"
    verdict = "right" if is_right(expected, outcome) else "WRONG"
    return (
        f"{name:20} {expected.problem or 'healthy':28} {outcome['status']:10} {shown[0]:>10} {shown[1]:>10} "
        f"{cost:6.2f}  {verdict:6} {cure}"
    )


def main() -> int:
    """Treat the scripts and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("akeso-runs/treat_scripts"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=sorted(EXPECTED))
    parser.add_argument("--seconds", type=float, default=1800.0, help="limit per script")
    options = parser.parse_args()
    names = options.only or (QUICK if options.quick else EXPECTED)
    print(
        f"{'script':20} {'problem':28} {'status':10} {'before':>10} {'after':>10} {'cost':>6}  right? cure",
        flush=True,
    )
    right = 0
    for name in names:
        outcome = treat(name, options.folder.resolve(), options.seconds)
        right += is_right(EXPECTED[name], outcome)
        print(row(name, EXPECTED[name], outcome), flush=True)
    print(f"{right} of {len(list(names))} right; expected: all")
    return 0 if right == len(list(names)) else 1


if __name__ == "__main__":
    sys.exit(main())
