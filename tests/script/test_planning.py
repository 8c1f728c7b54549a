"""How long a training will be, read from the loops around its first step."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

_SCRIPT = """
import torch
from akeso.script.prescribed.planning import planned_steps

samples = torch.zeros(100, 3)
epochs = None
found = None
for epoch in range(7):
    for batch in {loop}:
        found = planned_steps()
        break
    break
"""


@pytest.mark.parametrize(
    ("loop", "steps"),
    [
        ("range(0, 100, 8)", 13),
        ("torch.randperm(100).split(8)", 13),
        ("torch.randperm(len(samples)).split(8)", 13),
        ("enumerate(samples.split(30))", 4),
        ("samples.chunk(5)", 5),
        ("range(20 if len(samples) > 50 else 3)", 20),
        ("range(epochs or 9)", 9),
        ("range(9 if 'x' not in ['x'] else 4)", 4),
        ("__import__('itertools').repeat(1)", None),
    ],
)
def test_the_length_of_the_loops_gives_the_steps(tmp_path: Path, loop: str, steps: int | None) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SCRIPT.format(loop=loop))
    found = runpy.run_path(str(script))["found"]
    assert found == ((7 * steps, steps) if steps else (None, None))


@pytest.mark.parametrize(
    ("line", "steps"),
    [
        ("losses = [step(batch) for batch in samples.split(30)]", 4),
        ("total = sum(step(batch) for batch in samples.split(30))", 4),
        ("losses = [step(b) for b in samples.split(30) if len(b) > 3]", None),
        ("losses = list(map(lambda batch: step(batch), samples.split(30)))", 1),
    ],
)
def test_a_comprehension_is_a_loop_like_any_other(tmp_path: Path, line: str, steps: int | None) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nfrom akeso.script.prescribed.planning import planned_steps\n"
        "samples = torch.zeros(100, 3)\nfound = []\n"
        "def step(batch):\n    found.append(planned_steps())\n    return len(batch)\n"
        f"def train():\n    for epoch in range(7):\n        {line}\ntrain()\n"
    )
    found = runpy.run_path(str(script))["found"][0]
    assert found == ((7 * steps, steps) if steps else (None, None))


_LIGHTNING = """
import lightning
import torch
from torch.utils.data import DataLoader
from akeso.script.prescribed.planning import planned_steps

found = []

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def training_step(self, batch, number):
        return self.layer(batch).sum()

    def on_before_optimizer_step(self, optimizer):
        found.append(planned_steps())
        self.trainer.should_stop = True

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

options = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
for seed in range(2):
    trainer = lightning.Trainer(accelerator="cpu", **options, {length})
    trainer.fit(Model(), DataLoader(torch.randn(40, 3), batch_size=8))
    break
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("length", "steps"),
    [
        ("max_epochs=6", 30),
        ("max_epochs=6, accumulate_grad_batches=2", 18),
        ("max_epochs=6, max_steps=17", 17),
        ("max_epochs=-1, max_steps=12", 12),
    ],
)
def test_a_trainer_that_makes_the_loops_is_asked(tmp_path: Path, length: str, steps: int) -> None:
    pytest.importorskip("lightning")
    script = tmp_path / "train.py"
    script.write_text(_LIGHTNING.replace("{length}", length))
    found = runpy.run_path(str(script))["found"]
    assert found[0] == (2 * steps, steps)


@pytest.mark.parametrize(
    ("condition", "steps"),
    [
        ("(number + 1) % GATHER == 0", 7),
        ("number % 4 == 3 or number + 1 == len(batches)", 7),
        ("number % 4 == 3 and sure", 7),
        ("number > 2", 25),
    ],
)
def test_batches_that_are_gathered_make_one_step(tmp_path: Path, condition: str, steps: int) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from akeso.script.prescribed.planning import planned_steps\n"
        "GATHER, sure, batches, found = 4, True, list(range(25)), []\n"
        "for epoch in range(6):\n"
        "    for number, batch in enumerate(batches):\n"
        f"        if {condition}:\n"
        "            found.append(planned_steps())\n"
    )
    assert runpy.run_path(str(script))["found"][0] == (6 * steps, steps)
