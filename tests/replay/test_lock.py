"""The lock of a run folder: one process at a time, and no trace of dead ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from akeso.errors import Refused
from akeso.replay.lock import FolderLock

HOLDER = """
import os, sys, time
from pathlib import Path
from akeso.replay.lock import FolderLock
os.register_at_fork(after_in_child=lambda: time.sleep(0.5))  # a child that comes to run late
lock = FolderLock(Path(sys.argv[1]))
if os.fork() == 0:
    time.sleep(30)
print("held", flush=True)
time.sleep(30)
"""


def test_a_second_process_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    with pytest.raises(Refused, match=f"in use by process {os.getpid()}"):
        FolderLock(tmp_path)
    lock.release()
    FolderLock(tmp_path).release()


def test_a_killed_process_does_not_block_even_with_children_alive(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HOLDER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Refused, match=f"in use by process {holder.pid}"):
            FolderLock(tmp_path)
        holder.kill()
        holder.wait()
        FolderLock(tmp_path).release()
    finally:
        # The child of the killed process is still there: the whole group goes.
        os.killpg(holder.pid, signal.SIGKILL)
        holder.stdout.close()
