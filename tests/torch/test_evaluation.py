"""Which passes without gradients are followed as evaluations, and for how long."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import akeso
from akeso.detectors import standing
from akeso.torch.evaluating import Evaluations
from akeso.torch.watching import watch_everything


@pytest.mark.parametrize("scored", [False, True])
def test_answers_that_nothing_is_made_of_are_not_followed_for_long(
    scored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed, follow = [], Evaluations.output

    def counted(self: Evaluations, *args: Any) -> None:
        if not args[1].requires_grad:
            followed.append(args[1])
        follow(self, *args)

    monkeypatch.setattr(Evaluations, "output", counted)
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with akeso.watch(model, optimizer):
        for _ in range(5):
            for _ in range(100):  # a rollout, or a validation batch by batch
                with torch.no_grad():
                    answer = model(torch.randn(3, 4))
                    if scored:
                        nn.functional.mse_loss(answer, torch.randn(3, 2))
            optimizer.zero_grad()
            nn.functional.mse_loss(model(torch.randn(8, 4)), torch.randn(8, 2)).backward()
            optimizer.step()
    assert len(followed) == (500 if scored else 32 + 16 + 8 + 4 + 4)


def test_a_loss_that_is_kept_in_the_model_is_none_of_its_layers() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.loss = torch.nn.Linear(5, 1), torch.nn.BCEWithLogitsLoss()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).squeeze(-1)

    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(96, 5)
    y = (x[:, 0] > 0).float()
    with akeso.watch(model, optimizer) as watch:
        for _ in range(3):
            for rows in torch.arange(64).split(16):
                optimizer.zero_grad()
                model.loss(model(x[rows]), y[rows]).backward()
                optimizer.step()
            with torch.no_grad():
                values = [model.loss(model(x[rows]), y[rows]) for rows in torch.arange(64, 96).split(16)]
    last = watch.history.events_of("evaluation")[-1]
    assert (last.scope, last.data["samples"], last.data["batches"]) == ("", 32, 2)
    assert last.data["loss"] == pytest.approx(float(sum(values)) / 2)


def test_what_was_evaluated_last_is_not_taken_for_what_is_trained_on() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with akeso.watch(model, optimizer) as watch:
        with torch.no_grad():
            model(torch.full((40, 5), 9.0))  # an answer of which nothing is made
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(torch.zeros(8, 5)), torch.ones(8, 1)).backward()
            optimizer.step()
    assert set(watch.history.series("batch_size").values.tolist()) == {8.0}
    assert watch.history.series("input_max").values.max() == 0.0


def test_passes_after_an_evaluation_that_ends_inside_of_no_grad_are_training() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    data = torch.randn(64, 4)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def neighbours() -> float:
        model.eval()
        found = nn.functional.normalize(model(data), dim=1)
        near = (found @ found.T).topk(2).indices[:, 1]
        model.train()
        return float((near == 0).float().mean())

    with akeso.watch(model, optimizer) as watch:
        for step in range(40):
            one, other = (model(data + 0.1 * torch.randn_like(data)) for _ in range(2))
            scores = nn.functional.normalize(one, dim=1) @ nn.functional.normalize(other, dim=1).T
            optimizer.zero_grad()
            nn.functional.cross_entropy(scores / 0.5, torch.arange(64)).backward()
            optimizer.step()
            if step % 8 == 7:
                neighbours()
    assert not [event for event in watch.history.events_of("evaluation") if event.data["training_mode"]]
    assert not watch.history.series("val_loss")
    assert "wrong-mode" not in {diagnosis.problem for diagnosis in watch.diagnoses}


def test_a_loader_that_the_script_lets_go_of_is_gone() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def part_of_a_pass() -> weakref.ref[DataLoader[Any]]:
        loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8)
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
            break
        return weakref.ref(loader)

    with akeso.watch(model, optimizer) as watch:
        left = part_of_a_pass()
        gc.collect()
        assert left() is None
    assert len(watch.history.events_of("epoch")) == 1


def test_what_a_model_does_without_gradients_in_its_own_pass_is_no_evaluation() -> None:
    class Quantised(nn.Module):
        """Keeps an average of what it sees, as codebooks do, and has layers behind that."""

        def __init__(self) -> None:
            super().__init__()
            self.before, self.behind = nn.Linear(4, 8), nn.Linear(8, 4)
            self.register_buffer("seen", torch.zeros(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            code = self.before(x)
            with torch.no_grad():
                self.seen.mul_(0.9).add_(code.mean(0), alpha=0.1)
            return self.behind(code - self.seen)

    torch.manual_seed(0)
    model = Quantised()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with akeso.watch() as watch:
        for _ in range(40):
            x = torch.randn(32, 4)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x).backward()
            optimizer.step()
    history = watch.history
    assert history.facts["input_shape"] == [32, 4]
    assert history.facts["task"] == "autoencoder"
    assert not history.events_of("evaluation")
    assert [layer.name for layer in history.layers if layer.visible] == ["before", "behind"]


@pytest.mark.parametrize("form", ["tuple", "dict"])
@pytest.mark.parametrize("divided", [1, 4])
def test_a_loss_that_the_model_gives_beside_its_answers_is_validated_by(form: str, divided: int) -> None:
    class Model(nn.Module):
        """Computes its own loss, as language models do; what it gives besides is none."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            scores = self.layer(x)
            loss, norm = nn.functional.cross_entropy(scores, y), self.layer.weight.norm()
            return (scores, loss, norm) if form == "tuple" else {"loss": loss, "scores": scores, "norm": norm}

    torch.manual_seed(0)
    model, place = Model(), 1 if form == "tuple" else "loss"
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    x = torch.randn(96, 4)
    y = x[:, :3].argmax(1)
    wanted = []
    with akeso.watch() as watch:
        for step in range(40):
            optimizer.zero_grad()
            for part in range(divided):
                (model(x[part:64:divided], y[part:64:divided])[place] / divided).backward()
            optimizer.step()
            if step % 10 == 9:
                with torch.no_grad():
                    wanted.append(float(model(x[64:], y[64:])[place]))
    assert watch.history.series("val_loss").values.tolist() == pytest.approx(wanted, rel=1e-5)
    assert [event.data["samples"] for event in watch.history.events_of("evaluation")] == [32] * 4
    assert standing.validation_loss(watch.history).values[-1] == pytest.approx(wanted[-1] / divided, rel=0.05)


def test_what_one_fold_trains_on_is_held_out_in_the_next() -> None:
    torch.manual_seed(0)
    x = torch.randn(256, 4)
    y = (x[:, 0] > 0).long()
    with watch_everything() as watch:
        for fold in range(2):
            rows = torch.arange(128) + 128 * fold
            others = torch.arange(128) + 128 * (1 - fold)
            model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
            optimizer = torch.optim.Adam(model.parameters(), 0.01)
            for _ in range(12):
                for part in rows.split(32):
                    optimizer.zero_grad()
                    nn.functional.cross_entropy(model(x[part]), y[part]).backward()
                    optimizer.step()
                with torch.no_grad():
                    nn.functional.cross_entropy(model(x[others]), y[others])
    second = [event.scope for event in watch.history.events_of("evaluation") if event.step > 12 * 4]
    assert second
    assert set(second) == {""}


def test_of_losses_by_several_functions_the_one_that_is_trained_on_is_validated_by() -> None:
    torch.manual_seed(0)
    x = torch.rand(160, 6)
    model = nn.Sequential(nn.Linear(6, 6), nn.Sigmoid())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(3):
            for part in x[:128].split(32):
                optimizer.zero_grad()
                F.binary_cross_entropy(model(part), part).backward()
                optimizer.step()
            with torch.no_grad():
                answer = model(x[128:])
                expected = F.binary_cross_entropy(answer, x[128:])
                F.mse_loss(answer, x[128:])
    assert watch.history.series("val_loss").values[-1] == pytest.approx(float(expected))


def test_what_a_student_learns_while_its_teacher_answers_is_no_validation() -> None:
    torch.manual_seed(0)
    student, teacher = nn.Linear(6, 3), nn.Linear(6, 3)
    x, y = torch.randn(96, 6), torch.randint(0, 3, (96,))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    with watch_everything() as watch:
        for step in range(60):
            mine = student(x[:48])
            teacher.eval()
            with torch.no_grad():
                wanted = teacher(x[48:80]).argmax(1)
            optimizer.zero_grad()
            (F.cross_entropy(mine, y[:48]) + F.cross_entropy(student(x[48:80]), wanted)).backward()
            optimizer.step()
            if step % 10 == 9:
                student.eval()
                with torch.no_grad():
                    right = (student(x[80:]).argmax(1) == y[80:]).float().mean()
                student.train()
    series = watch.history.series("val_accuracy")
    assert list(series.steps) == list(range(9, 60, 10))
    assert series.values[-1] == pytest.approx(float(right))
    assert not watch.history.series("val_loss")


def test_a_rollout_in_one_block_is_not_followed_to_its_end_and_training_is_read_after_it() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watch_everything() as watch:
        for _ in range(6):
            with torch.no_grad():
                x = torch.stack([model(torch.randn(8, 4)).tanh() for _ in range(100)]).reshape(-1, 2)
                seen = watch._probe._passes.function_calls
                x.cos().sin().cos()
                assert watch._probe._passes.function_calls == seen
            for part in x.split(400):
                optimizer.zero_grad()
                F.mse_loss(model(torch.cat([part, part], 1)), part).backward()
                optimizer.step()
    read = watch.history.series("target_mean").steps  # which ones come later depends on what they cost
    assert list(read[:2]) == [0, 1]
    assert read[-1] > 2


def test_what_is_done_sample_by_sample_with_answers_is_not_heard_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = []
    monkeypatch.setattr(Evaluations, "function", lambda self, name, *_: heard.append(name))
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    confused = torch.zeros(3, 3)
    with akeso.watch(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(torch.randn(8, 4)), torch.randint(0, 3, (8,))).backward()
            optimizer.step()
        with torch.no_grad():
            for said, wanted in zip(
                model(torch.randn(2000, 4)).argmax(1), torch.randint(0, 3, (2000,)), strict=True
            ):
                confused[wanted, said] += 1
    assert confused.sum() == 2000
    assert len(heard) <= 1000


def test_what_a_part_of_the_model_is_asked_beside_it_is_no_part_of_the_validation_loss() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 8))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    x = torch.rand(256, 8)
    losses = []
    with akeso.watch(model, optimizer) as watch:
        for _ in range(3):
            for rows in torch.randperm(192).split(32):
                optimizer.zero_grad()
                F.binary_cross_entropy_with_logits(model(x[rows]), x[rows]).backward()
                optimizer.step()
            with torch.no_grad():
                losses.append(F.binary_cross_entropy_with_logits(model(x[192:]), x[192:]).item())
                F.mse_loss(model[1](model[0](x[192:])).sigmoid(), x[192:])
    assert watch.history.series("val_loss").values == pytest.approx(losses)


def test_what_is_computed_after_the_block_is_seen_where_no_mode_was_switched() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(600, 4)
    y = (x[:, 0] > 0).long()
    figures = []
    with akeso.watch(model, optimizer) as watch:
        for step in range(400):
            i = torch.randint(0, 500, (32,))
            optimizer.zero_grad()
            F.cross_entropy(model(x[i]), y[i]).backward()
            optimizer.step()
            if step % 20 == 19:
                with torch.no_grad():
                    answers = model(x[500:])
                right = (answers.argmax(1) == y[500:]).float().mean()
                figures.append((round(F.cross_entropy(answers, y[500:]).item(), 5), round(right.item(), 5)))
    losses, shares = (watch.history.series(name).values for name in ("val_loss", "val_accuracy"))
    assert len(losses) == len(shares) >= len(figures) / 2  # not where the next step is looked at closely
    assert set(zip(losses.round(5).tolist(), shares.round(5).tolist(), strict=True)) <= set(figures)


def test_targets_made_without_gradients_are_no_evaluation_and_the_step_after_them_is_read() -> None:
    torch.manual_seed(0)
    critic, target = nn.Linear(4, 2), nn.Linear(4, 2)
    optimizer = torch.optim.SGD(critic.parameters(), 0.01)
    with akeso.watch(critic, optimizer) as watch:
        for _ in range(200):
            state, after, reward = torch.randn(16, 4), torch.randn(16, 4), torch.randn(16)
            with torch.no_grad():
                worth = target(after)
            aim = reward + 0.9 * worth.max(1).values
            optimizer.zero_grad()
            F.mse_loss(critic(state).max(1).values, aim).backward()
            optimizer.step()
    assert not len(watch.history.series("val_loss"))
    assert not len(watch.history.series("val_accuracy"))
    assert len(watch.history.series("grad_l2", "weight")) >= 5
    assert watch.history.facts["loss"] == "mse_loss"


@pytest.mark.parametrize("attacked", [True, False])
def test_a_loss_that_noise_is_sought_by_is_no_validation(attacked: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch_everything() as watch:
        for _ in range(30):
            x = torch.randn(32, 4)
            y = (x[:, 0] > 0).long()
            model.eval()
            noise = torch.zeros_like(x)
            for _ in range(3):
                noise = noise.detach().requires_grad_(True)
                loss = F.cross_entropy(model(x + noise), y)
                if attacked:
                    (slope,) = torch.autograd.grad(loss, noise)
                    noise = noise + 0.1 * slope.sign()
            model.train()
            optimizer.zero_grad()
            F.cross_entropy(model(x + noise.detach()), y).backward()
            optimizer.step()
    assert bool(watch.history.series("val_loss")) is not attacked
    assert bool(watch.history.series("val_accuracy")) is not attacked
