"""Norms and shortcuts in the change that is shown: the weights that were trained fit the model that it builds."""

from __future__ import annotations

import runpy

import pytest
import torch

from akeso.remedies.edit import Prescription
from akeso.script.prescribed.ledger import Ledger
from akeso.script.prescribed.operation import Operation
from akeso.script.prescribed.weights import trained_model
from akeso.script.renaming import renamed
from tests.script.prescribed_help import edit
from tests.script.test_shown_change import added, alike, shown

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))
"""
TRAIN = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    model.train()
    for i in range(0, 64, 16):
        optimizer.zero_grad()
        F.cross_entropy(model(x[i:i + 16]), y[i:i + 16]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        model(x)
"""


def own_class(made: str, forward: str) -> str:
    """A model with a class of its own."""
    lines = ["class Net(nn.Module):", "    def __init__(self, width=8):", "        super().__init__()"]
    lines += [f"        {line}" for line in made.strip().splitlines()]
    lines += ["    def forward(self, x):", *(f"        {line}" for line in forward.strip().splitlines())]
    return "\n".join([*lines, "model = Net()"])


SEQUENTIAL = "model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))"
LAYERS = "self.fc1, self.fc2 = nn.Linear(4, width), nn.Linear(width, 6)\nself.out = nn.Linear(6, 3)"
MODELS = {
    "in a row": SEQUENTIAL,
    "made in a loop": """
layers = [nn.Linear(4, 8), nn.ReLU()]
for a, b in [(8, 7), (7, 6)]:
    layers += [nn.Linear(a, b), nn.Dropout(0.0), nn.ReLU()]
model = nn.Sequential(*layers, nn.Linear(6, 3))
""",
    "called as functions and methods": own_class(
        LAYERS, "x = F.relu(self.fc1(x), inplace=True)\nx = self.fc2(x).relu()\nreturn self.out(x)"
    ),
    "called inside of each other": own_class(
        LAYERS, "return self.out(torch.sigmoid(self.fc2(torch.sigmoid(self.fc1(x)))))"
    ),
    "one module called twice": own_class(
        f"{LAYERS}\nself.act = nn.Sigmoid()", "return self.out(self.act(self.fc2(self.act(self.fc1(x)))))"
    ),
    "attributes": own_class(
        f"{LAYERS}\nself.one = nn.Tanh()\nself.two = nn.Tanh()",
        "return self.out(self.two(self.fc2(self.one(self.fc1(x)))))",
    ),
    "layers gone through": own_class(
        "self.first = nn.Linear(4, width)\n"
        "self.layers = nn.ModuleList([nn.Linear(8, 7), nn.Linear(7, 6)])\nself.out = nn.Linear(6, 3)",
        "x = torch.tanh(self.first(x))\nfor layer in self.layers:\n    x = torch.tanh(layer(x))\nreturn self.out(x)",
    ),
    "blocks gone through": """
class Pair(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.one, self.two = nn.Linear(a, b), nn.Linear(a, b)
    def forward(self, x):
        return self.one(x) + self.two(x.flip(0))
class Net(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.pairs = nn.ModuleList(Pair(a, b) for a, b in zip(sizes, sizes[1:]))
        self.out = nn.Linear(6, 3)
    def forward(self, x):
        for pair in self.pairs:
            x = F.relu(pair(x))
        return self.out(x)
model = Net([4, 6, 6])
""",
    "chosen elsewhere": """
def build(act):
    layers = []
    for a, b in [(4, 8), (8, 6)]:
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers, nn.Linear(6, 3))
model = build(nn.Tanh)
""",
    "blocks of two widths": """
class Block(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.fc = nn.Linear(a, b)
    def forward(self, x):
        return F.relu(self.fc(x))
model = nn.Sequential(Block(4, 8), Block(8, 6), nn.Linear(6, 3))
""",
    "convolutions": own_class(
        "self.features = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 1))\n"
        "self.out = nn.Linear(5, 3)",
        "return self.out(F.relu(self.features(x.view(-1, 1, 2, 2))).flatten(1))",
    ),
}
NORMS = edit("insert-normalisation", "hidden", kind="batch")


def fits(tmp_path, source, *edits):
    """Whether training the changed script comes to the same weights, under the same names."""
    change, tried, changed = shown(tmp_path, HEAD + source + TRAIN, *edits)
    assert not change.words, change.words
    tried = {renamed(name, change.names): value for name, value in tried.items()}
    assert tried.keys() == changed.keys()
    assert alike(tried, changed)
    return change


@pytest.mark.parametrize("source", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize(
    "edits",
    [[NORMS], [edit("substitute-activation", "hidden", to="ELU"), NORMS]],
    ids=["alone", "with another activation"],
)
def test_norms_stand_where_they_were_tried(tmp_path, monkeypatch, source, edits):
    monkeypatch.chdir(tmp_path)
    fits(tmp_path, source, *edits)


@pytest.mark.parametrize("kind", ["layer", "group"])
def test_norms_of_other_kinds_are_made_as_they_were(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    fits(tmp_path, MODELS["convolutions"], edit("insert-normalisation", "hidden", kind=kind))


def test_what_recurrent_and_gated_layers_give_is_normalised(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recurrent = own_class(
        "self.rnn = nn.GRU(2, 5, batch_first=True)\nself.out = nn.Linear(5, 3)",
        "out, _ = self.rnn(x.view(-1, 2, 2))\nreturn self.out(out[:, -1])",
    )
    change = fits(tmp_path, recurrent, NORMS)
    assert "out = self.rnn_norm(out)" in added(change)
    gated = own_class(
        "self.fc = nn.Linear(4, 16)\nself.out = nn.Linear(8, 3)",
        "a, b = self.fc(x).chunk(2, dim=1)\nreturn self.out(a * torch.sigmoid(b))",
    )
    change = fits(tmp_path, gated, NORMS)
    assert "a, b = self.fc_norm(self.fc(x)).chunk(2, dim=1)" in added(change)


def test_an_activation_at_the_output_gets_no_norm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fits(tmp_path, SEQUENTIAL.replace("nn.Linear(6, 3))", "nn.Linear(6, 3), nn.Tanh())"), NORMS)


def test_steps_of_a_sequence_are_normalised_one_by_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    steps = own_class(
        "self.fc = nn.Linear(2, 6)\nself.out = nn.Linear(12, 3)",
        "return self.out(torch.relu(self.fc(x.view(-1, 2, 2))).flatten(1))",
    )
    assert "self.fc_norm = nn.LayerNorm(6)" in added(fits(tmp_path, steps, NORMS))


def test_what_has_no_place_is_said_under_the_name_of_its_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = own_class(
        "self.fc, self.act = nn.Linear(4, 6), dict(relu=torch.relu)['relu']\nself.out = nn.Linear(6, 3)",
        "return self.out(self.act(self.fc(x)))",
    )
    change, tried, _ = shown(tmp_path, HEAD + chosen + TRAIN, NORMS)
    assert any("fc_norm = torch.nn.BatchNorm1d(6)" in word for word in change.words)
    assert {renamed(name, change.names) for name in tried} >= {"fc_norm.weight", "fc_norm.bias", "fc.weight"}


DEEP = {
    "in a row": "model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(),\n"
    "    nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))",
    "in a loop": """
layers = [nn.Linear(4, 8), nn.Tanh()]
for _ in range(4):
    layers += [nn.Linear(8, 8), nn.Tanh()]
model = nn.Sequential(*layers, nn.Linear(8, 3))
""",
    "appended": """
layers = [nn.Linear(4, 8), nn.ReLU()]
for _ in range(4):
    layers.append(nn.Linear(8, 8))
    layers.append(nn.ReLU())
model = nn.Sequential(*layers, nn.Linear(8, 3))
""",
    "layers gone through": MODELS["layers gone through"].replace(
        "[nn.Linear(8, 7), nn.Linear(7, 6)]", "nn.Linear(8, 8) for _ in range(3)"
    ).replace("nn.Linear(6, 3)", "nn.Linear(8, 3)"),
    "the first of another width": own_class(
        "self.layers = nn.ModuleList([nn.Linear(4, 8), *(nn.Linear(8, 8) for _ in range(3))])\n"
        "self.out = nn.Linear(8, 3)",
        "for layer in self.layers:\n    x = torch.relu(layer(x))\nreturn self.out(x)",
    ),
    "called as functions": own_class(
        "self.a, self.b, self.c = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 8)\n"
        "self.d, self.e = nn.Linear(8, 8), nn.Linear(8, 3)",
        "x = F.relu(self.a(x))\nx = F.relu(self.b(x))\nx = F.relu(self.c(x))\nreturn self.e(F.relu(self.d(x)))",
    ),
}  # fmt: skip


@pytest.mark.parametrize("source", DEEP.values(), ids=DEEP.keys())
def test_shortcuts_stand_where_they_were_tried(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    shortcut = edit("add-residual", "hidden")
    fits(tmp_path, source, shortcut)
    fits(tmp_path, source, NORMS, shortcut)


def test_layers_behind_shortcuts_are_drawn_by_the_names_they_have_then(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    edits = [NORMS, edit("add-residual", "hidden"), edit("reinitialise", scheme="auto")]
    change, _, changed = shown(tmp_path, HEAD + DEEP["in a loop"] + TRAIN, *edits)
    (branch,) = [line for line in added(change) if line.startswith("if name in")]
    names = branch.split("(")[1].split(")")[0].replace("'", "").replace(",", " ").split()
    assert all(f"{name}.weight" in changed for name in names)
    assert torch.isfinite(changed["0.weight"]).all()


def test_a_model_that_another_object_calls_is_known_by_its_place_in_that(tmp_path, monkeypatch):
    """As under Lightning: what is trained is the whole, and only parts of it are called."""
    monkeypatch.chdir(tmp_path)
    whole = """
class Lit(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6))
        self.head = nn.Linear(6, 3)

    def training_step(self, x, y):
        return F.cross_entropy(self.head(self.net(x)), y)

model = Lit()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(0, 64, 16):
    optimizer.zero_grad()
    model.training_step(x[i:i + 16], y[i:i + 16]).backward()
    optimizer.step()
"""
    operation, saved = Operation(Ledger(Prescription([NORMS]))), []
    operation.on_step.append(lambda: saved.append(trained_model(operation)))
    (tmp_path / "train.py").write_text(HEAD + whole)
    with operation:
        names = runpy.run_path(str(tmp_path / "train.py"))
    assert saved[-1] is names["model"]
    assert [norm["name"] for norm in operation.ledger.facts["norms"]] == ["net.1.0"]
    change, tried, changed = shown(tmp_path, HEAD + whole, NORMS, edit("reinitialise", scheme="auto"))
    assert {renamed(name, change.names) for name in tried} == changed.keys()
    assert "if name in ('net.0',):" in added(change)
    part = whole.replace("SGD(model.parameters()", "SGD(model.net.parameters()")
    change, *_ = shown(tmp_path, HEAD + part, edit("reinitialise", scheme="auto"))
    assert "if name in ('0',):" in added(change)
