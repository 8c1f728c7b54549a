"""Weights that are saved for the user, and what is said where they cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from akeso.script.prescribed import weights as saving
from akeso.script.prescribed.weights import BestWeights, save
from akeso.script.renaming import rename_weights


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


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_saved_weights_are_given_other_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    if suffix == ".pt":
        monkeypatch.setattr(saving, "_safetensors", saving._torch)
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3), nn.ReLU()))
    file = Path(save(model, tmp_path / "last", print) or "")
    if suffix == ".pt":
        file = file.rename(file.with_suffix(".pt"))
    rename_weights(file, {"1": "act", "1.0": "norm"})
    state = torch.load(file, weights_only=True) if suffix == ".pt" else load_file(file)
    assert state.keys() == {
        "0.weight", "0.bias",
        *(f"norm.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")),
    }  # fmt: skip
    assert torch.equal(state["0.weight"], model[0].weight)
    before = file.read_bytes()
    rename_weights(file, {})
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [file.name]
