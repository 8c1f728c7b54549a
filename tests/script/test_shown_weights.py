"""New weights in the change that is shown: every kind of layer is drawn as it was when the cure was tried."""

from __future__ import annotations

import math

import pytest
import torch

from tests.script.prescribed_help import edit
from tests.script.test_shown_change import added, shown

SEQUENCES = """
import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(32, 5, 4), torch.randint(0, 2, (32,))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.{made}
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, 2)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=4.0)

    def forward(self, x):
        {forward}
        return self.out(self.norm(h))

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
for _ in range(3):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
LAYER = "h = self.steps(x)[0][:, -1]"
CELL = "h = None\n        for t in range(5):\n            h = self.steps(x[:, t], h)"
LSTM_CELL = f"{CELL}\n        h = h[0]"


@pytest.mark.parametrize(
    ("made", "forward", "gates", "end"),
    [
        ("LSTM(4, 8, batch_first=True)", LAYER, 4, "_l0"),
        ("GRU(4, 8, batch_first=True)", LAYER, 3, "_l0"),
        ("RNN(4, 8, batch_first=True)", LAYER, 1, "_l0"),
        ("RNNCell(4, 8)", CELL, 1, ""),
        ("LSTMCell(4, 8)", LSTM_CELL, 4, ""),
    ],
)
def test_recurrent_layers_are_drawn_gate_by_gate(tmp_path, monkeypatch, made, forward, gates, end):
    monkeypatch.chdir(tmp_path)
    source = SEQUENCES.format(made=made, forward=forward)
    _, tried, changed = shown(tmp_path, source, edit("reinitialise", scheme="auto"))
    bound = math.sqrt(6 / (4 + 8))
    for state in (tried, changed):
        for gate in state[f"steps.weight_hh{end}"].chunk(gates):
            assert torch.allclose(gate @ gate.T, torch.eye(8), atol=1e-5)
        for gate in state[f"steps.weight_ih{end}"].chunk(gates):
            assert 0.7 * bound < gate.abs().max() <= bound
        assert torch.equal(state["norm.weight"], torch.ones(8))
    for name in (f"steps.bias_ih{end}", f"steps.bias_hh{end}", "norm.bias", "out.bias"):
        assert torch.equal(tried[name], changed[name])


ATTENTION = "MultiheadAttention(8, 2, batch_first=True)"


def test_attentions_and_norms_are_drawn_anew_where_the_script_drew_them_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = SEQUENCES.format(made=ATTENTION, forward="h = self.steps(x, x, x)[0].mean(1)")
    source = source.replace("(32, 5, 4)", "(32, 5, 8)")
    change, tried, changed = shown(tmp_path, source, edit("reinitialise", scheme="auto"))
    assert {"layer._reset_parameters()", "layer.reset_parameters()"} <= set(added(change))
    for state in (tried, changed):
        assert state["steps.in_proj_weight"].abs().max() < 1.0
        assert not state["steps.in_proj_bias"].any()
        assert torch.equal(state["norm.weight"], torch.ones(8))
    own = "        for parameter in self.parameters():\n            nn.init.normal_(parameter, std=4.0)\n"
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    change, *_ = shown(tmp_path / "other", source.replace(own, ""), edit("reinitialise", scheme="auto"))
    assert "reset_parameters" not in change.diff


BY_HAND = """
import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(64, 16), torch.randint(0, 2, (64,))

class Dense(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.w = nn.Parameter(torch.randn(inputs, outputs) * 1e-3)
        self.b = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.w + self.b

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Dense(16, 32), {between}, Dense(32, 2)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        return self.layers[-1](x)

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
for _ in range(3):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize("between", ["Dense(32, 32)", "nn.Linear(32, 32)"])
def test_weights_that_no_layer_of_torch_holds_are_drawn_in_the_change_too(tmp_path, monkeypatch, between):
    monkeypatch.chdir(tmp_path)
    source = BY_HAND.replace("{between}", between)
    change, tried, changed = shown(tmp_path, source, edit("reinitialise", scheme="auto"))
    assert ("nn.Linear" in "\n".join(added(change))) is ("Linear" in between)
    assert not change.words
    for name, weight in tried.items():
        assert weight.std() == pytest.approx(changed[name].std(), rel=0.25)
        assert weight.dim() < 2 or weight.std() > 0.1
