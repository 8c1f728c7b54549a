"""Weight decay that holds a network back, told apart from decay that does it good."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import akeso


@pytest.mark.parametrize(
    ("decay", "noise", "found"),
    [
        pytest.param(0.06, 0.0, ["over-regularised"], id="too strong"),
        pytest.param(1e-3, 0.0, [], id="usual"),
        pytest.param(0.01, 0.4, [], id="strong, which labels that are partly wrong ask for"),
    ],
)
def test_decay_is_named_where_it_cancels_what_is_to_be_learnt(
    decay: float, noise: float, found: list[str]
) -> None:
    torch.manual_seed(0)
    x, y = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    x, y = x.float() / 16, torch.where(torch.rand(len(y)) < noise, torch.randint(0, 10, y.shape), y)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, weight_decay=decay)
    with akeso.watch(model, optimizer, planned_steps=870, budget=0.1) as watch:
        for _ in range(30):
            for batch in torch.randperm(len(x)).split(64):
                optimizer.zero_grad()
                F.cross_entropy(model(x[batch]), y[batch]).backward()
                optimizer.step()
    assert [one.problem for one in watch.diagnoses if one.severity != "info"] == found


def test_decay_is_not_the_cause_where_dead_units_leave_no_gradient() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    for layer in model[::2]:
        nn.init.normal_(layer.weight, std=0.01)
        nn.init.constant_(layer.bias, -0.2)
    optimizer = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9, weight_decay=5e-4)
    with akeso.watch(model, optimizer, planned_steps=600) as watch:
        for _ in range(600):
            x = torch.randn(32, 8)
            optimizer.zero_grad()
            F.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
            optimizer.step()
    problems = [one.problem for one in watch.diagnoses if one.severity != "info"]
    assert "over-regularised" not in problems
    assert "dying-relu" in problems


def test_gradients_clipped_while_they_are_scaled_are_what_holds_a_training_up() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=5e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    with akeso.watch(model, optimizer, planned_steps=600) as watch:
        for _ in range(600):
            x = torch.randn(32, 8)
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), (x[:, 0] > 0).long())).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    first = watch.diagnoses[0]
    assert first.problem == "learning-rate-too-low", watch.diagnoses
    assert "call `scaler.unscale_(optimizer)` first" in first.sentence


@pytest.mark.parametrize(("decay", "found"), [(300.0, True), (0.01, False)])
def test_decay_beside_adam_bounds_the_weights_and_is_named_before_the_rate(decay: float, found: bool) -> None:
    """A step of Adam and what decay takes come to the same at a weight of one over the decay."""
    torch.manual_seed(0)
    x, y = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    x = x.float() / 16
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=decay)
    with akeso.watch(model, optimizer, planned_steps=116, budget=0.1) as watch:
        for _ in range(4):
            for batch in torch.randperm(len(x)).split(64):
                optimizer.zero_grad()
                F.cross_entropy(model(x[batch]), y[batch]).backward()
                optimizer.step()
    said = [one for one in watch.diagnoses if one.severity != "info"]
    assert bool(said) is found
    if found:
        assert said[0].problem == "over-regularised"
        assert "none stay above 1 / 300" in said[0].sentence


@pytest.mark.parametrize(("decay", "found"), [(1.0, True), (1e-5, False)])
def test_decay_of_a_model_of_tables_alone_is_named(decay: float, found: bool) -> None:
    class Factors(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Embedding(40, 4), nn.Embedding(30, 4)
            for table in (self.one, self.other):
                nn.init.normal_(table.weight, std=0.3)

        def forward(self, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
            return 3.0 + (self.one(i) * self.other(j)).sum(1)

    torch.manual_seed(0)
    model, truth = Factors(), torch.randn(40, 30)
    optimizer = torch.optim.Adam(model.parameters(), 0.02, weight_decay=decay)
    with akeso.watch(model, optimizer, planned_steps=150, budget=0.1) as watch:
        for _ in range(150):
            i, j = torch.randint(40, (256,)), torch.randint(30, (256,))
            optimizer.zero_grad()
            F.mse_loss(model(i, j), 3.0 + truth[i, j]).backward()
            optimizer.step()
    assert ("over-regularised" in [one.problem for one in watch.diagnoses]) is found


class Drops(nn.Module):
    """Drops by a function, which no module shows."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.first, self.second, self.last = nn.Linear(64, 32), nn.Linear(32, 32), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (self.first, self.second):
            x = F.dropout(layer(x).relu(), self.share, self.training)
        return self.last(x)


@pytest.mark.parametrize(("share", "found"), [(0.97, ["over-regularised"]), (0.1, [])])
def test_dropout_by_a_function_is_known_as_that_by_a_layer(share: float, found: list[str]) -> None:
    torch.manual_seed(0)
    x, y = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    x = x.float() / 16
    model = Drops(share)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    with akeso.watch(model, optimizer, planned_steps=180) as watch:
        for _ in range(10):
            for batch in torch.randperm(len(x)).split(100):
                optimizer.zero_grad()
                F.cross_entropy(model(x[batch]), y[batch]).backward()
                optimizer.step()
        model.eval()
        with torch.no_grad():
            F.cross_entropy(model(x), y)
    assert watch.history.facts["dropout_called"] == {"": share}
    assert [one.problem for one in watch.diagnoses if one.severity != "info"][:1] == found
