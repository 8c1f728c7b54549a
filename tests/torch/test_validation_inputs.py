"""What a model is evaluated on is compared with what it is trained on."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from akeso.torch.watching import Watch, watch_everything


def trained(factor: float, *, printed: bool = False) -> Watch:
    """Pixels of two kinds, divided by 255 for training and by ``255 / factor`` for validation."""
    torch.manual_seed(0)
    kinds = torch.rand(10, 64) * 255
    labels = torch.randint(0, 10, (640,))
    pixels = (kinds[labels] + 40 * torch.randn(640, 64)).clamp(0, 255)
    model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    with watch_everything() as watch:
        for epoch in range(6):
            model.train()
            for batch in torch.randperm(512).split(16):
                loss = F.cross_entropy(model((pixels[batch] - 128) / 128), labels[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                answers = model((pixels[512:] - 128 / factor) / 128 * factor)
            right = (answers.numpy().argmax(1) == labels[512:].numpy()).mean()
            if printed:
                known = dict(watch.history.facts.get("printed_metrics") or {}).get("val_iou") or []
                figure = float(right) if factor == 1 else 0.1
                watch.record.fact("printed_metrics", {"val_iou": [*known, [watch.steps, figure]]})
            assert epoch < 3 or factor != 1 or right > 0.9
    return watch


@pytest.mark.parametrize("factor", [1.0, 128.0])
def test_validation_on_another_scale_is_named_where_it_comes_to_nothing(factor: float) -> None:
    watch = trained(factor, printed=True)
    history = watch.history
    assert len(history.series("val_input_std")) == 6
    ratio = history.series("val_input_std").values[-1] / history.series("input_std").values[-1]
    assert ratio == pytest.approx(factor, rel=0.2)
    found = [one for one in watch.diagnoses if one.severity != "info"]
    assert [one.problem for one in found] == ([] if factor == 1 else ["validation-mismatch"])
    assert factor == 1 or "another scale" in found[0].sentence


def test_another_scale_alone_is_no_harm() -> None:
    assert not [one for one in trained(128.0).diagnoses if one.severity != "info"]


def test_what_another_model_is_given_says_nothing() -> None:
    torch.manual_seed(0)
    model, other = nn.Linear(8, 1), nn.Sequential(nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    x = torch.randn(64, 8)
    with watch_everything() as watch:
        for _ in range(40):
            with torch.no_grad():
                other(1000 * x)
            loss = F.mse_loss(model(x), x[:, :1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert not watch.history.series("val_input_std")


@pytest.mark.parametrize("bias", [False, True])
def test_answers_that_survive_another_scale_are_not_said_to_be_lost(bias: bool) -> None:
    torch.manual_seed(0)
    kinds = torch.randn(4, 16)
    labels = torch.randint(0, 4, (640,))
    x = kinds[labels] + 1.2 * torch.randn(640, 16)
    model = nn.Sequential(nn.Linear(16, 32, bias=bias), nn.ReLU(), nn.Linear(32, 4, bias=bias))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    with watch_everything() as watch:
        for _ in range(6):
            for batch in torch.randperm(512).split(16):
                loss = F.cross_entropy(model(x[batch]), labels[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                # Without biases every answer stays what it is, and is given with fifty times as much certainty.
                scores = model(50 * x[512:] + (20_000 if bias else 0))
                F.cross_entropy(scores, labels[512:])
                (scores.argmax(1) == labels[512:]).float().mean()
    (found,) = [one for one in watch.diagnoses if one.problem == "validation-mismatch"]
    assert found.severity == ("error" if bias else "warning")
    assert ("gets nothing right" in found.sentence) is bias
    assert ("of its answers are right" in found.sentence) is not bias
