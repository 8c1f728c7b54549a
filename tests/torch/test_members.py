"""Who takes part in a training, and what their weights were before it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import akeso
from akeso.history import BARE
from akeso.torch.watching import watch_everything


def _net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))


def _close(left: float, right: float) -> bool:
    return abs(left - right) < 1e-3


def test_a_model_that_first_runs_inside_the_step_is_known_by_its_layers_and_first_weights() -> None:
    model = _net()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    spread = model[0].weight.std(unbiased=False).item()

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).pow(2).mean()
        loss.backward()
        return loss

    with watch_everything() as watch:
        for _ in range(20):
            optimizer.step(closure)
    layers = watch.history.layers
    assert [layer.name for layer in layers] == ["0", "1", "2"]
    assert BARE not in {layer.kind for layer in layers}
    assert _close(layers[0].parameters[0].init_std, spread)


def test_layers_that_were_listed_before_they_ran_are_known_to_be_used_while_the_run_goes_on() -> None:
    """As with a trainer that tries its validation out first, and calls the model inside of the step."""
    model = _net()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).pow(2).mean()
        loss.backward()
        return loss

    with watch_everything() as watch:
        with torch.no_grad():
            model(torch.randn(8, 4))
        for _ in range(20):
            optimizer.step(closure)
        assert all(layer.visible for layer in watch.history.layers)
        assert [layer.order for layer in watch.history.layers] == [0, 1, 2]


def test_weights_of_a_model_that_comes_later_are_read_in_its_first_steps() -> None:
    with watch_everything() as watch:
        for _ in range(2):
            model = _net()
            spread = model[2].weight.std(unbiased=False).item()
            optimizer = torch.optim.SGD(model.parameters(), 1e-3)
            for _ in range(10):
                optimizer.zero_grad()
                model(torch.randn(8, 4)).pow(2).mean().backward()
                optimizer.step()
    read = [p.init_std for layer in watch.history.layers for p in layer.parameters if p.shape == (1, 16)]
    assert any(_close(value, spread) for value in read)
    assert all(value > 0 for value in read)


def test_tensors_alone_are_layers_also_where_a_closure_uses_them() -> None:
    weight = torch.randn(4, 1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (torch.randn(8, 4) @ weight).pow(2).mean()
        loss.backward()
        return loss

    with watch_everything() as watch:
        for _ in range(20):
            optimizer.step(closure)
    assert [layer.kind for layer in watch.history.layers] == [BARE]
    assert watch.history.layers[0].parameters[0].init_std > 0


def test_copies_that_train_for_a_moment_are_not_cut_off_from_the_loss() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

    def adapted(network: nn.Module, steps: int) -> None:
        optimizer = torch.optim.SGD(network.parameters(), 0.02)
        for _ in range(steps):
            x = torch.randn(16, 2)
            loss = ((network(x) - x.sum(1, keepdim=True)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    with watch_everything() as watch:
        for round_ in range(200):
            adapted(model, 6)
            for _ in range(0 if round_ % 100 else 10):
                other = copy.deepcopy(model)  # the last one is still there at the end
                adapted(other, 16)
                with torch.no_grad():
                    other(torch.randn(5, 2))
    assert "parameters-not-trained" not in [one.problem for one in watch.diagnoses]


@pytest.mark.parametrize("made", ["anew", "once", "as a copy"])
def test_layers_that_are_made_anew_in_every_pass_never_learn(made: str) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.middle, self.last = (torch.nn.Linear(6, 6) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            middle = {
                "anew": lambda: torch.nn.Linear(6, 6),
                "once": lambda: self.middle,
                "as a copy": lambda: copy.deepcopy(self.middle),
            }[made]()
            return self.last(torch.nn.LayerNorm(6)(middle(self.first(x))))  # the norm is the same every time

    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(40):
            x = torch.randn(16, 6)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), x).backward()
            optimizer.step()
    events = [event for event in watch.history.events_of("detached") if event.data["reason"] == "made-anew"]
    assert [event.scope for event in events] == (["Linear(6, 6).weight"] if made == "anew" else [])
    found = [one.problem for one in watch.diagnoses if one.severity != "info"]
    assert ("parameters-not-trained" in found) == (made == "anew")


def test_a_model_whose_parameters_are_given_in_its_own_way_is_watched_whole() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = nn.ParameterList([nn.Parameter(torch.randn(3, 4) / 2), nn.Parameter(torch.zeros(3))])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x, *self.kept)

        def parameters(self):  # type: ignore[no-untyped-def,override]
            return self.kept

    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    assert not watch.history.events_of("probe-off")
    assert watch.history.scopes("grad_l2") == ["kept.0", "kept.1"]


def test_a_classifier_whose_answers_nobody_wants_is_a_remark_and_what_comes_before_it_no_less_than_a_warning() -> (
    None
):
    class Net(nn.Module):
        def __init__(self, cut: bool) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 5)
            )
            self.head, self.cut = nn.Linear(16, 3), cut

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.body[:4](x)
            self.body[4](hidden)
            return self.head(hidden.detach() if self.cut else hidden)

    for cut in (False, True):
        torch.manual_seed(0)
        model, x = Net(cut), torch.randn(512, 8)
        y = x[:, :3].argmax(1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        with akeso.watch(model, optimizer) as watch:
            for rows in torch.arange(60 * 64).remainder(512).split(64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimizer.step()
        (found,) = (one for one in watch.diagnoses if one.problem == "parameters-not-trained")
        assert (found.severity == "info") != cut


def test_models_go_by_what_the_script_calls_them_where_their_class_says_little() -> None:
    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic = _net(), _net()

        def value(self, x: torch.Tensor) -> torch.Tensor:
            return self.actor(x) + self.critic(x)

    class Small(nn.Linear):
        pass

    torch.manual_seed(0)
    agent, first, target = Agent(), Small(4, 1), Small(4, 1)
    optimizer = torch.optim.SGD([*agent.parameters(), *first.parameters()], lr=0.01)
    with watch_everything() as watch:
        for _ in range(3):
            x = torch.randn(8, 4)
            optimizer.zero_grad()
            (agent.value(x) + first(x) - target(x).detach()).square().mean().backward()
            optimizer.step()
    assert watch.history.facts["models"] == ["actor", "critic", "Small", "target"]
    assert "actor.0" in [layer.name for layer in watch.history.layers]


def test_names_stay_when_an_averaged_copy_is_validated() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    averaged = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    wanted = []
    with akeso.watch() as watch:
        for step in range(60):
            x = torch.randn(32, 4)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
            if step % 10 == 9:
                averaged.load_state_dict({name: 0.5 * part for name, part in model.state_dict().items()})
                with torch.no_grad():
                    wanted.append(float(nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))))
                    nn.functional.mse_loss(averaged(x), x.sum(1, keepdim=True))
    history = watch.history
    assert history.series("val_loss").values.tolist() == pytest.approx(wanted)
    assert set(history.scopes("grad_l2")) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert history.scopes("act_dead") == ["1"]
    assert [layer.name for layer in history.layers if layer.visible] == ["0", "1", "2"]
    assert history.facts["layers_seen"] == 2
