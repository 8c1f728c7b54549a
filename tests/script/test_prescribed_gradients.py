"""Edits of what the script does to its gradients and batches: clipping, edges of functions, order, schedules."""

from __future__ import annotations

import torch

from tests.script.prescribed_help import edit, perform
from tests.script.test_prescribed_loop import SOURCE, plainly, weights

CLIPPED = SOURCE.replace(
    "    optimizer.step()",
    "    nn.utils.clip_grad_norm_(model.parameters(), 1e-4)\n    optimizer.step()",
)
#: A distance between equal points: its root has no slope there.
DISTANCES = """
import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(64, 4)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    first, second = model(x), model(x.roll(1, 0) if step % 2 else x)
    loss = torch.sqrt(((first - second) ** 2).sum(1)).mean() + ((first - x[:, :3]) ** 2).mean()
    loss.backward()
    optimizer.step()
"""
SORTED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(64, 2)
y = torch.arange(64) // 32
train, test = DataLoader(TensorDataset(x, y), 8), DataLoader(TensorDataset(x, y), 8)
model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kinds, plain = [], []
for x, y in train:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    kinds.append(len(y.unique()))
for x, y in test:
    plain.append(len(y.unique()))
"""


def test_clipping_that_is_too_tight_leaves_more(tmp_path):
    done = perform(tmp_path, CLIPPED, edit("loosen-clipping", to=1.0))
    assert torch.equal(weights(done), weights(plainly(tmp_path, CLIPPED.replace("1e-4", "1.0"))))
    named = CLIPPED.replace("1e-4", "max_norm=1e-4")
    done = perform(tmp_path, named, edit("loosen-clipping", to=1.0))
    assert torch.equal(weights(done), weights(plainly(tmp_path, CLIPPED.replace("1e-4", "1.0"))))


def test_clipping_that_leaves_more_already_stays_as_it_is(tmp_path):
    loose = CLIPPED.replace("1e-4", "5.0")
    done = perform(tmp_path, loose, edit("loosen-clipping", to=1.0))
    assert torch.equal(weights(done), weights(plainly(tmp_path, loose)))


def test_a_script_that_does_not_clip_has_nothing_to_loosen(tmp_path):
    done = perform(tmp_path, SOURCE, edit("loosen-clipping", to=1.0))
    assert "clips no gradients" in done.refused["loosen-clipping"]


def test_roots_are_kept_off_zero(tmp_path):
    assert not torch.isfinite(weights(plainly(tmp_path, DISTANCES))).all()
    done = perform(tmp_path, DISTANCES, edit("guard-functions"))
    assert torch.isfinite(weights(done)).all()
    safe = DISTANCES.replace(".sum(1))", ".sum(1).clamp(min=1e-12))")
    assert torch.equal(weights(done), weights(plainly(tmp_path, safe)))


def test_the_first_loader_is_shuffled_and_no_other(tmp_path):
    done = perform(tmp_path, SORTED, edit("shuffle-data"))
    assert set(plainly(tmp_path, SORTED)["kinds"]) == {1}
    assert sum(done["kinds"]) > 12  # of eight batches most hold both classes
    assert set(done["plain"]) == {1}


def test_a_loader_that_chooses_its_order_is_left_alone(tmp_path):
    chosen = SORTED.replace(
        "TensorDataset(x, y), 8), Data", "TensorDataset(x, y), 8, sampler=range(64)), Data"
    )
    done = perform(tmp_path, chosen, edit("shuffle-data"))
    assert "chooses the order" in done.refused["shuffle-data"]


def test_a_warm_up_that_is_too_long_is_skipped(tmp_path):
    made = "losses = []\nschedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: (s + 1) / 1e5)"
    sick = SOURCE.replace("losses = []", made).replace(
        "optimizer.step()", "optimizer.step(); schedule.step()"
    )
    done = perform(tmp_path, sick, edit("hold-learning-rate"))
    assert torch.equal(weights(done), weights(plainly(tmp_path, SOURCE)))


def test_a_script_that_takes_outputs_for_scores_is_given_scores(tmp_path):
    """The model ends in a sigmoid, the evaluation applies another: taken off for the loss, it must be for both."""
    source = SOURCE.replace("nn.Linear(8, 2))", "nn.Linear(8, 1), nn.Sigmoid())")
    source = source.replace(
        "F.cross_entropy(out, y)", "F.binary_cross_entropy_with_logits(out[:, 0], y.float())"
    )
    source += "with torch.no_grad():\n    likely = torch.sigmoid(model(x))\n"
    done = perform(tmp_path, source, edit("substitute-activation", "output", from_="Sigmoid", to="none"))
    fixed = plainly(tmp_path, source.replace(", nn.Sigmoid())", ")"))
    assert torch.equal(weights(done), weights(fixed))
    assert torch.equal(done["likely"], fixed["likely"])
    assert float(done["likely"].min()) < 0.5


def test_a_deviation_of_nothing_is_not_divided_by(tmp_path):
    """Rows of equal values, normalised by hand: zero by zero, in the data itself and before any weight."""
    sick = SOURCE.replace("model = nn.Sequential(", "x[:8] = 1.0\nmodel = nn.Sequential(Norm(), ")
    sick = sick.replace(
        "from torch.optim import SGD",
        "from torch.optim import SGD\n"
        "class Norm(nn.Module):\n"
        "    def forward(self, x):\n"
        "        return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)\n",
    )
    assert not torch.isfinite(weights(plainly(tmp_path, sick))).all()
    done = perform(tmp_path, sick, edit("guard-functions"))
    assert torch.isfinite(weights(done)).all()


def test_a_divergence_is_given_logarithms(tmp_path):
    sick = SOURCE.replace("model(x)\n", "F.softmax(model(x), dim=1)\n").replace(
        "F.cross_entropy(out, y)", "F.kl_div(out, F.one_hot(y, 2).float(), reduction='batchmean')"
    )
    done = perform(tmp_path, sick, edit("substitute-activation", "output", from_="Softmax", to="LogSoftmax"))
    fixed = plainly(tmp_path, sick.replace("F.softmax", "F.log_softmax"))
    assert torch.allclose(weights(done), weights(fixed), atol=1e-6)
    assert torch.allclose(done["out"].detach().sum(1), torch.ones(64))  # the script still sees probabilities


def test_an_output_that_is_a_value_loses_its_sigmoid_in_the_model(tmp_path):
    source = SOURCE.replace("nn.Linear(8, 2))", "nn.Linear(8, 1), nn.Sigmoid())")
    source = source.replace("F.cross_entropy(out, y)", "F.mse_loss(out[:, 0], 50.0 * x[:, 0])")
    values = {"from_": "Sigmoid", "to": "none", "in": "model"}
    done = perform(tmp_path, source, edit("substitute-activation", "output", **values))
    fixed = plainly(tmp_path, source.replace(", nn.Sigmoid())", ")"))
    assert torch.equal(weights(done), weights(fixed))
    assert float(done["out"].detach().max()) > 1.0
