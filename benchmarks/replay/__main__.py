"""``python -m benchmarks.replay``: every program through every column; exit status 1 where a figure falls short.

Results are kept per program under ``benchmarks/results/replay`` and not computed twice; ``--fresh`` forgets them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.replay import suite
from benchmarks.replay.table import figures, table

RESULTS = Path(__file__).resolve().parents[1] / "results" / "replay"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("what", nargs="?", default="programs", choices=["programs", "peers"])
    parser.add_argument("--quick", action="store_true", help="few kills and short timings")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time; timings are always alone")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", help="names of programs, separated by commas")
    parser.add_argument("--kills", type=int, help="kills per program")
    parser.add_argument("--fresh", action="store_true", help="forget results of earlier calls")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.what == "peers":
        from benchmarks.replay.peers import main as compare

        return compare(asked.quick)
    kills = asked.kills or (4 if asked.quick else 32)
    if asked.one:
        return _one(asked.one, asked.part, asked.device, kills, asked.quick)
    return _all(asked, kills)


def _one(name: str, part: str, device: str, kills: int, quick: bool) -> int:
    if part == "bits":
        found = suite.judge(name, device, kills, 1 if quick else 3)
    else:
        from benchmarks.replay.overhead import measure

        found = measure(name, device, 1 if quick else 7)
    print("RESULT " + json.dumps(found))
    return 0


def _all(asked: argparse.Namespace, kills: int) -> int:
    folder = RESULTS / f"{asked.device}-{'quick' if asked.quick else 'full'}"
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, Any]] = {}
    names = suite.names(asked.only)
    for part, jobs in (("bits", asked.jobs), ("cost", 1)):
        waiting = [name for name in names if asked.fresh or not (folder / f"{name}-{part}.json").exists()]
        running: dict[str, subprocess.Popen[str]] = {}
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop(0)
                running[name] = _start(name, part, asked, kills)
            for name, process in list(running.items()):
                if process.poll() is not None:
                    _keep(folder / f"{name}-{part}.json", name, process)
                    del running[name]
            time.sleep(0.05)
        for name in names:
            path = folder / f"{name}-{part}.json"
            if path.exists():
                rows.setdefault(name, {}).update(json.loads(path.read_text()))
    print(table(rows))
    text, good = figures(rows, asked.device, asked.quick or bool(asked.only))
    print(text)
    return 0 if good else 1


def _start(name: str, part: str, asked: argparse.Namespace, kills: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.replay", "--one", name, "--part", part]
    command += ["--device", asked.device, "--kills", str(kills)] + (["--quick"] if asked.quick else [])
    # Asking for devices must not start CUDA in the process that lives are forked from.
    environment = {**os.environ, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def _keep(path: Path, name: str, process: subprocess.Popen[str]) -> None:
    out, err = process.communicate()
    lines = [line for line in out.splitlines() if line.startswith("RESULT ")]
    if not lines:
        print(f"{name}: failed\n{err[-3000:]}", file=sys.stderr)
        return
    path.write_text(lines[-1].removeprefix("RESULT "))
    print(f"{name}: {path.stem} done", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
