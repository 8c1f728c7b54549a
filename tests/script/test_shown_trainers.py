"""The change to make where a library's trainer makes the loop, the schedule or the optimizer."""

from __future__ import annotations

import pytest

from akeso.remedies.edit import Prescription
from akeso.script.clues import Clues
from akeso.script.rewrite import rewrite
from tests.script.prescribed_help import edit

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
