"""What stands in the wrong order, or is told the wrong thing: cured from outside, and by the change that is shown."""

from __future__ import annotations

import pytest
import torch

from tests.script.prescribed_help import edit, perform
from tests.script.test_shown_lines import alike, shown

NET = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x).tanh())

def fit(optimizer):
    for i in range(0, 64, 8):
        optimizer.zero_grad()
        F.cross_entropy(model(x[i:i + 8]), y[i:i + 8]).backward()
        optimizer.step()

model = Net()
"""
REPLACED = """
for parameter in model.body.parameters():
    parameter.requires_grad_(False)
body = model.body.weight.clone()
optimizer = torch.optim.SGD({given}, lr=0.1)
model.head = nn.Linear(8, 3)
head = model.head.weight.detach().clone()
fit(optimizer)
"""


@pytest.mark.parametrize(
    "given",
    [
        "model.head.parameters()",
        "model.parameters()",
        "filter(lambda p: p.requires_grad, model.parameters())",
        "[p for p in model.parameters() if p.requires_grad]",
    ],
)
@pytest.mark.parametrize("before", ["", "fit(torch.optim.Adam(model.parameters(), lr=0.01))\n"])
def test_a_layer_that_is_made_after_its_optimizer_is_trained_and_what_is_frozen_stays_so(
    tmp_path, monkeypatch, given, before
):
    monkeypatch.chdir(tmp_path)
    source = NET + before + REPLACED.format(given=given)
    stage = {"stage": "last"} if before else {}
    assert torch.equal(perform(tmp_path, source)["head"], perform(tmp_path, source)["model"].head.weight)
    change, tried, names = shown(tmp_path, source, edit("add-to-optimizer", "all", **stage))
    assert not torch.equal(tried["head"], tried["model"].head.weight)
    assert torch.equal(tried["body"], tried["model"].body.weight)
    assert not change.words
    assert change.diff.count("\n+") == 2  # the header, and the optimizer behind the new layer
    assert alike(tried["model"], names["model"])


def test_an_optimizer_that_is_needed_before_the_layer_is_made_is_told_in_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = NET + REPLACED.format(given="model.head.parameters()").replace(
        "\nmodel.head =", "\nschedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)\nmodel.head ="
    )
    plain = perform(tmp_path, source, edit("add-to-optimizer", "all"))
    assert plain.ledger.facts["left_out"] == ["head.weight", "head.bias"]
    known = plain.ledger.to_dict()
    change = _change(tmp_path, known, edit("add-to-optimizer", "all"))
    assert not change.diff
    assert "head.weight and 1 more as well" in change.words[0]


def _change(folder, known, *edits):
    from akeso.remedies.edit import Prescription
    from akeso.script.clues import Clues
    from akeso.script.rewrite import rewrite

    return rewrite(folder / "train.py", Prescription(edits), Clues(known["places"], [], known["facts"]))


def test_an_optimizer_of_a_later_stage_has_nothing_to_wait_for_in_vain(tmp_path):
    """Without its stage being named, an edit that finds nothing in the first steps is given up."""
    source = (
        NET
        + "fit(torch.optim.Adam(model.parameters(), lr=0.01))\n"
        + REPLACED.format(given="model.head.parameters()")
    )
    assert "already" in perform(tmp_path, source, edit("add-to-optimizer", "all")).ended
    whole = NET + "fit(torch.optim.Adam(model.parameters(), lr=0.01))\n"
    assert "already" in perform(tmp_path, whole, edit("add-to-optimizer", "all", stage="last")).ended


def test_parts_by_way_of_a_list_become_the_whole_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = NET + "parts = list(model.head.parameters())\nfit(torch.optim.SGD(parts, lr=0.1))\n"
    change, tried, names = shown(tmp_path, source, edit("add-to-optimizer", "all"))
    assert "+parts = list(model.parameters())" in change.diff
    assert not change.words
    assert alike(tried["model"], names["model"])


SCALED = (
    NET
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for i in range(0, 64, 8):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x[i:i + 8]), y[i:i + 8])
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
"""
)


def test_gradients_are_clipped_without_the_loss_scale(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change, tried, names = shown(tmp_path, SCALED, edit("unscale-gradients"))
    assert "+    scaler.unscale_(optimizer)\n     nn.utils.clip_grad_norm_" in change.diff
    assert alike(tried["model"], names["model"])
    assert not alike(perform(tmp_path, SCALED)["model"], names["model"])


def test_gradients_that_are_clipped_without_a_loss_scale_are_left_alone(tmp_path):
    right = SCALED.replace("    nn.utils", "    scaler.unscale_(optimizer)\n    nn.utils")
    for source in (right, SCALED.replace("init_scale=1024.0", "enabled=False")):
        assert (
            "loss scale" in perform(tmp_path, source, edit("unscale-gradients")).refused["unscale-gradients"]
        )


SEQUENCES = """
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(48, 6, 4), torch.randint(0, 3, (48,))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 8{given})
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])

class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        return self.net(x)

model = Whole()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(0, 48, 12):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x[i:i + 12]), y[i:i + 12]).backward()
    optimizer.step()
"""


@pytest.mark.parametrize("given", ["", ", batch_first=False", ", num_layers=1, bias=True"])
def test_a_recurrent_layer_takes_samples_first(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    source = SEQUENCES.format(given=given)
    change, tried, names = shown(tmp_path, source, edit("turn-recurrence", "net.rnn"))
    assert "batch_first=True" in change.diff
    assert alike(tried["model"], names["model"])
    assert not alike(perform(tmp_path, source)["model"], names["model"])


def test_a_recurrent_layer_that_is_told_by_something_else_is_turned_in_words(tmp_path):
    source = SEQUENCES.format(given=", batch_first=FIRST").replace("class Net", "FIRST = False\nclass Net", 1)
    tried = perform(tmp_path, source, edit("turn-recurrence", "net.rnn"))
    change = _change(tmp_path, tried.ledger.to_dict(), edit("turn-recurrence", "net.rnn"))
    assert not change.diff
    assert "batch_first=True" in change.words[0]
    missing = perform(tmp_path, source, edit("turn-recurrence", "net.lstm"))
    assert "no recurrent layer net.lstm" in missing.refused["turn-recurrence"]


COUNTS = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
x = torch.randn(64, 3)
y = torch.poisson(torch.exp(x[:, :1]))
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = {criterion}
for i in range(0, 64, 8):
    optimizer.zero_grad()
    {loss}.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("criterion", "loss"),
    [
        ("nn.PoissonNLLLoss()", "criterion(model(x[i:i + 8]).exp(), y[i:i + 8])"),
        ("nn.PoissonNLLLoss(log_input=True)", "criterion(model(x[i:i + 8]).exp(), y[i:i + 8])"),
        ("None", "F.poisson_nll_loss(model(x[i:i + 8]).exp(), y[i:i + 8])"),
        ("None", "F.poisson_nll_loss(model(x[i:i + 8]).exp(), y[i:i + 8], True)"),
    ],
)
def test_a_loss_of_counts_is_told_that_it_is_given_rates(tmp_path, monkeypatch, criterion, loss):
    monkeypatch.chdir(tmp_path)
    source = COUNTS.format(criterion=criterion, loss=loss)
    told = edit("substitute-loss", from_="poisson_nll_loss", to="poisson_nll_loss", log_input=False)
    change, tried, names = shown(tmp_path, source, told)
    assert not change.words
    assert alike(tried["model"], names["model"])
    assert not alike(perform(tmp_path, source)["model"], names["model"])


def test_another_loss_is_told_nothing_of_rates(tmp_path):
    source = COUNTS.format(criterion="None", loss="F.mse_loss(model(x[i:i + 8]), y[i:i + 8])")
    told = edit("substitute-loss", from_="poisson_nll_loss", to="poisson_nll_loss", log_input=False)
    assert "not made for counts" in perform(tmp_path, source, told).refused["substitute-loss"]


ALIGNED = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
x, y = torch.randn(32, 9, 4), torch.randint(1, 5, (32, 3))

class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 5)

    def forward(self, x):
        return F.softmax(self.line(x), dim=-1)

model = Reader()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for i in range(0, 32, 8):
    lengths = torch.full((8,), 9), torch.full((8,), 3)
    loss = F.ctc_loss(model(x[i:i + 8]).transpose(0, 1), y[i:i + 8], *lengths)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


def test_a_loss_of_alignments_is_given_logarithms_over_the_classes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert max(perform(tmp_path, ALIGNED)["losses"]) < 0
    change, tried, names = shown(
        tmp_path, ALIGNED, edit("substitute-activation", "output", from_="everything", to="LogSoftmax")
    )
    assert "F.log_softmax(self.line(x), dim=-1)" in change.diff
    assert min(tried["losses"]) > 0
    assert alike(tried["model"], names["model"])


TWO = """
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))
encoder, decoder = nn.Sequential(nn.Linear(4, 8), nn.Tanh()), nn.Linear(8, 3)
first = encoder[0].weight.detach().clone()
optimizer = torch.optim.SGD({given}, lr=0.1)
for i in range(0, 64, 8):
    optimizer.zero_grad()
    nn.functional.cross_entropy(decoder(encoder(x[i:i + 8])), y[i:i + 8]).backward()
    optimizer.step()
"""


@pytest.mark.parametrize("given", ["decoder.parameters()", "list(decoder.parameters())"])
def test_a_model_of_which_the_optimizer_has_nothing_is_trained_too(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    source = TWO.format(given=given)
    change, tried, names = shown(tmp_path, source, edit("add-to-optimizer", "all"))
    assert not torch.equal(tried["first"], tried["encoder"][0].weight)
    assert not change.words
    assert "*encoder.parameters()" in change.diff
    assert all(alike(tried[name], names[name]) for name in ("encoder", "decoder"))


OWNED = """
import torch
from torch import nn

class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.x, self.y = torch.randn(64, 4), torch.randint(0, 3, (64,))
        self.encoder, self.decoder = nn.Sequential(nn.Linear(4, 8), nn.Tanh()), nn.Linear(8, 3)
        self.first = self.encoder[0].weight.detach().clone()
        self.optimizer = torch.optim.SGD(self.decoder.parameters(), lr=0.1)

    def fit(self):
        for i in range(0, 64, 8):
            self.optimizer.zero_grad()
            out = self.decoder(self.encoder(self.x[i:i + 8]))
            nn.functional.cross_entropy(out, self.y[i:i + 8]).backward()
            self.optimizer.step()

trainer = Trainer()
trainer.fit()
"""


def test_a_model_that_belongs_to_an_object_is_called_by_what_the_object_calls_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change, tried, names = shown(tmp_path, OWNED, edit("add-to-optimizer", "all"))
    assert "*self.encoder.parameters()" in change.diff
    assert alike(tried["trainer"].encoder, names["trainer"].encoder)
    assert not torch.equal(tried["trainer"].first, tried["trainer"].encoder[0].weight)


HELD = """
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {made}
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        for layer in {through}:
            x = layer(x).tanh()
        return self.out(x)

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(0, 64, 8):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x[i:i + 8]), y[i:i + 8]).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("made", "new"),
    [
        (
            "self.layers = []\n        for _ in range(2): self.layers.append(nn.Linear(4, 4))",
            "nn.ModuleList()",
        ),
        ("self.layers: list = [nn.Linear(4, 4) for _ in range(2)]", "nn.ModuleList([nn.Linear"),
        ("held = [nn.Linear(4, 4)]\n        self.layers = held", "nn.ModuleList(held)"),
        ("self.layers = {'first': nn.Linear(4, 4)}", "nn.ModuleDict({'first'"),
    ],
)
def test_layers_in_plain_lists_and_dicts_are_kept_where_the_model_knows_of_them(
    tmp_path, monkeypatch, made, new
):
    monkeypatch.chdir(tmp_path)
    through = "self.layers.values()" if "{" in made else "self.layers"
    source = HELD.replace("{made}", made).replace("{through}", through)
    change, tried, names = shown(tmp_path, source, edit("add-to-optimizer", "all"))
    assert new in change.diff
    assert not change.words
    assert any("layers" in name for name in tried["model"].state_dict())
    assert alike(tried["model"], names["model"])


PICTURES = """
import torch
from torch import nn
torch.manual_seed(0)
pixels = torch.rand(32, 8, 8, 3)
x, y = pixels.reshape(32, 3, 8, 8), torch.randint(0, 3, (32,))
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(0, 32, 8):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x[i:i + 8]), y[i:i + 8]).backward()
    optimizer.step()
with torch.no_grad():
    answer = model(x)
"""
CHAIN = "nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))"


@pytest.mark.parametrize(
    "model", [CHAIN, f"type('Net', (nn.Sequential,), {{'forward': lambda s, x: s[0](x)}})({CHAIN})"]
)
def test_pictures_whose_axes_were_only_renamed_are_turned(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    source = PICTURES.replace("{model}", model)
    change, tried, names = shown(tmp_path, source, edit("turn-pictures"))
    right = source.replace("pixels.reshape(32, 3, 8, 8)", "pixels.permute(0, 3, 1, 2)")
    meant = perform(tmp_path, right)
    assert not change.words
    for run in (tried, names):
        assert alike(run["model"], meant["model"])
        assert torch.allclose(run["answer"], meant["answer"], atol=1e-5)
    flat = perform(tmp_path, TWO.format(given="decoder.parameters()"), edit("turn-pictures"))
    assert "not given pictures" in flat.refused["turn-pictures"]


@pytest.mark.parametrize("clears", ["optimizer.zero_grad()", "model.zero_grad(set_to_none=False)"])
def test_gradients_that_are_cleared_before_the_step_are_kept_for_it(tmp_path, monkeypatch, clears):
    monkeypatch.chdir(tmp_path)
    loop = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfit(optimizer)\n"
    source = NET.replace("        optimizer.zero_grad()\n", "").replace(
        "        optimizer.step()", f"        {clears}\n        optimizer.step()"
    )
    meant = perform(tmp_path, NET + loop)
    change, tried, names = shown(tmp_path, source + loop, edit("delay-zero-grad"))
    assert not change.words
    assert alike(tried["model"], meant["model"])
    assert alike(names["model"], meant["model"])
    right = perform(tmp_path, NET + loop, edit("delay-zero-grad"))
    assert "no gradients are cleared between" in right.refused["delay-zero-grad"]


COSINES = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
x, y = torch.randn(64, 8), torch.randint(0, 5, (64,))

class Cosines(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 8))

    def forward(self, x):
        return F.normalize(x) @ F.normalize(self.weight).T

model = Cosines()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
losses = []
for i in range(0, 64, 8):
    optimizer.zero_grad()
    losses.append({loss}(model(x[i:i + 8]), y[i:i + 8]))
    losses[-1].backward()
    optimizer.step()
with torch.no_grad():
    answers = model(x)
    judged = {loss}(answers, y).item()
"""


@pytest.mark.parametrize("loss", ["criterion", "F.cross_entropy"])
def test_logits_are_multiplied_wherever_the_loss_is_called(tmp_path, monkeypatch, loss):
    monkeypatch.chdir(tmp_path)
    source = COSINES.format(loss=loss)
    told = edit("scale-logits", factor=12.0)
    change, tried, names = shown(tmp_path, source, told)
    assert not change.words
    assert f"judged = {loss}(12 * answers, y).item()" in change.diff
    assert f"losses.append({loss}(12 * model(x[i:i + 8]), y[i:i + 8]))" in change.diff
    assert alike(tried["model"], names["model"])
    assert tried["judged"] == pytest.approx(names["judged"])
    assert not alike(perform(tmp_path, source)["model"], names["model"])


def test_what_is_no_logit_is_not_multiplied(tmp_path):
    source = COSINES.format(loss="F.multi_margin_loss")
    refused = perform(tmp_path, source, edit("scale-logits", factor=12.0)).refused
    assert "takes no logits" in refused["scale-logits"] or "by hand" in refused["scale-logits"]


SCHEDULED = """
groups = [{"params": model.head.parameters(), "lr": 0.02}, {"params": model.body.parameters(), "lr": 0.05}]
optimizer = torch.optim.SGD(groups, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
for i in range(0, 64, 4):
    optimizer.zero_grad()
    F.cross_entropy(model(x[i:i + 4]), y[i:i + 4]).backward()
    optimizer.step()
    schedule.step()
"""


def test_groups_keep_their_proportion_where_a_schedule_is_taken_off_and_the_rate_is_set(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    cure = [edit("hold-learning-rate"), edit("set-learning-rate", to=0.1)]
    change, tried, names = shown(tmp_path, NET + SCHEDULED, *cure)
    assert not change.words
    assert [group["lr"] for group in names["optimizer"].param_groups] == [0.04, 0.1]
    assert alike(tried["model"], names["model"])
