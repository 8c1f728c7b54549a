"""The awkward examples, run unmodified through ``akeso run``: the healthy ones stay unflagged, the sick ones are named.

A handful is run by default; ``AKESO_ALL_EXAMPLES=1`` runs all fourteen.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.script.commands import akeso_at_once

EXAMPLES = Path(__file__).parents[1] / "examples"

#: What is wrong with each, by all names that describe it truly; nothing for the healthy ones.
TRUTH: dict[str, set[str]] = {
    "healthy_frozen_backbone": set(),
    "healthy_gan": set(),
    "healthy_idle_units": set(),
    "healthy_late_learner": set(),
    "healthy_one_at_a_time": set(),
    "healthy_policy_gradient": set(),
    "healthy_raw_units": set(),
    "sick_double_softmax": {"improper-output-activation", "improper-loss"},
    "sick_head_not_trained": {"parameters-not-trained"},
    "sick_one_missing_value": {"non-finite", "abnormal-data"},
    "sick_schedule_spike": {"dying-relu", "learning-rate-too-high"},
    "sick_silent_broadcast": {"shape-broadcast"},
    "sick_sixty_three_percent": {"vanishing-gradient"},
    "sick_wrong_zero_grad": {"missing-zero-grad"},
}
_USUAL = (
    "healthy_idle_units",
    "healthy_policy_gradient",
    "healthy_raw_units",
    "sick_head_not_trained",
    "sick_silent_broadcast",
)
_CHOSEN = sorted(TRUTH) if os.environ.get("AKESO_ALL_EXAMPLES") else _USUAL


def test_every_example_has_its_truth_and_its_line_in_the_table() -> None:
    scripts = {path.stem for path in EXAMPLES.glob("healthy_*.py")} | {
        path.stem for path in EXAMPLES.glob("sick_*.py")
    }
    assert scripts - {"sick_circle"} == set(TRUTH)
    table = (EXAMPLES / "README.md").read_text()
    assert [name for name in TRUTH if f"`{name}.py`" not in table] == []


@pytest.mark.parametrize("name", _CHOSEN)
def test_akeso_tells_the_awkward_examples_apart(name: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--quiet", "--run", str(tmp_path / "run"), "--json", str(report)]
    done = akeso_at_once(tmp_path, "run", *options, str(EXAMPLES / f"{name}.py"))
    said = json.loads(report.read_text())
    problems = [found["problem"] for found in said["diagnoses"] if found["severity"] != "info"]
    if TRUTH[name]:
        assert done.returncode == 1, done.stderr
        assert said["status"] == "findings"
        assert problems[0] in TRUTH[name]
    else:
        assert problems == []
        assert done.returncode == 0, done.stderr
        assert said["status"] == "healthy"
