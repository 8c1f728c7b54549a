"""What loops carry besides numbers: graphs, copies of models, objects under several names, changed data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from akeso.errors import Refused
from akeso.replay import snapshot
from akeso.replay.run import Run
from akeso.replay.state_digest import exact_digest
from tests.replay.lives import Stop, live

pytestmark = pytest.mark.usefixtures("process_as_before")


def _parts(run: Run) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    run.track(model=model, optimizer=optimizer)
    return model, optimizer


def _step(run: Run, stop: int, optimizer: torch.optim.Optimizer, loss: torch.Tensor, *others: Any) -> None:
    for one in (optimizer, *others):
        one.zero_grad()
    loss.backward()
    for one in (optimizer, *others):
        one.step()
    run.step(loss)
    if run.steps == stop:
        raise Stop


def graphs(run: Run, stop: int) -> Any:
    """Scores wait with their graphs for the end of an episode; losses are kept with graphs that are spent."""
    model, optimizer = _parts(run)
    scores: list[torch.Tensor] = []
    losses: list[torch.Tensor] = []
    for _ in run.iterations(30):
        scores.append(model(torch.rand(3)))
        loss = torch.zeros((), requires_grad=True)
        if len(scores) == 5:
            loss = torch.stack(scores).pow(2).sum()
            scores = []
        losses.append(loss)
        _step(run, stop, optimizer, loss)
    return exact_digest(model.state_dict()), [loss.item() for loss in losses]


def best_model(run: Run, stop: int) -> Any:
    """The best model so far is a copy of the whole object."""
    model, optimizer = _parts(run)
    best, least = None, 1e9
    for _ in run.iterations(30):
        loss = model(torch.rand(4, 3)).pow(2).mean()
        if loss.item() < least:
            best, least = copy.deepcopy(model), loss.item()
        _step(run, stop, optimizer, loss)
    assert best is not None
    return exact_digest(best.state_dict()), exact_digest(model.state_dict())


class Episode:
    def __init__(self) -> None:
        self.steps: list[float] = []


def shared(run: Run, stop: int) -> Any:
    """Objects are changed under one name and read under another; a state that is not copied follows the model."""
    model, optimizer = _parts(run)
    state = None
    row, episode, total = np.zeros(2), Episode(), torch.zeros(1)
    rows, episodes, totals = [row], {"all": [episode]}, [total]
    for number in run.iterations(30):
        if number % 6 == 5:
            row, episode, total = np.zeros(2), Episode(), torch.zeros(1)
            rows.append(row)
            episodes["all"].append(episode)
            totals.append(total)
        loss = model(torch.rand(4, 3)).pow(2).mean()
        if number == 3:
            state = model.state_dict()
        row += 1
        total += 1
        episode.steps.append(loss.item())
        _step(run, stop, optimizer, loss)
    assert state is not None
    steps = [one.steps for one in episodes["all"]]
    return exact_digest(dict(state)), exact_digest([rows, totals, steps]), exact_digest(model.state_dict())


class Growing(Dataset[Any]):
    """Data that the program makes harder and labels anew as it goes."""

    def __init__(self) -> None:
        self.level, self.inputs, self.labels = 0.0, torch.ones(12, 3), [0.0] * 12
        self.cache: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        self.cache[index] = self.inputs[index]
        return self.inputs[index] + self.level * torch.rand(3), self.labels[index]


def changed_data(run: Run, stop: int) -> Any:
    """The dataset is changed between epochs."""
    model, optimizer = _parts(run)
    data = Growing()
    for epoch in run.epochs(8):
        data.level += 0.1
        for inputs, labels in run.batches(data, batch_size=3):
            _step(run, stop, optimizer, (model(inputs)[:, 0] - labels).pow(2).mean().float())
        data.labels[epoch] = 1.0
        data.inputs[epoch] += 1
    return exact_digest(model.state_dict()), data.level, data.labels, exact_digest(data.inputs)


class Lookahead(torch.optim.Optimizer):
    """An optimizer with state of its own beside its ``state``."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner, self.count = inner, 0
        super().__init__([part for group in inner.param_groups for part in group["params"]], {})
        self.slow = [part.detach().clone() for part in self.param_groups[0]["params"]]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.inner.step()
        self.count += 1
        if self.count % 3 == 0:
            for slow, part in zip(self.slow, self.param_groups[0]["params"], strict=True):
                part.copy_(slow.lerp_(part, 0.5))


def unfrozen(run: Run, stop: int) -> Any:
    """An optimizer of the user's own kind, and one that is given a second group on the way."""
    model, inner = _parts(run)
    head = torch.nn.Linear(1, 1)
    optimizer, late = Lookahead(inner), torch.optim.Adam(head.parameters(), 0.05)
    body = torch.nn.Linear(3, 3)
    run.track(lookahead=optimizer, late=late, head=head, body=body)
    for epoch in run.epochs(5):
        if epoch == 1:
            late.add_param_group({"params": list(body.parameters()), "lr": 0.01})
        for _ in run.iterations(6, name=f"epoch {epoch}"):
            loss = head(model(body(torch.rand(4, 3)))).pow(2).mean()
            _step(run, stop, optimizer, loss, late)
    return exact_digest([part.state_dict() for part in (model, head, body)]), optimizer.count


def begun_as_one(run: Run, stop: int) -> Any:
    """What looks at the memory of the weights before the loop has memory of its own once the loop has run."""
    model, optimizer = _parts(run)
    best, least = model.state_dict(), 1e9
    before = model[0].weight.data
    trace = before.numpy()
    for _ in run.iterations(30):
        loss = model(torch.rand(4, 3)).pow(2).mean()
        if loss.item() < least:
            best, least = copy.deepcopy(model.state_dict()), loss.item()
        before = model[0].weight.detach() * 0.5
        trace = trace * 0.9
        _step(run, stop, optimizer, loss)
    return [exact_digest(item) for item in (dict(best), before, trace, model.state_dict())]


def normalised(run: Run, stop: int) -> Any:
    """A layer that keeps what it computes of a weight as a plain tensor, which is the weight itself at first."""
    model, optimizer = _parts(run)
    torch.nn.utils.spectral_norm(model[0])
    run.track(model=model, optimizer=optimizer)
    for _ in run.iterations(30):
        loss = model(torch.rand(4, 3)).pow(2).mean()
        _step(run, stop, optimizer, loss)
    return exact_digest(model.state_dict())


def folds(run: Run, stop: int) -> Any:
    """A list of models and a dictionary of optimizers, trained one after another."""
    models = [torch.nn.Linear(3, 1) for _ in range(3)]
    tools = {str(number): [torch.optim.Adam(model.parameters(), 0.05)] for number, model in enumerate(models)}
    run.track(models=models, tools=tools)
    for number, model in enumerate(models):
        for _ in run.iterations(10, name=f"fold {number}"):
            _step(run, stop, tools[str(number)][0], model(torch.rand(4, 3)).pow(2).mean())
    return [exact_digest(model.state_dict()) for model in models]


@pytest.mark.parametrize(
    "program", [graphs, best_model, shared, changed_data, unfrozen, begun_as_one, normalised, folds]
)
def test_a_loop_goes_on_with_what_it_carries(program: Callable[[Run, int], Any], tmp_path: Path) -> None:
    whole = live(program, tmp_path / "whole")
    for stop in (12, 23):
        live(program, tmp_path / "cut", stop)
    assert snapshot.found(tmp_path / "cut") != ()
    assert live(program, tmp_path / "cut") == whole


def _endless_graph(run: Run, stop: int) -> None:
    weight, total = torch.ones(1, requires_grad=True), torch.zeros(1)
    run.track(weight=weight)
    for _ in run.iterations(60):
        total = total + weight * weight
        run.step(total)


def _another_model(run: Run, stop: int) -> None:
    other = None
    for _ in run.iterations(30):
        other = torch.nn.Linear(2, 2) if other is None else other
        run.step()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (_endless_graph, r"total: its graph is carried from step to step"),
        (_another_model, r"other: this Linear was made in the loop"),
    ],
)
def test_what_can_never_be_written_is_named(
    program: Callable[[Run, int], Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match=said):
        live(program, tmp_path / "a")
