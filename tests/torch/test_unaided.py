"""Loops that change their weights by themselves are looked into like those with an optimizer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from akeso.torch.unaided import Unaided
from akeso.torch.watching import watch_everything

Update = Callable[[nn.Module], None]


def inside_no_grad(model: nn.Module) -> None:
    with torch.no_grad():
        for one in model.parameters():
            assert one.grad is not None
            one -= 0.1 * one.grad
            one.grad = None


def through_data(model: nn.Module) -> None:
    for one in model.parameters():
        assert one.grad is not None
        one.data.add_(one.grad, alpha=-0.1)
    model.zero_grad()


class Momentum:
    """An optimizer of one's own, which torch knows nothing of."""

    def __init__(self, model: nn.Module) -> None:
        self.before = [torch.zeros_like(one) for one in model.parameters()]

    def __call__(self, model: nn.Module) -> None:
        with torch.no_grad():
            for one, velocity in zip(model.parameters(), self.before, strict=True):
                velocity.mul_(0.5).add_(one.grad)
                one -= 0.05 * velocity
        model.zero_grad()


def data() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(512, 12)
    return x, (x @ torch.randn(12, 4)).argmax(1)


def network(*, dead: bool = False) -> nn.Sequential:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    if dead:
        with torch.no_grad():
            model[2].bias.fill_(-30.0)
    return model


def train(model: nn.Module, update: Update, *, steps: int = 200, evaluate: bool = True) -> list[float]:
    x, y = data()
    losses = []
    for step in range(steps):
        batch = torch.randint(0, 448, (32,))
        loss = F.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        update(model)
        losses.append(loss.item())
        if evaluate and step % 50 == 49:
            model.eval()
            with torch.no_grad():
                F.cross_entropy(model(x[448:]), y[448:])
            model.train()
    return losses


@pytest.mark.parametrize("kind", ["no_grad", "data", "own optimizer"])
def test_steps_are_seen_with_their_gradients_and_changes(kind: str) -> None:
    model = network()
    update: Update = {"no_grad": inside_no_grad, "data": through_data}.get(kind) or Momentum(model)
    with watch_everything() as watch:
        losses = train(model, update)
    history = watch.history
    assert watch.steps == len(losses) == 200
    seen = history.series("loss").finite()
    assert torch.tensor(losses)[torch.as_tensor(seen.steps)].tolist() == pytest.approx(seen.values.tolist())
    for scope in ("0.weight", "4.bias"):
        gradients, changes = history.series("grad_l2", scope), history.series("update_ratio", scope)
        assert len(gradients) == len(changes) >= 5
        assert (gradients.values > 0).all()
        assert (changes.values > 0).all()
    assert len(history.series("val_loss").finite()) == 4
    assert history.facts["optimizers"] == []
    assert [one.problem for one in watch.diagnoses if one.severity != "info"] == []


def test_the_change_of_a_step_is_the_one_that_the_script_has_made() -> None:
    model = network()
    with watch_everything() as watch:
        train(model, through_data, evaluate=False)
    signals = ("grad_l2", "weight_l2", "update_ratio")
    gradients, weights, changes = (watch.history.series(signal, "0.weight") for signal in signals)
    assert gradients.steps.tolist() == changes.steps.tolist() == weights.steps.tolist()
    assert len(changes) >= 5
    # A part of the entries speaks for all of them.
    assert (changes.values * weights.values).tolist() == pytest.approx(
        (0.1 * gradients.values).tolist(), rel=0.05
    )


def test_what_ails_such_a_loop_is_named() -> None:
    with watch_everything() as watch:
        train(network(dead=True), inside_no_grad)
    first = watch.diagnoses[0]
    assert (first.problem, first.layer) == ("dying-relu", "3")
    assert "nan" not in " ".join(one.sentence for one in watch.diagnoses)


def test_watching_changes_no_bit() -> None:
    plain, watched = network(), network()
    alone = train(plain, inside_no_grad)
    with watch_everything():
        beside = train(watched, inside_no_grad)
    assert alone == beside
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other)


def test_an_optimizer_that_comes_later_takes_over() -> None:
    model = network()
    with watch_everything() as watch:
        train(model, inside_no_grad, steps=60)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def stepped(_: nn.Module) -> None:
            optimizer.step()
            optimizer.zero_grad()

        train(model, stepped, steps=60)
    assert watch.steps == 120
    assert watch.history.facts["optimizers"][-1]["name"] == "SGD"
    assert not [one for one in watch.diagnoses if one.severity != "info"]


def test_backward_passes_that_change_nothing_are_no_training() -> None:
    model, (x, _) = network(), data()
    with watch_everything() as watch:
        for place in range(40):
            given = x[place : place + 1].clone().requires_grad_()
            model(given).max().backward()
    assert not watch.history.scopes("grad_l2")


def test_a_change_now_and_then_is_not_taken_for_a_step() -> None:
    """As where gradients of several batches are gathered: which of them belong together is not known."""
    model = network()

    class Known:
        def parameters(self) -> list[tuple[str, nn.Parameter]]:
            return list(model.named_parameters())

    unaided = Unaided(Known(), lambda *_: None)  # type: ignore[arg-type]
    for at in range(30):
        assert unaided.found() is None
        if at % 2:
            with torch.no_grad():
                for one in model.parameters():
                    one += 0.1
