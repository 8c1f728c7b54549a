"""Edits of models that know nothing of akeso."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.script.prescribed_help import CIRCLE, edit, perform

TRAIN = """
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(STEPS):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
""".replace("STEPS", "6")

MODULES = (
    CIRCLE
    + """
model = nn.Sequential(nn.Linear(2, 5), nn.Sigmoid(), nn.Linear(5, 5), nn.Sigmoid(), nn.Linear(5, 2))
first = model[0].weight.detach().clone()
"""
    + TRAIN
)

FUNCTIONS = (
    CIRCLE
    + """
hidden = []
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(2, 5), nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 2)
    def forward(self, x):
        x = torch.sigmoid(self.a(x))
        hidden.append(x.detach())
        x = self.b(x).sigmoid()
        hidden.append(x.detach())
        x = F.sigmoid(self.c(x))
        hidden.append(x.detach())
        return self.d(x)
model = Net()
"""
    + TRAIN
)


def test_modules_are_exchanged_and_weights_drawn_anew(tmp_path):
    done = perform(
        tmp_path,
        MODULES,
        edit("substitute-activation", "hidden", from_="Sigmoid", to="SELU"),
        edit("reinitialise", scheme="auto"),
    )
    assert [type(layer).__name__ for layer in done["model"]] == ["Linear", "SELU", "Linear", "SELU", "Linear"]
    assert not torch.allclose(done["first"], done["model"][0].weight, atol=0.1)
    assert not done.refused


def test_functions_and_methods_are_exchanged(tmp_path):
    plain = perform(tmp_path, FUNCTIONS)
    assert all((value > 0).all() for value in plain["hidden"])
    done = perform(tmp_path, FUNCTIONS, edit("substitute-activation", "hidden", from_="Sigmoid", to="Tanh"))
    last = done["hidden"][-3:]
    assert all((value < 0).any() for value in last)


def test_gates_are_left_alone(tmp_path):
    source = (
        CIRCLE
        + """
class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(2, 5), nn.Linear(2, 5), nn.Linear(5, 2)
    def forward(self, x):
        return self.c(torch.sigmoid(self.a(x)) * self.b(x))
model = Gated()
"""
        + TRAIN
    )
    done = perform(tmp_path, source, edit("substitute-activation", "hidden", to="ReLU"))
    assert "substitute-activation" in done.refused
    assert done.ended  # nothing was left to try


def test_new_norms_are_trained_with_the_model(tmp_path):
    source = (
        FUNCTIONS
        + """
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
optimizer.step()
scheduler.step()
model.eval()
kept = model.state_dict()
other = Net()
other.load_state_dict(kept)
other.eval()
same = torch.equal(other(x), model(x))
"""
    )
    done = perform(tmp_path, source, edit("insert-normalisation", "hidden", kind="batch"))
    norms = [module for module in done["model"].modules() if isinstance(module, nn.BatchNorm1d)]
    assert len(norms) == 3
    held = {id(p) for group in done["optimizer"].param_groups for p in group["params"]}
    assert all(id(p) in held for norm in norms for p in norm.parameters())
    assert all((norm.weight != 1).any() for norm in norms)
    assert len(done["optimizer"].param_groups) == 1
    assert done["same"]


def test_new_batch_norms_are_in_the_right_mode_where_the_script_never_sets_one(tmp_path):
    source = MODULES.replace(
        "    optimizer.step()\n", "    optimizer.step()\n    modes.append(model.training)\n    evaluate()\n"
    ).replace(
        "optimizer =",
        "modes = []\ndef evaluate():\n    with torch.no_grad():\n        model(x[:1])\n"
        "        modes.append(model.training)\n"
        "optimizer =",
    )
    done = perform(tmp_path, source, edit("insert-normalisation", "hidden", kind="batch"))
    assert done["modes"] == [True, False] * 6


def test_weights_from_a_file_are_not_drawn_anew(tmp_path):
    source = MODULES.replace(
        "first =", "model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()})\nfirst ="
    )
    done = perform(tmp_path, source, edit("reinitialise", scheme="he"))
    assert "loaded" in done.refused["reinitialise"]


def test_frozen_and_missing_parameters_are_trained(tmp_path):
    source = MODULES.replace("model.parameters()", "model[4].parameters()").replace(
        "first =", "model[0].weight.requires_grad_(False)\nfirst ="
    )
    plain = perform(tmp_path, source)
    assert torch.equal(plain["first"], plain["model"][0].weight)
    done = perform(tmp_path, source, edit("unfreeze", "all"), edit("add-to-optimizer", "all"))
    assert not torch.equal(done["first"], done["model"][0].weight)
    assert not done.refused


def test_modes_follow_the_phase(tmp_path):
    source = (
        MODULES.replace("first =", "model.eval()\nfirst =")
        + """
trained_in = model.training
with torch.no_grad():
    model(x)
evaluated_in = model.training
"""
    )
    done = perform(tmp_path, source, edit("set-mode", to="by-phase"))
    assert done["trained_in"] is True
    assert done["evaluated_in"] is False


def test_activations_outside_any_model(tmp_path):
    source = (
        CIRCLE
        + """
one, two = nn.Linear(2, 5), nn.Linear(5, 2)
optimizer = torch.optim.Adam([*one.parameters(), *two.parameters()])
least = []
for step in range(5):
    h = torch.sigmoid(one(x))
    least.append(h.detach().min().item())
    loss = F.cross_entropy(two(h), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    )
    plain = perform(tmp_path, source)
    lines = plain.operation.survey.hidden_lines()
    assert [function for function, _ in lines] == ["sigmoid"]
    assert min(plain["least"]) > 0
    done = perform(tmp_path, source, edit("substitute-activation", "hidden", to="Tanh"), hidden=lines)
    assert min(done["least"]) < 0


def test_without_edits_not_a_bit_changes_and_torch_is_left_as_it_was(tmp_path):
    call, init, loss = nn.Module.__call__, torch.optim.Adam.__init__, nn.functional.cross_entropy
    import runpy

    done = perform(tmp_path, FUNCTIONS)
    plain = runpy.run_path(str(tmp_path / "train.py"))
    for ours, theirs in zip(done["model"].parameters(), plain["model"].parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert nn.Module.__call__ is call
    assert torch.optim.Adam.__init__ is init
    assert nn.functional.cross_entropy is loss
    assert "_akeso_case" not in vars(done["model"])


def test_the_survey_knows_hidden_output_and_recurrent(tmp_path):
    source = (
        CIRCLE
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.u, self.h, self.o = nn.Linear(1, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
    def forward(self, x):
        h = x.new_zeros(len(x), 4)
        for t in range(2):
            h = torch.tanh(self.w(x[:, t:t + 1]) + self.u(h))
        return F.softmax(self.o(F.relu(self.h(h))), dim=1)
model = Net()
"""
        + TRAIN
    )
    roles = {site.activation: site.role for site in perform(tmp_path, source).operation.survey.sites}
    assert roles == {"Tanh": "recurrent", "ReLU": "hidden", "Softmax": "output"}


def test_a_module_that_layers_and_output_share_is_changed_at_the_output_alone(tmp_path):
    script = (
        CIRCLE
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.last, self.act = nn.Linear(2, 5), nn.Linear(5, 2), nn.ReLU()
    def forward(self, x):
        return self.act(self.last(self.act(self.one(x))))
model = Net()
"""
        + TRAIN
    )
    for by in ("ReLU", "everything"):
        done = perform(tmp_path, script, edit("substitute-activation", "output", from_=by, to="none"))
        assert not done.ledger.refused
        model, x = done.names["model"], done.names["x"]
        assert torch.equal(model(x), model.last(torch.relu(model.one(x))))


def test_weights_that_belong_to_no_module_are_drawn_anew_where_they_are_out_of_range(tmp_path):
    bare = """
w1, w2 = torch.randn(2, 64, requires_grad=True), (0.1 * torch.randn(64, 2)).requires_grad_()
before = w1.detach().clone(), w2.detach().clone()
optimizer = torch.optim.SGD([w1, w2], lr=0.0)
for step in range(3):
    optimizer.zero_grad()
    loss = F.cross_entropy(torch.relu(x @ w1 * 20) @ w2, y)
    loss.backward()
    optimizer.step()
"""
    wide = bare.replace("torch.randn(2, 64, requires_grad=True)", "(9 * torch.randn(2, 64)).requires_grad_()")
    done = perform(tmp_path, CIRCLE + wide, edit("reinitialise", scheme="auto"))
    assert not done.refused
    assert float(done["w1"].detach().std()) < 2.0
    assert torch.equal(done["before"][1], done["w2"].detach())
    assert perform(tmp_path, CIRCLE + bare, edit("reinitialise", scheme="auto")).refused


def test_names_are_looked_up_and_their_rows_reach_the_optimizer(tmp_path):
    script = (
        CIRCLE
        + """
x = torch.randint(0, 50, (len(y), 10)).float()
model = nn.Sequential(nn.Linear(10, 5), nn.ReLU(), nn.Linear(5, 2))
"""
        + TRAIN
    )
    done = perform(tmp_path, script, edit("embed-inputs", names=49))
    assert not done.refused
    held = {id(p) for group in done["optimizer"].param_groups for p in group["params"]}
    assert {id(p) for p in done["model"][0].parameters()} <= held
    assert type(done["model"][0]).__name__ == "NameEmbedding"


@pytest.mark.parametrize(("axis", "scores"), [(0, True), (1, False)])
def test_a_softmax_over_the_samples_is_taken_off_what_is_evaluated_too(tmp_path, axis, scores):
    source = f"""{CIRCLE}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(2, 2)

    def forward(self, x):
        return F.softmax(self.out(x), dim={axis})

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
with torch.no_grad():
    answers = model(x)
"""
    run = perform(tmp_path, source, edit("substitute-activation", "output", from_="Softmax", to="none"))
    assert not run.refused
    plain = run["model"].out(run["x"]).detach()
    expected = plain if scores else torch.softmax(plain, 1)
    assert torch.allclose(run["answers"], expected)
