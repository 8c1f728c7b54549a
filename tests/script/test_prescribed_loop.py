"""Edits of optimizers, losses, data and steps. Where a cure has a plain equivalent, bits are compared with it."""

from __future__ import annotations

import math
import runpy

import pytest
import torch

from akeso.remedies.edit import Prescription
from akeso.script.clues import Clues
from akeso.script.rewrite import rewrite
from tests.script.prescribed_help import CIRCLE, edit, perform

SOURCE = (
    CIRCLE
    + """
from torch.optim import SGD
model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = SGD(model.parameters(), lr=0.1, momentum=0.5)
losses = []
for step in range(8):
    optimizer.zero_grad()
    out = model(x)
    loss = F.cross_entropy(out, y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
)


def weights(names):
    return torch.cat([p.detach().reshape(-1) for p in names["model"].parameters()])


def plainly(tmp_path, source):
    script = tmp_path / "fixed.py"
    script.write_text(source)
    return runpy.run_path(str(script))


def test_another_optimizer_behind_a_name_imported_before(tmp_path):
    done = perform(tmp_path, SOURCE, edit("substitute-optimizer", to="Adam", lr=1e-3))
    assert isinstance(done["optimizer"], torch.optim.Adam)
    assert isinstance(done["optimizer"], torch.optim.SGD)
    fixed = plainly(tmp_path, SOURCE.replace("import SGD", "import Adam").replace("SGD(", "Adam(").replace(
        "lr=0.1, momentum=0.5", "lr=1e-3"))  # fmt: skip
    assert torch.equal(weights(done), weights(fixed))


def test_schedulers_start_from_the_new_rate(tmp_path):
    source = SOURCE.replace(
        "losses = []", "losses = []\nscheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4)"
    )
    source = source.replace("losses.append", "scheduler.step(); losses.append")
    done = perform(tmp_path, source, edit("set-learning-rate", to=0.01))
    fixed = plainly(tmp_path, source.replace("lr=0.1", "lr=0.01"))
    assert done["optimizer"].param_groups[0]["lr"] == pytest.approx(1e-4)
    assert torch.equal(weights(done), weights(fixed))


def test_groups_keep_the_proportion_of_their_rates(tmp_path):
    source = SOURCE.replace(
        "SGD(model.parameters(), lr=0.1, momentum=0.5)",
        "SGD([{'params': model[0].parameters(), 'lr': 0.2}, {'params': model[2].parameters()}], lr=0.1)",
    )
    done = perform(tmp_path, source, edit("set-learning-rate", to=0.02))
    assert [group["lr"] for group in done["optimizer"].param_groups] == pytest.approx([0.02, 0.01])


def test_clipping_bounds_every_step(tmp_path):
    source = SOURCE.replace("loss.backward()", "(100 * loss).backward()")
    source = source.replace(
        "losses.append",
        "norm = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).norm(); losses.append",
    )
    done = perform(tmp_path, source, edit("clip-gradient", kind="norm", limit=0.5))
    assert float(done["norm"]) == pytest.approx(0.5, rel=1e-3)


def test_warm_up_scales_the_first_steps_only(tmp_path):
    source = SOURCE.replace("lr=0.1, momentum=0.5", "lr=0.1").replace(
        "optimizer.step()",
        "before = weights_now(); optimizer.step(); moved = (weights_now() - before).norm()",
    )
    source = source.replace(
        "losses = []",
        "losses = []\nweights_now = lambda: torch.cat([p.detach().reshape(-1) for p in model.parameters()])",
    ).replace("range(8)", "range(1)")
    plain = perform(tmp_path, source)
    done = perform(tmp_path, source, edit("warm-up", steps=10))
    assert float(done["moved"]) == pytest.approx(float(plain["moved"]) / 10, rel=1e-4)
    assert done["optimizer"].param_groups[0]["lr"] == 0.1


def test_a_schedule_no_longer_lowers_the_rate(tmp_path):
    made = "losses = []\nschedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)"
    sick = SOURCE.replace("losses = []", made).replace(
        "optimizer.step()", "optimizer.step(); schedule.step()"
    )
    done = perform(tmp_path, sick, edit("hold-learning-rate"))
    assert torch.equal(weights(done), weights(plainly(tmp_path, SOURCE)))
    assert not torch.equal(weights(done), weights(plainly(tmp_path, sick)))
    assert done["optimizer"].param_groups[0]["lr"] < 1e-6  # the script sees its own schedule


def test_a_schedule_no_longer_raises_the_rate_above_the_prescribed_one(tmp_path):
    made = (
        "losses = []\nschedule = torch.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 5.0, step_size_up=2, "
        "cycle_momentum=False)"
    )
    sick = SOURCE.replace("losses = []", made).replace(
        "optimizer.step()", "optimizer.step(); schedule.step()"
    )
    done = perform(tmp_path, sick, edit("hold-learning-rate"), edit("set-learning-rate", to=0.1))
    assert torch.equal(weights(done), weights(plainly(tmp_path, SOURCE)))
    assert not torch.equal(weights(done), weights(plainly(tmp_path, sick)))


def test_missing_zero_grad_is_made_good_to_the_bit(tmp_path):
    sick = SOURCE.replace("    optimizer.zero_grad()\n", "")
    done = perform(tmp_path, sick, edit("add-zero-grad"))
    assert torch.equal(weights(done), weights(plainly(tmp_path, SOURCE)))


def test_a_softmax_before_cross_entropy_is_taken_off_for_the_loss_alone(tmp_path):
    sick = SOURCE.replace("model(x)\n", "F.softmax(model(x), dim=1)\n")
    done = perform(tmp_path, sick, edit("substitute-activation", "output", from_="Softmax", to="none"))
    assert torch.equal(weights(done), weights(plainly(tmp_path, SOURCE)))
    assert done["out"].sum(1).tolist() == pytest.approx([1.0] * 64)  # the script still sees probabilities


def test_a_softmax_inside_the_model_too(tmp_path):
    sick = SOURCE.replace("nn.Linear(8, 2))", "nn.Linear(8, 2), nn.Softmax(dim=1))")
    done = perform(tmp_path, sick, edit("substitute-activation", "output", from_="Softmax", to="none"))
    assert torch.equal(weights(done), weights(plainly(tmp_path, SOURCE)))


def test_a_relu_at_the_output_is_really_removed(tmp_path):
    sick = SOURCE.replace("nn.Linear(8, 2))", "nn.Linear(8, 2), nn.ReLU())")
    done = perform(tmp_path, sick, edit("substitute-activation", "output", from_="ReLU", to="none"))
    assert torch.equal(weights(done), weights(plainly(tmp_path, SOURCE)))


REGRESSION = (
    CIRCLE
    + """
y = 300 + 50 * x[:, 0]
model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
losses = []
for step in range(STEPS):
    optimizer.zero_grad()
    out = model(x)
    loss = F.mse_loss(out, y.unsqueeze(1))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with torch.no_grad():
    prediction = model(x).squeeze(1)
    off = float((prediction - y).abs().mean())
"""
)


def test_targets_are_standardised_and_predictions_come_in_their_units(tmp_path):
    source = REGRESSION.replace("STEPS", "60")
    plain = perform(tmp_path, source)
    done = perform(tmp_path, source, edit("standardise-targets"))
    assert plain["off"] > 100
    assert done["off"] < 15
    assert done["losses"][0] > 1000  # reported in the original units
    assert done["losses"][-1] < 500


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_broadcast_targets_are_brought_into_shape_to_the_bit(tmp_path):
    sick = REGRESSION.replace("STEPS", "5").replace("y.unsqueeze(1)", "y")
    done = perform(tmp_path, sick, edit("fix-broadcast"))
    assert torch.equal(weights(done), weights(plainly(tmp_path, REGRESSION.replace("STEPS", "5"))))
    by_hand = sick.replace("F.mse_loss(out, y)", "((out - y) ** 2).mean()")
    done = perform(tmp_path, by_hand, edit("fix-broadcast"))
    assert torch.allclose(weights(done), weights(plainly(tmp_path, REGRESSION.replace("STEPS", "5"))))


def test_another_loss_where_shapes_allow_it_and_a_refusal_where_not(tmp_path):
    sick = SOURCE.replace("F.cross_entropy(out, y)", "F.mse_loss(out, F.one_hot(y, 2).float())")
    done = perform(tmp_path, sick, edit("substitute-loss", from_="mse_loss", to="cross_entropy"))
    assert torch.allclose(weights(done), weights(plainly(tmp_path, SOURCE)), atol=1e-6)
    narrow = sick.replace("nn.Linear(8, 2)", "nn.Linear(8, 1)").replace(
        "F.one_hot(y, 2).float()", "y[:, None].float()"
    )
    done = perform(tmp_path, narrow, edit("substitute-loss", from_="mse_loss", to="cross_entropy"))
    assert "output unit per class" in done.refused["substitute-loss"]


def test_class_weights_change_the_gradient_and_not_the_reported_value(tmp_path):
    source = (
        SOURCE.replace("y = (x.norm", "y = (x.norm").replace("> 1.2", "> 2.2").replace("range(8)", "range(1)")
    )
    plain = perform(tmp_path, source)
    done = perform(tmp_path, source, edit("weight-classes", kind="inverse-frequency"))
    assert done["losses"] == pytest.approx(plain["losses"])
    assert not torch.equal(weights(done), weights(plain))


def test_targets_are_brought_between_zero_and_one(tmp_path):
    right = SOURCE.replace(
        "F.cross_entropy(out, y)", "F.binary_cross_entropy_with_logits(out[:, 0], y.float())"
    )
    sick = right.replace("y.float()", "y.float() * 255")
    done = perform(tmp_path, sick, edit("scale-targets", low=0.0, high=255.0))
    plain = plainly(tmp_path, right)
    assert torch.allclose(weights(done), weights(plain), atol=1e-6)
    assert done["losses"][0] > 0  # that of the targets as they should be, not of the nonsense


def test_a_summed_loss_is_averaged_for_its_gradient(tmp_path):
    sick = SOURCE.replace("F.cross_entropy(out, y)", "F.cross_entropy(out, y, reduction='sum')")
    done = perform(tmp_path, sick, edit("mean-reduction"))
    assert torch.allclose(weights(done), weights(plainly(tmp_path, SOURCE)), atol=1e-6)
    assert done["losses"][0] > 30  # the script's own measure


def test_inputs_are_scaled_by_training_data_in_training_and_evaluation(tmp_path):
    source = SOURCE.replace("y = (x.norm", "raw = x * 40 + 128\ny = (x.norm").replace(
        "model(x)", "model(seen(raw))"
    )
    source = source.replace("losses = []", "losses = []\nentered = []\ndef seen(x):\n    return x\n") + (
        "model.register_forward_pre_hook(lambda m, a: entered.append(a[0].detach()))\n"
        "with torch.no_grad():\n    model(raw[:8])\n"
    )
    done = perform(tmp_path, source, edit("scale-inputs", kind="standard", nan="impute", outliers="clip"))
    entered = done["entered"][-1]
    x = done["raw"]
    expected = ((x - x.mean(0)) / x.std(0, unbiased=False))[:8]
    assert torch.allclose(entered, expected, atol=1e-3)


def test_whole_numbers_are_not_scaled(tmp_path):
    source = SOURCE.replace("nn.Linear(2, 8), nn.Tanh()", "nn.Embedding(9, 4), nn.Flatten()").replace(
        "model(x)", "model((x.abs() * 2).long().clamp(max=8))"
    )
    done = perform(tmp_path, source, edit("scale-inputs"))
    assert "scale-inputs" in done.refused


HELD_OUT_FIRST = """
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 2), torch.randint(0, 2, (64,)))
held_out = DataLoader(data, batch_size=64)
loader = DataLoader(data, batch_size=8)
model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, (x, y) in enumerate(loader):
    if number % 4 == 0:
        with torch.no_grad():
            [F.cross_entropy(model(a), b) for a, b in held_out]
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


def test_the_training_loader_is_the_one_that_steps_take_their_batches_from(tmp_path):
    plain = perform(tmp_path, HELD_OUT_FIRST)
    assert plain.ledger.facts["training_loaders"] == [1]
    assert plain.ledger.facts["batch_sizes"] == [8]
    edits = edit("set-batch-size", to=16), edit("shuffle-data")
    done = perform(tmp_path, HELD_OUT_FIRST, *edits, training_loaders=[1])
    assert (done["loader"].batch_size, done["held_out"].batch_size) == (16, 64)
    assert isinstance(done["loader"].sampler, torch.utils.data.RandomSampler)
    assert not isinstance(done["held_out"].sampler, torch.utils.data.RandomSampler)
    change = rewrite(
        tmp_path / "train.py", Prescription(edits), Clues(plain.ledger.to_dict()["places"], [], {})
    )
    new = [line for line in change.diff.splitlines() if line[:1] == "+" and "DataLoader" in line]
    assert new == ["+loader = DataLoader(data, batch_size=16, shuffle=True)"]


def test_batch_size_of_training_loaders(tmp_path):
    source = SOURCE.replace(
        "for step in range(8):",
        "data = torch.utils.data.TensorDataset(x, y)\n"
        "loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)\n"
        "held_out = torch.utils.data.DataLoader(data, 4)\n"
        "for x, y in loader:",
    )
    done = perform(tmp_path, source, edit("set-batch-size", to=16))
    assert done["loader"].batch_size == 16
    assert done["held_out"].batch_size == 4
    assert done.ledger.facts["batch_sizes"] == [4]
    again = perform(tmp_path, source, edit("set-batch-size", to=4))
    assert again.refused == {"set-batch-size": "batches are of 4 samples already"}
    assert done.operation.steps == 4
    assert "DataLoader" in perform(tmp_path, SOURCE, edit("set-batch-size", to=16)).refused["set-batch-size"]


def test_what_is_refused_does_not_keep_the_rest_from_taking_effect(tmp_path):
    done = perform(tmp_path, SOURCE, edit("set-batch-size", to=16), edit("set-learning-rate", to=0.5))
    assert list(done.refused) == ["set-batch-size"]
    assert not done.ended
    assert done["optimizer"].param_groups[0]["lr"] == 0.5


def test_a_truncated_run_ends_after_the_evaluation_that_follows(tmp_path):
    source = SOURCE.replace(
        "    losses.append(loss.item())", "    losses.append(loss.item())\n    evaluate()"
    ).replace(
        "losses = []",
        "losses = []\ndef evaluate():\n    with torch.no_grad():\n        F.cross_entropy(model(x[:9]), y[:9])\n",
    )
    done = perform(tmp_path, source, max_steps=3)
    assert done.operation.steps == 3
    assert [step for step, _ in done.operation.evaluations] == [1, 2, 3]
    assert done.ended


WRAPPED = (
    CIRCLE
    + """
class Handing(torch.optim.Optimizer):
    # As Accelerate's: an optimizer by its class alone, which hands everything on.
    def __init__(self, optimizer):
        self.optimizer = optimizer
    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)
    defaults = property(lambda self: self.optimizer.defaults)
    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)
    def step(self, closure=None):
        self.optimizer.step(closure)
model = nn.Linear(2, 2)
optimizer = Handing(torch.optim.Adam(model.parameters(), lr=0.1))
for _ in range(5):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
)


def test_an_optimizer_that_hands_on_to_another_is_left_alone(tmp_path):
    done = perform(tmp_path, WRAPPED, edit("substitute-optimizer", to="SGD", lr=0.01, momentum=0.9))
    assert isinstance(done["optimizer"].optimizer, torch.optim.SGD)
    assert type(done["optimizer"]).__name__ == "Handing"
    done = perform(tmp_path, WRAPPED, edit("set-learning-rate", factor=0.1))
    assert done["optimizer"].param_groups[0]["lr"] == pytest.approx(0.01)
    assert not done.refused


def test_targets_keep_their_units_where_the_model_computes_its_loss_itself(tmp_path):
    source = (
        CIRCLE
        + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(2, 1)
    def forward(self, x, labels=None):
        out = self.line(x)
        return {"logits": out, "loss": None if labels is None else F.mse_loss(out, labels)}
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    model(x, 1e-5 * x[:, :1])["loss"].backward()
    optimizer.step()
"""
    )
    done = perform(tmp_path, source, edit("standardise-targets"))
    assert "put back in their units" in done.refused["standardise-targets"]


MISSING = """
import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(64, 4)
y = x.sum(1, keepdim=True)
x[::9, 1] = torch.nan
y[::8] = torch.nan
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
with torch.no_grad():
    value = float(nn.functional.mse_loss(model(x[:32]), y[:32]))
    nothing = float(nn.functional.mse_loss(model(x[:1]), y[:1]))
"""


def test_where_inputs_are_cleaned_samples_without_a_target_are_left_out(tmp_path):
    assert not math.isfinite(perform(tmp_path, MISSING)["value"])
    done = perform(tmp_path, MISSING, edit("scale-inputs", kind="none", nan="impute", outliers="keep"))
    assert done["value"] < 0.5  # what was imputed cannot be known
    assert done["nothing"] == 0.0
    assert done.ledger.facts["missing_targets"]
