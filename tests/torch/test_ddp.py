"""Watching under data parallelism: every rank watches, no bit changes."""

from __future__ import annotations

from pathlib import Path

from tests.script.commands import python_at_once


def test_each_rank_is_watched_and_no_bit_changes() -> None:
    root = Path(__file__).parents[2]
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    done = python_at_once(root, *torchrun, "-m", "tests.torch.ddp_program")
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert b"rank 0 sees the same bits" in done.stdout
    assert b"rank 1 sees the same bits" in done.stdout
