"""What watching adds to a trial, from pairs of copies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.search import overhead
from benchmarks.search.tasks import QUICK, TASKS


def test_pairs_are_judged_together_and_failed_ones_left_out(tmp_path: Path) -> None:
    lines = [
        {"task": "a", "number": 0, "plain": 10.0, "watched": 10.2, "own": 0.01, "steps": 5},
        {"task": "a", "number": 1, "plain": 30.0, "watched": 30.2, "own": 0.03, "steps": 5},
        {"task": "a", "number": 2, "error": "RuntimeError: out of memory"},
    ]
    (tmp_path / overhead.FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    pairs = overhead.read([tmp_path, tmp_path / "nothing"])
    assert len(pairs) == 2
    share, low, high = overhead.added(pairs)
    assert share == pytest.approx(0.01)
    assert low == pytest.approx(0.2 / 30)
    assert high == pytest.approx(0.02)


def test_both_copies_of_a_trial_are_trained_and_timed() -> None:
    try:
        TASKS["Ex96Trans"].data(QUICK, "cpu")
    except SystemExit as missing:
        pytest.skip(str(missing))
    found = overhead.pair("Ex96Trans", 3, replace(QUICK, stride=640, epochs=2), "cpu")
    assert found["plain"] > 0
    assert found["watched"] > 0
    assert found["steps"] >= 2
