"""kill -9 loses nothing that was synced. (The benchmark of the same name does it 200 times.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.journal_kills import ROOMY, TIGHT, kill_once


@pytest.mark.parametrize("seed", range(12))
def test_a_killed_writer_loses_no_synced_reading(tmp_path: Path, seed: int) -> None:
    kill = kill_once(tmp_path, seed, TIGHT if seed % 3 == 2 else ROOMY)
    assert kill.acknowledged > 0
    assert kill.found > 0
    assert (kill.lost, kill.wrong) == (0, 0)
