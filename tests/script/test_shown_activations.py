"""Activations in the change to make: chosen by a table, made by a library, in a loop, before another loss."""

from __future__ import annotations

import pytest

from akeso.remedies.edit import Prescription
from akeso.script.clues import Clues
from akeso.script.rewrite import rewrite
from tests.script.prescribed_help import edit, perform
from tests.script.test_shown_lines import alike
from tests.script.test_shown_lines import shown as shown_and_run

SELU = edit("substitute-activation", "hidden", from_="Sigmoid", to="SELU")


def lines(diff, sign):
    return [line[1:].strip() for line in diff.splitlines() if line.startswith(sign) and line[:3] != sign * 3]


def shown(tmp_path, source, *edits):
    """The change for these edits, by what a plain run of the source has shown."""
    plain = perform(tmp_path, source)
    clues = Clues(plain.ledger.to_dict()["places"], plain.operation.survey.to_list(), {})
    return rewrite(tmp_path / "train.py", Prescription(edits), clues)


CHOSEN = """
import torch
from torch import nn
import torch.nn.functional as F
ACTIVATIONS = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU}
def build(kind):
    act = ACTIVATIONS[kind]
    return nn.Sequential(nn.Linear(2, 8), MADE, nn.Linear(8, 2))
model = build("sigmoid")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
F.cross_entropy(model(torch.randn(8, 2)), torch.ones(8).long()).backward()
optimizer.step()
"""


@pytest.mark.parametrize("made", ["act()", "ACTIVATIONS[kind]()", 'getattr(nn, "Sigmoid")()'])
def test_an_activation_that_is_chosen_elsewhere_is_exchanged_where_it_is_made(tmp_path, made):
    change = shown(tmp_path, CHOSEN.replace("MADE", made), SELU)
    assert lines(change.diff, "+") == ["return nn.Sequential(nn.Linear(2, 8), nn.SELU(), nn.Linear(8, 2))"]
    assert not change.words


def test_a_line_that_calls_a_library_which_makes_activations_is_let_be(tmp_path):
    library = tmp_path / "site-packages" / "a_library_of_blocks.py"
    library.parent.mkdir()
    library.write_text("from torch import nn\n\ndef block():\n    return nn.Sigmoid()\n")
    found = f"import sys; sys.path.insert(0, {str(library.parent)!r})\nimport a_library_of_blocks\n"
    change = shown(tmp_path, found + CHOSEN.replace("MADE", "a_library_of_blocks.block()"), SELU)
    assert not change.diff
    assert change.words == ("put SELU in the place of Sigmoid (hidden)",)


def test_a_function_that_is_chosen_elsewhere_is_exchanged_at_the_call(tmp_path):
    source = """
import torch
from torch import nn
import torch.nn.functional as F
class Net(nn.Module):
    def __init__(self, act_fn):
        super().__init__()
        self.one, self.two, self.act_fn = nn.Linear(2, 8), nn.Linear(8, 2), act_fn
    def forward(self, x):
        return self.two(self.act_fn(self.one(x)))
model = Net(torch.sigmoid)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
F.cross_entropy(model(torch.randn(8, 2)), torch.ones(8).long()).backward()
optimizer.step()
"""
    change = shown(tmp_path, source, SELU)
    assert lines(change.diff, "+") == ["return self.two(F.selu(self.one(x)))"]


LABELS = """
import torch
from torch import nn
x, y = torch.randn(16, 4), torch.randint(0, 2, (16, 3)).float()
model = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.LazyLinear(3), nn.Sigmoid())
model(x)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = nn.CrossEntropyLoss()
loss(model(x), y).backward()
optimizer.step()
right = (model(x) > 0.5) == y
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mixed", [False, True])
def test_a_sigmoid_stays_where_another_loss_may_be_one_of_probabilities(tmp_path, mixed):
    off = edit("substitute-activation", "output", from_="Sigmoid", to="none")
    loss = edit("substitute-loss", from_="cross_entropy", to="binary_cross_entropy_with_logits")
    change = shown(tmp_path, LABELS + "# under autocast\n" * mixed, off, loss)
    if mixed:  # the sigmoid of the hidden layer stays, whatever the pass was that made the last one
        raw = "model = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.LazyLinear(3), nn.Identity())"
        assert lines(change.diff, "+") == [raw, "loss = nn.BCEWithLogitsLoss()"]
    else:
        assert lines(change.diff, "+") == ["loss = nn.BCELoss()"]


def test_a_method_in_a_loop_is_exchanged_once(tmp_path):
    source = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
    def forward(self, x):
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        return self.layers[-1](x)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
nn.functional.mse_loss(model(torch.randn(8, 4)), torch.zeros(8, 4)).backward()
optimizer.step()
"""
    made = shown(tmp_path, source, edit("substitute-activation", "hidden", from_="ReLU", to="SELU"))
    assert lines(made.diff, "+") == ["x = nn.functional.selu(layer(x))"]


RECURRENT = """
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(32, 9, 4), torch.randint(0, 3, (32,))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(4, 8, batch_first=True{function})
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(0, 32, 8):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x[i:i + 8]), y[i:i + 8]).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("function", "old", "new"), [(', nonlinearity="relu"', "ReLU", "Tanh"), ("", "Tanh", "ReLU")]
)
def test_a_plain_recurrent_layer_is_told_which_function_to_use(tmp_path, monkeypatch, function, old, new):
    monkeypatch.chdir(tmp_path)
    source = RECURRENT.replace("{function}", function)
    cure = edit("substitute-activation", "hidden", from_=old, to=new)
    change, tried, names = shown_and_run(tmp_path, source, cure)
    assert not change.words
    assert f'nonlinearity="{new.lower()}"' in change.diff
    assert alike(tried["model"], names["model"])


GIVEN_TO_THE_STEP = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
x, y = torch.randn(32, 4), torch.randint(0, 3, (32,))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.net(x).softmax(dim=-1)

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.no_grad():  # as trainers do to see that validation works
    F.cross_entropy(model(x), y)
for i in range(0, 32, 8):
    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[i:i + 8]), y[i:i + 8])
        loss.backward()
        return loss
    optimizer.step(closure)
"""


def test_the_output_is_known_where_the_step_is_given_the_pass_that_leads_to_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cure = edit("substitute-activation", "output", from_="Softmax", to="none")
    change, tried, names = shown_and_run(tmp_path, GIVEN_TO_THE_STEP, cure)
    assert "+        return self.net(x)\n" in change.diff
    assert not change.words
    assert alike(tried["model"], names["model"])
