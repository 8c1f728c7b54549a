"""Weights that are saved for the user, and what is said where they cannot be."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from akeso.script.prescribed.weights import BestWeights, save


def test_weights_that_cannot_be_written_are_told_with_the_reason(tmp_path: Path) -> None:
    said: list[str] = []
    nowhere = tmp_path / "file"
    nowhere.write_text("no folder")

    assert save(nn.Linear(2, 1), nowhere / "last", said.append) is None
    assert len(said) == 1
    assert said[0].startswith("the last weights could not be saved: ")
    assert "Error" in said[0]


def test_best_weights_follow_the_best_evaluation(tmp_path: Path) -> None:
    said: list[str] = []
    best, model = BestWeights(tmp_path, said.append), nn.Linear(2, 1)
    best.look(lambda: model, [0.5], True)
    file = best.file
    assert file is not None
    first = Path(file).read_bytes()
    model.weight.data.add_(1.0)
    best.look(lambda: model, [0.5, 0.4], True)
    assert Path(file).read_bytes() == first
    best.look(lambda: model, [0.5, 0.4, 0.6], True)
    assert Path(file).read_bytes() != first
    assert not said
