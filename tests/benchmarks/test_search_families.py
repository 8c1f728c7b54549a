"""Made-up studies of kinds that the rules were not made for: they are what they say, and the command counts."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.search.families import KINDS, count, main, power_law, study


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_makes_finite_curves_of_any_length(kind: object) -> None:
    for epochs in (2, 20):
        made = study(kind, 30, epochs, np.random.default_rng(0))  # type: ignore[arg-type]
        curves = np.array([trial.values for trial in made.trials])
        assert curves.shape == (30, epochs)
        assert np.isfinite(curves).all()
        assert len(np.unique(curves[:, -1])) > 1


def test_the_command_counts_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    found = count(power_law, 40, 10, 2)
    assert found.wrongly <= found.lost <= 0.02
    assert found.stopped > 0.3
    assert 0.3 < found.time < 1
    main(["--kinds", "power_law", "--trials", "12", "--epochs", "4", "--repeats", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines] == ["kind", "---", "power law", "mean"]
