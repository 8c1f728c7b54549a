"""Changes of single lines that a cure was seen to need: weights of classes, modes, edges of functions, frozen parts."""

from __future__ import annotations

import runpy
import subprocess

import pytest
import torch

from akeso.remedies.edit import Prescription
from akeso.script.clues import Clues
from akeso.script.draft import Draft
from akeso.script.rewrite import rewrite
from tests.script.prescribed_help import edit, perform


def shown(folder, source, *edits):
    """The change for some edits, the script under them, and what the script changed so leaves behind."""
    plain, tried = perform(folder, source), perform(folder, source, *edits)
    assert not tried.refused
    known = [run.ledger.to_dict() for run in (tried, plain)]
    clues = Clues(
        known[0]["places"] | known[1]["places"], plain.operation.survey.to_list(), known[0]["facts"]
    )
    change = rewrite(folder / "train.py", Prescription(edits), clues)
    subprocess.run(["patch", "-p1"], input=change.diff.encode(), cwd=folder, check=True)
    return change, tried, runpy.run_path(str(folder / "train.py"), run_name="__main__")


def alike(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(
        torch.allclose(first[name], second[name], atol=1e-5) for name in first
    )


RARE = """
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(80, 3)
y = (x[:, 0] > 1.0).{kind}
model = nn.Linear(3, {units})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{criterion}
for a, b in DataLoader(TensorDataset(x, y), batch_size=16):
    optimizer.zero_grad()
    {loss}(model(a), b).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("kind", "units", "criterion", "loss", "argument"),
    [
        ("long()", 2, "criterion = nn.CrossEntropyLoss()", "criterion", "weight"),
        ("long()", 2, "", "F.cross_entropy", "weight"),
        ("float()[:, None]", 1, "criterion = nn.BCEWithLogitsLoss()", "criterion", "pos_weight"),
    ],
)
def test_classes_are_weighted_by_numbers(tmp_path, monkeypatch, kind, units, criterion, loss, argument):
    monkeypatch.chdir(tmp_path)
    source = RARE.format(kind=kind, units=units, criterion=criterion, loss=loss)
    change, tried, names = shown(tmp_path, source, edit("weight-classes", kind="inverse-frequency"))
    assert f"{argument}=torch.tensor(" in change.diff
    assert len(change.words) == 1
    assert "printed" in change.words[0]
    assert alike(tried["model"], names["model"])


@pytest.mark.parametrize(
    ("made", "old", "new"),
    [
        ("nn.SoftMarginLoss()", "soft_margin_loss", "nn.BCEWithLogitsLoss()"),
        ("nn.HingeEmbeddingLoss(margin=2.0)", "hinge_embedding_loss", "nn.BCEWithLogitsLoss()"),
        (
            "nn.SmoothL1Loss(beta=0.5, reduction='sum')",
            "smooth_l1_loss",
            "nn.BCEWithLogitsLoss(reduction='sum')",
        ),
    ],
)
def test_any_loss_is_exchanged_and_told_what_the_new_one_knows(tmp_path, monkeypatch, made, old, new):
    monkeypatch.chdir(tmp_path)
    source = RARE.format(kind="float()[:, None]", units=1, criterion=f"criterion = {made}", loss="criterion")
    loss = edit("substitute-loss", from_=old, to="binary_cross_entropy_with_logits")
    change, tried, names = shown(tmp_path, source, loss)
    assert f"criterion = {new}" in change.diff
    assert alike(tried["model"], names["model"])


def test_classes_are_weighted_under_the_loss_that_knows_of_it_where_a_sigmoid_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = RARE.format(
        kind="float()[:, None]", units=1, criterion="criterion = nn.BCEWithLogitsLoss()", loss="criterion"
    ).replace("nn.Linear(3, 1)", "nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())")
    off = edit("substitute-activation", "output", from_="Sigmoid", to="none")
    change, tried, names = shown(tmp_path, source, off, edit("weight-classes", kind="inverse-frequency"))
    assert "criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(" in change.diff
    assert any("gives scores now" in text for text in change.words)
    assert alike(tried["model"], names["model"])


@pytest.mark.parametrize("given", ["model(a)", "model(a) + 0"])
def test_inputs_are_scaled_inside_of_a_call_whose_answers_are_brought_to_standard_units(
    tmp_path, monkeypatch, given
):
    monkeypatch.chdir(tmp_path)
    source = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(80, 1) * 2500 + 24000
y = 3 * x + 100
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.MSELoss()
for a, b in DataLoader(TensorDataset(x, y), batch_size=16):
    optimizer.zero_grad()
    criterion(GIVEN, b).backward()
    optimizer.step()
answers = model(x).detach()
""".replace("GIVEN", given)
    cures = edit("scale-inputs", kind="standard"), edit("standardise-targets")
    change, tried, names = shown(tmp_path, source, *cures)
    assert change.diff.count(" - 24") >= 2  # in training, too
    assert torch.allclose(names["answers"], tried["answers"], rtol=1e-2)


EDGES = """
import torch
from torch import nn
torch.manual_seed(0)
a = torch.randn(32, 4)
b = torch.cat([a[:8], torch.randn(24, 4)])
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    optimizer.zero_grad()
    gap = model(a) - model(b)
    far = {distance}
    (far - 1.0).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "distance",
    [
        "torch.sqrt(torch.sum(gap ** 2, dim=1))",
        "gap.square().sum(1).sqrt()",
        "(gap ** 2).sum(1) ** 0.5",
        "torch.pow(gap.square().sum(1), 0.5)",
        "gap.sum(1) * gap.sum(1) / gap.square().sum(1)",
    ],
)
def test_functions_are_kept_off_their_edge_where_they_met_it(tmp_path, monkeypatch, distance):
    monkeypatch.chdir(tmp_path)
    change, tried, names = shown(tmp_path, EDGES.format(distance=distance), edit("guard-functions"))
    assert not change.words
    assert change.diff.count("\n+ ") == 1
    assert torch.isfinite(names["model"].weight).all()
    assert alike(tried["model"], names["model"])


MODELESS = """
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))
{made}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def evaluate(net):
    with torch.no_grad():
        for i in range(0, 64, 32):
            seen = net(x[i:i + 32])

for epoch in range(3):
    for i in range(0, 64, 16):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[i:i + 16]), y[i:i + 16]).backward()
        optimizer.step()
    with torch.no_grad():
        for i in range(0, 64, 32):
            model(x[i:i + 32])
"""


@pytest.mark.parametrize(
    ("made", "edits"),
    [
        (
            "model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))",
            [edit("insert-normalisation", "hidden", kind="batch")],
        ),
        (
            "model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()",
            [edit("set-mode", to="by-phase")],
        ),
    ],
)
def test_modes_that_a_cure_needs_are_switched_where_the_model_is_called(tmp_path, monkeypatch, made, edits):
    monkeypatch.chdir(tmp_path)
    change, tried, names = shown(tmp_path, MODELESS.format(made=made), *edits)
    assert not change.words
    assert "+        model.train()" in change.diff
    assert "+    model.eval()\n     with torch.no_grad():" in change.diff
    assert [tuple(v.shape) for v in tried["model"].state_dict().values()] == [
        tuple(v.shape) for v in names["model"].state_dict().values()
    ]
    assert all(
        torch.allclose(one.float(), other.float(), atol=1e-5)
        for one, other in zip(
            tried["model"].state_dict().values(), names["model"].state_dict().values(), strict=True
        )
    )


FROZEN = """
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x).tanh())

class Trainer:
    def __init__(self):
        self.model = Net()
        for parameter in self.model.body.parameters():
            parameter.requires_grad = False
        self.optimizer = torch.optim.SGD({given}, lr=0.1)

trainer = Trainer()
model = trainer.model
for i in range(0, 64, 16):
    trainer.optimizer.zero_grad()
    nn.functional.cross_entropy(model(x[i:i + 16]), y[i:i + 16]).backward()
    trainer.optimizer.step()
"""


@pytest.mark.parametrize(
    "given",
    [
        "self.model.parameters()",
        "self.model.head.parameters()",
        "filter(lambda p: p.requires_grad, self.model.parameters())",
    ],
)
def test_what_is_frozen_is_trained_by_the_changed_script(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    edits = [edit("unfreeze", "all"), edit("add-to-optimizer", "all")]
    source = FROZEN.format(given=given)
    if given == "self.model.parameters()":
        edits = edits[:1]
    change, tried, names = shown(tmp_path, source, *edits)
    assert not change.words
    assert "self.model.requires_grad_(True)" in change.diff
    assert alike(tried["model"], names["model"])


def test_a_trainer_that_holds_a_model_is_not_taken_for_one(tmp_path):
    source = FROZEN.format(given="self.model.parameters()")
    (tmp_path / "train.py").write_text(source)
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "optim.SGD" in text)
    places = {"optimizer": [{"file": str((tmp_path / "train.py").resolve()), "line": line}]}
    cure = Prescription([edit("add-to-optimizer", "all")])
    change = rewrite(tmp_path / "train.py", cure, Clues(places, [], {}))
    assert not change.diff
    assert "ModuleList" in change.words[0]


@pytest.mark.parametrize(
    ("imports", "added"),
    [
        ("from torch import nn", True),
        ("import torch.nn as nn", True),
        ("import torch.nn\nfrom torch import nn", False),
        ("import torch\nfrom torch import nn", False),
    ],
)
def test_a_file_that_does_not_import_torch_does_once_a_change_needs_it(imports, added):
    source = f'"""A model."""\nfrom __future__ import annotations\n{imports}\n\ngain = nn.Linear(2, 2)\n'
    draft = Draft("model.py", source)
    assert "import torch\n" not in draft.diff()
    draft.add_after(draft.tree.body[-1], f"start = {draft.alias('torch')}.tensor(0.5)")
    assert ("+import torch\n" in draft.diff()) == added
    exec(compile(draft.revised(), "model.py", "exec"), {})


ROWS = """
import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(64, 3)
y = x.sum(1)
model = nn.Linear(3, 1)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(0, 48, 8):
    out, target = model(x[i:i + 8]), y[i:i + 8]
    optimizer.zero_grad()
    loss = {loss}
    loss.backward()
    optimizer.step()
with torch.no_grad():
    left = {left}
"""


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(
    ("loss", "left"),
    [
        ("criterion(model(x[i:i + 8]), y[i:i + 8])", "criterion(model(x[48:]), y[48:]).item()"),
        ("criterion(out, target)", "nn.functional.l1_loss(model(x[48:]), 2 * y[48:]).item()"),
        ("nn.MSELoss()(model(x[i:i + 8]), target)", "0"),
        ("nn.functional.mse_loss(out + 0, target)", "0"),
        ("((out - y[i:i + 8]) ** 2).mean()", "0"),
        ("(model(x[i:i + 8]) - target).pow(2).mean()", "0"),
    ],
)
def test_targets_get_the_shape_of_outputs_wherever_the_two_meet(tmp_path, monkeypatch, loss, left):
    monkeypatch.chdir(tmp_path)
    change, tried, names = shown(tmp_path, ROWS.format(loss=loss, left=left), edit("fix-broadcast"))
    assert not change.words
    assert alike(tried["model"], names["model"])
    held_out = (names["model"](x := names["x"][48:]).squeeze(1) - x.sum(1)).pow(2).mean().item()
    if left.startswith("criterion"):
        assert names["left"] == pytest.approx(held_out, rel=1e-4)
    elif left != "0":
        assert names["left"] < 10


SCORES = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.NLLLoss()
for i in range(0, 64, 8):
    optimizer.zero_grad()
    {loss}(model(x[i:i + 8]), y[i:i + 8]).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("loss", "new"), [("criterion", "nn.CrossEntropyLoss()"), ("F.nll_loss", "F.cross_entropy(")]
)
def test_a_loss_of_logarithms_that_is_given_scores_becomes_one_of_scores(tmp_path, monkeypatch, loss, new):
    monkeypatch.chdir(tmp_path)
    cure = edit("substitute-activation", "output", from_="everything", to="LogSoftmax")
    change, tried, names = shown(tmp_path, SCORES.replace("{loss}", loss), cure)
    assert new in change.diff
    assert not change.words
    assert alike(tried["model"], names["model"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("loss(p=1, margin=2)", "loss()"),
        ("loss(p=1, margin=(2), reduction='sum')", "loss(reduction='sum')"),
        ("loss(reduction='sum', p=1, margin=2)", "loss(reduction='sum')"),
        ("loss((x), y, p=1, margin=2,)", "loss((x), y,)"),
        ("loss(margin=2,)", "loss()"),
        ("loss(p=1, **told)", "loss(**told)"),
    ],
)
def test_keywords_that_another_loss_does_not_know_are_taken_out_of_its_call(before: str, after: str) -> None:
    draft = Draft("train.py", f"{before}\n")
    [call] = draft.calls()
    draft.drop_keywords(call, {"p", "margin"})
    assert draft.revised() == f"{after}\n"
