"""Losses side by side: each is judged by the output it was given itself, and in the units it was given in."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import akeso
from akeso.detectors.standing import standing, validation_loss


def test_a_consistency_term_does_not_lend_its_softmax_to_the_cross_entropy() -> None:
    torch.manual_seed(0)
    x = torch.randn(256, 4)
    y = (x[:, 0] > 0).long()
    student = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.Adam(student.parameters(), 3e-3)
    with akeso.watch(student, optimizer) as watch:
        for step in range(60):
            rows = torch.arange(32 * step, 32 * (step + 1)) % len(x)
            with torch.no_grad():
                wanted = teacher(x[rows]).softmax(1)
            supervised = F.cross_entropy(student(x[rows]), y[rows])
            consistent = ((student(x[rows]).softmax(1) - wanted) ** 2).sum(1).mean()
            optimizer.zero_grad()
            (supervised + consistent).backward()
            optimizer.step()
    assert watch.history.facts["output_activation"] == "none"
    assert "improper-output-activation" not in [diagnosis.problem for diagnosis in watch.diagnoses]


def test_a_softmax_before_the_cross_entropy_itself_is_seen_beside_other_terms() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Softmax(1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(20):
            x = torch.randn(32, 4)
            optimizer.zero_grad()
            penalty = ((model[0].weight - torch.eye(3, 4)) ** 2).sum()
            (F.cross_entropy(model(x), x[:, :3].argmax(1)) + 0.01 * penalty).backward()
            optimizer.step()
    assert watch.history.facts["output_activation"] == "softmax"
    assert "improper-output-activation" in [diagnosis.problem for diagnosis in watch.diagnoses]


@pytest.mark.parametrize("unit", [1.0, 300.0, 0.01])
def test_validation_in_the_units_of_the_data_is_compared_with_training_on_standardised_targets(
    unit: float,
) -> None:
    torch.manual_seed(0)
    x = torch.randn(640, 4)
    y = x.sum(1, keepdim=True) + 0.1 * torch.randn(640, 1)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(12):
            for rows in torch.randperm(512).split(32):
                optimizer.zero_grad()
                (F.mse_loss(model(x[rows]), y[rows]) / 4).backward()
                optimizer.step()
            with torch.no_grad():
                F.mse_loss(model(x[512:]) * unit + 7.0, y[512:] * unit + 7.0)
    stand = standing(watch.history)
    left = validation_loss(watch.history).values / stand.baseline
    truth = F.mse_loss(model(x[512:]).detach(), y[512:]) / y[512:].var(correction=0)
    assert float(left[-1]) == pytest.approx(float(truth), rel=0.4)
    assert not [diagnosis for diagnosis in watch.diagnoses if diagnosis.severity != "info"]


def _two_heads(unit: float, *, classes_last: bool = False, weight: float = 1.0) -> list[tuple[str, str]]:
    """A class and a value are learnt side by side, the value in some unit: problems and what is said of them."""
    torch.manual_seed(0)
    x = torch.rand(512, 6)
    labels, amount = (x[:, 0] > 0.5).long() + (x[:, 1] > 0.5).long(), unit * (2.0 + x.sum(1))
    trunk = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
    kind, value = nn.Linear(16, 3), nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    model = nn.ModuleList([trunk, kind, value])
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    with akeso.watch(model, optimizer) as watch:
        for step in range(300):
            rows = torch.arange(64 * step, 64 * (step + 1)) % len(x)
            hidden = trunk(x[rows])
            first = F.cross_entropy(kind(hidden), labels[rows]) if not classes_last else 0.0
            second = weight * F.mse_loss(value(hidden).squeeze(1), amount[rows])
            third = F.cross_entropy(kind(hidden), labels[rows]) if classes_last else 0.0
            optimizer.zero_grad()
            (first + second + third).backward()
            optimizer.step()
    return [(found.problem, found.sentence) for found in watch.diagnoses if found.severity != "info"]


def test_a_value_in_a_large_unit_leaves_no_room_for_the_class_beside_it() -> None:
    found = dict(_two_heads(1e3))
    assert "the cross-entropy stays at chance" in found["abnormal-data"]
    assert "the cross-entropy stays at chance" in dict(_two_heads(1e3, classes_last=True))["slow-convergence"]


def test_losses_that_are_both_learnt_are_left_alone_whatever_their_size() -> None:
    assert not _two_heads(1.0, weight=0.1)
    assert "the cross-entropy" not in str(_two_heads(1e3, weight=1e-6))


def test_terms_that_draw_a_code_and_its_book_to_each_other_are_no_measure_of_a_constant_prediction() -> None:
    torch.manual_seed(0)
    inner, outer, book = nn.Linear(8, 4), nn.Linear(4, 8), nn.Embedding(16, 4)
    model = nn.ModuleList([inner, outer, book])
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(20):
            x = torch.randn(64, 8)
            code = inner(x)
            nearest = book(torch.cdist(code, book.weight).argmin(1))
            drawn = F.mse_loss(nearest, code.detach()) + 0.25 * F.mse_loss(code, nearest.detach())
            optimizer.zero_grad()
            (drawn + F.mse_loss(outer(code + (nearest - code).detach()), x)).backward()
            optimizer.step()
    assert "draws parts of the model to each other" in str(watch.examination.not_checked)
    assert standing(watch.history).adversarial


@pytest.mark.parametrize("offset", [0.0, 0.7])
def test_a_term_that_is_a_trace_at_first_is_not_what_a_training_is_judged_by(offset: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(512, 6)
    y = x[:, :4].argmax(1)
    student = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.Adam(student.parameters(), 1e-2)
    with akeso.watch(student, optimizer) as watch:
        for _ in range(80):
            rows = torch.randint(0, 512, (64,))
            with torch.no_grad():
                wanted = teacher(x[rows]).softmax(1) + offset
            said = student(x[rows] + 0.1 * torch.randn(64, 6))
            cross = F.cross_entropy(said, y[rows])
            near = F.mse_loss(said.softmax(1), wanted)
            optimizer.zero_grad()
            (cross + near).backward()
            optimizer.step()
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.mul_(0.9).add_(fast.detach(), alpha=0.1)
    assert watch.history.facts["loss"] == ("mse_loss" if offset else "cross_entropy")
    assert offset or not [one for one in watch.diagnoses if one.severity != "info"]


def test_what_was_lost_before_a_teacher_answers_is_a_part_of_the_step() -> None:
    torch.manual_seed(0)
    student = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.Adam(student.parameters(), 1e-2)
    with akeso.watch(student, optimizer) as watch:
        for _ in range(40):
            x = torch.randn(64, 6)
            cross = F.cross_entropy(student(x), x[:, :4].argmax(1))
            with torch.no_grad():
                wanted = teacher(x).softmax(1)
            near = F.mse_loss(student(x + 0.1 * torch.randn(64, 6)).softmax(1), wanted)
            optimizer.zero_grad()
            (cross + near).backward()
            optimizer.step()
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.mul_(0.9).add_(fast.detach(), alpha=0.1)
    assert watch.history.facts["loss"] == "cross_entropy"
    assert watch.history.facts["loss_terms_least"] == 2
    assert not [one for one in watch.diagnoses if one.severity != "info"]


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_a_model_trained_beside_the_watched_one_lends_it_neither_losses_nor_task(first: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(512, 4)
    labels = (x @ torch.randn(4, 3)).argmax(1)
    student = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
    other = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(student.parameters(), 3e-3)
    beside = torch.optim.Adam(other.parameters(), 3e-3)
    losses = []

    def ours(rows: torch.Tensor) -> None:
        loss = F.cross_entropy(student(x[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    def theirs(rows: torch.Tensor) -> None:
        beside.zero_grad()
        (1000 * F.mse_loss(other(x[rows]), x[rows].square().sum(1, keepdim=True))).backward()
        beside.step()

    with akeso.watch(student, optimizer) as watch:
        for _ in range(100):
            rows = torch.randint(0, len(x), (32,))
            for half in (ours, theirs) if first == "ours" else (theirs, ours):
                half(rows)
    assert watch.history.series("loss").values.tolist() == pytest.approx(losses)
    assert watch.history.facts["task"] == "multiclass"
    assert [diagnosis.problem for diagnosis in watch.diagnoses] == []


def test_a_loss_of_two_optimizers_is_heard_where_only_the_second_is_watched() -> None:
    torch.manual_seed(0)
    x = torch.randn(512, 4)
    body, head = nn.Linear(4, 8), nn.Linear(8, 1)
    theirs, ours = (torch.optim.SGD(part.parameters(), 0.05) for part in (body, head))
    losses = []
    with akeso.watch(head, ours) as watch:
        for step in range(40):
            rows = torch.arange(32 * step, 32 * (step + 1)) % len(x)
            loss = F.mse_loss(head(body(x[rows]).relu()), x[rows].sum(1, keepdim=True))
            theirs.zero_grad()
            ours.zero_grad()
            loss.backward()
            theirs.step()
            ours.step()
            losses.append(loss.item())
    assert watch.history.series("loss").values.tolist() == pytest.approx(losses)
    assert watch.history.facts["task"] == "regression"


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_a_loss_that_is_not_finite_is_said_of_the_training_that_has_it(first: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(256, 4)
    student, other = nn.Linear(4, 1), nn.Linear(4, 1)

    def problems(watched: nn.Linear) -> list[str]:
        optimizers = [torch.optim.SGD(model.parameters(), 0.01) for model in (student, other)]
        mine = optimizers[0] if watched is student else optimizers[1]
        with akeso.watch(watched, mine) as watch:
            for step in range(40):
                rows = torch.arange(32 * step, 32 * (step + 1)) % len(x)
                turns = [(student, optimizers[0], 1.0), (other, optimizers[1], float("nan"))]
                for model, optimizer, factor in turns if first == "ours" else turns[::-1]:
                    target = x[rows].sum(1, keepdim=True)
                    optimizer.zero_grad()
                    (factor * F.mse_loss(model(x[rows]), target)).backward()
                    optimizer.step()
        return [one.problem for one in watch.diagnoses if one.problem == "non-finite"]

    assert problems(student) == []
    assert problems(other) == ["non-finite"]


def test_a_loss_that_is_not_finite_is_said_where_its_graph_shows_none_of_the_weights() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(40):
            optimizer.zero_grad()
            # Checkpoints of this kind keep the weights out of the graph of the loss.
            answer = checkpoint(model, torch.ones(8, 4, requires_grad=True), use_reentrant=True)
            (answer.mean() / torch.zeros(())).backward()
            optimizer.step()
    assert "non-finite" in [one.problem for one in watch.diagnoses]
