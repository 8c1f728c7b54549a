"""Targets that lie among the inputs, and copies of a model that teach it and are never brought up to date."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import akeso
from akeso.torch.inputs import copied_into
from akeso.torch.watching import watch_everything


@pytest.mark.parametrize("late", [0, 6])
def test_a_window_that_reaches_into_what_it_is_to_foresee_is_named(late: int) -> None:
    torch.manual_seed(0)
    series = torch.randn(400, 2).cumsum(0) / 10
    model = nn.Sequential(nn.Flatten(), nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 12))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(60):
            starts = torch.randint(0, 380, (32,)).tolist()
            given = torch.stack([series[at + late : at + late + 12] for at in starts])
            wanted = torch.stack([series[at + 12 : at + 18] for at in starts])
            optimizer.zero_grad()
            F.mse_loss(model(given).view(32, 6, 2), wanted).backward()
            optimizer.step()
    found = [one.problem for one in watch.diagnoses if one.severity != "info"]
    assert ("data-leakage" in found) is bool(late)


def test_what_is_said_again_from_a_code_beside_its_conditions_is_no_leak() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 4), nn.Linear(4, 12))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(60):
            known = torch.randn(32, 3) @ torch.ones(3, 18)
            wanted = known[:, :12].cumsum(1) + 0.1 * torch.randn(32, 12)
            optimizer.zero_grad()
            F.mse_loss(model(torch.cat([wanted, known], 1)), wanted).backward()
            optimizer.step()
    assert watch.history.facts["target_among_inputs"] is True
    assert "data-leakage" not in [one.problem for one in watch.diagnoses]


def test_what_is_the_next_moment_or_only_goes_with_the_inputs_is_no_leak() -> None:
    steps = torch.arange(40.0)[:, None] + torch.arange(20.0)
    assert not copied_into(steps[:, :10], steps[:, 10:18])  # all of it goes up by one
    noise = torch.randn(40, 21)
    assert not copied_into(noise[:, :20], noise[:, 1:21])  # from moment to moment: the last one is not there
    assert not copied_into(noise, noise)  # to say again what was given
    assert not copied_into(noise, 2 * noise[:, :8])
    assert copied_into(noise, noise[:, 3:11])
    assert not copied_into(noise, noise[:, 3:18])  # to say again most of it, given what stands beside it
    assert not copied_into(noise[:8], noise[:8, 3:11])  # too few samples to tell
    assert not copied_into(torch.zeros(40, 20), torch.zeros(40, 8))


@pytest.mark.parametrize("kind", ["stands still", "follows", "random, to be imitated"])
def test_a_target_network_that_stands_still_is_named_where_nothing_comes_of_it(kind: str) -> None:
    """Walking right along eight places to a reward: values have to be led back from place to place."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
    target = copy.deepcopy(net).requires_grad_(False)
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.mul_(4.0 if kind == "stands still" else 1.0)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    eye = torch.eye(8)
    with watch_everything() as watch:
        for step in range(150):
            s, a = torch.randint(0, 8, (64,)), torch.randint(0, 2, (64,))
            following = (s + 2 * a - 1).clamp(0, 7)
            with torch.no_grad():
                if kind == "random, to be imitated":
                    goal = target(eye[s]).gather(1, a[:, None])
                else:
                    done = (following == 7).float()[:, None]
                    noise = 3.0 * torch.randn(64, 1) if kind == "stands still" else 0.0
                    goal = done + 0.9 * target(eye[following]).amax(1, keepdim=True) * (1 - done) + noise
            loss = F.mse_loss(net(eye[s]).gather(1, a[:, None]), goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if kind == "follows" and step % 20 == 19:
                target.load_state_dict(net.state_dict())
    assert ("copies_unmoved" in watch.history.facts) is (kind != "follows")
    found = [one for one in watch.diagnoses if one.problem == "parameters-not-trained"]
    assert bool(found) is (kind == "stands still")
    assert not found or "never come to hold" in found[0].sentence
