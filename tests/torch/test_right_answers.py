"""Which answers of an evaluation are counted as right, and of how many."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import akeso


def test_answers_that_are_compared_with_each_other_are_not_scored() -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    x, y = torch.randn(96, 6), torch.randint(0, 3, (96,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(x[:64]), y[:64]).backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                said = model(x[64:]).argmax(1)
                [int(a != b) for a, b in zip(said[1:], said[:-1], strict=True)]
            model.train()
    assert not watch.history.series("val_accuracy")


@pytest.mark.parametrize(
    ("kind", "named"),
    [("recalls", True), ("true positives", True), ("at rest", False), ("own labels", False)],
)
def test_answers_that_are_tallied_class_by_class_are_an_evaluation(kind: str, named: bool) -> None:
    """So are they where a model labels its own data, but that happens all the time."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    x, held_out = torch.randn(256, 4), torch.randn(96, 4)
    y, wanted = x[:, :3].argmax(1), held_out[:, :3].argmax(1)
    with akeso.watch(model, optimizer) as watch:
        for step in range(90):
            rows = torch.randint(0, 256, (32,))
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            if kind != "own labels" and step % 30 != 29:
                continue
            model.train(kind != "at rest")
            with torch.no_grad():
                for label in range(3):
                    if kind == "true positives":
                        int(((model(held_out).argmax(1) == label) & (wanted == label)).sum())
                    else:
                        float((model(held_out[wanted == label]).argmax(1) == label).float().mean())
            model.train()
    found = [one for one in watch.diagnoses if one.problem == "wrong-mode"]
    assert [one.layer for one in found] == (["1"] if named else [])
    assert not watch.history.series("val_accuracy")


@pytest.mark.parametrize("ignored", [0, -100])
def test_places_that_the_loss_leaves_out_are_not_counted_as_wrong(ignored: int) -> None:
    torch.manual_seed(0)
    model = nn.Embedding(8, 8)
    optimizer = torch.optim.Adam(model.parameters(), 0.3)

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.randint(1, 8, (16, 10))
        targets = (tokens + 1) % 7 + 1
        targets[:, 4:] = ignored
        return tokens, targets

    with akeso.watch(model, optimizer) as watch:
        for step in range(60):
            tokens, targets = batch()
            optimizer.zero_grad()
            F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), ignore_index=ignored).backward()
            optimizer.step()
            if step % 20 == 19:
                with torch.no_grad():
                    tokens, targets = batch()
                    right = model(tokens).argmax(-1) == targets
                    right[targets != ignored].float().mean()
    assert watch.history.series("val_accuracy").values.tolist()[1:] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("answers", "counted"),
    [
        ("scores.topk(5, dim=1).indices", None),  # of five answers one is right: no share of right answers
        ("scores.topk(5)[1].t()", None),
        ("scores.topk(1).indices", 1.0),
        ("scores.sort(descending=True)[1][:, :1]", None),
        ("scores.sort(descending=True)[1][:, 0].unsqueeze(1)", 1.0),
    ],
)
def test_several_answers_of_each_sample_make_no_accuracy(answers: str, counted: float | None) -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    x = torch.eye(8).repeat(4, 1)
    labels = torch.arange(8).repeat(4)
    with akeso.watch(model, optimizer) as watch:
        for _ in range(5):
            for _ in range(10):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), labels).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                found = eval(answers, {"scores": model(x + 0.01 * torch.randn_like(x))})
                target = labels.expand(5, -1) if found.shape == (5, 32) else labels[:, None]
                (found == target).float().mean()
            model.train()
    seen = watch.history.series("val_accuracy").values.tolist()
    assert seen[-1:] == ([] if counted is None else [counted])
