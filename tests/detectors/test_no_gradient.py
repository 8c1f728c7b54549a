"""Gradients that are exactly zero, and losses that stay above those of a constant."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import akeso
from akeso.detectors.testing import Sketch, falling, flat
from akeso.examination import examine


def _train(kind: str) -> list[akeso.Diagnosis]:
    torch.manual_seed(0)
    x = torch.randn(512, 4)
    y = (x[:, :1] > 0).float()
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(120):
            batch = torch.randint(0, 512, (32,))
            output, target = model(x[batch]), y[batch]
            if kind != "cleared before the step":
                optimizer.zero_grad()
            if kind == "rounded":
                loss = F.mse_loss(torch.round(torch.sigmoid(output)), target)
            elif kind == "clamped":
                loss = ((output.clamp(2, 3) - target).abs() ** 1.5).mean()
            elif kind == "nothing left to do":
                loss = F.relu(1 - (2 * target - 1) * output * 50).mean()
            else:
                loss = F.binary_cross_entropy_with_logits(output, target)
            loss.backward()
            if kind == "cleared before the step":
                optimizer.zero_grad(set_to_none=False)
            optimizer.step()
    return list(watch.diagnoses)


@pytest.mark.parametrize("kind", ["rounded", "clamped", "cleared before the step"])
def test_no_gradient_at_all_is_seen_whatever_the_loss(kind: str) -> None:
    found = _train(kind)
    assert found[0].problem == "vanishing-gradient"
    assert "exactly zero" in found[0].sentence
    assert "missing-zero-grad" not in {one.problem for one in found}


@pytest.mark.parametrize("kind", ["ordinary", "nothing left to do"])
def test_a_loss_that_is_zero_or_a_gradient_that_is_not_is_no_problem(kind: str) -> None:
    assert "vanishing-gradient" not in {one.problem for one in _train(kind)}


def test_a_gradient_that_was_gone_for_a_while_came_back() -> None:
    norms = Sketch(run={"grad_norm": lambda share: (share > 0.6) * 1.0}, loss=flat(2.3), accuracy=flat(0.1))
    assert "exactly zero" not in " ".join(d.sentence for d in examine(norms.history()).diagnoses)


def test_a_loss_above_a_constant_s_after_a_wild_start_is_harm_whatever_was_learnt_by_heart() -> None:
    def problems(end: float) -> set[str]:
        sketch = Sketch(
            loss=lambda share: end + (2.3 - end + 80 * (share > 0.01)) * falling(1.0, 0.0, 40.0)(share),
            accuracy=flat(0.8),
            update=lambda index: 0.15,
        )
        return {d.problem for d in examine(sketch.history()).diagnoses if d.severity == "error"}

    assert "learning-rate-too-high" in problems(5.0)
    assert not problems(0.3)


@pytest.mark.parametrize(("drawn", "said"), [("by torch", True), ("by Keras", True), ("trained", False)])
def test_frozen_weights_that_nothing_was_loaded_into_are_remarked_on(drawn: str, said: bool) -> None:
    torch.manual_seed(0)
    body = torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU()
    )
    for weight in body.parameters():
        if drawn == "trained":
            weight.data += 0.1 * torch.randn_like(weight)
        elif drawn == "by Keras" and weight.dim() == 2:
            torch.nn.init.xavier_uniform_(weight)
    body.requires_grad_(False)
    model = torch.nn.Sequential(body, torch.nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model[1].parameters(), lr=0.01)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(60):
            x = torch.randn(32, 16)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
            optimizer.step()
    found = [one for one in watch.diagnoses if one.problem == "parameters-not-trained"]
    assert [(one.severity, one.layer) for one in found] == ([("info", "0.0")] if said else [])


def test_a_teacher_that_was_trained_before_is_not_as_it_was_drawn() -> None:
    torch.manual_seed(0)
    teacher = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    student = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

    def train(model: torch.nn.Module, wanted: Callable[[torch.Tensor], torch.Tensor]) -> None:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(60):
            x = torch.randn(32, 8)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), wanted(x)).backward()
            optimizer.step()

    with akeso.watch() as watch:
        train(teacher, lambda x: (x[:, 0] > 0).long())
        teacher.requires_grad_(False)
        train(student, lambda x: teacher(x).argmax(1))
    assert "parameters-not-trained" not in {one.problem for one in watch.diagnoses}


def _quantised(straight_through: bool) -> list[akeso.Diagnosis]:
    """A network whose hidden layer is rounded, with and without a gradient through that."""
    torch.manual_seed(0)
    x = torch.randn(2048, 16)
    y = (x[:, :1] + x[:, 1:2] > 0).float()
    body, head = nn.Sequential(nn.Linear(16, 64), nn.ReLU()), nn.Linear(64, 1)
    model = nn.ModuleList([body, head])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(300):
            batch = torch.randint(0, 2048, (64,))
            hidden = body(x[batch])
            rounded = torch.round(hidden * 4) / 4
            hidden = hidden + (rounded - hidden).detach() if straight_through else rounded
            loss = F.binary_cross_entropy_with_logits(head(hidden), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return [one for one in watch.diagnoses if one.severity != "info"]


@pytest.mark.parametrize("straight_through", [False, True])
def test_layers_that_rounding_cuts_off_are_named_though_the_last_one_learns(straight_through: bool) -> None:
    found = _quantised(straight_through)
    assert [(one.problem, one.layer) for one in found] == (
        [] if straight_through else [("parameters-not-trained", "0.0")]
    )
    assert straight_through or "gradient of exactly 0" in found[0].sentence


class _Rounded(nn.Linear):
    """A layer whose weights are rounded as those of a quantised network."""

    straight_through = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rounded = torch.round(self.weight * 16) / 16
        if self.straight_through:
            rounded = self.weight + (rounded - self.weight).detach()
        return F.linear(x, rounded, self.bias)


@pytest.mark.parametrize("cut", ["rounded", "through", "dead", "zero"])
def test_weights_that_are_all_rounded_are_named_and_not_other_reasons_for_no_gradient(cut: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(512, 16)
    y = (x[:, 0] > 0).long()
    layers = [_Rounded(16, 32), nn.ReLU(), _Rounded(32, 32), nn.ReLU(), _Rounded(32, 2)]
    for layer in layers[::2]:
        layer.straight_through = cut != "rounded"
        if cut == "zero":
            nn.init.zeros_(layer.weight)
    if cut == "dead":
        nn.init.constant_(layers[2].bias, -50.0)
    model = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(120):
            rows = torch.randint(0, 512, (64,))
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    found = [one for one in watch.diagnoses if one.severity != "info"]
    named = [one for one in found if "lets no gradient through" in one.sentence]
    assert [one.problem for one in named] == ["parameters-not-trained"] * (cut == "rounded")
    assert not named or named[0] is found[0]


@pytest.mark.parametrize(("wanted", "severity"), [(True, "info"), (False, "warning")])
def test_what_the_last_of_several_blocks_would_hand_on_need_not_learn(wanted: bool, severity: str) -> None:
    """Blocks that each give a forecast and what is left to the next one: of the last one nobody wants the rest."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.rest, self.forecast = nn.Linear(16, 64), nn.Linear(64, 16), nn.Linear(64, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = self.body(x).relu()
            return self.rest(hidden), self.forecast(hidden)

    torch.manual_seed(0)
    blocks = nn.ModuleList([Block() for _ in range(3)])
    optimizer = torch.optim.Adam(blocks.parameters(), lr=1e-3)
    with akeso.watch(blocks, optimizer) as watch:
        for _ in range(200):
            x = torch.randn(64, 16)
            left, said = x, torch.zeros(64, 4)
            for block in blocks:
                rest, forecast = block(left)
                left, said = left - (rest if wanted else rest.detach()), said + forecast
            loss = nn.functional.mse_loss(said, x[:, :4])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    found = [one for one in watch.diagnoses if one.problem == "parameters-not-trained"]
    assert [one.severity for one in found] == [severity]


def _rivals(kind: str) -> list[akeso.Diagnosis]:
    """A generator and a critic, drawn as such networks are, with an optimizer each."""
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))
    critic = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(), nn.Linear(32, 1))
    for model in (maker, critic):
        for weight in model.parameters():
            nn.init.normal_(weight, 0, 0.2)
    own, others = list(maker.parameters()), list(critic.parameters())
    if kind == "one optimizer":
        optimizers = [torch.optim.Adam([*own, *others], 1e-3)]
    else:
        optimizers = [torch.optim.Adam(others, 1e-3), torch.optim.Adam(own, 1e-3)]
    with akeso.watch([maker, critic], optimizers) as watch:
        for step in range(120):
            fake, real = maker(torch.randn(32, 4)), torch.randn(32, 8) + 1
            verdict = torch.cat([critic(real), critic(fake.detach())])
            wanted = torch.cat([torch.ones(32, 1), torch.zeros(32, 1)])
            for optimizer in optimizers:
                optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(verdict, wanted).backward()
            optimizers[0].step()
            if kind == "one optimizer":
                continue
            optimizers[1].zero_grad()
            seen = fake.detach() if kind != "joined" and (kind != "later" or step < 70) else fake
            loss = F.binary_cross_entropy_with_logits(critic(seen), torch.ones(32, 1))
            if loss.requires_grad:
                loss.backward()
            optimizers[1].step()
    return [one for one in watch.diagnoses if one.problem == "parameters-not-trained"]


def test_an_optimizer_none_of_whose_parameters_ever_has_a_gradient_is_a_finding() -> None:
    (found,) = _rivals("cut off")
    assert (found.severity, found.evidence["reason"], found.evidence["count"]) == ("warning", "no-grad", 4)
    assert "their optimizer trains nothing else" in found.sentence


@pytest.mark.parametrize("between", [True, False])
def test_gradients_that_are_cleared_before_the_step_are_not_said_to_be_cut_off(between: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with akeso.watch(model, optimizer, planned_steps=100) as watch:
        for _ in range(100):
            x = torch.randn(32, 4)
            answers = model(x) if between else model[2](model[:2](x).detach())
            if not between:
                optimizer.zero_grad()
            F.cross_entropy(answers, (x[:, 0] > 0).long()).backward()
            if between:
                optimizer.zero_grad()
            optimizer.step()
    (found,) = [one for one in watch.diagnoses if one.problem == "parameters-not-trained"]
    assert ("cleared between `backward` and the step" in found.sentence) is between
    assert ("zero_grad" in found.remedies[0]) is between


@pytest.mark.parametrize("kind", ["joined", "later", "one optimizer"])
def test_what_learns_waits_for_its_turn_or_shares_an_optimizer_with_what_learns_is_none(kind: str) -> None:
    assert {one.severity for one in _rivals(kind)} <= {"info"}


@pytest.mark.parametrize(
    ("gradient", "dead", "named"),
    [
        (lambda index: 0.05 if index > 1 else 0.0, 0.02, "parameters-not-trained"),
        (lambda index: 10.0 ** (8 * index - 33) if index else 0.0, 0.02, "vanishing-gradient"),
        (lambda index: 0.05 if index > 1 else 0.0, 0.95, "dying-relu"),
    ],
    ids=["at once", "little by little", "dead units"],
)
def test_a_gradient_that_ends_at_once_does_not_vanish(
    gradient: Callable[[int], float], dead: float, named: str
) -> None:
    stuck = Sketch(
        loss=flat(2.3), accuracy=flat(0.1), gradient=gradient, dead=lambda _: dead, zero=lambda _: dead
    )
    found = [one.problem for one in examine(stuck.history()).diagnoses if one.severity == "error"]
    assert found[0] == named
    assert ("vanishing-gradient" in found) is (named != "parameters-not-trained")
