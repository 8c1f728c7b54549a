"""The change to make to a script, as a diff against it or in words."""

from __future__ import annotations

import os
import subprocess

import pytest

from akeso.remedies.edit import Prescription
from akeso.script.clues import Clues
from akeso.script.rewrite import rewrite
from tests.script.prescribed_help import edit, perform

SCRIPT = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randint(0, 2, (64,))
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
model = nn.Sequential(
    nn.Linear(4, 8),
    nn.Sigmoid(),
    nn.Linear(8, 8), nn.Sigmoid(),
    nn.Linear(8, 2), nn.Softmax(dim=1),
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for batch, target in loader:
    out = model(batch)
    loss = F.cross_entropy(out, target)
    loss.backward()
    optimizer.step()
"""


def test_a_cut_inside_the_model_is_taken_away(tmp_path):
    source = SCRIPT.replace(
        "model = nn.Sequential(",
        "class Cut(nn.Sequential):\n"
        "    def forward(self, x):\n"
        "        for part in self:\n"
        "            x = part(x.detach())\n"
        "        return x\n"
        "\nmodel = Cut(",
    )
    done = perform(tmp_path, source, edit("keep-attached"))
    clues = Clues(done.ledger.to_dict()["places"], [], {})
    change = rewrite(tmp_path / "train.py", Prescription([edit("keep-attached")]), clues)
    assert lines(change.diff, "+") == ["x = part(x)"]
    assert change.words == ()


def test_targets_are_scaled_where_the_loss_is_called(tmp_path):
    source = SCRIPT.replace(
        "F.cross_entropy(out, target)", "F.binary_cross_entropy(out[:, 0], target * 255.0)"
    )
    scaled = edit("scale-targets", low=0.0, high=255.0)
    done = perform(tmp_path, source, scaled)
    clues = Clues(done.ledger.to_dict()["places"], [], {})
    change = rewrite(tmp_path / "train.py", Prescription([scaled]), clues)
    assert lines(change.diff, "+") == ["loss = F.binary_cross_entropy(out[:, 0], (target * 255.0) / 255)"]


@pytest.fixture
def change(tmp_path):
    plain = perform(tmp_path, SCRIPT)
    found = plain.ledger.to_dict()
    path = tmp_path / "train.py"

    def changed(*edits):
        before = path.read_bytes()
        result = rewrite(
            path, Prescription(edits), Clues(found["places"], plain.operation.survey.to_list(), {})
        )
        assert path.read_bytes() == before
        return result

    return changed


def lines(diff, sign):
    return [
        line[1:].strip()
        for line in diff.splitlines()
        if line.startswith(sign) and not line.startswith(sign * 3)
    ]


def test_hidden_activations_are_exchanged_and_the_output_left(change):
    made = change(edit("substitute-activation", "hidden", from_="Sigmoid", to="SELU"))
    assert lines(made.diff, "+") == ["nn.SELU(),", "nn.Linear(8, 8), nn.SELU(),"]
    assert not made.words


def test_an_output_function_is_taken_off(change):
    made = change(edit("substitute-activation", "output", from_="Softmax", to="none"))
    assert lines(made.diff, "+") == ["nn.Linear(8, 2), nn.Identity(),"]
    made = change(edit("substitute-activation", "output", from_="Softmax", to="LogSoftmax"))
    assert lines(made.diff, "+") == ["nn.Linear(8, 2), nn.LogSoftmax(dim=1),"]


def test_another_optimizer_at_another_rate_is_one_line(change):
    both = Prescription(
        [edit("substitute-optimizer", to="Adam", lr=0.001), edit("set-learning-rate", to=0.005)]
    )
    made = change(*both.at_one_rate())
    (new,) = [line for line in lines(made.diff, "+") if "optim" in line]
    assert "Adam(" in new
    assert "lr=0.005" in new
    assert "0.001" not in new


def test_optimizer_and_rate(change):
    made = change(edit("set-learning-rate", to=0.05))
    assert lines(made.diff, "+") == ["optimizer = torch.optim.SGD(model.parameters(), lr=0.05)"]
    made = change(edit("substitute-optimizer", to="Adam", lr=0.001))
    assert lines(made.diff, "+") == ["optimizer = torch.optim.Adam(model.parameters(), lr=0.001)"]


def test_lines_are_added_around_the_step(change):
    made = change(edit("clip-gradient", kind="norm", limit=1.0), edit("add-zero-grad"))
    assert lines(made.diff, "+") == [
        "optimizer.zero_grad()",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1)",
    ]
    made = change(edit("warm-up", steps=20))
    assert "warm_up.step()" in lines(made.diff, "+")


def test_new_weights_are_drawn_before_the_optimizer_is_made(change):
    made = change(
        edit("substitute-activation", "hidden", from_="Sigmoid", to="SELU"),
        edit("reinitialise", scheme="auto"),
    )
    assert "for layer in model.modules():" in lines(made.diff, "+")
    assert any('nonlinearity="linear"' in line for line in lines(made.diff, "+"))


def test_norms_of_which_nothing_is_known_are_said_in_words(change):
    made = change(edit("insert-normalisation", "hidden", kind="batch"))
    assert not made.diff
    assert made.words == ("put batch normalisation (torch.nn) between each hidden layer and its activation",)


def test_batch_size_and_loss(change):
    assert "batch_size=64" in change(edit("set-batch-size", to=64)).diff
    made = change(edit("substitute-loss", from_="cross_entropy", to="mse_loss"))
    assert "F.mse_loss(out, target)" in made.diff


def test_what_has_no_place_is_said_in_words(change):
    made = change(edit("standardise-targets"), edit("set-mode", to="by-phase"))
    assert not made.diff
    assert len(made.words) == 2


def test_functions_and_methods(tmp_path):
    source = SCRIPT.replace("model = nn.Sequential(", "old = nn.Sequential(").replace(
        "optimizer =",
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.a, self.b, self.c = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)\n"
        "    def forward(self, x):\n"
        "        x = torch.sigmoid(self.a(x))\n"
        "        x = self.b(x).sigmoid()\n"
        "        return F.softmax(self.c(x), dim=1)\n"
        "model = Net()\n"
        "optimizer =",
    )
    plain = perform(tmp_path, source)
    clues = Clues(plain.ledger.to_dict()["places"], plain.operation.survey.to_list(), {})
    hidden = edit("substitute-activation", "hidden", from_="Sigmoid", to="ReLU")
    output = edit("substitute-activation", "output", from_="Softmax", to="none")
    made = rewrite(tmp_path / "train.py", Prescription([hidden, output]), clues)
    assert lines(made.diff, "+") == ["x = F.relu(self.a(x))", "x = F.relu(self.b(x))", "return self.c(x)"]
    right = edit("substitute-activation", "output", from_="Softmax", to="Softmax")
    made = rewrite(tmp_path / "train.py", Prescription([right]), clues)
    assert lines(made.diff, "+") == ["return F.softmax(self.c(x), dim=-1)"]


def test_a_file_that_cannot_be_read_gives_words(tmp_path):
    made = rewrite(tmp_path / "gone.py", Prescription([edit("add-zero-grad")]), Clues({}, [], {}))
    assert made.words == ("add-zero-grad",)
    assert not os.listdir(tmp_path)


def test_a_line_that_makes_other_things_beside_the_optimizer(tmp_path):
    source = SCRIPT.replace(
        "optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)",
        "spare = nn.Sequential(nn.Linear(2, 2), nn.ReLU()); "
        "optimizer = torch.optim.SGD(model.parameters(), lr=1e-6); loss_of = nn.NLLLoss(None)",
    )
    plain = perform(tmp_path, source)
    clues = Clues(plain.ledger.to_dict()["places"], plain.operation.survey.to_list(), {})
    made = rewrite(tmp_path / "train.py", Prescription([edit("set-learning-rate", to=0.05)]), clues)
    assert lines(made.diff, "+") == [
        "spare = nn.Sequential(nn.Linear(2, 2), nn.ReLU()); "
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.05); loss_of = nn.NLLLoss(None)"
    ]


def test_a_schedule_that_sets_the_rate_when_it_is_made_does_not_keep_it(tmp_path):
    made = "optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)\n"
    source = SCRIPT.replace(
        made, f"{made}cycle = torch.optim.lr_scheduler.CyclicLR(optimizer, 0.05, 5.0, cycle_momentum=False)\n"
    ).replace("    optimizer.step()\n", "    optimizer.step()\n    cycle.step()\n")
    plain = perform(tmp_path, source)
    clues = Clues(plain.ledger.to_dict()["places"], [], {})
    cure = Prescription([edit("hold-learning-rate"), edit("set-learning-rate", to=0.01)])
    change = rewrite(tmp_path / "train.py", cure, clues)
    assert 'for group in optimizer.param_groups: group["lr"] = 0.01' in lines(change.diff, "+")
    assert lines(change.diff, "-")[-1] == "cycle.step()"


def test_a_schedule_is_no_longer_advanced(tmp_path):
    made = "optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)\n"
    source = SCRIPT.replace(
        made, f"{made}decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.1)\n"
    ).replace("    optimizer.step()\n", "    optimizer.step()\n    decay.step()\n")
    plain = perform(tmp_path, source)
    clues = Clues(plain.ledger.to_dict()["places"], [], {})
    change = rewrite(tmp_path / "train.py", Prescription([edit("hold-learning-rate")]), clues)
    assert lines(change.diff, "-") == ["decay.step()"]
    assert not change.words


def test_order_and_clipping(tmp_path):
    step = "    optimizer.step()\n"
    source = SCRIPT.replace(step, f"    nn.utils.clip_grad_norm_(model.parameters(), 1e-4)\n{step}")
    source = source.replace(", shuffle=True", "")
    plain = perform(tmp_path, source)
    clues = Clues(plain.ledger.to_dict()["places"], [], {})
    cure = Prescription([edit("shuffle-data"), edit("loosen-clipping", to=1.0), edit("guard-functions")])
    change = rewrite(tmp_path / "train.py", cure, clues)
    added = "\n".join(lines(change.diff, "+"))
    assert "shuffle=True" in added
    assert "nn.utils.clip_grad_norm_(model.parameters(), 1)" in added
    assert len(change.words) == 1
    assert "clamp(min=" in change.words[0]


SHARED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.last, self.act = nn.Linear(4, 8), nn.Linear(8, 1), nn.ReLU()

    def forward(self, x):
        x = self.act(self.one(x))
        return self.act(self.last(x))

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = nn.functional.binary_cross_entropy_with_logits(model(torch.randn(8, 4)), torch.ones(8, 1))
loss.backward()
optimizer.step()
"""


@pytest.mark.parametrize(
    ("where", "to", "new"),
    [
        ("output", "none", "return self.last(x)"),
        ("output", "Sigmoid", "return nn.functional.sigmoid(self.last(x))"),
        ("hidden", "SELU", "x = nn.functional.selu(self.one(x))"),
    ],
)
def test_a_module_that_layers_and_output_share_is_exchanged_at_the_call(tmp_path, where, to, new):
    def changed(source):
        plain = perform(tmp_path, source)
        clues = Clues(plain.ledger.to_dict()["places"], plain.operation.survey.to_list(), {})
        cure = Prescription([edit("substitute-activation", where, from_="ReLU", to=to)])
        return rewrite(tmp_path / "train.py", cure, clues)

    assert lines(changed(SHARED).diff, "+") == [new]
    nested = SHARED.replace("x = self.act(self.one(x))", "")
    made = changed(nested.replace("self.last(x)", "self.last(self.act(self.one(x)))"))
    assert not made.diff, "the line does not say which of its calls is meant"
    assert len(made.words) == 1


def test_everything_after_the_last_layer_is_said_in_words(change):
    made = change(edit("substitute-activation", "output", from_="everything", to="LogSoftmax"))
    assert not made.diff
    assert "what its last layer gives, through LogSoftmax" in made.words[0]


@pytest.mark.parametrize(
    ("loop", "cleared"),
    [
        (("    loss.backward()", "    optimizer.step()"), "    optimizer.zero_grad()\n    loss.backward()\n"),
        (
            ("    (loss / 2).backward()", "    if step % 2:", "        optimizer.step()"),
            "        optimizer.step()\n        optimizer.zero_grad()\n",
        ),
        (
            ("    for part in loss.chunk(1):", "        part.backward()", "    optimizer.step()"),
            "    optimizer.step()\n    optimizer.zero_grad()\n",
        ),
        (
            ("    def closure():", "        loss = F.cross_entropy(model(batch), target)", "        loss.backward()",
             "        return loss", "    optimizer.step(closure)"),
            "        optimizer.zero_grad()\n        loss.backward()\n        return loss\n",
        ),
    ],
)  # fmt: skip
def test_gradients_are_cleared_once_for_every_step(tmp_path, loop, cleared):
    source = SCRIPT.replace("for batch, target in loader:", "for step, (batch, target) in enumerate(loader):")
    source = source.replace(
        "F.cross_entropy(out, target)", "F.cross_entropy(out, target, reduction='none').mean()[None]"
    )
    source = source.replace("    loss.backward()\n    optimizer.step()", "\n".join(loop))
    done = perform(tmp_path, source, edit("add-zero-grad"))
    clues = Clues(done.ledger.to_dict()["places"], [], {})
    revised = rewrite(tmp_path / "train.py", Prescription([edit("add-zero-grad")]), clues)
    assert revised.words == ()
    (added,) = lines(revised.diff, "+")
    assert added == "optimizer.zero_grad()"
    kept = "".join(line[1:] for line in revised.diff.splitlines(keepends=True)[3:] if line[0] in " +")
    assert cleared in kept


@pytest.mark.parametrize(
    ("loss", "made", "extra", "added", "said"),
    [
        ("nn.BCEWithLogitsLoss()(", "", "", "loss = nn.BCELoss()(out, target.float())", False),
        (
            "F.binary_cross_entropy_with_logits(", "", "",
            "loss = F.binary_cross_entropy(out, target.float())", False,
        ),
        ("F.binary_cross_entropy_with_logits(", "", ", pos_weight=torch.ones(1)", "return y", True),
        ("nn.BCEWithLogitsLoss()(", "torch.autocast('cpu', enabled=False)", "", "return y", True),
    ],
)  # fmt: skip
def test_a_sigmoid_under_a_loss_of_scores_leaves_what_the_script_reads_as_it_was(
    tmp_path, loss, made, extra, added, said
):
    model = (
        "class Net(nn.Sequential):\n"
        "    def forward(self, x):\n"
        "        y = super().forward(x)[:, 0]\n"
        "        return torch.sigmoid(y)\n"
    )
    source = SCRIPT.replace("model = nn.Sequential(", f"{made}\n{model}\nmodel = Net(")
    source = source.replace("nn.Linear(8, 2), nn.Softmax(dim=1),", "nn.Linear(8, 1),")
    source = source.replace("F.cross_entropy(out, target)", f"{loss}out, target.float(){extra})")
    plain = perform(tmp_path, source)
    clues = Clues(plain.ledger.to_dict()["places"], plain.operation.survey.to_list(), {})
    off = edit("substitute-activation", "output", from_="Sigmoid", to="none")
    revised = rewrite(tmp_path / "train.py", Prescription([off]), clues)
    assert lines(revised.diff, "+") == [added]
    assert any("hold them against 0 where" in words for words in revised.words) == said


def test_a_module_made_and_called_at_once_is_exchanged_and_still_called(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("F.cross_entropy(out, target)", "nn.CrossEntropyLoss()(out, target)"))
    other = edit("substitute-loss", from_="cross_entropy", to="nll_loss")
    revised = rewrite(path, Prescription([other]), Clues({}, [], {}))
    assert lines(revised.diff, "+") == ["loss = nn.NLLLoss()(out, target)"]


def test_what_is_made_in_another_file_is_changed_there(tmp_path, monkeypatch):
    models = tmp_path / "my_models.py"
    models.write_text(
        "from torch import nn\n\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.body = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 8), nn.Sigmoid())\n"
        "        self.drop = nn.Dropout(0.9)\n"
        "        self.head = nn.Linear(8, 2)\n"
        "    def forward(self, x):\n"
        "        return self.head(self.drop(self.body(x))).softmax(dim=1)\n"
    )
    start, end = SCRIPT.index("model = nn"), SCRIPT.index("optimizer =")
    source = SCRIPT[:start] + "from my_models import Net\nmodel = Net()\n" + SCRIPT[end:]
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    plain = perform(tmp_path, source)
    clues = Clues(plain.ledger.to_dict()["places"], plain.operation.survey.to_list(), {})
    cure = Prescription(
        [
            edit("substitute-activation", "hidden", from_="Sigmoid", to="ReLU"),
            edit("substitute-activation", "output", from_="Softmax", to="none"),
            edit("set-dropout", to=0.2),
            edit("set-learning-rate", to=0.01),
            edit("reseed", seed=3),
        ]
    )
    made = rewrite(tmp_path / "train.py", cure, clues)
    assert made.words == ("start from another seed (3)",)
    assert made.diff.count("\n+++ b/") == 2
    assert lines(made.diff, "+") == [
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)",
        "self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())",
        "self.drop = nn.Dropout(0.2)",
        "return self.head(self.drop(self.body(x)))",
    ]
    (tmp_path / "change.diff").write_text(made.diff)
    subprocess.run(["patch", "-p1", "--dry-run", "-i", "change.diff"], check=True, capture_output=True)


def test_a_sigmoid_in_another_file_is_made_good_once(tmp_path, monkeypatch):
    (tmp_path / "your_models.py").write_text(
        "import torch\nfrom torch import nn\n\n\n"
        "class Net(nn.Linear):\n    def forward(self, x):\n        return torch.sigmoid(super().forward(x))[:, 0]\n"
    )
    start, end = SCRIPT.index("model = nn"), SCRIPT.index("optimizer =")
    source = SCRIPT[:start] + "from your_models import Net\nmodel = Net(4, 1)\n" + SCRIPT[end:]
    source = source.replace("F.cross_entropy(out, target)", "nn.BCEWithLogitsLoss()(out, target.float())")
    monkeypatch.syspath_prepend(tmp_path)
    plain = perform(tmp_path, source)
    clues = Clues(plain.ledger.to_dict()["places"], plain.operation.survey.to_list(), {})
    off = edit("substitute-activation", "output", from_="Sigmoid", to="none")
    made = rewrite(tmp_path / "train.py", Prescription([off]), clues)
    assert lines(made.diff, "+") == ["loss = nn.BCELoss()(out, target.float())"]
    assert made.words == ()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        # The one that was made is changed, whatever stands before it.
        (
            "make = dict(a=lambda p: torch.optim.Adam(p, 1e-3), s=lambda p: torch.optim.SGD(p, lr=1e-6)); "
            'optimizer = make["s"](model.parameters())',
            "make = dict(a=lambda p: torch.optim.Adam(p, 1e-3), s=lambda p: torch.optim.SGD(p, lr=0.05)); "
            'optimizer = make["s"](model.parameters())',
        ),
        # Which of two was made is not known.
        (
            "optimizer = torch.optim.SGD(model.parameters(), 1e-2) if len(x) > 99 else "
            "torch.optim.SGD(model.parameters(), 1e-6)",
            None,
        ),
    ],
)
def test_of_several_optimizers_on_a_line_the_one_that_was_made_is_changed(tmp_path, written, expected):
    source = SCRIPT.replace("optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)", written)
    assert written in source
    plain = perform(tmp_path, source)
    clues = Clues(plain.ledger.to_dict()["places"], [], {"optimizers": [{"name": "SGD"}]})
    made = rewrite(tmp_path / "train.py", Prescription([edit("set-learning-rate", to=0.05)]), clues)
    if expected is None:
        assert made.words == ("set the learning rate to 0.05",)
    else:
        assert lines(made.diff, "+") == [expected]


def test_the_momentum_of_batch_norms_is_changed_where_it_is_given(tmp_path):
    start, end = SCRIPT.index("model = nn"), SCRIPT.index("optimizer =")
    layers = (
        "nn.Linear(4, 8), nn.BatchNorm1d(8, 1e-3, 0.001), nn.BatchNorm1d(8), nn.BatchNorm1d(8, momentum=0.01)"
    )
    source = SCRIPT[:start] + f"model = nn.Sequential({layers}, nn.Linear(8, 2))\n" + SCRIPT[end:]
    done = perform(tmp_path, source, edit("set-averaging", to=0.1))
    assert not done.refused
    clues = Clues(done.ledger.to_dict()["places"], [], {})
    made = rewrite(tmp_path / "train.py", Prescription([edit("set-averaging", to=0.1)]), clues)
    cured = layers.replace("0.001", "0.1").replace("0.01", "0.1")
    assert lines(made.diff, "+") == [f"model = nn.Sequential({cured}, nn.Linear(8, 2))"]


@pytest.mark.parametrize(
    ("cure", "shown"),
    [
        (edit("set-learning-rate", to=0.01), 'group["lr"] *= 10'),
        (edit("substitute-optimizer", to="Adam", lr=0.002), 'group["lr"] *= 2'),
        (
            edit("set-weight-decay", to=1e-4),
            'group["weight_decay"] = 0.0001 if group["weight_decay"] else 0.0',
        ),
    ],
    ids=lambda one: one.remedy if hasattr(one, "remedy") else "",
)
def test_groups_with_options_of_their_own_are_told_as_they_were_in_the_cure(tmp_path, cure, shown):
    groups = (
        '[{"params": [p for p in model.parameters() if p.dim() > 1], "lr": 1e-3, "weight_decay": 30.0}, '
        '{"params": [p for p in model.parameters() if p.dim() < 2], "lr": 1e-2, "weight_decay": 0.0}]'
    )
    source = SCRIPT.replace("torch.optim.SGD(model.parameters(), lr=1e-6)", f"torch.optim.AdamW({groups})")
    done = perform(tmp_path, source, cure)
    made = rewrite(tmp_path / "train.py", Prescription([cure]), Clues(*_told(done)))
    assert lines(made.diff, "+")[-2:] == ["for group in optimizer.param_groups:", shown]
    (tmp_path / "change.diff").write_text(made.diff)
    subprocess.run(["patch", "-p1", "-i", "change.diff"], check=True, capture_output=True, cwd=tmp_path)
    by_hand = perform(tmp_path, (tmp_path / "train.py").read_text())
    for tried, told in zip(done["optimizer"].param_groups, by_hand["optimizer"].param_groups, strict=True):
        assert told["lr"] == pytest.approx(tried["lr"])
        assert told["weight_decay"] == tried["weight_decay"]


def _told(done):
    kept = done.ledger.to_dict()
    return kept["places"], [], kept["facts"]
