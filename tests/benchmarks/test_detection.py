"""The detection benchmark counts rightly, and really records and judges a run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from benchmarks.corpus.judging import Run, Verdict, judge
from benchmarks.corpus.recording import finished, record_all
from benchmarks.corpus.rivals import autopsied, installed
from benchmarks.detection import figures, main, median_interval, wilson


def _run(name: str, problem: str | None, *said: str, at: float | None = None, recovered: bool = False) -> Run:
    names = frozenset({problem} if problem else ())
    named = at if names & set(said) else None
    verdict = Verdict(said, at if said else None, named)
    return Run(
        name, 0, problem, names, bool(problem) and not recovered, recovered, 0.5, 100, 0.0, {"akeso": verdict}
    )


def test_wilson_interval_holds_the_share_and_narrows() -> None:
    low, high = wilson(9, 10)
    assert 0.55 < low < 0.9 < high < 1.0
    wide = high - low
    low, high = wilson(900, 1000)
    assert high - low < wide / 5
    assert wilson(0, 0) == (0.0, 1.0)


def test_median_interval_surrounds_the_median() -> None:
    middle, low, high = median_interval([0.05, 0.05, 0.1, 0.2, 1.0])
    assert low <= middle == 0.1 <= high
    assert math.isnan(median_interval([])[0])


def test_figures_count_recall_precision_root_alarms_and_delay() -> None:
    runs = [
        _run("a", "vanishing-gradient", "vanishing-gradient", "slow-convergence", at=0.1),
        _run("b", "vanishing-gradient", "slow-convergence", "vanishing-gradient", at=0.3),
        _run("c", "abnormal-data"),
        _run("d", "dying-relu", recovered=True),
        _run("e", None),
        _run("f", None, "overfitting", at=0.5),
    ]
    result = figures(runs, "akeso")
    assert (result["sick"], result["healthy"]) == (3, 2)
    assert result["recall"]["value"] == pytest.approx(2 / 3)
    assert result["precision"]["value"] == pytest.approx(2 / 3)
    assert result["root first"]["value"] == pytest.approx(1 / 3)
    assert result["root named"]["value"] == pytest.approx(2 / 3)
    assert result["healthy flagged"]["hits"] == 1
    assert result["delay"][0] == 0.3
    assert result["delay by family"]["gradient"][:2] == (2, 0.2)
    assert result["delay by family"]["data"][:2] == (1, 1.0)
    assert result["missed"] == ["c (abnormal-data)"]
    assert result["false alarms"] == ["f: overfitting"]
    assert result["per problem"]["vanishing-gradient"] == (2, 2, 1)


def test_a_case_is_recorded_in_its_own_process_and_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record_all(tmp_path, [("well-blob-rprop", 0)], 1, rivals=False) == []
    result = finished(tmp_path, "well-blob-rprop", 0)
    assert result is not None
    assert result["error"] is None
    assert result["metric"] > 0.75
    run = judge(tmp_path, False, "well-blob-rprop", 0)
    assert run is not None
    assert run.steps == 80
    assert not run.sick
    assert set(run.verdicts) >= {"akeso", "autotrainer", "bttackler"}
    stamp = (tmp_path / "well-blob-rprop-0" / "result.json").stat().st_mtime_ns
    assert main(["--journals", str(tmp_path), "--only", "well-blob-rprop", "--no-rivals"]) in (0, 1)
    assert (tmp_path / "well-blob-rprop-0" / "result.json").stat().st_mtime_ns == stamp
    assert "healthy runs flagged" in capsys.readouterr().out


@pytest.mark.skipif("torchmortem" not in installed(), reason="torchmortem is not installed")
@pytest.mark.filterwarnings("ignore")
def test_torchmortem_is_attached_from_outside_and_taken_off_again() -> None:
    backward = torch.Tensor.backward
    with autopsied() as findings:
        model = torch.nn.Sequential(
            *(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Sigmoid()) for _ in range(8))
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(60):
            optimizer.zero_grad()
            model(torch.randn(16, 8)).pow(2).mean().backward()
            optimizer.step()
    assert findings
    assert {"problem", "severity"} == set(findings[0])
    assert torch.Tensor.backward is backward
