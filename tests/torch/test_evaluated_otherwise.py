"""Models that are evaluated otherwise than they were trained: by other statistics, other weights, with dropout."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import akeso


@pytest.mark.parametrize(
    ("momentum", "loaded", "evaluated", "named"),
    [
        (0.0, False, True, True),
        (0.1, False, True, False),
        (0.0, True, True, False),
        (0.0, False, False, False),
    ],
)
def test_a_norm_that_keeps_no_averages_is_named_where_it_is_evaluated(
    momentum: float, loaded: bool, evaluated: bool, named: bool
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, momentum=momentum), nn.Linear(8, 2))
    norm = model[1]
    assert isinstance(norm, nn.BatchNorm1d)
    if loaded:
        norm.load_state_dict({**norm.state_dict(), "running_mean": torch.randn(8)})
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(4):
            model.train()
            for _ in range(5):
                x = torch.randn(32, 4)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
                optimizer.step()
            if evaluated:
                model.eval()
                with torch.no_grad():
                    nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
    said = [found for found in watch.diagnoses if found.problem == "wrong-mode"]
    assert [found.layer for found in said] == (["1"] if named else [])
    assert all("its momentum is 0" in found.sentence for found in said)


@pytest.mark.parametrize(("share", "named"), [(0.0, False), (0.2, True)])
def test_dropout_of_nothing_is_the_same_in_every_mode(share: float, named: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(share), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(4):
            for _ in range(10):
                x = torch.randn(32, 4)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
                optimizer.step()
            with torch.no_grad():
                nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
    assert ("wrong-mode" in {one.problem for one in watch.diagnoses}) is named


@pytest.mark.parametrize(("decay", "named"), [(0.99999, True), (0.9, False)])
def test_an_average_of_weights_that_never_leaves_its_start_is_not_what_was_trained(
    decay: float, named: bool
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    nn.init.zeros_(model[2].weight)
    nn.init.constant_(model[2].bias[3:], 1.0)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    x, held_out = torch.randn(1024, 8), torch.randn(512, 8)
    y, wanted = (each[:, :4].argmax(1) for each in (x, held_out))
    with akeso.watch() as watch:
        for step in range(240):
            rows = torch.randint(0, 1024, (64,))
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(weight.detach(), 1 - decay)
            if step % 40 == 39:
                with torch.no_grad():
                    float((average(held_out).argmax(1) == wanted).float().mean())
    assert all(event.data["copy"] for event in watch.history.events_of("evaluation"))
    found = [one for one in watch.diagnoses if one.severity != "info"]
    assert [one.problem for one in found] == (["parameters-not-trained"] if named else [])
    assert all("another model than the one that is trained" in one.sentence for one in found)


@pytest.mark.parametrize(("momentum", "named"), [(1e-3, True), (0.05, False), (None, False)])
def test_running_averages_that_look_back_over_more_than_the_run_are_named(
    momentum: float | None, named: bool
) -> None:
    torch.manual_seed(0)
    x = 5.0 + torch.randn(512, 4)
    y = (x[:, 0] > 5.0).long()
    model = nn.Sequential(nn.BatchNorm1d(4, momentum=momentum), nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(6):
            model.train()
            for batch in torch.randperm(256).split(16):
                optimizer.zero_grad()
                F.cross_entropy(model(x[batch]), y[batch]).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                F.cross_entropy(model(x[256:]), y[256:])
    found = [one for one in watch.diagnoses if one.problem == "wrong-mode"]
    assert bool(found) is named
    assert all(one.evidence["reason"] == "averages" for one in found)
