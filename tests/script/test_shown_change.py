"""The change that is shown does to a script what was done to it when the cure was tried."""

from __future__ import annotations

import runpy
import subprocess

import pytest
import torch

from akeso.remedies.edit import Prescription
from akeso.script.clues import Clues
from akeso.script.rewrite import Change, rewrite
from tests.script.prescribed_help import edit, perform

CLASSES = """
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        return F.softmax(self.fc2(x), dim=1)

model = Net()
optimizer = torch.optim.SGD(params=model.parameters(), lr=0.1, weight_decay=0.05)
for i in range(0, 64, 16):
    optimizer.zero_grad()
    loss = F.nll_loss(model(x[i:i + 16]), y[i:i + 16])
    loss.backward()
    optimizer.step()
"""


def shown(folder, source, *edits) -> tuple[Change, dict, dict]:
    """The change for some edits, the weights of the script under them, and those of the script changed so."""
    plain, tried = perform(folder, source), perform(folder, source, *edits)
    assert not tried.refused
    facts, places = tried.ledger.to_dict()["facts"], plain.ledger.to_dict()["places"]
    clues = Clues(places, plain.operation.survey.to_list(), facts)
    change = rewrite(folder / "train.py", Prescription(edits), clues)
    if change.diff:
        subprocess.run(["patch", "-p1"], input=change.diff.encode(), cwd=folder, check=True)
    names = runpy.run_path(str(folder / "train.py"))
    return change, tried["model"].state_dict(), names["model"].state_dict()


def added(change: Change) -> list[str]:
    return [line[1:].strip() for line in change.diff.splitlines() if line[:1] == "+" and line[:3] != "+++"]


def alike(one: dict, other: dict) -> bool:
    return all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)


@pytest.mark.parametrize(
    "edits",
    [
        [edit("substitute-activation", "output", from_="Softmax", to="LogSoftmax")],
        [
            edit("substitute-activation", "output", from_="Softmax", to="none"),
            edit("substitute-loss", from_="nll_loss", to="cross_entropy"),
        ],
        [edit("substitute-loss", from_="nll_loss", to="cross_entropy")],
    ],
)
def test_probabilities_under_a_loss_of_their_logarithms_are_none_any_more(tmp_path, monkeypatch, edits):
    monkeypatch.chdir(tmp_path)
    change, tried, changed = shown(tmp_path, CLASSES, *edits)
    assert not any("F.softmax" in line for line in added(change))
    assert "-        return F.softmax(self.fc2(x), dim=1)" in change.diff
    assert not change.words
    assert alike(tried, changed)


def test_another_optimizer_keeps_the_weight_decay_however_its_parameters_are_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change, tried, changed = shown(tmp_path, CLASSES, edit("substitute-optimizer", to="Adam", lr=0.01))
    assert added(change) == ["optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.05)"]
    assert alike(tried, changed)


def test_a_weight_decay_that_no_one_wrote_is_kept_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = CLASSES.replace("SGD(params=", "AdamW(").replace(", weight_decay=0.05", "")
    change, tried, changed = shown(tmp_path, source, edit("substitute-optimizer", to="Adam", lr=0.01))
    assert added(change) == ["optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.01)"]
    assert alike(tried, changed)


def test_an_optimizer_that_was_not_found_is_described_in_words(tmp_path):
    (tmp_path / "train.py").write_text("import elsewhere")
    cure = Prescription([edit("substitute-optimizer", to="Adam", lr=0.005)])
    assert rewrite(tmp_path / "train.py", cure, Clues({}, [], {})).words == (
        "use torch.optim.Adam with lr=0.005, on the same parameters",
    )


def test_weights_are_drawn_by_kind_and_place_of_the_layers_that_there_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change, tried, changed = shown(tmp_path, CLASSES, edit("reinitialise", scheme="auto"))
    text = "\n".join(added(change))
    assert "isinstance(layer, nn.Linear)" in text
    assert "Conv" not in text
    assert "Embedding" not in text
    assert "if name in ('fc1',):" in text or "if name in ('fc2',):" in text
    assert tried.keys() == changed.keys()


def test_a_script_that_switches_modes_is_not_told_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = CLASSES.replace("F.softmax(self.fc2(x), dim=1)", "self.fc2(x)").replace(
        "nll_loss", "cross_entropy"
    )
    evaluation = "with torch.no_grad():\n    model(x)\n"
    norms = edit("insert-normalisation", "hidden", kind="batch")
    tried = perform(tmp_path, source + "model.eval()\n" + evaluation, norms)
    assert "modes_set" not in tried.ledger.facts
    tried = perform(tmp_path, source + evaluation, norms)
    clues = Clues(tried.ledger.to_dict()["places"], [], tried.ledger.facts)
    (words,) = rewrite(tmp_path / "train.py", Prescription([norms]), clues).words
    assert "model.eval()" in words
