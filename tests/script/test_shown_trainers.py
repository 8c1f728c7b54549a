"""The change to make where a library's trainer makes the loop, the schedule or the optimizer."""

from __future__ import annotations

import pytest

from akeso.remedies.edit import Prescription
from akeso.script.clues import Clues
from akeso.script.rewrite import rewrite
from tests.script.prescribed_help import edit, perform
from tests.script.test_shown_lines import alike
from tests.script.test_shown_lines import shown as shown_and_run

TRANSFORMERS = """
from transformers import Trainer, TrainingArguments

settings = TrainingArguments(output_dir="out", learning_rate=5e-2, num_train_epochs=4)
trainer = Trainer(model=model, args=settings, train_dataset=data)
trainer.train()
"""
LIGHTNING = """
import lightning
import torch

class Model(lightning.LightningModule):
    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=5e-2)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return GIVEN

lightning.Trainer(max_epochs=3).fit(Model(), data)
"""
IN_A_DICT = '{"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}'
HOLD, PACE = edit("hold-learning-rate"), edit("pace-schedule", every=9)
CLIP = edit("clip-gradient", kind="norm", limit=1.0)


@pytest.mark.parametrize(
    ("source", "line", "cure", "new"),
    [
        (TRANSFORMERS, 6, edit("set-learning-rate", to=1e-3), "learning_rate=0.001, num_train_epochs=4)"),
        (TRANSFORMERS, 6, HOLD, 'num_train_epochs=4, lr_scheduler_type="constant")'),
        (LIGHTNING.replace("GIVEN", IN_A_DICT), 7, HOLD, "return optimizer"),
        (LIGHTNING.replace("GIVEN", "[optimizer], [scheduler]"), 7, HOLD, "return [optimizer], []"),
        (LIGHTNING.replace("GIVEN", IN_A_DICT), 7, PACE, '"interval": "epoch"}}'),
        (
            LIGHTNING,
            7,
            CLIP,
            '(max_epochs=3, gradient_clip_val=1, gradient_clip_algorithm="norm").fit(Model(), data)',
        ),
    ],
)
def test_what_a_trainer_is_given_is_changed(tmp_path, source, line, cure, new):
    script = tmp_path / "train.py"
    script.write_text(source)
    places = {"optimizer": [{"file": str(script), "line": line}], "step": [{"file": str(script), "line": 6}]}
    clues = Clues(places, [], {"optimizers": [{"name": "AdamW", "lr": 0.05}]})
    change = rewrite(script, Prescription([cure]), clues)
    (added,) = [row for row in change.diff.splitlines() if row.startswith("+ ") or row[:1] == "+" != row[1:2]]
    assert added.endswith(new)
    assert not change.words


def test_a_rate_that_stands_twice_is_left_to_the_reader(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRANSFORMERS + "other = TrainingArguments(learning_rate=5e-2)\n")
    places = {"optimizer": [{"file": str(script), "line": 6}]}
    clues = Clues(places, [], {"optimizers": [{"name": "AdamW", "lr": 0.05}]})
    change = rewrite(script, Prescription([edit("set-learning-rate", to=1e-3)]), clues)
    assert not change.diff
    assert change.words == ("set the learning rate to 0.001",)


SETTINGS = """
import argparse
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))
model = nn.Linear(4, 3)
{settings}
for i in range(0, 64, 8):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x[i:i + 8]), y[i:i + 8]).backward()
    optimizer.step()
"""
DICT = """
settings = {"name": "SGD", "args": {"lr": 0.05, "weight_decay": 0.5}}
optimizer = getattr(torch.optim, settings["name"])(model.parameters(), **settings["args"])
"""
OPTIONS = """
parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float, default=0.05)
parser.add_argument("--weight-decay", type=float, default=0.5)
args = vars(parser.parse_args([]))
options = {"lr": args["learning_rate"], "weight_decay": args["weight_decay"]}
optimizer = torch.optim.SGD(model.parameters(), **options)
"""
DEFAULTS = """
def options(lr: float = 0.05, *, weight_decay=0.5):
    return {"lr": lr, "weight_decay": weight_decay}
optimizer = torch.optim.SGD(model.parameters(), **options())
"""


@pytest.mark.parametrize("settings", [DICT, OPTIONS, DEFAULTS])
@pytest.mark.parametrize(
    ("remedy", "old", "new"), [("set-learning-rate", "0.05", 0.2), ("set-weight-decay", "0.5", 1e-4)]
)
def test_what_is_unpacked_from_settings_in_the_code_is_changed_there(
    tmp_path, monkeypatch, settings, remedy, old, new
):
    monkeypatch.chdir(tmp_path)
    source = SETTINGS.replace("{settings}", settings)
    change, tried, names = shown_and_run(tmp_path, source, edit(remedy, to=new))
    assert not change.words
    assert f"{new:g}" in change.diff
    assert alike(tried["model"], names["model"])


def test_what_stands_twice_among_settings_is_told_in_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = SETTINGS.replace("{settings}", DICT + "other = dict(lr=0.05)\n")
    cure = edit("set-learning-rate", to=0.2)
    ledger = perform(tmp_path, source, cure).ledger
    change = rewrite(
        tmp_path / "train.py", Prescription([cure]), Clues(ledger.to_dict()["places"], [], ledger.facts)
    )
    assert not change.diff
    assert change.words == ("set the learning rate to 0.2",)


def test_a_schedule_that_a_function_gives_back_is_taken_off_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = (
        "def warm_up(optimizer):\n"
        "    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 1e4))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "scheduler = warm_up(optimizer)\n"
    )
    source = SETTINGS.replace("{settings}", made).replace(
        "optimizer.step()", "optimizer.step()\n    scheduler.step()"
    )
    change, tried, names = shown_and_run(tmp_path, source, edit("hold-learning-rate"))
    assert not change.words
    assert names["optimizer"].param_groups[0]["lr"] == 0.1
    assert alike(tried["model"], names["model"])


FACTORY = """
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))

def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)

def main():
    net = nn.Linear(4, 3)
    opt = optimizer_of(net)
    for i in range(0, 64, 8):
        opt.zero_grad()
        (9 * nn.functional.cross_entropy(net(x[i:i + 8]), y[i:i + 8])).backward()
        opt.step()
    return net

model = main()
"""
OBJECT = """
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))

class Trainer:
    def __init__(self):
        self.net = nn.Linear(4, 3)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def fit(self):
        for i in range(0, 64, 8):
            self.opt.zero_grad()
            (9 * nn.functional.cross_entropy(self.net(x[i:i + 8]), y[i:i + 8])).backward()
            self.opt.step()
        return self.net

model = Trainer().fit()
"""


@pytest.mark.parametrize("source", [FACTORY, OBJECT])
def test_gradients_are_clipped_by_names_that_the_loop_knows(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    change, tried, names = shown_and_run(tmp_path, source, edit("clip-gradient", kind="norm", limit=0.5))
    assert not change.words
    assert alike(tried["model"], names["model"])


def test_a_warm_up_is_kept_where_the_loop_finds_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change, tried, names = shown_and_run(tmp_path, OBJECT, edit("warm-up", steps=4))
    assert "self.warm_up.step()" in change.diff
    assert alike(tried["model"], names["model"])
    ledger = perform(tmp_path, FACTORY).ledger
    cure = Prescription([edit("warm-up", steps=4)])
    change = rewrite(tmp_path / "train.py", cure, Clues(ledger.to_dict()["places"], [], ledger.facts))
    assert not change.diff
    assert "over the first 4 steps" in change.words[0]
