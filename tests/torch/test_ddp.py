"""Watching under data parallelism: every rank watches, no bit changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_each_rank_is_watched_and_no_bit_changes() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone",
         "-m", "tests.torch.ddp_program"],
        cwd=root, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rank 0 sees the same bits" in done.stdout
    assert "rank 1 sees the same bits" in done.stdout
