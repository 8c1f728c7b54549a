"""Watching under data parallelism: every rank watches, no bit changes."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tests.script.commands import READY, environment


def test_each_rank_is_watched_and_no_bit_changes(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    command, root = ["-m", "tests.torch.ddp_program"], Path(__file__).parents[2]
    started = []
    for rank in ("0", "1"):
        named = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
        streams = [Path(os.devnull), tmp_path / f"out{rank}", tmp_path / f"err{rank}"]
        started.append(READY.begin(command, root, environment(**named), streams))
    codes = [process.wait() for process in started]
    for rank in (0, 1):
        assert codes[rank] == 0, (tmp_path / f"err{rank}").read_text()[-3000:]
        assert f"rank {rank} sees the same bits" in (tmp_path / f"out{rank}").read_text()
