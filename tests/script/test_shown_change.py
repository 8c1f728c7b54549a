"""The change that is shown does to a script what was done to it when the cure was tried."""

from __future__ import annotations

import runpy
import subprocess

import pytest
import torch

from akeso.remedies.edit import Edit, Prescription
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


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        ("F.mse_loss", "F.one_hot(y[i:i + 16], 3).float()"),
        ("F.multi_margin_loss", "y[i:i + 16]"),
    ],
)
def test_targets_that_the_new_loss_takes_as_they_are_need_no_words(tmp_path, monkeypatch, loss, target):
    monkeypatch.chdir(tmp_path)
    source = CLASSES.replace("F.nll_loss", loss).replace("y[i:i + 16])", f"{target})")
    edits = [
        edit("substitute-activation", "output", from_="Softmax", to="none"),
        edit("substitute-loss", from_=loss.removeprefix("F."), to="cross_entropy"),
    ]
    change, tried, changed = shown(tmp_path, source, *edits)
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


DRAWN_BY_HAND = """
import torch
import torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.table, self.out = nn.Linear(4, 8), nn.Embedding(3, 8), nn.Linear(8, 2)
        nn.init.normal_(self.fc.weight, std=1e-6)  # far too little
        nn.init.normal_(self.table.weight, std=0.5)

    def forward(self, x):
        return self.out(torch.relu(self.fc(x)) + self.table.weight[0])

def draw(module):
    'All alike.'
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        module.weight.data.fill_(0.01)
        if module.bias is not None:
            nn.init.zeros_(module.bias)

def main():
    torch.manual_seed(0)
    x, y = torch.randn(64, 4), torch.randint(0, 2, (64,))
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.apply(draw)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            model.out.weight.mul_(0.999)
    return model

model = main()
"""


def test_lines_that_draw_what_is_drawn_anew_are_taken_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change, _, changed = shown(tmp_path, DRAWN_BY_HAND, edit("reinitialise", scheme="auto"))
    gone = [line[1:].strip() for line in change.diff.splitlines() if line[:1] == "-" and line[:3] != "---"]
    assert gone[0] == "nn.init.normal_(self.fc.weight, std=1e-6)  # far too little"
    assert {"def draw(module):", "model.apply(draw)", "module.weight.data.fill_(0.01)"} <= set(gone)
    assert not any("table" in line or "mul_" in line for line in gone)
    assert changed["fc.weight"].std() > 0.1


def test_a_function_that_draws_and_is_called_otherwise_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = DRAWN_BY_HAND.replace("model.apply(draw)", "for part in model.children(): draw(part)")
    change, _, _ = shown(tmp_path, source, edit("reinitialise", scheme="auto"))
    assert not any(line.startswith("-") and "fill_" in line for line in change.diff.splitlines())


def test_every_parameter_drawn_by_hand_is_left_where_some_are_not_drawn_anew(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    by_hand = "for parameter in model.parameters():\n        nn.init.normal_(parameter, std=1e-6)"
    for source, taken in (
        (DRAWN_BY_HAND, False),
        (DRAWN_BY_HAND.replace("nn.Embedding(3, 8)", "nn.Linear(8, 3)"), True),
    ):
        change, _, _ = shown(
            tmp_path, source.replace("model.apply(draw)", by_hand), edit("reinitialise", scheme="auto")
        )
        assert (
            any(line.startswith("-") and "(parameter, std" in line for line in change.diff.splitlines())
            is taken
        )


FACTORS = """
import torch
import torch.nn as nn

torch.manual_seed(0)
names, y = torch.randint(0, 9, (64, 2)), torch.randn(64)

class Machine(nn.Module):
    def __init__(self):
        super().__init__()
        self.vectors, self.biases = nn.Embedding(9, 4), nn.Embedding(9, 1)
        nn.init.zeros_(self.biases.weight)
        nn.init.normal_(self.vectors.weight, std=1e-6)
        self.out = nn.Linear(4, 1)
    def forward(self, names):
        return (self.out(self.vectors(names).prod(1)) + self.biases(names).sum(1)).squeeze(1)

model = Machine()
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
for _ in range(2):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(names), y).backward()
    optimizer.step()
"""


def test_tables_of_biases_stay_at_zero(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, tried, changed = shown(tmp_path, FACTORS, edit("reinitialise", scheme="auto"))
    for state in (tried, changed):
        assert not state["biases.weight"].any()
        assert state["vectors.weight"].std() > 0.05


def test_tables_that_are_drawn_small_are_so_in_the_change_as_well(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = FACTORS.replace("        nn.init.normal_(self.vectors.weight, std=1e-6)\n", "")
    _, tried, changed = shown(tmp_path, source, edit("reinitialise", scheme="auto", tables="small"))
    for state in (tried, changed):
        assert not state["biases.weight"].any()
        assert 0.05 < state["vectors.weight"].std() < 0.2


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
    diff = rewrite(tmp_path / "train.py", Prescription([norms]), clues).diff
    assert "+model.eval()" in diff


AUTOENCODER = """
import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.rand(64, 6) * 255

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 6), nn.Sigmoid())

    def forward(self, x):
        return self.body(x)

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for _ in range(3):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x).backward()
    optimizer.step()
"""


def test_whatever_is_done_to_an_output_is_taken_off_in_the_diff_where_it_is_one_function(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    bare = edit("substitute-activation", "output", from_="everything", to="none")
    inside = Edit("substitute-activation", "output", {"from": "Sigmoid", "to": "none", "in": "model"})
    alike_inside = AUTOENCODER.replace("nn.ReLU()", "nn.Sigmoid()")
    for source, cure in ((AUTOENCODER, bare), (AUTOENCODER, inside), (alike_inside, bare)):
        change, tried, changed = shown(tmp_path, source, cure)
        assert any("nn.Identity()" in line for line in added(change))
        assert not change.words
        assert alike(changed, tried)
    more = AUTOENCODER.replace("return self.body(x)", "return self.body(x) * 2")
    change, _, _ = shown(tmp_path, more, bare)
    assert not change.diff
    assert "what its last layer gives" in change.words[0]


VALUES = """
import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(64, 3) * torch.tensor([1e6, 1.0, 1e-3]) + torch.tensor([1e9, 0.0, 5.0])
y = 4e5 + 1e5 * torch.randn(64, 1)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.MSELoss()
for epoch in range(6):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
with torch.no_grad():
    answer = model(x)
"""


def scaled(kind="standard"):
    clip = "keep" if kind == "none" else "clip"
    return edit("scale-inputs", kind=kind, nan="impute", outliers=clip)


def test_features_are_standardised_each_by_its_own_figures_where_they_enter(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change, tried, changed = shown(tmp_path, VALUES, scaled(), edit("standardise-targets"))
    assert "model.register_forward_pre_hook(scaled_inputs)" in added(change)
    assert not any("isfinite" in line or "inputs_low" in line for line in added(change))
    assert change.words == ("the loss that is printed while training is in standard units now",)
    assert alike(tried, changed)


def test_several_targets_are_standardised_each_by_its_own_figures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = VALUES.replace("torch.randn(64, 1)", "torch.randn(64, 2) * torch.tensor([1.0, 1e-3])")
    source = source.replace("nn.Linear(8, 1)", "nn.Linear(8, 2)")
    change, tried, changed = shown(tmp_path, source, scaled(), edit("standardise-targets"))
    assert change.words == ("the loss that is printed while training is in standard units now",)
    assert alike(tried, changed)


def test_what_is_missing_is_filled_in_and_what_lies_far_out_pulled_in_where_there_is_any(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for line, cure, word in (
        ("x[3, 1] = float('nan')", scaled("none"), "inputs_fill"),
        ("x[3:6, 1] = torch.tensor([1e4, 1.3e4, -9e3])", scaled(), "inputs_low"),
        ("x[3:9, 1] = -999.9", scaled(), "inputs_code_0"),
        ("x[3:9] = 9999.0", scaled("none"), "inputs_code_0 = torch.tensor([9999]"),
    ):
        source = VALUES.replace("[1e6, 1.0, 1e-3]", "[1.0, 1.0, 1.0]").replace("[1e9, 0.0", "[0.0, 0.0")
        source = source.replace("y = 4e5 + 1e5 *", f"{line}\ny =")
        change, tried, changed = shown(tmp_path, source, cure)
        assert any(word in text for text in added(change))
        assert not change.words
        assert alike(tried, changed)


def test_without_a_place_for_it_only_what_was_done_to_the_inputs_is_said(tmp_path):
    (tmp_path / "train.py").write_text("import elsewhere")
    figures = {"mean": [float(i) for i in range(10)], "std": [1.0] * 10, "found": [], "dims": 2}
    clues = Clues({}, [], {"input_scale": figures})
    (words,) = rewrite(tmp_path / "train.py", Prescription([scaled()]), clues).words
    assert "7, 8, 9]" in words
    assert "outliers" not in words
    assert "finite" not in words


@pytest.mark.parametrize(
    ("name", "text", "changed"),
    [
        ("config.json", '{"seed": 1, "optimizer": {"lr": 1e-5, "momentum": 0.0}}\n',
         '+{"seed": 1, "optimizer": {"lr": 0.25, "momentum": 0.0}}'),
        ("config.yaml", "optimizer:\n  learning_rate: 0.00001\n", "+  learning_rate: 0.25"),
        ("config.yaml", "one:\n  lr: 1e-5\ntwo:\n  lr: 1e-5\n", None),
        ("other.yaml", "lr: 1e-5\n", None),
    ],
)  # fmt: skip
def test_a_rate_in_a_settings_file_is_changed_there_if_there_is_one_such(
    tmp_path, monkeypatch, name, text, changed
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    source = CLASSES.replace("lr=0.1", "**settings")
    source = source.replace(
        "model = Net()", "model, settings = Net(), {'lr': float('1e-5')}  # of config.json, config.yaml"
    )
    cure = edit("set-learning-rate", to=0.25)
    tried = perform(tmp_path, source, cure)
    clues = Clues(tried.ledger.to_dict()["places"], [], tried.ledger.facts)
    change = rewrite(tmp_path / "train.py", Prescription([cure]), clues)
    if changed is None:
        assert not change.diff
        assert change.words == ("set the learning rate to 0.25",)
    else:
        assert changed in change.diff.splitlines()
        assert not change.words


PACED = """
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(50, 4), torch.randint(0, 3, (50,)))
loader = DataLoader(data, batch_size=8, shuffle=True, drop_last=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
for epoch in range(4):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        scheduler.step()
    print(scheduler.get_last_lr())
"""


def test_a_schedule_that_goes_on_with_every_batch_is_moved_behind_the_loop_over_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change, tried, changed = shown(tmp_path, PACED, edit("pace-schedule", every=7))
    moved = [line for line in change.diff.splitlines() if "scheduler.step()" in line]
    assert moved == ["-        scheduler.step()", "+    scheduler.step()"]
    assert alike(tried, changed)
    assert perform(tmp_path, CLASSES, edit("pace-schedule", every=7)).refused
